"""How much one peer may send for one round: counted before anything is parsed."""

from __future__ import annotations

from collections.abc import Iterable

from motet.admission.structure import Finding

Use = tuple[int, str, int, int]
"""(round, peer, groups, bytes) that have been let through."""


class Quota:
    """Groups and bytes of each peer for each round.

    Args:
        max_bytes: most bytes.
        spare_groups: groups beyond those that the peer was given to make, for what may come twice.

    >>> quota = Quota(max_bytes=100, spare_groups=0)
    >>> quota.take("bob", 3, num_bytes=60, assigned=2), quota.take("bob", 3, num_bytes=60, assigned=2).detail
    (None, '60 bytes after 60, allowed 100 a round')
    """

    def __init__(self, *, max_bytes: int, spare_groups: int) -> None:
        self._max_bytes = max_bytes
        self._spare_groups = spare_groups
        self._used: dict[int, dict[str, tuple[int, int]]] = {}

    def take(self, peer: str, round: int, *, num_bytes: int, assigned: int) -> Finding | None:
        """Let one more group through, or say why not; a group that is not let through uses nothing up.

        Args:
            peer: who sent it.
            round: the round that it is for.
            num_bytes: its size.
            assigned: groups that the peer was given to make in that round.
        """
        uses = self._used.setdefault(round, {})
        groups, sent = uses.get(peer, (0, 0))
        if groups >= assigned + self._spare_groups:
            return Finding(
                "over_quota", f"{groups} groups before, {assigned} assigned and {self._spare_groups} to spare"
            )
        if sent + num_bytes > self._max_bytes:
            return Finding("over_quota", f"{num_bytes} bytes after {sent}, allowed {self._max_bytes} a round")
        uses[peer] = (groups + 1, sent + num_bytes)
        return None

    def forget_before(self, round: int) -> None:
        """Rounds before this one are over."""
        for past in [past for past in self._used if past < round]:
            del self._used[past]

    def used(self) -> list[Use]:
        """What was let through, sorted: plain data for a checkpoint."""
        return sorted((round, peer, *use) for round, uses in self._used.items() for peer, use in uses.items())

    def restore(self, used: Iterable[Use]) -> None:
        """Take over what `used` returned."""
        self._used = {}
        for round, peer, groups, sent in used:
            self._used.setdefault(int(round), {})[str(peer)] = (int(groups), int(sent))
