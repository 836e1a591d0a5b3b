"""Are claimed log-probs those of tokens that were sampled? Without the sender's model, and without ours.

What a forger wants. A weight is pi_old/pi_gen: who claims a *lower* pi_gen gets a larger one, up to the cap C, and no
more. Who claims a higher one gets a smaller weight, which censors nobody but the sender; that needs no check.

The bound. Let p(.|past) be the distribution that the sender claims to have sampled a token from, and a(.|past) any
distribution (or one that sums to less than 1) over the V tokens that *we* can compute from what came before. Then

    E[ a(x) / p(x) ] = sum_x p(x) a(x)/p(x) <= sum_x a(x) <= 1      for x sampled from p

so with any stake 0 <= s <= 1 the product over all tokens of a group, one completion after the other,

    M_t = prod_{u<=t} ( 1 - s + s a(x_u)/p(x_u) )

is a nonnegative supermartingale that begins at 1, and so is the mean of several of them. Ville's inequality:

    P( M_t >= 1/alpha for some t ) <= alpha                          for a sender that sampled what it claims

however it sampled, whatever its model. A group with M_t >= 1/alpha is rejected; alpha = FALSE_ALARM = 1e-9 is the whole
false-positive rate, for a group and not for a token: one in a thousand runs of a million groups.

What a is. Uniform 1/V alone gives the plain bounds: with s = 1, a completion's summed -log p exceeds T log V by
ln(1/alpha) nats for nobody; with small stakes, tokens of -log p far above log V are that rare, and few of them convict
however likely the others were. Completions of one group have one prompt, so we know more: of the n earlier completions
that began alike, c went on with x, and

    a(x) = (c + 1/V) / (n + 1)

sums to 1. So tokens claimed to be rare must not keep coming: eight equal completions are fine at claims near 0 (a model
that has collapsed, which teaches nothing, since the rewards are equal too, and is not to blame), and impossible at
claims of 2 nats a token.

What it allows for. The distribution sampled from and the one reported differ a little (precision, kernels, rounding on
the wire, completions left out because nobody could score them): each token's claim is raised by SLACK_NATS.

What it misses. Claims lower by less than log(p/a) nats a token, which for a large vocabulary is several nats. There the
receiver's own model decides: the filter's KL (k3) of such a claim grows like e^d with d nats of forgery, and what is
below its limit weighs C at most.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from motet.admission.structure import Finding
from motet.records import Rollout

FALSE_ALARM = 1e-9
"""Most probable share of honest groups that `check_claims` rejects."""
SLACK_NATS = 0.1
"""By how much the claim of each token may be off."""
_STAKES = (1.0, 1 / 8, 1 / 64)
_MAX_CELLS = 2_000_000

_KEPT_GROUPS = 64
_ENOUGH_GROUPS = 24
_MANY_DEVIATIONS = 12.0
_LEAST_RISE_NATS = 1.0
_DEVIATION_OF_MAD = 1.4826  # of a normal distribution


def check_claims(rollouts: Sequence[Rollout], vocab_size: int) -> Finding | None:
    """A finding if nobody samples these tokens from distributions with these log-probs."""
    nats = evidence_nats(rollouts, vocab_size)
    limit = -math.log(FALSE_ALARM)
    if nats < limit:
        return None
    return Finding("forged_logp", f"claimed log-probs too low for sampled tokens: {nats:.0f} nats, allowed {limit:.0f}")


def evidence_nats(rollouts: Sequence[Rollout], vocab_size: int) -> float:
    """The largest log M_t of a group; see the module's docstring. Near 0 or below for honest claims.

    >>> one = Rollout(np.array([3, 1], np.uint32), np.array([-0.4, -0.1], np.float32), "stop", 1.0)
    >>> evidence_nats([one] * 8, 16) < 0
    True
    >>> forged = Rollout(one.token_ids, one.logp_gen - 4, "stop", 1.0)
    >>> round(evidence_nats([forged] * 8, 16))
    56
    """
    gain_N = _log_predicted(rollouts, vocab_size)
    gain_N -= np.concatenate([rollout.logp_gen for rollout in rollouts])
    gain_N -= SLACK_NATS
    log_M_SN = np.array([_at_stake(gain_N, stake) for stake in _STAKES]).cumsum(axis=1)
    return float(np.logaddexp.reduce(log_M_SN).max()) - math.log(len(_STAKES))


def _at_stake(gain_N: NDArray[np.float64], stake: float) -> NDArray[np.float64]:
    """log(1 - s + s e^gain)"""
    if stake == 1:
        return gain_N
    return np.logaddexp(math.log1p(-stake), gain_N + math.log(stake))


def _log_predicted(rollouts: Sequence[Rollout], vocab_size: int) -> NDArray[np.float64]:
    """log a(x) of every token, completion after completion."""
    lengths = np.array([len(rollout.token_ids) for rollout in rollouts])
    size, longest = len(rollouts), int(lengths.max())
    ids_GT = np.empty((size, longest + 1), dtype=np.int64)
    ids_GT[:] = -1 - np.arange(size)[:, None]  # padding is unlike everything
    place_T = np.arange(longest + 1)
    mask_GT = place_T < lengths[:, None]
    ids_GT[mask_GT] = np.concatenate([rollout.token_ids for rollout in rollouts])
    alike_GT = np.empty((size, longest + 1))  # earlier completions that agree in the first t tokens
    earlier_GG = np.arange(size)[:, None] > np.arange(size)
    block = max(1, _MAX_CELLS // (size * longest))
    for first in range(0, size, block):
        part = slice(first, first + block)
        common_GG = (ids_GT[part, None] == ids_GT).argmin(axis=2)  # of the last, padding: unlike
        common_GG[~earlier_GG[part]] = -1
        alike_GT[part] = (common_GG[:, :, None] >= place_T).sum(axis=1)
    predicted_GT = (alike_GT[:, 1:] + 1 / vocab_size) / (alike_GT[:, :-1] + 1)
    log_N: NDArray[np.float64] = np.log(predicted_GT[mask_GT[:, :-1]])
    return log_N


class Histories:
    """What each peer's claims used to be: their mean -log p per token, group by group.

    A group is unusual if its mean is above the median of the peer's last 64 by more than 12 robust standard deviations
    (1.4826 times the median absolute deviation) *and* by more than 1 nat a token. Only a rise counts (see the module's
    docstring). An unusual group joins the history all the same: a peer whose model really has changed is believed
    again after half of a history, one that forges is quarantined by then.
    """

    def __init__(self) -> None:
        self._means: dict[str, deque[float]] = {}

    def check(self, peer: str, rollouts: Sequence[Rollout]) -> Finding | None:
        """Compare a group with the peer's own history, then add it."""
        logp_N = np.concatenate([rollout.logp_gen for rollout in rollouts])
        claimed = -float(np.add.reduce(logp_N, dtype=np.float64)) / len(logp_N)
        history = self._means.setdefault(peer, deque(maxlen=_KEPT_GROUPS))
        finding = _compare(claimed, history)
        history.append(claimed)
        return finding

    def to_dict(self) -> dict[str, list[float]]:
        """Plain data for a checkpoint."""
        return {peer: list(means) for peer, means in sorted(self._means.items())}

    def restore(self, plain: Mapping[str, Sequence[float]]) -> None:
        """Take over what `to_dict` returned. Raises TypeError or ValueError for anything but numbers."""
        self._means = {str(peer): deque(map(float, means), maxlen=_KEPT_GROUPS) for peer, means in plain.items()}


def _compare(claimed: float, history: Sequence[float]) -> Finding | None:
    if len(history) < _ENOUGH_GROUPS:
        return None
    past = np.sort(history)
    median = float(past[len(past) // 2])
    if claimed <= median + _LEAST_RISE_NATS:
        return None
    deviation = _DEVIATION_OF_MAD * float(np.median(np.abs(past - median)))
    if claimed <= median + _MANY_DEVIATIONS * deviation:
        return None
    return Finding("unusual_logp", f"{claimed:.2f} nats a token claimed, {median:.2f} was usual (+-{deviation:.2f})")
