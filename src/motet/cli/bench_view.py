"""What `motet bench` shows: progress while it measures, a table, and below it what was measured where."""

from __future__ import annotations

import sys
import time
from contextlib import AbstractContextManager, nullcontext
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from motet.cli.console import can_redraw, make_console

if TYPE_CHECKING:
    from rich.table import Table

_SILENCE_S = 1.5


class Ticker:
    """Progress on stderr: one line that changes on a terminal, in a pipe a line at least every two seconds."""

    def __init__(self) -> None:
        self._text = ""
        self._since = self._printed = self._begun = time.monotonic()
        self._status: AbstractContextManager[Any] = nullcontext()
        self._redraws = can_redraw()
        if self._redraws:
            self._status = make_console(stderr=True).status("")

    def __enter__(self) -> Self:
        """Begin to show."""
        self._shown = self._status.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Stop showing."""
        self._status.__exit__(kind, error, traceback)

    def say(self, text: str) -> None:
        """What is being done now; called again and again as long as it lasts."""
        at = time.monotonic()
        if text != self._text:
            self._text, self._since = text, at
        elif at - self._printed < _SILENCE_S and not self._redraws:
            return
        self._printed = at
        line = f"{text} ({at - self._since:.0f} s; {at - self._begun:.0f} s in all)"
        if self._redraws:
            self._shown.update(line)
        else:
            print(line, file=sys.stderr, flush=True)


def learner_table(result: dict[str, Any]) -> Table:
    """One row for each arm."""
    figures = result["figures"]
    others = [arm for arm in ("trl", "plain") if arm in figures]
    rival = others[:1]  # 80 columns hold no more; the JSON has all
    memory = (f"of {arm}'s" for arm in rival)
    table = _table("arm", "s/step", "tokens/s", *(f"x {arm}" for arm in others), "peak MB", *memory, "MFU", "optim s")
    for arm, figure in figures.items():
        optimizer = figure["parts"].get("optimizer_s")
        table.add_row(
            arm,
            f"{figure['seconds']:.3f}",
            f"{figure['tokens_per_s']:,.0f}",
            *(f"{figure[f'times_as_fast_as_{other}']:.2f}" for other in others),
            f"{figure['peak'] / 1e6:,.0f}",
            *(f"{figure[f'peak_to_{other}']:.2f}" for other in rival),
            f"{figure['mfu']:.2f}",
            "-" if optimizer is None else f"{optimizer:.3f}",
        )
    return table


def learner_lines(result: dict[str, Any]) -> list[str]:
    """Below the table."""
    settings, batch, figures = result["settings"], result["batch"], result["figures"]
    what = "LoRA" if settings["model"]["lora"] else "all weights"
    lines = [
        f"model      {settings['model']['name']}, {result['parameters']:,} parameters, {what}, {settings['dtype']}",
        f"batch      {settings['kind']}: {settings['prompts']} prompts of {settings['prompt']} +-10 % tokens x "
        f"{settings['group_size']} completions of {max(1, settings['completion'] // 4)} to {settings['completion']} "
        f"({batch['completion_tokens']:,} tokens); external {_percent(batch['external'])}, of those dropped "
        f"{_percent(batch['external_dropped'])} ({_percent(batch['external_dropped_kl'])} for KL); groups without "
        f"variance {_percent(batch['groups_without_variance'])}; learned from {_percent(batch['learned'])}",
        "a step     forward, backward, gradient clip, AdamW; motet's also judges (KL) and skips; TRL's gets advantages",
        "MFU        products that cannot be avoided / (seconds x measured rate); TRL's with every row, plain's without "
        "skipped rows, fast's with each prompt once",
    ]
    for arm in ("trl", "trl-docs"):
        if arm in figures:
            told = figures[arm]["settings"]
            checkpointing = "on" if told["checkpointing"] else "off"
            lines.append(
                f"{arm:<10} TRL {told['trl']}, {told['mode']}, micro-batches of {told['rows']} x "
                f"{told['gradient_accumulation_steps']}, gradient checkpointing {checkpointing}, {told['optim']}, loss "
                f"{told['loss_type']}, beta 0; settings {told['chosen']}"
            )
    first = {arm: figures[arm]["did"] for arm in ("plain", "fast") if arm in figures}
    if len(first) == 2:
        shown = ", ".join(f"{arm} {did['loss/value']:.6g}" for arm, did in first.items())
        norms = ", ".join(f"{arm} {did['optim/grad_norm']:.6g}" for arm, did in first.items())
        lines.append(f"equality   loss of the first step: {shown}; norm of its gradient: {norms}")
    return [*lines, _rates(result), *_where(result)]


def generate_table(result: dict[str, Any]) -> Table:
    """One row for each arm."""
    figures = result["figures"]
    others = [arm for arm in ("hf", "plain") if arm in figures]
    table = _table("arm", "s", "tokens/s", *(f"x {arm}" for arm in others), "peak MB", *(f"of {a}'s" for a in others))
    for arm, figure in figures.items():
        table.add_row(
            arm,
            f"{figure['seconds']:.3f}",
            f"{figure['tokens_per_s']:,.0f}",
            *(f"{figure[f'times_as_fast_as_{other}']:.2f}" for other in others),
            f"{figure['peak'] / 1e6:,.0f}",
            *(f"{figure[f'peak_to_{other}']:.2f}" for other in others),
        )
    return table


def generate_lines(result: dict[str, Any]) -> list[str]:
    """Below the table."""
    settings = result["settings"]
    return [
        f"sampled    {settings['prompts']} prompts of {settings['prompt']} +-10 % tokens x {settings['group_size']} "
        f"completions of {settings['new_tokens']} tokens, temperature 1, no truncation; {settings['model']['name']}, "
        f"{settings['dtype']}",
        _rates(result),
        *_where(result),
    ]


def wire_table(result: dict[str, Any]) -> Table:
    """One row for each vocabulary, length and encoding."""
    table = _table("vocabulary", "tokens each", "encoding", "bytes/token", "encode M/s", "decode M/s", "largest error")
    for cell in result["figures"]:
        for name in ("compact", "exact", "msgpack"):
            found = cell[name]
            table.add_row(
                f"{cell['vocabulary']:,}" if name == "compact" else "",
                str(cell["completion"]) if name == "compact" else "",
                name,
                f"{found['bytes_per_token']:.2f}",
                f"{found['encode_tokens_per_s'] / 1e6:.1f}",
                f"{found['decode_tokens_per_s'] / 1e6:.1f}",
                f"{found['largest_error_nats']:.1e}",
            )
    return table


def wire_lines(result: dict[str, Any]) -> list[str]:
    """Below the table."""
    return [
        f"groups of {result['settings']['group_size']}; M/s: million tokens a second, one thread; error in nats; "
        "msgpack: int32 ids and float32 log-probs as bytes",
        *_where(result),
    ]


def overlap_table(result: dict[str, Any]) -> Table:
    """One row for each way."""
    table = _table("two tiny:large nodes in", "rounds/s", "x one process", "sampling s", "waiting s", "learning s")
    for name, figure in result["figures"].items():
        times = figure["times"]
        table.add_row(
            name,
            f"{figure['rounds_per_s']:.2f}",
            f"{figure['times_as_fast_as_one_process']:.2f}",
            *(f"{times.get(f'time/{phase}_s', 0.0):.3f}" for phase in ("generate", "wait", "learn")),
        )
    return table


def overlap_lines(result: dict[str, Any]) -> list[str]:
    """Below the table."""
    return [
        f"{result['settings']['rounds']} rounds of 32 prompts x 8 completions; seconds a round and node",
        *_where(result),
    ]


def growth_table(result: dict[str, Any]) -> Table:
    """One row for each point."""
    table = _table("grows", "at", "s/round", "sampling", "wire", "learning", "peak MB")
    for factor, figure in result["figures"].items():
        for number, row in enumerate(figure["points"]):
            parts = row["parts"]
            table.add_row(
                factor if number == 0 else "",
                str(row["at"]),
                f"{row['seconds']:.3f}",
                f"{parts['generate_s']:.3f}",
                f"{parts['wire_s']:.4f}",
                f"{parts['learn_s']:.3f}",
                f"{row['peak'] / 1e6:,.0f}",
            )
    return table


def growth_lines(result: dict[str, Any]) -> list[str]:
    """Below the table: the exponents."""
    from motet.bench.growth import with_error

    lines = []
    for factor, figure in result["figures"].items():
        found = figure["exponents"]
        whole, peak = found["seconds"], found["peak"]
        steepest = max(("generate_s", "learn_s"), key=lambda name: found[name]["last"])
        words = {"generate_s": "sampling", "learn_s": "learning"}[steepest]
        lines.append(
            f"{factor:<11}time ~ n^{with_error(whole)} (last two {whole['last']:.2f}; steepest: "
            f"{words} {found[steepest]['last']:.2f}), memory ~ n^{peak['value']:.2f}"
        )
    base = ", ".join(f"{name} {value}" for name, value in result["settings"]["base"].items())
    return [
        *lines,
        f"otherwise  {base}; a round here: sampling, wire and learning, without gate and journal",
        *_where(result),
    ]


def quick_table(result: dict[str, Any]) -> Table:
    """One row for each ratio."""
    table = _table("ratio", "now", "stored", "least", "")
    for verdict in result["verdicts"]:
        stored, least = verdict["stored"], verdict["least"]
        table.add_row(
            verdict["name"],
            f"{result['ratios'][verdict['name']]:.2f}",
            "-" if stored is None else f"{stored:.2f}",
            "-" if least is None else f"{least:.2f}",
            "slower" if verdict["slower"] else "not stored" if stored is None else "",
        )
    return table


def quick_lines(result: dict[str, Any]) -> list[str]:
    """Below the table."""
    return ["each ratio: how often faster (or shorter) motet's fast way is than the other", *_where(result)]


def _table(*titles: str) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE, pad_edge=False, collapse_padding=True)
    for number, title in enumerate(titles):
        table.add_column(title, justify="left" if number == 0 else "right", no_wrap=True)
    return table


def _where(result: dict[str, Any]) -> list[str]:
    machine = result["machine"]
    threads = machine.get("threads") or machine["omp_num_threads"] or machine["cores_usable"]
    versions = ", ".join(f"{name} {found}" for name, found in machine["versions"].items())
    device = "" if machine.get("device") in (None, "cpu") else f", {machine['device']}"
    return [f"measured   {result['date']} on {machine['cpu']}{device}, {threads} threads; {versions}"]


def _rates(result: dict[str, Any]) -> str:
    rates = result["rates"]["before"]
    shown = ", ".join(f"{dtype} {rate / 1e9:.3g}" for dtype, rate in rates.items())
    return f"rates      of large matrix products here, GFLOP/s: {shown}"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
