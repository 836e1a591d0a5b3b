"""Who is live, whose heartbeats are believed, and where the swarm is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from motet.swarm.identity.credentials import plain_credential
from motet.swarm.network.membership import UNDECIDED, Beat, Held, Membership, decode_beat, encode_beat

KEY = bytes(32)
OURS, THEIRS = b"o" * 16, b"t" * 16


def beat(**changes):
    values = {
        "credential": plain_credential("bob", KEY),
        "digest": OURS,
        "round": -1,
        "from_round": UNDECIDED,
        "held": (),
        "leaving": False,
        "clock_ms": 0,
        "revocations": None,
        **changes,
    }
    return Beat(**values)


@pytest.fixture
def members():
    return Membership(digest=OURS, heartbeat_s=1.0, fresh_s=5.0)


def hear(members, name="bob", boot=1, seq=0, now_s=0.0, key=KEY, **changes):
    return members.hear(name, key, boot, seq, beat(**changes), now_s=now_s)


def names(peers):
    return [peer.name for peer in peers]


def test_a_heartbeat_has_one_encoding():
    held = (Held(3, 1, 8),)
    assert decode_beat(encode_beat(beat(held=held))) == beat(held=held)
    assert decode_beat(encode_beat(beat()) + b"\x00") is None
    assert decode_beat(b"") is None


@given(st.binary(max_size=300))
def test_any_bytes_are_a_heartbeat_or_none(data):
    found = decode_beat(data)
    assert found is None or encode_beat(found) == data


@pytest.mark.parametrize(
    "changes",
    [
        {"digest": b"short"},
        {"round": -2},
        {"round": 2**63},
        {"clock_ms": -1},
        {"held": tuple(Held(number, 1, 1) for number in range(257))},
        {"held": (Held(0, 0, 0),)},
    ],
)
def test_values_out_of_their_range_are_no_heartbeat(changes):
    assert decode_beat(encode_beat(beat(**changes))) is None


def test_a_peer_is_live_while_its_heartbeats_are_fresh(members):
    assert hear(members, now_s=10.0) == "joined"
    assert names(members.live(14.9)) == ["bob"]
    assert members.next_silence_s(14.0) == pytest.approx(1.0)
    assert members.live(15.1) == []
    assert members.next_silence_s(15.1) == float("inf")
    assert names(members.fall_silent(15.1)) == ["bob"]
    assert members.fall_silent(15.2) == []
    assert hear(members, seq=1, now_s=16.0) == "back"
    assert hear(members, seq=2, now_s=17.0) == "known"
    assert names(members.live(17.0)) == ["bob"]


def test_numbers_must_grow_and_older_boots_are_replays(members):
    assert hear(members, boot=5, seq=3) == "joined"
    assert hear(members, boot=5, seq=3) == "replay"
    assert hear(members, boot=5, seq=2) == "replay"
    assert hear(members, boot=4, seq=9) == "replay"
    assert hear(members, boot=6, seq=0) == "back"
    assert hear(members, boot=5, seq=99) == "replay"
    assert members.peer("bob").boot == 6


def test_who_leaves_is_gone_until_a_new_boot(members):
    hear(members, boot=1, seq=0)
    assert hear(members, boot=1, seq=1, leaving=True) == "left"
    assert members.live(0.0) == []
    assert hear(members, boot=1, seq=2) == "replay"
    assert hear(members, boot=2, seq=0) == "back"
    assert names(members.live(0.0)) == ["bob"]


def test_a_last_heartbeat_of_a_process_never_heard_is_no_news(members):
    assert hear(members, boot=2, leaving=True) == "known"
    assert members.all() == []
    assert hear(members, boot=1) == "joined", "the other process of that key is heard"
    assert hear(members, boot=2, seq=1, leaving=True) == "known"
    assert names(members.live(0.0)) == ["bob"]


def test_of_two_processes_with_one_key_the_earlier_is_heard_again_once_the_later_has_left(members):
    assert hear(members, boot=1, seq=4) == "joined"
    assert hear(members, boot=2, seq=0) == "back"
    assert hear(members, boot=1, seq=5) == "replay"
    assert hear(members, boot=2, seq=1, leaving=True) == "left"
    assert hear(members, boot=1, seq=4) == "replay", "that is not its next one"
    assert hear(members, boot=1, seq=6) == "back"
    assert names(members.live(0.0)) == ["bob"]
    assert hear(members, boot=2, seq=1) == "replay", "it has left"


def test_a_name_that_gets_another_key_is_another_peer(members):
    hear(members, boot=9, seq=9)
    assert hear(members, boot=1, seq=0, key=b"k" * 32) == "joined"
    assert members.peer("bob").key == b"k" * 32
    members.forget("bob")
    assert members.peer("bob") is None


def test_nodes_of_another_run_are_not_live(members):
    hear(members, digest=THEIRS)
    assert members.live(0.0) == []
    assert members.peer("bob").is_same_run is False
    assert hear(members, seq=1, digest=OURS) == "back"
    assert names(members.live(0.0)) == ["bob"]


def test_who_takes_part_from_when(members):
    hear(members, "early")
    members.has_published = True
    hear(members, "late")
    hear(members, "decided", from_round=7)
    assert [members.peer(name).takes_part_in(0) for name in ("early", "late", "decided")] == [True, False, False]
    assert members.peer("decided").takes_part_in(7)
    members.has_sent("late", 3)
    assert members.peer("late").takes_part_in(4)
    members.has_sent("nobody", 3)


def test_a_gap_of_our_own_is_forgiven(members):
    hear(members, now_s=0.0)
    members.forgive(100.0)
    assert names(members.live(104.0)) == ["bob"]


def test_heartbeats_are_rarer_in_large_swarms(members):
    for number in range(64):
        hear(members, f"n{number}")
    assert members.interval_s(0.0) == 1.0
    for number in range(64, 256):
        hear(members, f"n{number}")
    assert members.interval_s(0.0) == 4.0
    assert members.fresh_s() == 20.0
    assert members.interval_s(100.0) == 1.0


class TestSwarmRound:
    @staticmethod
    def of(members, *rounds, verified=-1, joining=0):
        for number, round in enumerate(rounds):
            hear(members, f"n{number}", round=round, from_round=0)
        for number in range(joining):
            hear(members, f"joining{number}")
        return members.swarm_round(0.0, num_rounds=100, verified_round=lambda _: verified)

    def test_nobody_is_there_to_say(self, members):
        assert self.of(members) is None

    def test_nobody_has_published(self, members):
        assert self.of(members, -1, -1, -1) is None

    @pytest.mark.parametrize(
        ("rounds", "expected"),
        [((4, 5, 9), 5), ((4, 5), 4), ((3, 4, 99, 99), 4), ((-1, 7, 8), 7), ((-1, -1, 8), None), ((5, 100, 999), 5)],
    )
    def test_it_is_what_more_than_half_have_reached(self, members, rounds, expected):
        # the last: rounds beyond the run's are not asked, which leaves one peer alone
        assert self.of(members, *rounds, verified=5) == expected

    def test_one_peer_alone_is_believed_so_far_as_it_can_show(self, members):
        assert self.of(members, 8) is None
        assert self.of(members, 8, verified=6) == 6
        assert self.of(members, 8, verified=50) == 8

    def test_who_is_still_joining_has_no_say(self, members):
        assert self.of(members, 7, 8, joining=2) == 7

    @pytest.mark.parametrize(
        ("rounds", "joining", "expected"), [((99,), 1, 99), ((99,), 2, None), ((98, 99), 2, 98), ((98, 99), 3, None)]
    )
    def test_who_leads_must_not_be_outnumbered_by_those_who_are_joining(self, members, rounds, joining, expected):
        assert self.of(members, *rounds, verified=99, joining=joining) == expected

    def test_who_has_said_from_when_it_takes_part_stands_there(self, members):
        hear(members, "bob", from_round=8)
        hear(members, "cid", round=8, from_round=0)
        assert members.swarm_round(0.0, num_rounds=100, verified_round=lambda _: -1) == 7
        hear(members, "dan", from_round=99)
        hear(members, "eve", from_round=10**6)
        assert members.swarm_round(0.0, num_rounds=100, verified_round=lambda _: -1) == 8

    @given(st.integers(1, 5), st.integers(0, 5), st.data())
    def test_at_the_start_a_minority_moves_nobody(self, begun, joining, data):
        members = Membership(digest=OURS, heartbeat_s=1.0, fresh_s=5.0)
        liars = data.draw(st.lists(st.integers(0, 99), min_size=1, max_size=begun))
        assert self.of(members, *[-1] * begun, *liars, verified=99, joining=joining) is None

    @given(st.lists(st.integers(0, 99), min_size=3, max_size=9), st.data())
    def test_a_minority_cannot_drive_it_beyond_the_honest(self, honest, data):
        members = Membership(digest=OURS, heartbeat_s=1.0, fresh_s=5.0)
        liars = data.draw(st.lists(st.integers(-1, 10**9), max_size=len(honest) - 1))
        found = self.of(members, *honest, *liars, verified=0)
        assert found is not None
        assert found <= max(honest)
