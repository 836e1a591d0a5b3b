"""Each claim on three sets of rows: one that shows it, one that refutes it, one that leaves it open."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from motet.study import Table, Verdict, judge
from motet.study.claims import CLAIMS, nobody_leaves_worse

Make = Callable[..., Any]
Cell = tuple[str, str, Sequence[float]]
HOLDS, FAILS, OPEN = "holds", "does not hold", "not shown"
BASE = [0.50, 0.51, 0.49, 0.50, 0.52]
MARGIN = 0.02
STEADY = [0.001, -0.001, 0.0, 0.001, -0.001]
SHAKY = [0.06, -0.06, 0.0, 0.06, -0.06]


def shifted(by: float, spread: Sequence[float] = STEADY, base: Sequence[float] = BASE) -> list[float]:
    return [value + by + noise for value, noise in zip(base, spread, strict=True)]


STRONG = [value + 0.2 for value in BASE]


def verdict_on(claims: Sequence[Verdict], words: str) -> Verdict:
    (found,) = [verdict for verdict in claims if words in verdict.claim]
    return found


def test_every_claim_is_tested_here() -> None:
    assert len(CLAIMS) == 15


@pytest.mark.parametrize(
    ("words", "arm", "minus", "ends", "standing"),
    [
        ("ends like training alone", "f_tis", "alone", shifted(0.0), HOLDS),
        ("ends like training alone", "f_tis", "alone", shifted(-0.05), FAILS),
        ("ends like training alone", "f_tis", "alone", shifted(0.05), FAILS),
        ("ends like training alone", "f_tis", "alone", shifted(0.0, SHAKY), OPEN),
        ("(NoIS) ends below", "nois", "alone", shifted(-0.05), HOLDS),
        ("(NoIS) ends below", "nois", "alone", shifted(0.05), FAILS),
        ("(NoIS) ends below", "nois", "alone", shifted(-0.02, SHAKY), OPEN),
        ("(VIS) end below", "vis", "tis", shifted(-0.05), HOLDS),
        ("(VIS) end below", "vis", "tis", shifted(0.05), FAILS),
        ("(VIS) end below", "vis", "tis", shifted(-0.02, SHAKY), OPEN),
        ("most of the stabilising", "f_nois", "tis", shifted(0.05), HOLDS),
        ("most of the stabilising", "f_nois", "tis", shifted(-0.05), FAILS),
        ("most of the stabilising", "f_nois", "tis", shifted(0.02, SHAKY), OPEN),
        ("beats horizontal", "f_tis", "f_tis_horizontal", shifted(0.05), HOLDS),
        ("beats horizontal", "f_tis", "f_tis_horizontal", shifted(-0.05), FAILS),
        ("beats horizontal", "f_tis", "f_tis_horizontal", shifted(0.02, SHAKY), OPEN),
        ("Free pace", "f_tis_lag4", "f_tis", shifted(-0.01), HOLDS),
        ("Free pace", "f_tis_lag4", "f_tis", shifted(-0.05), FAILS),
        ("Free pace", "f_tis_lag4", "f_tis", shifted(-0.01, SHAKY), OPEN),
        ("Dilution", "alone_half", "alone", shifted(-0.05), HOLDS),
        ("Dilution", "alone_half", "alone", shifted(0.05), FAILS),
        ("Dilution", "alone_half", "alone", shifted(-0.02, SHAKY), OPEN),
        ("worth having", "f_tis", "alone_half", shifted(0.05), HOLDS),
        ("worth having", "f_tis", "alone_half", shifted(-0.05), FAILS),
        ("worth having", "f_tis", "alone_half", shifted(0.02, SHAKY), OPEN),
    ],
)
def test_claims_on_ends(
    rows: Make, table: Callable[..., Table], words: str, arm: str, minus: str, ends: list[float], standing: str
) -> None:
    words = words.replace("beats horizontal", "above horizontal")
    made = table(rows(minus, BASE), rows(arm, ends))
    assert verdict_on(judge(made, margin=MARGIN), words).standing == standing


@pytest.mark.parametrize(
    ("ends", "standing"), [(shifted(0.05), HOLDS), (shifted(-0.05), FAILS), (shifted(0.02, SHAKY), OPEN)]
)
def test_the_rule_is_judged_at_one_limit(
    rows: Make, table: Callable[..., Table], ends: list[float], standing: str
) -> None:
    both = rows("f_tis_both", BASE, settings={"method.kl_limit_nats": 2})
    made = table(both, rows("f_tis_g2", ends, settings={"method.kl_limit_nats": 2}))
    assert verdict_on(judge(made, margin=MARGIN), "f_tis_g2 against f_tis_both").standing == standing
    other = table(both, rows("f_tis_g50", ends, settings={"method.kl_limit_nats": 50}))
    assert [verdict for verdict in judge(other, margin=MARGIN) if "asks for both" in verdict.claim] == []


@pytest.mark.parametrize("words", ["ends like training alone", "(NoIS) ends below", "out of distribution from F-TIS"])
def test_alone_is_whatever_the_baseline_is(rows: Make, table: Callable[..., Table], words: str) -> None:
    arm = "nois" if "NoIS" in words else "f_tis"
    made = table(rows("solo", BASE), rows(arm, shifted(0.0)), baseline="solo")
    verdict_on(judge(made, margin=MARGIN), words)
    made = table(rows(arm, BASE), rows("solo", BASE), baseline=arm)
    assert [verdict for verdict in judge(made, margin=MARGIN) if words in verdict.claim] == []


@pytest.mark.parametrize(
    ("ends", "alone", "standing"),
    [
        ([0.1, 0.5, 0.5, 0.5, 0.5], BASE, HOLDS),
        (BASE, BASE, FAILS),
        (BASE[:1], BASE, OPEN),
        ([0.1, 0.5, 0.5, 0.5, 0.5], [0.1, 0.5, 0.5, 0.5, 0.5], OPEN),  # training alone does it as often
        ([0.29, 0.5, 0.5, 0.5, 0.5], BASE, FAILS),  # a point below the start is chance: 2 SE are 4 points
    ],
)
def test_naive_sharing_collapses(
    rows: Make, table: Callable[..., Table], ends: list[float], alone: list[float], standing: str
) -> None:
    made = table(rows("alone", alone, start=0.3), rows("nois", ends, start=0.3))
    found = verdict_on(judge(made, margin=MARGIN), "collapses")
    assert found.standing == standing
    assert f"of {len(ends)}" in found.numbers


@pytest.mark.parametrize(
    ("drops", "standing"),
    [
        ([0.10, 0.11, 0.09, 0.10, 0.10], HOLDS),
        ([0.00, 0.01, 0.00, 0.01, 0.00], FAILS),
        ([0.03, 0.00, 0.09, 0.01, 0.05], OPEN),
        ([0.021, 0.022, 0.019, 0.02, 0.021], OPEN),  # surely above 0, not surely above the margin
    ],
)
def test_f_vis_drops_late(row: Make, table: Callable[..., Table], drops: list[float], standing: str) -> None:
    made = table(
        [row("f_tis", curve=[0.2, 0.5, 0.6], seed=seed) for seed in range(5)],
        [row("f_vis", curve=[0.2, 0.6, 0.6 - drop], seed=seed) for seed, drop in enumerate(drops)],
    )
    assert verdict_on(judge(made, margin=MARGIN), "F-VIS falls").standing == standing


@pytest.mark.parametrize(
    ("by", "spread", "standing"), [(0.05, STEADY, HOLDS), (-0.05, STEADY, FAILS), (0, SHAKY, OPEN)]
)
def test_kl_limits(
    row: Make, rows: Make, table: Callable[..., Table], by: float, spread: list[float], standing: str
) -> None:
    tight, wide = ({"method.kl_limit_nats": limit} for limit in (2, 50.0))
    early, late = shifted(by, spread), shifted(by, spread, STRONG)
    made = table(
        rows("alone", BASE, node="small"),
        rows("alone", STRONG, node="large"),
        [row("f_tis_g2", curve=[0.2, end, 0.6], seed=seed, settings=tight) for seed, end in enumerate(early)],
        [row("f_tis_g50", curve=[0.2, end, 0.6], seed=seed, settings=wide) for seed, end in enumerate(BASE)],
        rows("f_tis_g2", STRONG, node="large", settings=tight),
        rows("f_tis_g50", late, node="large", settings=wide),
        rows("f_tis_gap", BASE),  # no limit in its name, none in its settings
    )
    verdicts = judge(made, margin=MARGIN)
    for words, node in (("small KL limit", "small"), ("large KL limit", "large")):
        found = verdict_on(verdicts, words)
        assert found.standing == standing
        assert f"size/{node} " in found.numbers
        assert "f_tis_g2" in found.claim
        assert "f_tis_g50" in found.claim


@pytest.mark.parametrize(
    ("by", "spread", "standing"), [(0.05, STEADY, HOLDS), (-0.05, STEADY, FAILS), (0, SHAKY, OPEN)]
)
def test_the_weaker_partner_gains_ood(
    row: Make, rows: Make, table: Callable[..., Table], by: float, spread: list[float], standing: str
) -> None:
    made = table(
        rows("alone", BASE, node="small"),
        rows("alone", STRONG, node="large"),
        [row("f_tis", ood=0.3 + by + noise, seed=seed) for seed, noise in enumerate(spread)],
        rows("f_tis", STRONG, node="large", ood=0.0),
    )
    found = verdict_on(judge(made, margin=MARGIN), "weaker partner")
    assert found.standing == standing
    assert "large" not in found.numbers


def test_bytes(row: Make, table: Callable[..., Table]) -> None:
    def judged(*sizes: float | None) -> list[str]:
        made = table([row("f_tis", bytes_per_token=size, seed=seed) for seed, size in enumerate(sizes)])
        return [verdict.standing for verdict in judge(made, margin=MARGIN) if "bytes per token" in verdict.claim]

    assert judged(2.9, 8.0, None, 3.0) == [HOLDS]
    assert judged(2.9, 8.1, 3.0) == [FAILS]
    assert judged(2.9, 8.0, None) == [OPEN]
    assert judged(None) == []


def test_a_claim_without_its_arms_is_left_out(rows: Make, table: Callable[..., Table]) -> None:
    assert judge(table(rows("alone", BASE), rows("own", BASE)), margin=MARGIN) == []


@pytest.mark.parametrize("num_seeds", [1, 2])
def test_few_seeds_show_nothing(rows: Make, table: Callable[..., Table], num_seeds: int) -> None:
    even = [0.5] * num_seeds  # differences of no width at all
    worse = [0.3] * num_seeds
    made = table(rows("alone", even), rows("f_tis", even), rows("nois", worse))
    verdicts = [*judge(made, margin=MARGIN), nobody_leaves_worse(made, "nois", MARGIN)]
    assert {verdict.standing for verdict in verdicts if verdict is not None} == {OPEN}
    fallen = table(rows("alone", even), rows("nois", [0.1] * num_seeds, bytes_per_token=2.9))
    assert {verdict.standing for verdict in judge(fallen, margin=MARGIN)} == {OPEN}
    assert f"; {num_seeds} seed" in verdict_on(judge(made, margin=MARGIN), "ends like").numbers


def test_one_node_of_few_seeds_keeps_a_claim_open(rows: Make, table: Callable[..., Table]) -> None:
    made = table(
        rows("alone", BASE), rows("nois", shifted(-0.05)), rows("alone", [0.5], node="b"), rows("nois", [0.4], node="b")
    )
    found = verdict_on(judge(made, margin=MARGIN), "(NoIS) ends below")
    assert found.standing == OPEN
    assert "size/b -10.0 (one seed)" in found.numbers
    assert "1 to 5 seeds" in found.numbers


def test_one_node_among_many_is_not_wrong_by_chance(rows: Make, table: Callable[..., Table]) -> None:
    # Alone its interval, +1.1 +- 2.776 * .33, is just above 0; among eight nodes one such is to be expected.
    spread = [0.011 + noise for noise in (0.009, -0.009, 0.0, 0.006, -0.006)]
    one = [rows("alone", BASE), rows("nois", shifted(0.0, spread))]
    assert verdict_on(judge(table(*one), margin=MARGIN), "(NoIS) ends below").standing == FAILS
    others = [
        part for node in "bcdefgh" for part in (rows("alone", BASE, node=node), rows("nois", shifted(-0.05), node=node))
    ]
    assert verdict_on(judge(table(*one, *others), margin=MARGIN), "(NoIS) ends below").standing == OPEN


@pytest.mark.parametrize(
    ("by", "ood", "spread", "standing"),
    [(0.0, 0.3, STEADY, HOLDS), (0.1, 0.3, STEADY, HOLDS), (0.0, 0.2, STEADY, FAILS), (0.0, 0.3, SHAKY, OPEN)],
)
def test_nobody_leaves_worse(
    rows: Make, table: Callable[..., Table], by: float, ood: float, spread: list[float], standing: str
) -> None:
    made = table(rows("alone", BASE), rows("own", shifted(by, spread), ood=ood))
    found = nobody_leaves_worse(made, "own", MARGIN)
    assert found is not None
    assert found.standing == standing
    assert found.claim.startswith("own: nobody leaves worse by 2 points")
    assert nobody_leaves_worse(made, "alone", MARGIN) is None


def test_the_bound_that_decides_is_shown(rows: Make, table: Callable[..., Table]) -> None:
    made = table(rows("alone", [0.5, 0.5, 0.5]), rows("own", [0.49, 0.50, 0.51], ood=0.4))
    found = nobody_leaves_worse(made, "own", 0.015)
    assert found is not None  # se .01 / sqrt 3 = .00577, times 2.920 = .0169: below the margin
    assert found.numbers == (
        "pass: held-out 0 of 1, OOD 1 of 1; least sure: size/small/test +0.0 (-2.5 to +2.5); 3 seeds, one-sided bound "
        "-1.7"
    )
    assert "1.5 points" in found.claim
    assert found.standing == OPEN


def test_what_the_weaker_node_keeps_of_its_gain(rows: Make, table: Callable[..., Table]) -> None:
    strong = [rows(arm, [0.8, 0.8, 0.8], node="large") for arm in ("alone", "f_tis", "own")]
    weak = [rows("alone", [0.4, 0.4, 0.4]), rows("f_tis", [0.4, 0.5, 0.6]), rows("own", [0.4, 0.4, 0.5, 0.9])]
    made = table(*strong, *weak)
    found = nobody_leaves_worse(made, "own", MARGIN)
    assert found is not None  # begins at .2: gains of .2, .2 and .3 against .2, .3 and .4; f_tis lacks the fourth seed
    assert found.numbers.endswith("; kept gain: size/small 78 %")
    live = nobody_leaves_worse(made, "f_tis", MARGIN)
    assert live is not None
    assert "kept gain" not in live.numbers
    falling = table(rows("alone", [0.4] * 3), rows("f_tis", [0.1] * 3), rows("own", [0.4] * 3))
    found = nobody_leaves_worse(falling, "own", MARGIN)
    assert found is not None
    assert "kept gain" not in found.numbers
