"""A member of the swarm that sends whatever harms: the node goes on as if it had not been sent, and keeps count.

Ann is an honest node. The attacker has joined the hub under a member's name, "bob", and publishes what it likes; for
comparison a second ann meets a bob who sends the honest groups alone.
"""

from __future__ import annotations

import dataclasses
import json
import math
from contextlib import ExitStack

import numpy as np
import pytest
import torch
from hostile import ATTACKS, Target, change_sampler, flood, lowered, with_ids
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from motet.admission import Gate
from motet.admission.conduct import WEIGHTS, Conduct
from motet.node import Phase, assemble_nodes
from motet.records import Archive, encode_group

VOCAB_SIZE, END, MAX_NEW_TOKENS = 16, 1, 10


@pytest.fixture(params=["vertical", "horizontal"])
def collaboration(request):
    return request.param


@pytest.fixture
def meet(make_run, tmp_path, collaboration):
    """Builds ann and bob. Of bob only the exchange and the honest groups are used."""
    with ExitStack() as stack:
        count = 0

        def build(*, strict=False, **sections):
            nonlocal count
            count += 1
            merged = {"collaboration": collaboration, **sections.pop("swarm", {})}
            run = make_run(
                nodes={"ann": "tiny:small", "bob": "tiny:small", "cid": "tiny:small"}, swarm=merged, **sections
            )
            archives = {n.name: stack.enter_context(Archive(tmp_path / f"{count}" / n.name)) for n in run.node}
            members = assemble_nodes(run, archives=archives).members
            ann, bob = members["ann"].node, members["bob"].node
            members["cid"].node.exchange.close()
            if not strict:
                relax(ann)
            honest = bob.production.sampler.sample(bob.assignment.plan("bob", 0), round=0, policy_step=0)
            return ann, bob, honest

        yield build


def play(ann, bob, payloads, round=0):
    """One round of ann, with these payloads of bob's; her report."""
    steps = ann.run_round(round)
    while next(steps) is not Phase.WAIT:
        pass
    bob.exchange.publish(round, payloads)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


def state_of(ann):
    optimizer = ann.learner.optimizer
    weights = {name: master.detach().clone() for name, master in zip(optimizer.names, optimizer.masters, strict=True)}
    moments = {
        f"{name}/{key}": value.clone()
        for name, master in zip(optimizer.names, optimizer.masters, strict=True)
        for key, value in optimizer.adamw.state.get(master, {}).items()
    }
    return weights | moments


def same_state(first, second):
    one, other = state_of(first), state_of(second)
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def step_metrics(report):
    return {
        name: value
        for name, value in report.metrics.items()
        if not name.startswith(("time/", "admission/", "wire/bytes_received"))
    }


def relax(node):
    """A gate that counts neither groups nor strikes: what each check finds shows."""
    gate = node.gate
    rules = dataclasses.replace(
        gate._rules, spare_groups=10**9, max_bytes_per_round=2**40, quarantine_after=10**9, quarantine_rounds=20
    )
    node.gate = Gate(rules, task=gate._task, decode=gate._decode, expected=gate._expected)


def target_of(ann):
    """What an attacker knows: all of it is in the run file."""
    theirs = {ask.prompt_id for ask in ann.assignment.plan("bob", 0)}
    unassigned = next(f"train/{index}" for index in range(100) if f"train/{index}" not in theirs)
    return Target("ann", "cid", unassigned=unassigned, vocab_size=VOCAB_SIZE, end=END, max_new_tokens=MAX_NEW_TOKENS)


@pytest.fixture(scope="module")
def honest_rounds():
    """Ann's round with the honest groups alone, by collaboration: played once."""
    return {}


@pytest.fixture
def honest_round(meet, collaboration, honest_rounds):
    if collaboration not in honest_rounds:
        ann, bob, honest = meet()
        report = play(ann, bob, [encode_group(group) for group in honest[1:]])
        honest_rounds[collaboration] = ann, report
    return honest_rounds[collaboration]


def test_all_attacks_at_once_change_nothing(meet, honest_round, collaboration):
    """Each attack is made from the first honest group, which is not sent itself; the others stand among the attacks."""
    expected_ann, expected = honest_round
    ann, bob, (first, *others) = meet()
    reasons, payloads = [], []
    honest = [encode_group(group) for group in others]
    for number, attack in enumerate(ATTACKS.values()):
        payloads.append(attack.payload(first, target_of(ann)))
        reasons.append(attack.reason)
        if number < len(honest):
            payloads.append(honest[number])
    report = play(ann, bob, payloads)
    assert same_state(ann, expected_ann)
    assert step_metrics(report) == step_metrics(expected)
    account = ann.ledger.account("bob")
    assert account.accepted == len(honest)
    assert account.received == len(payloads)
    assert account.num_bytes == sum(map(len, payloads))
    assert report.metrics["admission/rejected"] == account.rejected.total() == len(ATTACKS)
    # The first group whose prompt is looked up takes its place: what comes later for that prompt is a duplicate.
    looked_up = [r for r in reasons if (r.startswith("bad_") and r != "bad_sampler") or r == "forged_logp"]
    assert account.rejected["duplicate"] == len(looked_up) - 1
    for reason in {"malformed", "impersonation", "unassigned_prompt", "unknown_prompt", "bad_sampler", "wrong_round"}:
        assert account.rejected[reason] == reasons.count(reason)
    assert ann.ledger.peers() == ["bob"]


@pytest.mark.parametrize("name", ATTACKS)
def test_each_attack_alone_has_its_reason(meet, honest_round, name):
    expected_ann, expected = honest_round
    ann, bob, (first, *others) = meet()
    attack = ATTACKS[name]
    payloads = [attack.payload(first, target_of(ann)), *(encode_group(group) for group in others)]
    report = play(ann, bob, payloads)
    account = ann.ledger.account("bob")
    assert dict(account.rejected) == {attack.reason: 1}
    assert report.metrics[f"admission/rejected/{attack.reason}"] == 1
    assert account.strikes == report.metrics["admission/strikes"] == WEIGHTS[attack.reason]
    assert same_state(ann, expected_ann)
    assert step_metrics(report) == step_metrics(expected)


def test_a_share_larger_than_given(meet, collaboration):
    """Vertical groups may have any size up to the limit; horizontal ones no more than the share."""
    ann, bob, (first, *_) = meet()
    more = dataclasses.replace(first, rollouts=first.rollouts + first.rollouts[:1])
    play(ann, bob, [encode_group(more)])
    account = ann.ledger.account("bob")
    if collaboration == "vertical":
        assert account.accepted == 1
        assert account.kept + account.dropped.total() == len(more.rollouts)
    else:
        assert dict(account.rejected) == {"bad_group_size": 1}


def test_groups_of_any_size_stand_beside_each_other(meet):
    """Ragged groups: one of a single rollout, others cut short."""
    ann, bob, honest = meet()
    ragged = [dataclasses.replace(g, rollouts=g.rollouts[: 1 + n % 3]) for n, g in enumerate(honest)]
    report = play(ann, bob, [encode_group(group) for group in ragged])
    account = ann.ledger.account("bob")
    assert account.accepted == len(ragged) == report.metrics["external/groups"]
    assert account.kept + account.dropped.total() == sum(len(group.rollouts) for group in ragged)
    assert all(bool(torch.isfinite(tensor).all()) for tensor in state_of(ann).values())


@pytest.mark.parametrize("claim", [0.0, 1.0, -5.0, 1e30])
def test_claimed_rewards_are_replaced_by_own_scoring_and_counted(meet, claim):
    honest_ann, honest_bob, honest = meet()
    expected = play(honest_ann, honest_bob, [encode_group(group) for group in honest])
    ann, bob, _ = meet()
    lies = [
        dataclasses.replace(g, rollouts=tuple(dataclasses.replace(r, reward=claim) for r in g.rollouts)) for g in honest
    ]
    report = play(ann, bob, [encode_group(group) for group in lies])
    wrong = sum(rollout.reward != claim for group in honest for rollout in group.rollouts)
    assert same_state(ann, honest_ann)
    assert step_metrics(report) == step_metrics(expected)
    account = ann.ledger.account("bob")
    assert account.reward_mismatches == report.metrics["admission/reward_mismatches"] == wrong > 0
    assert account.rejected.total() == 0


def test_forged_log_probs_that_somebody_might_have_are_dropped_by_their_kl(meet):
    """They would weigh the most: pi_old/pi_gen is large. The KL estimate of such a claim is large as well."""
    ann, bob, honest = meet(method={"kl_limit_nats": 10.0})
    report = play(ann, bob, [encode_group(lowered(group, 1.6)) for group in honest])
    account = ann.ledger.account("bob")
    assert account.accepted == len(honest), "in small groups nothing but our own model can tell"
    assert account.kept == 0
    assert set(account.dropped) <= {"advantage", "kl", "advantage_and_kl"}
    assert account.dropped.total() == sum(len(group.rollouts) for group in honest)
    assert report.metrics["external/influence_share"] == 0
    assert all(bool(torch.isfinite(tensor).all()) for tensor in state_of(ann).values())


def test_without_a_filter_forged_log_probs_are_capped_and_finite(meet):
    ann, bob, honest = meet(method={"name": "tis"})
    report = play(ann, bob, [encode_group(lowered(group, 1.6)) for group in honest])
    assert ann.ledger.account("bob").accepted == len(honest)
    assert report.metrics["weight/capped_share"] > 0.5
    assert report.metrics["optim/skipped"] == 0
    assert all(math.isfinite(value) for value in report.metrics.values())
    assert all(bool(torch.isfinite(tensor).all()) for tensor in state_of(ann).values())


def test_unlikely_tokens_from_a_hot_sampler_do_no_harm(meet):
    """Uniformly random ids with honest log-probs: far from the policy, so dropped or worthless, never a crash."""
    ann, bob, honest = meet()
    random = np.random.default_rng(1)
    noise = [
        with_ids(change_sampler(group, temperature=100.0), [*random.integers(2, VOCAB_SIZE, 5), END])
        for group in honest
    ]
    play(ann, bob, [encode_group(group) for group in noise])
    assert ann.ledger.account("bob").accepted == len(honest)
    assert all(bool(torch.isfinite(tensor).all()) for tensor in state_of(ann).values())


def test_duplicates_are_learned_from_once(meet):
    honest_ann, honest_bob, honest = meet()
    payloads = [encode_group(group) for group in honest]
    expected = play(honest_ann, honest_bob, payloads)
    ann, bob, _ = meet()
    report = play(ann, bob, payloads * 3)
    assert same_state(ann, honest_ann)
    assert step_metrics(report) == step_metrics(expected)
    assert dict(ann.ledger.account("bob").rejected) == {"duplicate": 2 * len(honest)}


def test_a_flood_of_rounds_to_come_is_left_where_it_is(meet):
    """Lockstep: what is published for other rounds is neither learned from now nor an error."""
    honest_ann, honest_bob, honest = meet()
    payloads = [encode_group(group) for group in honest]
    expected = play(honest_ann, honest_bob, payloads)
    ann, bob, _ = meet()
    for round in (-3, 7, 2**62):
        bob.exchange.publish(round, payloads)
    report = play(ann, bob, payloads)
    assert same_state(ann, honest_ann)
    assert step_metrics(report) == step_metrics(expected)
    account = ann.ledger.account("bob")
    assert account.late == report.metrics["admission/late"] == len(honest)


def test_several_rounds_under_attack_equal_several_without(meet):
    """The attacks leave no trace that shows in a later round."""
    honest_ann, honest_bob, _ = meet()
    ann, bob, _ = meet()
    for round in range(3):
        groups = bob.production.sampler.sample(bob.assignment.plan("bob", round), round=round, policy_step=0)
        payloads = [encode_group(group) for group in groups]
        play(honest_ann, honest_bob, payloads, round)
        names = ("zeros", "as-the-receiver", "test-prompt", "cut")
        attacks = [ATTACKS[name].payload(groups[0], target_of(ann)) for name in names]
        play(ann, bob, [*payloads, *attacks], round)
        assert same_state(ann, honest_ann)
    assert ann.ledger.account("bob").rejected.total() == 12


@pytest.mark.parametrize("strict", [True, False])
def test_a_thousand_hostile_groups_are_as_if_nothing_had_been_sent(meet, strict):
    """Four rounds, 250 messages of every kind in each, against a peer that says: nothing this round."""
    quiet_ann, quiet_bob, _ = meet()
    ann, bob, _ = meet(strict=strict)
    for round in range(4):
        groups = bob.production.sampler.sample(bob.assignment.plan("bob", round), round=round, policy_step=0)
        shots = flood(groups, target_of(ann), count=250, seed=round)
        expected = play(quiet_ann, quiet_bob, [], round)
        report = play(ann, bob, [shot.payload for shot in shots], round)
        assert same_state(ann, quiet_ann)
        assert step_metrics(report) == step_metrics(expected)
    account = ann.ledger.account("bob")
    assert (account.received, account.accepted, account.kept) == (1000, 0, 0)
    assert account.rejected.total() == 1000
    assert ann.ledger.peers() == ["bob"]
    if strict:
        assert account.quarantines == 1
        assert account.rejected["quarantined"] > 900, "after the first few nothing is parsed any more"
        assert report.metrics["admission/quarantined"] == 1
    else:
        assert account.rejected["quarantined"] == account.quarantines == 0


def test_a_peer_that_has_served_its_time_is_learned_from_again(meet):
    ann, bob, _ = meet(strict=True)
    ann.gate.conduct = Conduct(quarantine_after=3, quarantine_rounds=2)
    accepted = []
    for round in range(5):
        groups = bob.production.sampler.sample(bob.assignment.plan("bob", round), round=round, policy_step=0)
        payloads = [encode_group(group) for group in groups]
        report = play(ann, bob, [b""] * 3 + payloads[:1] if round == 0 else payloads, round)
        accepted.append(report.metrics["external/groups"])
    assert accepted[:3] == [0, 0, 0]
    assert min(accepted[3:]) > 0
    account = ann.ledger.account("bob")
    assert (account.quarantines, account.quarantined_until) == (1, None)


def test_what_the_gate_remembers_survives_an_interruption(meet):
    ann, bob, honest = meet(strict=True)
    play(ann, bob, [b""] * 3 + [encode_group(group) for group in honest])
    plain = json.loads(json.dumps(ann.gate.to_dict()))
    other, _, _ = meet(strict=True)
    other.gate.restore(plain)
    assert other.gate.to_dict() == ann.gate.to_dict()
    verdict = other.gate.admit(peer="bob", round=1, payload=encode_group(honest[0]), current_round=1)
    assert verdict.reason == "quarantined"


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_bytes_stop_a_node(shared_gate, data):
    """Any bytes, and any honest message with any few bytes changed: a verdict, accepted or with one reason."""
    ann, payloads = shared_gate
    kind = data.draw(st.sampled_from(["random", "changed", "cut", "joined"]))
    payload = bytearray(data.draw(st.sampled_from(payloads)))
    if kind == "random":
        payload = bytearray(data.draw(st.binary(max_size=300)))
    elif kind == "changed":
        for _ in range(data.draw(st.integers(1, 4))):
            payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    elif kind == "cut":
        payload = payload[: data.draw(st.integers(0, len(payload)))]
    else:
        payload += data.draw(st.sampled_from(payloads))
    verdict = ann.gate.admit(peer="bob", round=0, payload=bytes(payload), current_round=0)
    assert verdict.accepted == (verdict.reason is None)


@pytest.fixture
def shared_gate(meet):
    ann, _, honest = meet()
    return ann, [encode_group(group) for group in honest]
