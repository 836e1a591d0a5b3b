"""Rows of a study that never ran: one factory makes them, and tests say what matters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from motet.study import Row, Table
from motet.study.rows import Curve

MakeRow = Callable[..., Row]
MakeRows = Callable[..., list[Row]]


def build_row(
    arm: str = "alone",
    *,
    test: float = 0.5,
    ood: float | None = 0.3,
    start: float = 0.2,
    curve: Sequence[float] | None = None,
    **changes: Any,
) -> Row:
    """One row: ten rounds, examined at the start, after the fifth and at the end; ten seconds of work a round."""
    values = (start, (start + test) / 2, test) if curve is None else tuple(curve)
    rounds = tuple(round(10 * place / (len(values) - 1)) for place in range(len(values)))
    fields: dict[str, Any] = {
        "pair": "size",
        "arm": arm,
        "method": "on_policy" if arm == "alone" else "f_tis",
        "seed": 0,
        "node": "small",
        "model": "tiny:small",
        "settings": {},
        "accuracy": {"test": values[-1]} | ({} if ood is None else {"ood": ood}),
        "start": {"test": values[0]} | ({} if ood is None else {"ood": 0.1}),
        "num_prompts": 1024,
        "curve": Curve(
            rounds=rounds,
            seconds=tuple(10.0 * round for round in rounds),
            test=values,
            ood=() if ood is None else tuple(ood for _ in values),
        ),
        "completions": 2560,
        "steps": 10,
        "tokens_sent": 0,
        "bytes_per_token": None,
        "kept_share": None,
        "rounds": 10,
        "node_seconds": 100.0,
        "seconds": 240.0,
    }
    return Row(**(fields | changes))


def build_rows(arm: str, tests: Sequence[float], **changes: Any) -> list[Row]:
    """One row for each seed, with these accuracies at the end."""
    return [build_row(arm, test=test, seed=seed, **changes) for seed, test in enumerate(tests)]


@pytest.fixture(scope="session")
def row() -> MakeRow:
    """Makes one row."""
    return build_row


@pytest.fixture(scope="session")
def rows() -> MakeRows:
    """Makes one row for each seed."""
    return build_rows


@pytest.fixture(scope="session")
def table() -> Callable[..., Table]:
    """Makes a table of lists of rows."""

    def make(*parts: list[Row], baseline: str = "alone") -> Table:
        return Table([row for part in parts for row in part], baseline=baseline)

    return make
