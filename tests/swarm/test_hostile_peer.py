"""A member of the swarm that sends whatever harms: the node goes on as if it had not been sent, and keeps count.

Ann is an honest node. The attacker has joined the hub under a member's name, "bob", and publishes what it likes; for
comparison a second ann meets a bob who sends the honest groups alone.
"""

from __future__ import annotations

import dataclasses
import math
import pickle
import struct
from contextlib import ExitStack

import msgspec
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

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

        def build(**sections):
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


def change(group, index=0, **fields):
    """The group with one rollout changed."""
    rollouts = list(group.rollouts)
    rollouts[index] = dataclasses.replace(rollouts[index], **fields)
    return dataclasses.replace(group, rollouts=tuple(rollouts))


def change_sampler(group, **fields):
    return dataclasses.replace(group, sampler=dataclasses.replace(group.sampler, **fields))


def with_logp(group, value):
    logp = group.rollouts[0].logp_gen.copy()
    logp[-1] = value
    return change(group, logp_gen=logp)


def with_ids(group, ids, finish_reason="stop"):
    ids = np.array(ids, dtype=np.uint32)
    return change(group, token_ids=ids, logp_gen=np.full(len(ids), -0.5, np.float32), finish_reason=finish_reason)


def with_header(payload, position, value):
    """The payload with one field of its header replaced: what no honest encoder would write."""
    magic, version, size = struct.unpack_from("<4sHI", payload)
    header = msgspec.msgpack.decode(payload[10 : 10 + size])
    header[position] = value
    packed = msgspec.msgpack.encode(header)
    return struct.pack("<4sHI", magic, version, len(packed)) + packed + payload[10 + size :]


def ragged_header(payload):
    """One rollout announces three tokens more than it has."""
    size = struct.unpack_from("<4sHI", payload)[2]
    lengths = msgspec.msgpack.decode(payload[10 : 10 + size])[9]
    return with_header(payload, 9, [lengths[0] + (3 if lengths[0] > 0 else -3), *lengths[1:]])


# name: (from an honest group and ann to a payload, the reason that the ledger must have)
ATTACKS = {
    "nan": (lambda g, _: with_logp(g, np.nan), "bad_logp"),
    "inf": (lambda g, _: with_logp(g, np.inf), "bad_logp"),
    "minus-inf": (lambda g, _: with_logp(g, -np.inf), "bad_logp"),
    "positive-logp": (lambda g, _: with_logp(g, 0.5), "bad_logp"),
    "absurd-logp": (lambda g, _: with_logp(g, -1e30), "bad_logp"),
    "nan-reward": (lambda g, _: change(g, reward=math.nan), "bad_reward"),
    "infinite-reward": (lambda g, _: change(g, reward=math.inf), "bad_reward"),
    "beyond-vocabulary": (lambda g, _: with_ids(g, [5, VOCAB_SIZE, END]), "bad_token"),
    "largest-id": (lambda g, _: with_ids(g, [2**32 - 1, END]), "bad_token"),
    "end-in-the-middle": (lambda g, _: with_ids(g, [5, END, 6, END]), "bad_token"),
    "stop-without-end": (lambda g, _: with_ids(g, [5, 6, 7]), "bad_token"),
    "too-long": (lambda g, _: with_ids(g, [5] * MAX_NEW_TOKENS + [END]), "bad_length"),
    "cut-too-early": (lambda g, _: with_ids(g, [5, 6], "length"), "bad_length"),
    "too-many": (lambda g, _: dataclasses.replace(g, rollouts=g.rollouts * 40), "bad_group_size"),
    "test-prompt": (lambda g, _: dataclasses.replace(g, prompt_id="test/0"), "unassigned_prompt"),
    "own-prompt-of-ann": (lambda g, ann: dataclasses.replace(g, prompt_id=unassigned(ann)), "unassigned_prompt"),
    "no-such-prompt": (lambda g, _: dataclasses.replace(g, prompt_id="train/999999999"), "unknown_prompt"),
    "path-as-prompt": (lambda g, _: dataclasses.replace(g, prompt_id="../../etc/passwd"), "unknown_prompt"),
    "other-tokenizer": (lambda g, _: change_sampler(g, tokenizer="0" * 32), "wrong_tokenizer"),
    "temperature-0": (lambda g, _: change_sampler(g, temperature=0.0), "bad_sampler"),
    "temperature-nan": (lambda g, _: change_sampler(g, temperature=math.nan), "bad_sampler"),
    "temperature-below-0": (lambda g, _: change_sampler(g, temperature=-1.0), "bad_sampler"),
    "step-below-0": (lambda g, _: change_sampler(g, policy_step=-5), "bad_sampler"),
    "as-ann": (lambda g, _: dataclasses.replace(g, peer="ann"), "impersonation"),
    "as-cid": (lambda g, _: dataclasses.replace(g, peer="cid"), "impersonation"),
    "as-nobody": (lambda g, _: dataclasses.replace(g, peer=""), "impersonation"),
    "other-round": (lambda g, _: dataclasses.replace(g, round=1), "wrong_round"),
    "round-below-0": (lambda g, _: dataclasses.replace(g, round=-1), "wrong_round"),
    "other-version": (lambda g, _: set_bytes(encode_group(g), 4, b"\x02\x00"), "wrong_version"),
    "version-to-come": (lambda g, _: set_bytes(encode_group(g), 4, b"\x04\x00"), "wrong_version"),
    "other-magic": (lambda g, _: set_bytes(encode_group(g), 0, b"PK\x03\x04"), "malformed"),
    "cut": (lambda g, _: encode_group(g)[:-1], "malformed"),
    "longer": (lambda g, _: encode_group(g) + b"\0", "malformed"),
    "ragged": (lambda g, _: ragged_header(encode_group(g)), "malformed"),
    "no-rollouts": (lambda g, _: with_header(encode_group(g), 9, []), "malformed"),
    "no-rewards": (lambda g, _: with_header(encode_group(g), 10, []), "malformed"),
    "other-id-bits": (lambda g, _: with_header(encode_group(g), 7, 32), "malformed"),
    "exact-announced": (lambda g, _: with_header(encode_group(g), 8, True), "malformed"),
    "other-types": (lambda g, _: with_header(encode_group(g), 1, "zero"), "malformed"),
    "empty": (lambda _g, _: b"", "malformed"),
    "random": (lambda _g, _: np.random.default_rng(0).bytes(2000), "malformed"),
    "zeros": (lambda _g, _: bytes(1_000_000), "malformed"),
    "too-large": (lambda _g, _: bytes(4_000_001), "malformed"),
    "pickle": (lambda _g, _: pickle.dumps(print), "malformed"),
}  # fmt: skip


def set_bytes(payload, offset, new):
    return payload[:offset] + new + payload[offset + len(new) :]


def unassigned(ann):
    """A training prompt that bob was not given."""
    theirs = {ask.prompt_id for ask in ann.assignment.plan("bob", 0)}
    return next(f"train/{index}" for index in range(100) if f"train/{index}" not in theirs)


def to_bytes(payload):
    return payload if isinstance(payload, bytes) else encode_group(payload)


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
    for number, (attack, reason) in enumerate(ATTACKS.values()):
        payloads.append(to_bytes(attack(first, ann)))
        reasons.append(reason)
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
    looked_up = [r for r in reasons if r in {"bad_logp", "bad_reward", "bad_token", "bad_length", "bad_group_size"}]
    assert account.rejected["duplicate"] == len(looked_up) - 1
    for reason in {"malformed", "impersonation", "unassigned_prompt", "unknown_prompt", "bad_sampler", "wrong_round"}:
        assert account.rejected[reason] == reasons.count(reason)
    assert ann.ledger.peers() == ["bob"]


@pytest.mark.parametrize("name", ATTACKS)
def test_each_attack_alone_has_its_reason(meet, honest_round, name):
    expected_ann, expected = honest_round
    ann, bob, (first, *others) = meet()
    attack, reason = ATTACKS[name]
    payloads = [to_bytes(attack(first, ann)), *(encode_group(group) for group in others)]
    report = play(ann, bob, payloads)
    account = ann.ledger.account("bob")
    assert dict(account.rejected) == {reason: 1}
    assert report.metrics[f"admission/rejected/{reason}"] == 1
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


def test_forged_very_low_log_probs_are_dropped_by_their_kl(meet):
    """They would weigh the most: pi_old/pi_gen is huge. The KL estimate of such a claim is huge as well."""
    ann, bob, honest = meet()
    forged = [
        dataclasses.replace(
            g,
            rollouts=tuple(dataclasses.replace(r, logp_gen=np.full_like(r.logp_gen, -900.0)) for r in g.rollouts),
        )
        for g in honest
    ]
    report = play(ann, bob, [encode_group(group) for group in forged])
    account = ann.ledger.account("bob")
    assert account.accepted == len(honest)
    assert account.kept == 0
    assert set(account.dropped) <= {"advantage", "kl", "advantage_and_kl"}
    assert account.dropped.total() == sum(len(group.rollouts) for group in honest)
    assert report.metrics["external/influence_share"] == 0
    assert all(bool(torch.isfinite(tensor).all()) for tensor in state_of(ann).values())


def test_without_a_filter_forged_log_probs_are_capped_and_finite(meet):
    ann, bob, honest = meet(method={"name": "tis"})
    forged = [with_logp(group, -999.0) for group in honest]
    report = play(ann, bob, [encode_group(group) for group in forged])
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
        attacks = [to_bytes(ATTACKS[name][0](groups[0], ann)) for name in ("zeros", "as-ann", "test-prompt", "cut")]
        play(ann, bob, [*payloads, *attacks], round)
        assert same_state(ann, honest_ann)
    assert ann.ledger.account("bob").rejected.total() == 12


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
