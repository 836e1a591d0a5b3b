"""The exchange over a network, its steps and its time in our hands: membership, rounds, leaving and coming back."""

from __future__ import annotations

import threading
import time

import msgspec
import pytest
from network_hub import CARD, Party, Stage, memory_links, wait_for

from motet.errors import RunFailed, SwarmRefused, SwarmUnreachable
from motet.swarm import Parcel
from motet.swarm.engines.memory_link import Faults, MemoryNet
from motet.swarm.identity.credentials import Roster, bind, issue_grant, issue_revocations, plain_credential
from motet.swarm.identity.keys import NodeKey, short
from motet.swarm.network import Clock, NetworkExchange, NetworkOptions
from motet.swarm.network.status import SwarmStatus

LONG_S = 30.0


@pytest.fixture
def stage():
    stage = Stage()
    yield stage
    stage.party.close()


def kinds(node, peer=None):
    return [event.kind for event in node.events() if peer in (None, event.peer)]


def payloads(parcels):
    return [parcel.payload for parcel in parcels]


def peer_of(node, name):
    return next(peer for peer in node.status().peers if peer.name == name)


class TestMembership:
    def test_nodes_find_one_another_and_say_so(self, stage):
        ann, bob, _ = stage.meet("ann", "bob", "cid")
        assert ann.peers() == ["bob", "cid"]
        assert bob.peers() == ["ann", "cid"]
        assert sorted((event.kind, event.peer) for event in ann.events()) == [("joined", "bob"), ("joined", "cid")]
        assert ann.events() == []

    def test_gathering_ends_when_all_are_there(self, stage):
        (ann,) = stage.meet("ann")
        assert ann.gather(["ann", "bob"], deadline_s=0.05) == ["bob"]
        assert ann.gather(["bob"], deadline_s=LONG_S, stop=lambda: True) == ["bob"]
        stage.join("bob")
        assert ann.gather(["bob", "ann"], deadline_s=LONG_S) == []
        assert ann.gather([], deadline_s=0.0) == []

    def test_being_alone_is_a_state(self, stage):
        (ann,) = stage.meet("ann")
        status = ann.status()
        assert (status.is_alone, status.swarm_round, status.peers, status.waiting_for) == (True, None, [], [])
        ann.publish(0, [b"x"])
        assert ann.collect(0, deadline_s=LONG_S) == []

    def test_a_silent_peer_is_not_waited_for_and_comes_back(self, stage):
        ann, _ = stage.meet("ann", "bob")
        ann.events()
        stage.net.freeze("bob")
        stage.pass_s(4.0)
        assert ann.waiting_for(0) == ["bob"]
        stage.pass_s(2.0)
        assert ann.peers() == ann.waiting_for(0) == []
        assert peer_of(ann, "bob").state == "silent"
        assert kinds(ann) == ["silent"]
        stage.net.thaw("bob")
        stage.pass_s(1.5)
        assert ann.peers() == ["bob"]
        assert kinds(ann) == ["back"]

    def test_who_closes_has_left_at_once(self, stage):
        ann, bob = stage.meet("ann", "bob")
        bob.close()
        stage.settle()
        assert ann.peers() == []
        assert peer_of(ann, "bob").state == "left"
        assert kinds(ann, "bob") == ["joined", "left"]

    def test_a_peer_that_was_killed_and_restarted_replaces_its_older_self(self, stage):
        ann, bob = stage.meet("ann", "bob")
        bob.publish(0, [b"b0"])
        ann.publish(0, [])
        assert payloads(ann.collect(0, deadline_s=LONG_S)) == [b"b0"]
        stage.vanish("bob")
        stage.pass_s(1.0)
        again = stage.join("bob")
        stage.pass_s(1.0)
        assert ann.peers() == ["bob"]
        assert kinds(ann, "bob") == ["joined", "back"]
        assert ann.waiting_for(1) == [], "it has not said yet from when it takes part"
        again.publish(0, [b"b0 anew"])
        again.publish(1, [b"b1"])
        ann.publish(1, [])
        assert ann.collect(1, deadline_s=LONG_S) == [Parcel("bob", 1, b"b1")]
        assert ann.num_refused()["bob"] == {"duplicate": 1}, "its round 0 has been collected before"
        assert not again.status().duplicate_identity

    def test_a_restarted_peer_completes_a_round_of_which_a_part_was_lost(self, stage):
        ann, bob = stage.meet("ann", "bob", max_message_bytes=4096)
        stage.net.freeze("bob")
        bob.publish(0, [bytes(3000), bytes(3000)])
        first, _ = bob._publisher.answer("roll/bob/0")
        ann._arrivals.put("roll/bob/0", first)
        stage.settle()
        assert ann._known.shelf.has_some("bob", 0)
        stage.vanish("bob")
        stage.net.thaw("bob")
        stage.pass_s(1.0)
        again = stage.join("bob", max_message_bytes=4096)
        stage.pass_s(1.0)
        again.publish(0, [b"whole"])
        assert ann.collect(0, deadline_s=LONG_S) == [Parcel("bob", 0, b"whole")]

    def test_our_own_standstill_silences_nobody(self, stage):
        ann, _ = stage.meet("ann", "bob")
        stage.now_s += 100.0
        ann.step()
        assert ann.peers() == ["bob"]

    def test_a_clock_that_is_off_is_refused_and_told_once(self, stage):
        (ann,) = stage.meet("ann")
        stage.skew_s["bob"] = 3600.0
        bob = stage.join("bob")
        stage.pass_s(3.0)
        assert ann.peers() == bob.peers() == []
        refused = ann.num_refused()
        assert refused["?"]["clock"] >= 2
        told = [event for event in ann.events() if event.kind == "clock"]
        assert [event.text for event in told] == ["bob: its clock is 3600 s ahead of this machine's; set both right"]


class TestRounds:
    def test_the_first_round_is_waited_for_by_those_who_founded_the_swarm(self, stage):
        ann, _ = stage.meet("ann", "bob")
        assert ann.waiting_for(0) == ["bob"]
        ann.publish(0, [])
        cid = stage.join("cid")
        stage.pass_s(1.0)
        assert "cid" in ann.peers()
        assert ann.waiting_for(0) == ["bob"], "it came when the round was under way"
        cid.begin(1)
        stage.settle()
        assert ann.waiting_for(0) == ["bob"]
        assert ann.waiting_for(1) == ["bob", "cid"]

    def test_a_newcomer_learns_where_the_swarm_is(self, stage):
        ann, bob = stage.meet("ann", "bob")
        for round in range(4):
            ann.publish(round, [b"a"])
            bob.publish(round, [b"b"])
        bob.publish(4, [b"b"])
        cid = stage.join("cid")
        assert cid.swarm_round() is None
        stage.pass_s(1.0)
        assert cid.swarm_round() == 3
        cid.begin(4)
        assert cid.status().current_round == 4

    def test_one_peer_alone_is_believed_once_it_has_shown_a_message(self, stage):
        (ann,) = stage.meet("ann")
        for round in range(4):
            ann.publish(round, [b"a"])
        bob = stage.join("bob")
        ann.step()
        stage.net.partition(["ann"], ["bob"])
        assert bob.peers() == []
        stage.net.heal()
        stage.pass_s(1.0)
        assert bob.swarm_round() == 3, "the last round was fetched and verified"
        assert bob.collect(4, deadline_s=0.0) == []
        assert bob.num_late() == {"ann": 1}

    def test_two_who_join_a_run_at_once_go_where_it_is(self, stage):
        (ann,) = stage.meet("ann")
        ann.begin(0)
        for round in range(500):
            ann.publish(round, [b"a"])
        bob, cid = stage.meet("bob", "cid")
        stage.pass_s(1.0)
        assert (bob.peers(), cid.peers()) == (["ann", "cid"], ["ann", "bob"])
        assert (bob.swarm_round(), cid.swarm_round()) == (499, 499)
        bob.begin(499)
        stage.settle()
        assert cid.swarm_round() == 498, "where bob takes part, it is no further yet"

    @pytest.mark.parametrize("claim", [999, 10**6])
    def test_one_who_claims_to_be_far_ahead_moves_nobody_at_the_start(self, stage, claim):
        stage.party.keys["mallory"] = NodeKey.generate()
        nodes = stage.meet("ann", "bob", "cid", "mallory")
        mallory = nodes.pop()
        mallory.begin(claim)
        mallory.publish(claim, [b"signed"])
        stage.pass_s(3.0)
        assert [node.swarm_round() for node in nodes] == [None] * 3
        for node in nodes:
            node.begin(0)
            node.publish(0, [])
        stage.pass_s(1.0)
        assert [node.swarm_round() for node in nodes] == [0] * 3

    def test_what_came_before_this_node_begins_is_not_late(self, stage):
        (ann,) = stage.meet("ann")
        ann.publish(0, [b"a"])
        bob = stage.join("bob")
        stage.pass_s(1.0)
        bob.begin(1)
        bob.collect(1, deadline_s=0.0)
        assert bob.num_late() == {}

    def test_a_late_joiner_at_free_pace_gets_the_history_and_what_was_lost_of_it(self, stage):
        stage.party.options |= {"max_lag": 4, "keep_rounds": 6}
        ann, bob = stage.meet("ann", "bob")
        for round in range(10):
            ann.publish(round, [b"a%d" % round])
            bob.publish(round, [b"b%d" % round])
        cid = stage.join("cid")
        stage.net.partition(["cid", "ann"], ["bob"])
        stage.pass_s(1.0)
        stage.net.heal()
        stage.pass_s(10.0)
        cid.begin(10)
        assert payloads(cid.collect(10, deadline_s=0.0, max_lag=4)) == [
            b"%s%d" % (name, round) for name in (b"a", b"b") for round in range(6, 10)
        ]

    def test_at_free_pace_a_node_waits_while_it_is_too_far_ahead_of_the_only_other(self, stage):
        stage.party.options |= {"max_lag": 2}
        ann, bob = stage.meet("ann", "bob")
        for round in range(2):
            ann.publish(round, [b"a"])
            assert ann.waiting_for(round) == [], "bob is in its first round, and no more than two behind"
            assert ann.collect(round, deadline_s=LONG_S, max_lag=2) == []
        ann.publish(2, [b"a"])
        assert ann.waiting_for(2) == ["bob"]
        began_s = time.monotonic()
        assert ann.collect(2, deadline_s=0.2, max_lag=2) == []
        assert time.monotonic() - began_s >= 0.2, "until the deadline, and no longer"
        bob.publish(0, [b"b0"])
        assert ann.waiting_for(2) == []
        assert ann.collect(2, deadline_s=LONG_S, max_lag=2) == [Parcel("bob", 0, b"b0")]

    def test_at_free_pace_most_of_the_swarm_is_not_held_up_by_a_few(self):
        stage = Stage(("ann", "bob", "cid", "dan"), max_lag=2)
        ann, bob, cid, _ = stage.meet("ann", "bob", "cid", "dan")
        for round in range(7):
            for node in (ann, bob):
                node.publish(round, [])
        assert ann.waiting_for(6) == ["cid", "dan"], "two of four are not most of them"
        cid.publish(4, [])
        assert ann.waiting_for(6) == []
        stage.party.close()

    @pytest.mark.parametrize("max_foreign_groups", [None, 6])
    def test_at_free_pace_waiting_ends_with_groups_and_not_with_their_announcement(self, max_foreign_groups):
        """Rounds of six messages that take a while: a heartbeat overtakes them, and none may come too late."""
        net = MemoryNet(seed=3)
        net.faults = Faults(delay_s=0.05)
        limits = {"max_message_bytes": 4096, "max_foreign_groups": max_foreign_groups, "heartbeat_s": 0.05}
        party = Party(net.link, ("ann", "bob"), max_lag=2, **limits)
        ann, bob = party.join("ann"), party.join("bob")
        wait_for(lambda: ann.peers() and bob.peers(), "both to be there")
        rounds, taken = 8, []

        def lag_behind():
            for round in range(rounds):
                bob.publish(round, [bytes(3000)] * 6)
                bob.collect(round, deadline_s=LONG_S, max_lag=2)
                time.sleep(0.05)  # the slower machine

        slower = threading.Thread(target=lag_behind)
        slower.start()
        for round in range(rounds + 2):
            ann.publish(round, [b"a"])
            taken += ann.collect(round, deadline_s=LONG_S, max_lag=2)
        slower.join()
        assert [parcel.round for parcel in taken] == sorted([*range(rounds)] * 6)
        assert ann.num_late() == {}
        party.close()
        net.close()

    def test_at_free_pace_who_is_always_too_far_behind_is_given_up(self, stage):
        stage.party.options |= {"max_lag": 0, "heartbeat_s": 0.05, "fresh_s": 60.0}
        ann, _ = stage.meet("ann", "bob")
        for round in range(3):
            ann.publish(round, [])
            assert ann.waiting_for(round) == ["bob"]
            ann.collect(round, deadline_s=0.1, max_lag=0)
        ann.publish(3, [])
        assert ann.waiting_for(3) == []
        assert kinds(ann, "bob") == ["joined", "overdue"]

    def test_who_comes_back_with_rounds_that_are_over_is_late_and_refused_nothing(self, stage):
        ann, bob, cid = stage.meet("ann", "bob", "cid")
        stage.net.freeze("bob")
        bob.publish(0, [b"never sent"])
        stage.settle()
        for round in range(50):
            ann.publish(round, [b"a"])
            ann.collect(round, deadline_s=0.0)
        stage.net.thaw("bob")
        ann.events(), ann.num_late()
        bob.publish(1, [b"b1", b"b1 again"])
        stage.pass_s(3.0)
        assert ann.num_late() == {"bob": 2}
        assert ann.num_refused() == {}
        assert "refused" not in kinds(ann)
        for round in range(2, 12):
            bob._publisher.publish(round, [b"b"])  # before its next heartbeat, some of it again
            bob._publisher.publish(round + 900, [b"far ahead"])
        stage.pass_s(3.0)
        assert ann.num_late() == {"bob": 10}
        assert ann.num_refused() == {}
        assert "refused" not in kinds(ann)
        assert cid.num_refused() == {}

    def test_a_forged_message_of_a_round_that_is_over_is_refused_and_not_the_peer_s_lateness(self, stage):
        ann, bob = stage.meet("ann", "bob")
        for round in range(9):
            ann.publish(round, [])
        bob.publish(0, [b"b"])
        (genuine,) = bob._publisher.answer("roll/bob/0")
        stage.settle()
        assert ann.num_late() == {"bob": 1}
        ann._arrivals.put("roll/bob/0", genuine[:-1] + bytes([genuine[-1] ^ 1]))
        stage.settle()
        assert ann.num_late() == {}
        assert ann.num_refused() == {"bob": {"bad_signature": 1}}
        (event,) = [event for event in ann.events() if event.kind == "refused"]
        assert event.text == "1 message refused: not signed by the key that they name"

    def test_a_round_is_published_once(self, stage):
        (ann,) = stage.meet("ann")
        ann.publish(0, [b"x"])
        with pytest.raises(RuntimeError, match="round 0 was published before"):
            ann.publish(0, [b"y"])

    def test_groups_that_fit_into_no_message_are_left_out_and_counted(self, stage):
        ann, bob = stage.meet("ann", "bob", max_message_bytes=4096)
        ann.publish(0, [b"1", bytes(4096), b"2", *[bytes(1000)] * 10])
        bob.publish(0, [])
        assert payloads(bob.collect(0, deadline_s=LONG_S)) == [b"1", b"2", *[bytes(1000)] * 10]
        assert ann.status().dropped == {"too_large": 1}

    def test_a_later_round_says_that_the_earlier_ones_were_skipped(self, stage):
        ann, bob = stage.meet("ann", "bob")
        bob.publish(5, [b"jumped"])
        assert ann.waiting_for(3) == []
        assert ann.waiting_for(6) == ["bob"]


class TestIdentity:
    def twins(self, stage):
        first = stage.join("ann")
        stage.pass_s(2.0)
        second = stage.party.join("ann", threads=False, clock=first._clock, link=stage.net.link("ann's double"))
        stage.nodes["double"] = second
        stage.pass_s(2.0)
        return first, second

    def test_of_two_processes_with_one_key_the_later_one_stops(self, stage):
        bob = stage.join("bob")
        first, second = self.twins(stage)
        assert first.status().duplicate_identity
        assert second.status().duplicate_identity
        assert "duplicate_identity" in kinds(first)
        first.publish(0, [b"goes on"])
        for call in (lambda: second.publish(0, []), lambda: second.collect(0, deadline_s=LONG_S)):
            with pytest.raises(SwarmRefused) as caught:
                call()
            assert caught.value.code == "E-SWARM-12"
        assert bob.peers() == ["ann"]

    def test_two_that_begin_at_the_same_moment_both_stop(self, stage):
        first, drift_s = stage.join("ann"), [0.0]
        clock = Clock(first._clock.monotonic_s, lambda: first._clock.unix_s() + drift_s[0])
        second = stage.party.join("ann", threads=False, clock=clock, link=stage.net.link("ann's double"))
        stage.nodes["double"] = second
        assert first.status().boot == second.status().boot
        drift_s[0] = 0.003
        stage.pass_s(2.0)
        for node in (first, second):
            assert node.status().duplicate_identity
            assert "duplicate_identity" in kinds(node)
            with pytest.raises(SwarmRefused, match="another process uses this node's name and key"):
                node.publish(0, [])

    def test_a_node_s_own_heartbeats_that_come_back_are_no_double(self, stage):
        (ann,) = stage.meet("ann")
        (first,) = ann._publisher.answer("beat/ann")
        for _ in range(100):
            ann._arrivals.put("beat/ann", ann._publisher.answer("beat/ann")[0])
            stage.pass_s(1.0)
        ann._arrivals.put("beat/ann", first)
        stage.pass_s(1.0)
        assert not ann.status().duplicate_identity

    def test_one_that_finds_itself_a_double_before_it_has_spoken_is_told_of_at_the_other(self):
        with memory_links() as make_link:
            party = Party(make_link, heartbeat_s=0.1)
            bob, first = party.join("bob"), party.join("ann")
            wait_for(lambda: bob.peers() == ["ann"])
            second = party.make("ann", link=make_link("double"))
            with pytest.raises(SwarmRefused, match="began earlier"):
                second.open(listen_s=LONG_S)
            wait_for(lambda: first.status().duplicate_identity, "the first to learn of the second")
            told = next(event.text for event in first.events() if event.kind == "duplicate_identity")
            assert told.endswith("it has stopped, and this one goes on")
            first.publish(0, [b"goes on"])
            bob.publish(0, [])
            assert payloads(bob.collect(0, deadline_s=LONG_S)) == [b"goes on"]
            party.close()

    def test_the_first_is_heard_again_after_a_second_that_had_spoken_has_stopped(self, stage):
        bob = stage.join("bob")
        first, second = self.twins(stage)
        second.close()
        stage.pass_s(2.0)
        assert bob.peers() == ["ann"]
        first.publish(0, [b"goes on"])
        bob.publish(0, [])
        assert payloads(bob.collect(0, deadline_s=LONG_S)) == [b"goes on"]

    def test_the_older_process_of_a_restarted_node_is_no_double(self, stage):
        old = stage.join("ann")
        stage.pass_s(2.0)
        last_words = old._publisher.answer("beat/ann")[0]
        stage.vanish("ann")
        stage.now_s += 0.5
        new = stage.join("ann")
        for _ in range(3):
            new._arrivals.put("beat/ann", last_words)
            stage.pass_s(1.0)
        assert not new.status().duplicate_identity
        new.publish(0, [])
        assert new.num_refused() == {"?": {"replay": 3}}

    def test_a_name_belongs_to_the_key_that_came_first(self, stage):
        ann, bob = stage.meet("ann", "bob")
        mallory = NodeKey.generate()
        stage.nodes["mallory"] = stage.party.join("bob", key=mallory, threads=False, clock=ann._clock,
                                                  link=stage.net.link("mallory"))  # fmt: skip
        stage.nodes["mallory"].publish(0, [b"not bob's"])
        stage.pass_s(2.0)
        bob.publish(0, [b"bob's"])
        assert payloads(ann.collect(0, deadline_s=LONG_S)) == [b"bob's"]
        refused = ann.num_refused()["bob"]
        assert refused["wrong_key"] >= 1
        assert bob.num_refused()["?"]["impersonation"] >= 1
        assert any(short(mallory.public) in event.text for event in bob.events())

    def test_a_credential_must_be_the_node_s_own(self, stage):
        key = NodeKey.generate()
        with pytest.raises(ValueError, match="not that of node 'ann'"):
            NetworkExchange("ann", key=key, credential=plain_credential("bob", key.public), run_id=bytes(16),
                            roster=Roster(bytes(16), authority=None, pins={}), card={}, link=stage.net.link("ann"),
                            options=NetworkOptions(num_rounds=1))  # fmt: skip


class TestOtherRuns:
    def test_nodes_of_another_card_are_told_apart_by_the_lines_that_differ(self, stage):
        (ann,) = stage.meet("ann")
        ann.publish(0, [])
        bob = stage.join("bob", card={**CARD, "task": "other\x1b[31m\nsums" + "x" * 100})
        with pytest.raises(SwarmRefused, match=r"ann differs in task: here 'other.*, there 'sums'") as caught:
            bob.gather(["ann"], deadline_s=LONG_S, stop=lambda: stage.pass_s(1.0))
        assert caught.value.code == "E-SWARM-15"
        assert ann.peers() == bob.peers() == ann.waiting_for(0) == []
        assert ann.collect(0, deadline_s=LONG_S) == []
        bob._publisher.publish(0, [b"b"])
        stage.settle()
        assert ann.num_refused()["bob"]["other_run"] >= 1
        told = [event for event in ann.events() if event.kind == "other_run"]
        assert len(told) == 1
        assert told[0].text.startswith("is of another run: task: here 'sums', there 'other\\x1b[31m\\nsumsxxx")
        assert told[0].text.endswith("...'")
        assert told[0].text.isprintable()
        assert len(told[0].text) < 140
        assert peer_of(ann, "bob").state == "refused"
        assert "here 'other" in next(event.text for event in bob.events() if event.kind == "other_run")

    def test_the_card_is_asked_for_again_if_it_does_not_come(self, stage):
        (ann,) = stage.meet("ann")
        bob = stage.join("bob", card={**CARD, "seed": "8"})
        stage.net.faults = type(stage.net.faults)(drop=1.0)
        ann._arrivals.put("beat/bob", bob._publisher.answer("beat/bob")[0])
        stage.pass_s(1.0)
        assert "other_run" not in kinds(ann)
        stage.net.faults = type(stage.net.faults)()
        stage.pass_s(10.0)
        assert "other_run" in kinds(ann)

    def test_messages_of_other_runs_are_refused(self, stage):
        (ann,) = stage.meet("ann")
        stage.party.run_id = bytes(16)
        stage.join("bob").publish(0, [b"b"])
        stage.pass_s(1.0)
        assert ann.peers() == []
        assert ann.num_refused()["?"]["foreign_run"] >= 2


class TestRevocation:
    def test_a_revoked_node_is_out_everywhere_and_its_groups_with_it(self, stage):
        authority = NodeKey.generate()
        invites = {name: NodeKey.generate() for name in ("ann", "bob", "cid")}
        rosters = {}

        def join(name):
            party, key = stage.party, stage.party.keys[name]
            grant = issue_grant(authority, party.run_id, name, invites[name].public, 2**40)
            rosters[name] = Roster(party.run_id, authority=authority.public, pins={})
            node = NetworkExchange(name, key=key, credential=bind(invites[name], grant, key.public),
                                   roster=rosters[name], run_id=party.run_id, card=CARD, link=stage.net.link(name),
                                   options=NetworkOptions(num_rounds=9), threads=False)  # fmt: skip
            node.open()
            stage.nodes[name] = node
            return node

        ann, bob, cid = join("ann"), join("bob"), join("cid")
        wait_for(lambda: stage.settle() or (ann.peers() == ["bob", "cid"] and cid.peers() == ["ann", "bob"]))
        bob.publish(0, [b"b"])
        stage.settle()
        revocations = issue_revocations(authority, stage.party.run_id, 1, [invites["bob"].public])
        assert ann.revoke(revocations)
        assert not ann.revoke(revocations), "that is no news"
        assert ann.peers() == ["cid"]
        for _ in range(8):
            ann._housekeeper.beat()
        stage.settle()
        assert cid.peers() == ["ann"], "the list travels in heartbeats"
        assert ann.waiting_for(0) == ["cid"]
        cid.publish(0, [b"c"])
        assert payloads(ann.collect(0, deadline_s=LONG_S)) == [b"c"]
        bob._housekeeper.beat()
        stage.settle()
        assert ann.num_refused()["?"]["revoked"] >= 1
        for node in (ann, bob, cid):
            node.close()


class TestLink:
    def test_a_broken_link_is_opened_anew_with_patience(self, stage):
        ann, bob = stage.meet("ann", "bob")
        ann.events()
        attempts = []
        stage.net.break_link("ann", "cable out", reopens=False)
        reopen = ann._link.open
        ann._link.open = lambda **options: attempts.append(stage.now_s) or reopen(**options)
        stage.pass_s(7.0)
        assert 3 <= len(attempts) <= 6, "ever more rarely"
        assert ann.status().link_fault == "memory/ann: nobody answers; try again later"
        assert ann.peers() == []
        ann.publish(0, [b"kept"])
        stage.net.let_in("ann")
        stage.pass_s(10.0)
        assert ann.status().link_fault is None
        events = ann.events()
        assert [event.kind for event in events] == ["link_down", "silent", "link_up", "back"]
        assert events[0].text == "the link does not work: cable out; opening it anew"
        assert bob.peers() == ["ann"]
        bob.publish(0, [])
        assert payloads(bob.collect(0, deadline_s=LONG_S)) == [b"kept"]

    def test_a_link_that_does_not_open_at_first_is_an_error(self, stage):
        stage.net.break_link("ann", "", reopens=False)
        ann = stage.party.make("ann", threads=False)
        with pytest.raises(SwarmUnreachable):
            ann.open()
        ann.close()

    def test_a_thread_that_ends_by_a_fault_of_a_link_is_noticed(self, stage):
        class Bad:
            def __init__(self, link):
                self.link = link

            def __getattr__(self, name):
                return getattr(self.link, name)

            def send(self, topic, message):
                if topic.startswith("roll/"):
                    raise OSError("against its contract")
                self.link.send(topic, message)

        raised = []
        before, threading.excepthook = threading.excepthook, raised.append
        try:
            ann = stage.party.join("ann", link=Bad(stage.net.link("ann")))
            ann.publish(0, [b"x"])
            wait_for(lambda: ann._broken is not None)
            with pytest.raises(RunFailed, match="the sending thread of the exchange has ended") as caught:
                ann.publish(1, [])
            assert caught.value.code == "E-SWARM-13"
            ann.close()
        finally:
            threading.excepthook = before
        assert [str(one.exc_value) for one in raised] == ["against its contract"]

    def test_what_the_link_and_the_node_lose_is_in_the_status(self, stage):
        (ann,) = stage.meet("ann", max_message_bytes=4096)
        assert ann.status().dropped == {}
        ann._link.dropped = lambda: {"permission": 2, "too_large": 1}
        ann.publish(0, [bytes(5000)])
        assert ann.status().dropped == {"permission": 2, "too_large": 2}


class TestThreads:
    def test_they_all_end_at_close(self):
        before = set(threading.enumerate())
        with memory_links() as make_link:
            party = Party(make_link)
            nodes = [party.join(name) for name in ("ann", "bob")]
            pulling = party.join("cid", max_foreign_groups=4)
            wait_for(lambda: nodes[0].peers() == ["bob", "cid"])
            assert len(set(threading.enumerate()) - before) == 5 + 5 + 7
            for node in [*nodes, pulling]:
                node.close()
                node.close()
        assert set(threading.enumerate()) - before == set()

    def test_one_that_was_never_opened_can_be_closed(self, stage):
        ann = stage.party.make("ann")
        ann.close()
        with pytest.raises(RuntimeError, match="'ann' has left"):
            ann.publish(0, [])

    def test_what_was_published_last_is_sent_before_leaving(self):
        with memory_links() as make_link:
            party = Party(make_link)
            ann, bob = party.join("ann"), party.join("bob")
            wait_for(lambda: ann.peers() and bob.peers())
            ann.publish(0, [b"last words"])
            ann.close()
            bob.publish(0, [])
            wait_for(lambda: not bob.peers())
            assert payloads(bob.collect(0, deadline_s=LONG_S)) == [b"last words"]
            party.close()

    def test_closing_ends_a_wait(self):
        with memory_links() as make_link:
            party = Party(make_link)
            ann, bob = party.join("ann"), party.join("bob")
            wait_for(lambda: ann.peers() and bob.peers())
            results = []
            waiting = threading.Thread(target=lambda: results.append(ann.collect(0, deadline_s=LONG_S)))
            waiting.start()
            wait_for(lambda: ann.status().waiting_for == ["bob"])
            start_s = time.monotonic()
            ann.close()
            waiting.join(LONG_S)
            assert results == [[]]
            assert time.monotonic() - start_s < LONG_S / 2
            party.close()


def test_the_status_can_be_written_as_json(stage):
    ann, bob = stage.meet("ann", "bob")
    bob.publish(0, [b"b"])
    bob.begin(0)
    stage.settle()
    status = msgspec.json.decode(msgspec.json.encode(ann.status()), type=SwarmStatus)
    assert status == ann.status()
    (peer,) = status.peers
    assert (peer.name, peer.key, peer.round, peer.from_round) == ("bob", short(stage.party.keys["bob"].public), 0, 0)
    assert min(peer.bytes_in, status.bytes_in, status.bytes_out) > 0
    assert [neighbour.address for neighbour in status.neighbours] == ["memory/bob"]


@pytest.mark.parametrize("options", [{"keep_rounds": 2}, {"keep_rounds": 257}, {"max_message_bytes": 100}])
def test_limits_under_which_nothing_works_are_refused(options):
    with pytest.raises(ValueError, match="is"):
        NetworkOptions(num_rounds=1, **options)
