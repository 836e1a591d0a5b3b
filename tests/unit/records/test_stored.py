"""Several archives as one plan: who stored what in which round, and the groups themselves when they are asked for."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from motet.errors import RunFailed, UsageError
from motet.records import Archive, Group, Rollout, SamplerInfo, StoredGroups, decode_group, encode_group


def make_group(peer: str, round: int, index: int = 0, size: int = 2, tokenizer: str = "9c1f") -> Group:
    rollout = Rollout(np.array([1, index, round], np.uint32), np.array([-0.1, -2, -1e-6], np.float32), "stop", 1.0)
    return Group(peer, round, f"train/{index}", SamplerInfo("tiny:small", round, 1.0, tokenizer), (rollout,) * size)


def store(path: Path, *groups: Group) -> Path:
    with Archive(path) as archive:
        for group in groups:
            archive.append(group)
    return path


@pytest.fixture
def two(tmp_path: Path) -> list[Path]:
    """Ann's archive skips round 1; bob's is not in the order of rounds."""
    ann = store(tmp_path / "ann.motet", make_group("ann", 0, 3), make_group("ann", 0, 1), make_group("ann", 2, 7))
    bob = store(tmp_path / "bob.motet", make_group("bob", 2, 5, 4), make_group("bob", 0, 3), make_group("bob", 1, 2))
    return [bob, ann]


def test_what_is_there(two: list[Path]) -> None:
    stored = StoredGroups(two)
    assert (stored.peers, stored.num_rounds, stored.num_groups) == (("ann", "bob"), 3, 6)
    assert stored.tokenizers == {"9c1f": two[0]}
    assert [content["groups"] for content in stored.contents()] == [{"bob": 3}, {"ann": 3}]


def test_groups_of_a_round_by_peer_and_in_the_order_of_storing(two: list[Path]) -> None:
    stored = StoredGroups(two)
    rounds = [[(group.peer, group.prompt_id) for group in stored.groups(round)] for round in range(4)]
    assert rounds == [
        [("ann", "train/3"), ("ann", "train/1"), ("bob", "train/3")],
        [("bob", "train/2")],
        [("ann", "train/7"), ("bob", "train/5")],
        [],
    ]


def test_payloads_are_what_was_stored_to_the_bit(two: list[Path]) -> None:
    (peer, payload), _ = StoredGroups(two).payloads(2)
    assert peer == "ann"
    assert payload == encode_group(make_group("ann", 2, 7), log_probs="exact")
    assert decode_group(payload).peer == "ann"


def test_what_was_stored_is_what_was_to_be_made(two: list[Path]) -> None:
    stored = StoredGroups(two)
    assert stored.expected("bob", 2, "train/5") == 4
    assert stored.expected("ann", 2, "train/5") == stored.expected("bob", 1, "train/5") == 0
    assert [stored.num_assigned("ann", round) for round in range(4)] == [2, 0, 1, 0]
    assert stored.num_assigned("kim", 0) == 0


def test_two_archives_of_one_name_are_two_peers(tmp_path: Path) -> None:
    paths = [
        store(tmp_path / run / "ann.motet", make_group("ann", 0, 3), make_group("ann", 1, 4)) for run in ("one", "two")
    ]
    stored = StoredGroups(paths)
    assert stored.peers == ("ann", "ann-2")
    assert [group.peer for group in stored.groups(0)] == ["ann", "ann-2"]
    assert [decode_group(payload).peer for _, payload in stored.payloads(1)] == ["ann", "ann-2"]
    assert stored.expected("ann-2", 1, "train/4") == 2


def test_an_archive_that_is_named_twice_counts_once(two: list[Path]) -> None:
    ann = two[1]
    assert StoredGroups([ann, ann.parent / "." / ann.name]).num_groups == 3


def test_the_digest_tells_archives_apart_and_not_where_they_lie(tmp_path: Path) -> None:
    first = store(tmp_path / "first.motet", make_group("ann", 0, 3))
    copy = tmp_path / "copy.motet"
    copy.write_bytes(first.read_bytes())
    grown = store(tmp_path / "grown.motet", make_group("ann", 0, 3), make_group("ann", 1, 3))
    digests = [StoredGroups([path]).contents()[0]["digest"] for path in (first, copy, grown)]
    assert digests[0] == digests[1] != digests[2]


def test_a_torn_end_is_left_out(two: list[Path]) -> None:
    ann = two[1]
    ann.write_bytes(ann.read_bytes()[:-1])
    assert StoredGroups([ann]).num_groups == 2


def test_nothing_stored_is_said_so(tmp_path: Path) -> None:
    empty = store(tmp_path / "ann.motet")
    with pytest.raises(UsageError, match="no group is stored there") as caught:
        StoredGroups([empty])
    assert caught.value.code == "E-REPLAY-01"


def test_an_archive_that_was_cut_after_it_was_opened_is_damaged(two: list[Path]) -> None:
    stored = StoredGroups(two)
    two[1].write_bytes(two[1].read_bytes()[:-1])
    assert len(stored.groups(0)) == 3
    with pytest.raises(RunFailed, match="gone") as caught:
        stored.groups(2)
    assert caught.value.code == "E-ARCHIVE-01"
