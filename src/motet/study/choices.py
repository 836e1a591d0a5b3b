"""Rows of what `motet choose` would keep: of several arms of a seed, the best that is no worse than the reference."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from motet.config.study_file import ChoiceSettings
from motet.evaluation import Solved, choose
from motet.study.rows import Curve, Row

METHOD = "choice"
Answers = Mapping[tuple[str, str, int, str], Solved]
"""What decides: (pair, arm, seed, node) to answers of a second examination."""


def chosen_rows(
    name: str, choice: ChoiceSettings, rows: Sequence[Row], answers: Answers, *, margin: float
) -> Iterator[Row]:
    """One row for each pair, seed and node whose arms are all there.

    Accuracies are those of the arm that was taken; there is no curve, for the choice comes at the end. What it took is
    what all of them took: a node that chooses has trained more than once.

    Args:
        name: of the choice.
        choice: among which arms.
        rows: of all arms.
        answers: of those that the choice is about.
        margin: how much worse, as a share, still counts as no worse.
    """
    by_place = {(row.pair, row.arm, row.seed, row.node): row for row in rows}
    for row in rows:
        places = [(row.pair, arm, row.seed, row.node) for arm in (choice.reference, *choice.of)]
        if row.arm != choice.reference or any(place not in by_place or place not in answers for place in places):
            continue
        reference, *candidates = (_first_of(answers[place], choice.num_prompts) for place in places)
        if any(not solved or _sizes(solved) != _sizes(reference) for solved in (reference, *candidates)):
            continue
        taken = choose(reference, candidates, margin=margin).taken
        kept = by_place[places[0 if taken is None else taken + 1]]
        all_of_them = [by_place[place] for place in places]
        yield msgspec.structs.replace(
            kept,
            arm=name,
            method=METHOD,
            settings={"reference": choice.reference, "of": list(choice.of), "taken": kept.arm},
            curve=Curve((), (), (), ()),
            completions=sum(one.completions for one in all_of_them),
            steps=sum(one.steps for one in all_of_them),
            tokens_sent=sum(one.tokens_sent for one in all_of_them),
            bytes_per_token=None,
            kept_share=None,
            node_seconds=round(sum(one.node_seconds for one in all_of_them), 3),
            seconds=0.0,
        )


def _first_of(solved: Solved, num_prompts: int) -> Solved:
    return {split: shares[:num_prompts] for split, shares in solved.items()}


def _sizes(solved: Solved) -> dict[str, int]:
    return {split: len(shares) for split, shares in solved.items()}
