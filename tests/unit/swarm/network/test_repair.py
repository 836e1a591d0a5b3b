"""What to fetch, when, and from whom; most of it is seen at work in the tests of the exchange."""

from __future__ import annotations

import pytest

from motet.swarm.network.membership import Held, Peer
from motet.swarm.network.repair import Fetch, Wants
from motet.swarm.network.shelf import Shelf


@pytest.fixture
def shelf():
    return Shelf(max_bytes_per_round=10**6, max_bytes=10**9)


def wants(**changes):
    options = {"name": "ann", "seed": 7, "max_lag": None, "max_foreign_groups": None, "grace_s": 2.0, **changes}
    return Wants(**options)


def peer(name="bob", *rounds, groups=4, at_first=-1):
    held = {round: Held(round, 1, groups) for round in rounds}
    latest = max(rounds, default=-1)
    return Peer(name, b"", 1, b"", 0.0, 0, latest, latest, at_first, -1, True, True, held)


def fail(wanted, fetches, now_s):
    for fetch in fetches:
        wanted.done(fetch, num_messages=0, num_groups=0, is_complete=False, now_s=now_s)


class TestPushed:
    def test_a_round_under_way_is_left_alone_for_a_while(self, shelf):
        wanted = wants()
        wanted.advance(0)
        bob = peer("bob", 0)
        assert wanted.next([bob], shelf, 10.0) == []
        assert wanted.next([bob], shelf, 11.9) == []
        assert wanted.next([bob], shelf, 12.1) == [Fetch("bob", 0)]
        assert wanted.next([bob], shelf, 12.2) == [], "it is being asked for"

    def test_what_was_sent_before_we_listened_is_fetched_at_once(self, shelf):
        wanted = wants()
        wanted.advance(0)
        assert wanted.next([peer("bob", 0, 1, at_first=0)], shelf, 10.0) == [Fetch("bob", 0)]

    def test_half_of_the_deadline_ends_the_patience(self, shelf):
        wanted = wants(grace_s=100.0)
        wanted.advance(0)
        bob = peer("bob", 0)
        assert wanted.next([bob], shelf, 10.0) == []
        wanted.open_draw(0, 11.0)
        assert wanted.next([bob], shelf, 11.0) == [Fetch("bob", 0)]

    def test_what_has_come_or_is_over_is_not_fetched(self, shelf):
        wanted = wants(grace_s=0.0)
        wanted.advance(2)
        shelf.put("bob", boot=1, round=2, index=0, count=1, payloads=[b"x"], num_bytes=1)
        assert wanted.next([peer("bob", 0, 1, 2)], shelf, 10.0) == []
        wanted.set_pace(1)
        assert wanted.next([peer("bob", 0, 1, 2)], shelf, 10.0) == [Fetch("bob", 1)]

    def test_who_gives_nothing_is_asked_less_and_less_often_and_does_not_hold_up_others(self, shelf):
        wanted = wants(grace_s=0.0)
        wanted.advance(0)
        liar, bob = peer("liar", *range(200)), peer("bob", 0)
        num_asked, now_s = 0, 0.0
        for _ in range(600):
            fetches = wanted.next([liar, bob], shelf, now_s)
            num_asked += sum(fetch.peer == "liar" for fetch in fetches)
            if now_s == 0.0:
                assert Fetch("bob", 0) in fetches
                assert len(fetches) == 3
            fail(wanted, fetches, now_s)
            now_s += 0.1
        assert num_asked < 60

    def test_notes_are_bounded_whatever_is_announced(self, shelf):
        wanted = wants(grace_s=5.0, max_lag=4)
        wanted.advance(0)
        for number in range(200):
            wanted.next([peer("liar", *range(number * 1000, number * 1000 + 256))], shelf, float(number))
        assert len(wanted._tries) <= 4096 + 512


class TestDrawn:
    def test_only_as_many_as_wanted_are_fetched(self, shelf):
        wanted = wants(max_foreign_groups=8)
        wanted.advance(0)
        peers = [peer(f"n{number}", 0) for number in range(5)]
        assert wanted.next(peers, shelf, 0.0) == [], "not before all have announced"
        wanted.open_draw(0, 0.0)
        fetches = wanted.next(peers, shelf, 0.0)
        assert [fetch.max_groups for fetch in fetches] == [4, 4]
        assert wanted.next(peers, shelf, 0.0) == []
        assert not wanted.is_settled(peers, shelf, all_have_announced=True)
        for fetch in fetches:
            wanted.done(fetch, num_messages=1, num_groups=4, is_complete=True, now_s=0.0)
        assert wanted.is_settled(peers, shelf, all_have_announced=False)

    def test_what_did_not_come_is_drawn_from_others(self, shelf):
        wanted = wants(max_foreign_groups=4)
        wanted.advance(0)
        wanted.open_draw(0, 0.0)
        peers = [peer(f"n{number}", 0) for number in range(3)]
        asked = []
        for _ in range(3):
            (fetch,) = wanted.next(peers, shelf, 0.0)
            asked.append(fetch.peer)
            fail(wanted, [fetch], 0.0)
        assert len(set(asked)) == 3
        assert wanted.next(peers, shelf, 0.0) == []

    def test_a_claim_is_cut_to_what_others_claim_where_there_is_not_room_for_all(self, shelf):
        wanted = wants(max_foreign_groups=8)
        wanted.advance(0)
        wanted.open_draw(0, 0.0)
        peers = [peer("liar", 0, groups=10**9), peer("bob", 0, groups=3), peer("cid", 0, groups=3)]
        fetches = {fetch.peer: fetch.max_groups for fetch in wanted.next(peers, shelf, 0.0)}
        assert fetches["liar"] == 3

    def test_what_is_drawn_before_beginning_counts_for_the_first_round(self, shelf):
        wanted = wants(max_foreign_groups=8)
        peers = [peer("bob", 3)]
        (fetch,) = wanted.next(peers, shelf, 0.0)
        wanted.done(fetch, num_messages=1, num_groups=4, is_complete=True, now_s=0.0)
        wanted.advance(3)
        wanted.open_draw(3, 0.0)
        more = wanted.next([peer(f"n{number}", 3) for number in range(5)], shelf, 0.0)
        assert sum(fetch.max_groups for fetch in more) == 4

    def test_what_was_asked_for_in_an_earlier_round_does_not_make_room_in_this_one(self, shelf):
        wanted = wants(max_foreign_groups=4, max_lag=2)
        wanted.advance(0)
        (late,) = wanted.next([peer("bob", 0)], shelf, 0.0)
        wanted.advance(1)
        fail(wanted, [late], 0.0)
        peers = [peer(f"n{number}", 1) for number in range(5)]
        assert sum(fetch.max_groups for fetch in wanted.next(peers, shelf, 10.0)) == 4

    def test_a_new_round_draws_anew(self, shelf):
        wanted = wants(max_foreign_groups=4, max_lag=2)
        wanted.advance(0)
        peers = [peer("bob", 0), peer("cid", 0)]
        (first,) = wanted.next(peers, shelf, 0.0)
        wanted.done(first, num_messages=1, num_groups=4, is_complete=True, now_s=0.0)
        assert wanted.next(peers, shelf, 0.0) == []
        wanted.advance(1)
        (second,) = wanted.next(peers, shelf, 0.0)
        assert second.peer != first.peer
        wanted.advance(0)
        assert wanted.next(peers, shelf, 0.0) == []
