"""What is claimed, and whether the numbers of a study show it. One function for each claim.

A claim holds, does not hold, or is not shown: the last is the verdict wherever the intervals leave both open. Intervals
are 95 %, over seeds, paired by seed, and not corrected for the number of claims. Claims about arms that a study does
not have are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from motet.study.intervals import Mean
from motet.study.table import Measure, Table, accuracy, accuracy_at, drop_from_peak

Standing = Literal["holds", "does not hold", "not shown"]
_END: Final = accuracy("test")
_EARLY: Final = 1 / 3
_LIMITED: Final = "f_tis_g"
_LITTLE_BYTES: Final = 8.0


@dataclass(frozen=True, slots=True)
class Verdict:
    """A claim with its verdict.

    Attributes:
        claim: what is claimed.
        standing: whether the numbers show it.
        numbers: those that decided it, in words.
    """

    claim: str
    standing: Standing
    numbers: str


Claim = Callable[[Table, float], Verdict | None]


def judge(table: Table, *, margin: float) -> list[Verdict]:
    """The verdict on every claim that the study's arms can speak to.

    Args:
        table: the results.
        margin: difference in accuracy (0..1) that still counts as none.
    """
    return [verdict for claim in CLAIMS if (verdict := claim(table, margin)) is not None]


def _ends_like_alone(table: Table, margin: float) -> Verdict | None:
    found = _against(table, "f_tis", table.baseline)
    if not found:
        return None
    level = all(mean.is_level(margin) for _, mean in found)
    apart = any(mean.high < -margin or mean.low > margin for _, mean in found)
    return Verdict(
        f"F-TIS ends like training alone: held-out accuracy within {100 * margin:.0f} points, on every node",
        "holds" if level else "does not hold" if apart else "not shown",
        _listed(found),
    )


def _nois_ends_lower(table: Table, margin: float) -> Verdict | None:
    del margin
    return _sign("Naive sharing (NoIS) ends below training alone, on every node", _against(table, "nois", "alone"), -1)


def _nois_collapses(table: Table, margin: float) -> Verdict | None:
    del margin
    collapsed, total = table.collapsed("nois")
    if not total:
        return None
    by_arm = [f"{arm} {table.collapsed(arm)[0]} of {table.collapsed(arm)[1]}" for arm in table.arms]
    return Verdict(
        "Naive sharing collapses in some runs: a node ends below where it started",
        "holds" if collapsed else "does not hold",
        ", ".join(by_arm),
    )


def _vis_below_tis(table: Table, margin: float) -> Verdict | None:
    del margin
    return _sign("Uncapped weights (VIS) end below capped ones (TIS), on every node", _against(table, "vis", "tis"), -1)


def _f_vis_drops_late(table: Table, margin: float) -> Verdict | None:
    found = _against(table, "f_vis", "f_tis", drop_from_peak)
    if not found:
        return None
    late = [mean for _, mean in found if mean.low > 0 and mean.value > margin]
    never = all(mean.high < margin for _, mean in found)
    return Verdict(
        f"F-VIS falls from its peak late in training, by over {100 * margin:.0f} points more than F-TIS, on some node",
        "holds" if late else "does not hold" if never else "not shown",
        _listed(found, what="fall from the peak, F-VIS - F-TIS"),
    )


def _filter_does_most(table: Table, margin: float) -> Verdict | None:
    del margin
    return _sign(
        "The filter does most of the stabilising: without weights but with it (F-NoIS) a node ends above weights "
        "without it (TIS)",
        _against(table, "f_nois", "tis"),
        +1,
    )


def _small_limit_early(table: Table, margin: float) -> Verdict | None:
    del margin
    claim = "A small KL limit is better early for the weaker node"
    return _limit(table, claim, table.weaker, accuracy_at("test", _EARLY), -1)


def _large_limit_late(table: Table, margin: float) -> Verdict | None:
    del margin
    return _limit(table, "A large KL limit is better late for the stronger node", table.stronger, _END, +1)


def _limit(table: Table, claim: str, which: Callable[[str], str], measure: Measure, sign: int) -> Verdict | None:
    """The tightest limit of a study against its widest."""
    limits = {
        float(row.settings["method.kl_limit_nats"]): row.arm for row in table.rows if row.arm.startswith(_LIMITED)
    }
    if len(limits) < 2:
        return None
    small, large = limits[min(limits)], limits[max(limits)]
    found = _against(table, large, small, measure)
    found = [(name, mean) for name, mean in found if name[1] == which(name[0])]
    return _sign(f"{claim} ({small} against {large})", found, sign, what=f"{large} - {small}")


def _vertical_beats_horizontal(table: Table, margin: float) -> Verdict | None:
    del margin
    return _sign(
        "Vertical collaboration ends above horizontal, on every node", _against(table, "f_tis", "f_tis_horizontal"), +1
    )


def _weaker_gains_ood(table: Table, margin: float) -> Verdict | None:
    del margin
    found = _against(table, "f_tis", table.baseline, accuracy("ood"))
    weaker = [(name, mean) for name, mean in found if name[1] == table.weaker(name[0])]
    return _sign("The weaker partner gains out of distribution from F-TIS, in every pair", weaker, +1)


def _bytes_suffice(table: Table, margin: float) -> Verdict | None:
    del margin
    sizes = [row.bytes_per_token for row in table.rows if row.arm.startswith("f_tis") and row.bytes_per_token]
    if not sizes:
        return None
    return Verdict(
        f"{_LITTLE_BYTES:.0f} bytes per token suffice",
        "holds" if max(sizes) <= _LITTLE_BYTES else "does not hold",
        f"payload of {min(sizes):.1f} to {max(sizes):.1f} bytes for each token sent, in {len(sizes)} rows",
    )


def _lag_does_no_harm(table: Table, margin: float) -> Verdict | None:
    arms = [arm for arm in table.arms if arm.startswith("f_tis_lag")]
    found = [((*name, arm), mean) for arm in arms for name, mean in _against(table, arm, "f_tis")]
    if not found:
        return None
    no_worse = all(mean.is_no_worse(margin) for _, mean in found)
    worse = any(mean.high < -margin for _, mean in found)
    return Verdict(
        f"Free pace costs no more than {100 * margin:.0f} points against lockstep, at any lag tried, on every node",
        "holds" if no_worse else "does not hold" if worse else "not shown",
        _listed(found),
    )


def nobody_leaves_worse(table: Table, arm: str, margin: float) -> Verdict | None:
    """Whether, under an arm, every node ends no worse than alone, in distribution and out of it."""
    found = [
        ((*name, split), mean)
        for split in ("test", "ood")
        for name, mean in _against(table, arm, table.baseline, accuracy(split))
    ]
    if arm == table.baseline or not found:
        return None
    no_worse = all(mean.is_no_worse(margin) for _, mean in found)
    worse = any(mean.high < -margin for _, mean in found)
    least = min(found, key=lambda entry: entry[1].lower_bound)
    return Verdict(
        f"{arm}: nobody leaves worse by {100 * margin:.0f} points, in distribution and out of it",
        "holds" if no_worse else "does not hold" if worse else "not shown",
        f"least sure: {_listed([least])}, one-sided bound {100 * least[1].lower_bound:+.1f}; "
        f"{sum(mean.is_no_worse(margin) for _, mean in found)} of {len(found)} pass",
    )


CLAIMS: Final[Sequence[Claim]] = (
    _ends_like_alone,
    _nois_ends_lower,
    _nois_collapses,
    _vis_below_tis,
    _f_vis_drops_late,
    _filter_does_most,
    _small_limit_early,
    _large_limit_late,
    _vertical_beats_horizontal,
    _weaker_gains_ood,
    _bytes_suffice,
    _lag_does_no_harm,
)


def _against(table: Table, arm: str, minus: str, measure: Measure = _END) -> list[tuple[tuple[str, ...], Mean]]:
    found: list[tuple[tuple[str, ...], Mean]] = []
    for pair, node in table.members(arm, minus):
        mean = table.difference(pair, node, arm, minus, measure)
        if mean is not None:
            found.append(((pair, node), mean))
    return found


def _sign(claim: str, found: Sequence[tuple[tuple[str, ...], Mean]], sign: int, *, what: str = "") -> Verdict | None:
    """Holds if every interval lies on one side of 0, does not hold if any lies on the other."""
    if not found:
        return None
    right = all((mean.high < 0) if sign < 0 else (mean.low > 0) for _, mean in found)
    wrong = any((mean.low > 0) if sign < 0 else (mean.high < 0) for _, mean in found)
    return Verdict(claim, "holds" if right else "does not hold" if wrong else "not shown", _listed(found, what=what))


def _listed(found: Iterable[tuple[tuple[str, ...], Mean]], *, what: str = "") -> str:
    """Differences in points with their 95 % intervals."""
    text = ", ".join(f"{'/'.join(name)} {points(mean)}" for name, mean in found)
    return f"{what}: {text}" if what else text


def points(mean: Mean) -> str:
    """A difference for people, with its 95 % interval.

    >>> points(Mean(0.0312, 0.004, 5))
    '+3.1 (+2.0 to +4.2)'
    """
    if mean.se is None:
        return f"{100 * mean.value:+.1f} (one seed)"
    return f"{100 * mean.value:+.1f} ({100 * mean.low:+.1f} to {100 * mean.high:+.1f})"
