"""What is claimed, and whether the numbers of a study show it. One function for each claim.

A claim holds, does not hold, or is not shown: the last is the verdict wherever the intervals leave both open, or fewer
than three seeds speak. Intervals are 95 %, over seeds, paired by seed. What must be so on every node is asked of each
at 95 %; where one node among several decides, its interval is widened for their number (Bonferroni). The number of
claims is not corrected for. Claims about arms that a study does not have are left out.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from motet.study.intervals import Mean
from motet.study.table import Measure, Table, accuracy, accuracy_at, drop_from_peak, gain

Standing = Literal["holds", "does not hold", "not shown"]
Found = Sequence[tuple[tuple[str, ...], Mean]]
"""Differences, each with what it is about: (pair, node), and what else tells them apart."""
FEWEST_SEEDS: Final = 3
"""With two, chance alone makes two equal differences, and an interval of width 0, too often."""
_END: Final = accuracy("test")
_EARLY: Final = 1 / 3
_LIMITED: Final = re.compile(r"f_tis_g[0-9.]+")
_LIMIT_KEY: Final = "method.kl_limit_nats"
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
    return _on_every_node(
        f"F-TIS ends like training alone: held-out accuracy within {_shown(margin)} points, on every node",
        found,
        right=lambda mean: mean.is_level(margin),
        wrong=lambda mean, looks: mean.is_below(-margin, looks=looks) or mean.is_above(margin, looks=looks),
    )


def _nois_ends_lower(table: Table, margin: float) -> Verdict | None:
    del margin
    found = _against(table, "nois", table.baseline)
    return _below("Naive sharing (NoIS) ends below training alone, on every node", found)


def _nois_collapses(table: Table, margin: float) -> Verdict | None:
    """Holds only if the baseline does it less often: what training alone does too, sharing is not to blame for."""
    del margin
    (collapsed, total), (alone, total_alone) = table.collapsed("nois"), table.collapsed(table.baseline)
    if not total or table.baseline == "nois":
        return None
    enough = len({row.seed for row in table.rows if row.arm == "nois"}) >= FEWEST_SEEDS
    standing: Standing = "does not hold" if enough else "not shown"
    if collapsed and enough:
        is_worse = total_alone and collapsed * total_alone > alone * total
        standing = "holds" if is_worse else "not shown"
    by_arm = [f"{arm} {table.collapsed(arm)[0]} of {table.collapsed(arm)[1]}" for arm in table.arms]
    return Verdict(
        "Naive sharing collapses in some runs: a node ends below its start by more than chance, more often than alone",
        standing,
        ", ".join(by_arm),
    )


def _vis_below_tis(table: Table, margin: float) -> Verdict | None:
    del margin
    return _below("Uncapped weights (VIS) end below capped ones (TIS), on every node", _against(table, "vis", "tis"))


def _f_vis_drops_late(table: Table, margin: float) -> Verdict | None:
    found = _against(table, "f_vis", "f_tis", drop_from_peak)
    return _on_some_node(
        f"F-VIS falls from its peak late in training, by over {_shown(margin)} points more than F-TIS, on some node",
        found,
        right=lambda mean, looks: mean.is_above(margin, looks=looks),
        wrong=lambda mean: mean.is_below(margin),
        what="fall from the peak, F-VIS - F-TIS",
    )


def _filter_does_most(table: Table, margin: float) -> Verdict | None:
    del margin
    return _above(
        "The filter does most of the stabilising: alone (F-NoIS) it ends above weights alone (TIS), on every node",
        _against(table, "f_nois", "tis"),
    )


def _small_limit_early(table: Table, margin: float) -> Verdict | None:
    del margin
    limits = _limits(table)
    if limits is None:
        return None
    small, large = limits
    return _above(
        f"A small KL limit is better early for the weaker node, in every pair ({small} against {large})",
        _of_nodes(_against(table, small, large, accuracy_at("test", _EARLY)), table.weaker),
        what=f"{small} - {large} after a third of the rounds",
    )


def _large_limit_late(table: Table, margin: float) -> Verdict | None:
    del margin
    limits = _limits(table)
    if limits is None:
        return None
    small, large = limits
    return _above(
        f"A large KL limit is better late for the stronger node, in every pair ({large} against {small})",
        _of_nodes(_against(table, large, small), table.stronger),
        what=f"{large} - {small} at the end",
    )


def _vertical_beats_horizontal(table: Table, margin: float) -> Verdict | None:
    del margin
    return _above(
        "Vertical collaboration ends above horizontal, on every node", _against(table, "f_tis", "f_tis_horizontal")
    )


def _weaker_gains_ood(table: Table, margin: float) -> Verdict | None:
    del margin
    found = _against(table, "f_tis", table.baseline, accuracy("ood"))
    return _above(
        "The weaker partner gains out of distribution from F-TIS, in every pair", _of_nodes(found, table.weaker)
    )


def _bytes_suffice(table: Table, margin: float) -> Verdict | None:
    del margin
    sent = [row for row in table.rows if row.bytes_per_token is not None]
    sizes = [row.bytes_per_token for row in sent if row.bytes_per_token is not None]
    if not sizes:
        return None
    enough = len({row.seed for row in sent}) >= FEWEST_SEEDS
    standing: Standing = "not shown" if not enough else "holds" if max(sizes) <= _LITTLE_BYTES else "does not hold"
    return Verdict(
        f"{_LITTLE_BYTES:.0f} bytes per token suffice to share completions: ids, log-probs and all else that is sent",
        standing,
        f"payload of {min(sizes):.1f} to {max(sizes):.1f} bytes for each token sent, in {len(sizes)} rows",
    )


def _lag_does_no_harm(table: Table, margin: float) -> Verdict | None:
    arms = [arm for arm in table.arms if arm.startswith("f_tis_lag")]
    found = [((*name, arm), mean) for arm in arms for name, mean in _against(table, arm, "f_tis")]
    verdict = _no_worse(
        f"Free pace costs no more than {_shown(margin)} points against lockstep, at any lag tried, on every node",
        found,
        margin,
    )
    if verdict is None:
        return None
    return Verdict(verdict.claim, verdict.standing, f"pass: {_passed(found, margin)}; {verdict.numbers}")


def _half_ends_lower(table: Table, margin: float) -> Verdict | None:
    del margin
    return _below(
        "Dilution: with half of its prompts and no peer a node ends below training alone, on every node",
        _against(table, "alone_half", table.baseline),
    )


def _sharing_makes_up(table: Table, margin: float) -> Verdict | None:
    del margin
    return _above(
        "Peers' groups are worth having: F-TIS ends above the same own prompts without a peer, on every node",
        _against(table, "f_tis", "alone_half"),
    )


def _either_beats_both(table: Table, margin: float) -> Verdict | None:
    """Both rules under the same limit: else the limit would be judged too."""
    del margin
    limits = {row.settings.get(_LIMIT_KEY) for row in table.rows if row.arm == "f_tis_both"}
    either = [row.arm for row in table.rows if _LIMITED.fullmatch(row.arm) and row.settings.get(_LIMIT_KEY) in limits]
    if not either:
        return None
    return _above(
        f"A filter that drops for either reason ends above one that asks for both, on every node ({either[0]} against "
        "f_tis_both)",
        _against(table, either[0], "f_tis_both"),
    )


def nobody_leaves_worse(table: Table, arm: str, margin: float) -> Verdict | None:
    """Whether, under an arm, every node ends no worse than alone, in distribution and out of it."""
    by_split = {
        words: [((*name, split), mean) for name, mean in _against(table, arm, table.baseline, accuracy(split))]
        for split, words in (("test", "held-out"), ("ood", "OOD"))
    }
    verdict = _no_worse(
        f"{arm}: nobody leaves worse by {_shown(margin)} points, in distribution and out of it",
        [*by_split["held-out"], *by_split["OOD"]],
        margin,
    )
    if verdict is None:
        return None
    passed = ", ".join(f"{words} {_passed(found, margin)}" for words, found in by_split.items() if found)
    kept = _kept_gains(table, arm)
    return Verdict(verdict.claim, verdict.standing, f"pass: {passed}; {verdict.numbers}{kept}")


def _kept_gains(table: Table, arm: str) -> str:
    """What the weaker node of each pair gains under an arm, as a share of what it gains under F-TIS, in words."""
    shares = []
    for pair, node in table.members(arm, "f_tis"):
        live, its = (
            table.shared(pair, node, first, second, gain) for first, second in (("f_tis", arm), (arm, "f_tis"))
        )
        if arm != "f_tis" and node == table.weaker(pair) and live and sum(live) > 0:
            shares.append(f"{pair}/{node} {100 * sum(its) / sum(live):.0f} %")
    return f"; kept gain: {', '.join(shares)}" if shares else ""


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
    _half_ends_lower,
    _sharing_makes_up,
    _either_beats_both,
)


# --- which numbers ---------------------------------------------------------------------------------------------------


def _against(table: Table, arm: str, minus: str, measure: Measure = _END) -> Found:
    """An arm minus another, for each node that has both; nothing of an arm minus itself."""
    found = [] if arm == minus else table.members(arm, minus)
    means = [((pair, node), table.difference(pair, node, arm, minus, measure)) for pair, node in found]
    return [(name, mean) for name, mean in means if mean is not None]


def _of_nodes(found: Found, which: Callable[[str], str | None]) -> Found:
    """Only the nodes of a kind: `which` names it for a pair."""
    return [(name, mean) for name, mean in found if name[1] == which(name[0])]


def _limits(table: Table) -> tuple[str, str] | None:
    """The arms with the tightest and the widest KL limit of a study, of those named f_tis_g<limit>."""
    limited = [row for row in table.rows if _LIMITED.fullmatch(row.arm) and _LIMIT_KEY in row.settings]
    limits = {row.settings[_LIMIT_KEY]: row.arm for row in limited}
    return (limits[min(limits)], limits[max(limits)]) if len(limits) > 1 else None


# --- how they decide -------------------------------------------------------------------------------------------------


def _on_every_node(
    claim: str,
    found: Found,
    *,
    right: Callable[[Mean], bool],
    wrong: Callable[[Mean, int], bool],
    what: str = "",
) -> Verdict | None:
    """Holds if every difference is right; does not hold if one is wrong, its interval widened for their number."""
    if not found:
        return None
    settled = [mean for _, mean in found if mean.n >= FEWEST_SEEDS]
    holds = len(settled) == len(found) and all(right(mean) for mean in settled)
    fails = any(wrong(mean, len(found)) for mean in settled)
    return Verdict(claim, "holds" if holds else "does not hold" if fails else "not shown", _listed(found, what=what))


def _on_some_node(
    claim: str,
    found: Found,
    *,
    right: Callable[[Mean, int], bool],
    wrong: Callable[[Mean], bool],
    what: str = "",
) -> Verdict | None:
    """Holds if one difference is right, its interval widened for their number; does not hold if all are wrong."""
    if not found:
        return None
    settled = [mean for _, mean in found if mean.n >= FEWEST_SEEDS]
    holds = any(right(mean, len(found)) for mean in settled)
    fails = len(settled) == len(found) and all(wrong(mean) for mean in settled)
    return Verdict(claim, "holds" if holds else "does not hold" if fails else "not shown", _listed(found, what=what))


def _above(claim: str, found: Found, *, what: str = "") -> Verdict | None:
    """Every difference is above 0."""
    return _on_every_node(
        claim,
        found,
        right=lambda mean: mean.is_above(0.0),
        wrong=lambda mean, looks: mean.is_below(0.0, looks=looks),
        what=what,
    )


def _below(claim: str, found: Found) -> Verdict | None:
    """Every difference is below 0."""
    return _on_every_node(
        claim,
        found,
        right=lambda mean: mean.is_below(0.0),
        wrong=lambda mean, looks: mean.is_above(0.0, looks=looks),
    )


def _no_worse(claim: str, found: Found, margin: float) -> Verdict | None:
    """Every difference passes the test of non-inferiority; the numbers are those of the one that is least sure."""
    verdict = _on_every_node(
        claim,
        found,
        right=lambda mean: mean.is_no_worse(margin),
        wrong=lambda mean, looks: mean.is_below(-margin, looks=looks),
    )
    if verdict is None:
        return None
    least = min(found, key=lambda entry: (entry[1].lower_bound, entry[1].value))
    bound = f", one-sided bound {100 * least[1].lower_bound:+.1f}" if math.isfinite(least[1].lower_bound) else ""
    return Verdict(verdict.claim, verdict.standing, f"least sure: {_listed([least])}{bound}")


def _passed(found: Found, margin: float) -> str:
    """How many of the differences pass the test of non-inferiority."""
    num_passed = sum(mean.is_no_worse(margin) and mean.n >= FEWEST_SEEDS for _, mean in found)
    return f"{num_passed} of {len(found)}"


# --- in words --------------------------------------------------------------------------------------------------------


def _shown(margin: float) -> str:
    return f"{100 * margin:g}"


def _listed(found: Iterable[tuple[tuple[str, ...], Mean]], *, what: str = "") -> str:
    """Differences in points with their 95 % intervals."""
    found = list(found)
    text = ", ".join(f"{'/'.join(name)} {points(mean)}" for name, mean in found)
    few, many = min(mean.n for _, mean in found), max(mean.n for _, mean in found)
    seeds = f"{few} seed{'s' if few > 1 else ''}" if few == many else f"{few} to {many} seeds"
    return f"{what}: {text}; {seeds}" if what else f"{text}; {seeds}"


def points(mean: Mean) -> str:
    """A difference for people, with its 95 % interval.

    >>> points(Mean(0.0312, 0.004, 5))
    '+3.1 (+2.0 to +4.2)'
    """
    if mean.se is None:
        return f"{100 * mean.value:+.1f} (one seed)"
    return f"{100 * mean.value:+.1f} ({100 * mean.low:+.1f} to {100 * mean.high:+.1f})"
