from __future__ import annotations

from motet.cli.observers import Several


class Noting:
    def __init__(self) -> None:
        self.told: list[tuple[object, ...]] = []

    def started(self, **facts: object) -> None:
        self.told.append(("started", facts))

    def phase(self, node: str, phase: str, **facts: object) -> None:
        self.told.append(("phase", node, phase, facts))

    def evaluating(self, node: str, **facts: object) -> None:
        self.told.append(("evaluating", node, facts))

    def round_done(self, row: object) -> None:
        self.told.append(("round_done", row))


def test_everything_reaches_everybody() -> None:
    first, second = Noting(), Noting()
    both = Several(first, second)
    both.started(nodes=["ann"], first_round=2, num_rounds=4)
    both.phase("ann", "learn", round=2, waiting_for=["bob"])
    both.evaluating("ann", round=2)
    both.round_done({"round": 2, "node": "ann"})
    assert first.told == [
        ("started", {"nodes": ["ann"], "first_round": 2, "num_rounds": 4}),
        ("phase", "ann", "learn", {"round": 2, "waiting_for": ["bob"]}),
        ("evaluating", "ann", {"round": 2}),
        ("round_done", {"round": 2, "node": "ann"}),
    ]
    assert second.told == first.told
