"""What `motet eval` shows: a table of 80 columns, and the completions that failed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from motet.evaluation import OUTCOMES, Accuracy, Evaluation, Outcome, Sample

if TYPE_CHECKING:
    from rich.table import Table

    from motet.cli.eval import Measured

_HEADS: Final[dict[Outcome, str]] = {"wrong": "wrong", "format": "format", "truncated": "cut", "unscored": "lost"}
_LONGEST_TEXT = 2000


def results_table(measured: Sequence[Measured]) -> Table:
    """One line for each pass@k; what became of the completions in percent of them."""
    from rich.table import Table

    has_tasks = len({one.task for one in measured}) > 1
    has_rewards = any(one.result.reward.value != one.result.accuracy.value for one in measured)
    failures = [
        outcome
        for outcome in OUTCOMES
        if outcome in _HEADS and (outcome != "unscored" or any(one.result.outcomes[outcome] for one in measured))
    ]
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    for title in ("model", "prompts"):
        table.add_column(title, overflow="fold", min_width=len("prompts"))
    titles = ["measure", "% right", "95 %", "n", *(_HEADS[outcome] for outcome in failures)]
    for title in [*titles, "reward"] if has_rewards else titles:
        table.add_column(title, no_wrap=True, justify="left" if title == "measure" else "right")
    for one in measured:
        where = f"{one.task} {one.split}" if has_tasks else one.split
        ends = [f"{100 * one.result.outcomes[outcome]:.0f}%" for outcome in failures]
        reward = [f"{one.result.reward.value:.3f}"] if has_rewards else []
        for label, accuracy in _measures(one):
            count = str(accuracy.num_prompts)
            row = [one.model, where, label, f"{100 * accuracy.value:.1f}", interval(accuracy), count, *ends, *reward]
            table.add_row(*(readable(cell) for cell in row))
    return table


def interval(accuracy: Accuracy) -> str:
    """The 95 % interval of a share in percent; a star marks one that is not Wilson's.

    >>> interval(Accuracy.of([1.0, 0.0])), interval(Accuracy.of([0.5, 0.25]))
    ('9.5..90.5', '13.0..62.0*')
    """
    low, high = max(0.0, accuracy.low), min(1.0, accuracy.high)
    return f"{100 * low:.1f}..{100 * high:.1f}" + ("*" if accuracy.interval == "normal" else "")


def footnotes(measured: Sequence[Measured]) -> str:
    """What the table's signs mean, as far as they stand in it."""
    several = any(accuracy.interval == "normal" for one in measured for _, accuracy in _measures(one))
    star = "; *: mean -+ 1.96 standard errors" if several else ""
    lost = "; lost: no score" if any(one.result.outcomes["unscored"] for one in measured) else ""
    return f"n: prompts; 95 %: Wilson's interval{star}\nwrong, format, cut: completions that failed, by reason{lost}"


def failures(measured: Sequence[Measured], *, most: int) -> Iterator[str]:
    """The first completions that failed, of every measurement, as text that no terminal obeys."""
    for one in measured:
        failed = [sample for sample in one.result.samples if sample.outcome != "solved"]
        for sample in failed[:most]:
            yield _described(one, sample)
        if len(failed) > most:
            yield f"... and {len(failed) - most} more ({one.model}, {one.task} {one.split}, {one.label})\n"


def readable(text: str) -> str:
    r"""Text of a model's or a stranger's, safe to print: whatever does not print is shown as its escape.

    >>> print(readable("8\x1b[31m\u202e!"))
    8\x1b[31m\u202e!
    """
    return "".join(
        char if char.isprintable() or char == "\n" else char.encode("unicode_escape").decode("ascii") for char in text
    )


def _measures(one: Measured) -> Iterator[tuple[str, Accuracy]]:
    result: Evaluation = one.result
    yield one.label, result.accuracy
    for k in one.ks:
        if k > 1:
            yield f"pass@{k}", result.pass_at(k)


def _described(one: Measured, sample: Sample) -> str:
    cut = ", cut" if sample.is_cut else ""
    reward = "none" if sample.reward is None else f"{sample.reward:g}"
    return readable(
        "\n".join(
            [
                f"--- {one.model}, {one.task} {sample.prompt_id}, {one.label}: {sample.outcome} (reward {reward}) ---",
                f"prompt\n{_indented(sample.prompt)}",
                f"expected   {_shortened(sample.expected)}",
                f"extracted  {'(nothing)' if sample.extracted is None else _shortened(sample.extracted)}",
                f"completion ({sample.num_tokens} tokens{cut})\n{_indented(sample.completion)}",
                "",
            ]
        )
    )


def _indented(text: str) -> str:
    return "\n".join(f"  | {line}" for line in (_shortened(text) or "(empty)").split("\n"))


def _shortened(text: str) -> str:
    if len(text) <= _LONGEST_TEXT:
        return text
    return f"{text[:_LONGEST_TEXT]} ... ({len(text) - _LONGEST_TEXT} more characters)"
