"""The groups of several archives, by round. In memory are their places only: an archive may be larger than that."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any

from motet.errors import UsageError
from motet.records.archive import read_groups, scan_archive
from motet.records.rollout import Group
from motet.records.wire import encode_group


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a group lies, and what it is of."""

    archive: int
    offset: int
    peer: str
    prompt_id: str
    size: int


class StoredGroups:
    """What was sampled, as if it were to be sampled: who made which groups in which round.

    Peers of one name in different archives are different peers: the second is called "name-2".

    Args:
        paths: archives; one that is named twice counts once.

    Attributes:
        paths: the archives.
        peers: names of those who sampled, sorted.
        num_rounds: rounds up to the last of which there is a group.
        num_groups: groups of all rounds.
        tokenizers: fingerprint of each tokenizer whose ids are there, and the first archive with them.

    Raises:
        UsageError: E-ARCHIVE-02, no such file; E-ARCHIVE-03, not an archive; E-REPLAY-01, not a single group.
        RunFailed: E-ARCHIVE-01, a damaged archive.
    """

    def __init__(self, paths: Sequence[Path]) -> None:
        self.paths: tuple[Path, ...] = tuple({path.resolve(): path for path in paths}.values())
        self.tokenizers: dict[str, Path] = {}
        self._rounds: dict[int, list[_Place]] = {}
        self._taken: set[str] = set()
        self._contents = [self._scan(number, path) for number, path in enumerate(self.paths)]
        if not self._rounds:
            named = ", ".join(map(str, self.paths)) or "no archive"
            raise UsageError(f"{named}: no group is stored there, so there is nothing to replay", code="E-REPLAY-01")
        for places in self._rounds.values():
            places.sort(key=lambda place: (place.peer, place.archive, place.offset))
        self.peers = tuple(sorted(self._taken))
        self.num_rounds = max(self._rounds) + 1
        self.num_groups = sum(map(len, self._rounds.values()))

    def contents(self) -> list[dict[str, Any]]:
        """What is in each archive, as plain data: the file, groups of each peer, and a digest of all of them."""
        return [dict(content) for content in self._contents]

    def groups(self, round: int) -> list[Group]:
        """The groups of a round, by peer and in the order in which they were stored."""
        places = self._rounds.get(round, [])
        found: dict[tuple[int, int], Group] = {}
        for number, path in enumerate(self.paths):
            offsets = sorted(place.offset for place in places if place.archive == number)
            found |= zip(((number, offset) for offset in offsets), read_groups(path, offsets), strict=True)
        return [replace(found[place.archive, place.offset], peer=place.peer) for place in places]

    def payloads(self, round: int) -> list[tuple[str, bytes]]:
        """The groups of a round as their peers would publish them, each with its peer; log-probs are exact."""
        return [(group.peer, encode_group(group, log_probs="exact")) for group in self.groups(round)]

    def expected(self, peer: str, round: int, prompt_id: str) -> int:
        """Completions of a prompt that the peer stored in the round; 0 for none."""
        places = self._rounds.get(round, [])
        return next((place.size for place in places if (place.peer, place.prompt_id) == (peer, prompt_id)), 0)

    def num_assigned(self, peer: str, round: int) -> int:
        """Groups that the peer stored in the round."""
        return sum(place.peer == peer for place in self._rounds.get(round, []))

    def _scan(self, number: int, path: Path) -> Mapping[str, Any]:
        names: dict[str, str] = {}
        count: Counter[str] = Counter()
        digest = blake2b(digest_size=16)
        for offset, group in scan_archive(path):
            name = names.get(group.peer) or self._name(group.peer)
            names[group.peer] = name
            count[name] += 1
            self.tokenizers.setdefault(group.sampler.tokenizer, path)
            digest.update(encode_group(group, log_probs="exact"))
            place = _Place(number, offset, name, group.prompt_id, len(group.rollouts))
            self._rounds.setdefault(group.round, []).append(place)
        return {"file": str(path), "groups": dict(sorted(count.items())), "digest": digest.hexdigest()}

    def _name(self, peer: str) -> str:
        name, number = peer, 1
        while name in self._taken:
            number += 1
            name = f"{peer}-{number}"
        self._taken.add(name)
        return name
