"""The round: its phases, what it publishes and accounts for, lockstep and free pace."""

from __future__ import annotations

import numpy as np
import pytest

from motet.journal import known
from motet.node import Phase
from motet.records import LOG_PROB_ERROR_NATS, decode_group, read_archive


def drive(node, round):
    """A whole round of one node, with nobody in between; the phases and the report."""
    steps, phases = node.run_round(round), []
    while True:
        try:
            phases.append(next(steps))
        except StopIteration as end:
            return phases, end.value


def publish_only(node, round):
    """A round of a node up to the point where it waits."""
    steps = node.run_round(round)
    while next(steps) is not Phase.WAIT:
        pass
    return steps


@pytest.fixture
def pair(make_run, assemble):
    def build(**sections):
        assembly = assemble(make_run(**sections))
        return assembly, assembly.members["ann"].node, assembly.members["bob"].node

    return build


def test_phases_and_report(pair):
    _, ann, bob = pair()
    publish_only(bob, 0)
    phases, report = drive(ann, 0)
    assert phases == [Phase.GENERATE, Phase.WAIT, Phase.LEARN]
    assert report.round == 0
    metrics = report.metrics
    assert metrics["own/groups"] == metrics["external/groups"] == 3
    assert metrics["own/completions"] == 12
    assert metrics["admission/rejected"] == metrics["admission/late"] == metrics["admission/reward_mismatches"] == 0
    assert {"time/generate_s", "time/wait_s", "time/learn_s"} <= metrics.keys()
    assert metrics["wire/bytes_per_token"] == metrics["wire/bytes_sent"] / metrics["wire/tokens_sent"]


def test_what_the_exchange_refused_is_accounted_for_apart(pair):
    _, ann, bob = pair()
    publish_only(bob, 0)
    ann.exchange.num_refused = lambda: {"bob": {"bad_signature": 3}, "\x1b[2Jeve": {"unknown_peer": 1, "malformed": 2}}
    _, report = drive(ann, 0)
    assert report.metrics["admission/refused"] == 6
    assert report.metrics["admission/refused/bad_signature"] == 3
    assert report.metrics["admission/rejected"] == 0
    account = ann.ledger.account("bob")
    assert (dict(account.refused), account.received, account.accepted) == ({"bad_signature": 3}, 3, 3)
    assert ann.ledger.peers() == ["\\x1b[2Jeve", "bob"]


def test_strikes_and_quarantine_show_in_metrics_and_ledger(pair):
    _, ann, bob = pair()
    bob.exchange.publish(0, [b"", b"nothing", b"of the kind", b"unread"])
    _, report = drive(ann, 0)
    metrics = report.metrics
    assert metrics["admission/strikes"] == 3
    assert metrics["admission/quarantined"] == 1
    assert (metrics["admission/rejected/malformed"], metrics["admission/rejected/quarantined"]) == (3, 1)
    account = ann.ledger.account("bob")
    assert (account.strikes, account.quarantines, account.quarantined_until) == (3, 1, 21)


def test_own_correct_completions_are_what_peers_are_compared_with(pair):
    _, ann, bob = pair(rollout={"prompts_per_round": 60, "group_size": 8})
    ratios = []
    for round in range(2):
        publish_only(bob, round)
        ratios.append(drive(ann, round)[1].metrics["admission/length_ratio"])
    assert 0.5 < max(ratios) < 2


def test_every_metric_of_a_round_is_in_the_table(pair):
    _, ann, bob = pair()
    bob.exchange.publish(0, [b""])
    ann.exchange.num_refused = lambda: {"bob": {"malformed": 1}}
    _, report = drive(ann, 0)
    assert [name for name in report.metrics if not known(name)] == []


def test_nothing_happens_before_the_first_step(pair):
    _, ann, bob = pair()
    steps = ann.run_round(0)
    assert next(steps) is Phase.GENERATE
    assert bob.exchange.waiting_for(0) == ["ann"]


def test_a_round_without_a_foreign_group_is_a_normal_round(pair):
    _, ann, bob = pair(swarm={"deadline_s": 0.01})
    _, report = drive(ann, 0)
    assert report.metrics["external/groups"] == 0
    assert report.metrics["wire/bytes_received"] == 0
    assert ann.ledger.peers() == []
    assert ann.exchange.waiting_for(0) == ["bob"], "the deadline ends the wait, not the peer"
    assert bob.learner.policy_step == 0


def test_a_peer_that_has_left_is_not_waited_for(pair):
    _, ann, bob = pair(swarm={"deadline_s": 600.0})
    bob.exchange.close()
    _, report = drive(ann, 0)
    assert report.metrics["external/groups"] == 0


def test_what_is_published_is_what_was_planned_sampled_and_archived(pair, tmp_path):
    _, ann, bob = pair()
    publish_only(bob, 0)
    drive(ann, 0)
    parcels = bob.exchange.collect(0, deadline_s=1.0)
    groups = [decode_group(parcel.payload) for parcel in parcels]
    asks = ann.assignment.plan("ann", 0)
    assert [(g.prompt_id, len(g.rollouts)) for g in groups] == [(a.prompt_id, a.num_completions) for a in asks]
    assert {(g.peer, g.round, g.sampler.policy_step, g.sampler.model) for g in groups} == {("ann", 0, 0, "tiny:small")}
    archived = list(read_archive(tmp_path / "archives1" / "ann.motet"))
    assert [[r.token_ids.tolist() for r in g.rollouts] for g in archived] == [
        [r.token_ids.tolist() for r in g.rollouts] for g in groups
    ]


@pytest.mark.parametrize(("log_probs", "error_nats"), [("exact", 0.0), ("compact", LOG_PROB_ERROR_NATS)])
def test_log_probs_travel_as_the_setting_says(pair, tmp_path, log_probs, error_nats):
    _, ann, bob = pair(swarm={"log_probs": log_probs})
    publish_only(bob, 0)
    drive(ann, 0)
    sent = [decode_group(parcel.payload) for parcel in bob.exchange.collect(0, deadline_s=1.0)]
    kept = read_archive(tmp_path / "archives1" / "ann.motet")
    gaps = [
        np.abs(ours.logp_gen - theirs.logp_gen).max()
        for group, archived in zip(sent, kept, strict=True)
        for ours, theirs in zip(group.rollouts, archived.rollouts, strict=True)
    ]
    assert (0 < max(gaps) <= error_nats) if error_nats else max(gaps) == 0


def test_the_policy_step_travels(pair):
    _, ann, bob = pair()
    for round in range(2):
        steps = publish_only(bob, round)
        drive(ann, round)
        if round == 0:
            for _ in steps:
                pass
    assert ann.learner.policy_step == 2
    parcels = bob.exchange.collect(1, deadline_s=1.0)
    assert {decode_group(parcel.payload).sampler.policy_step for parcel in parcels} == {1}


def test_free_pace_learns_from_what_is_young_enough(pair):
    """Ann is five rounds ahead when bob takes his first look; he wants nothing older than two rounds."""
    _, ann, bob = pair(swarm={"pace": "free", "max_lag": 2})
    per_round = [len(ann.assignment.plan("ann", round)) for round in range(6)]
    for round in range(6):
        _, report = drive(ann, round)
        assert report.metrics["external/groups"] == 0, "free pace does not wait"
    _, report = drive(bob, 5)
    assert report.metrics["external/groups"] == sum(per_round[3:])
    assert report.metrics["admission/late"] == sum(per_round[:3])
    account = bob.ledger.account("ann")
    assert (account.received, account.accepted, account.late) == (
        sum(per_round[3:]),
        sum(per_round[3:]),
        sum(per_round[:3]),
    )


def test_free_pace_takes_what_a_faster_peer_has_sent_ahead(pair):
    _, ann, bob = pair(swarm={"pace": "free", "max_lag": 2})
    drive(ann, 0)
    drive(ann, 1)
    _, report = drive(bob, 0)
    assert report.metrics["external/groups"] == len(ann.assignment.plan("ann", 0)) + len(ann.assignment.plan("ann", 1))


def test_lockstep_learns_from_this_round_only(pair):
    """Ann has published two rounds by the time that bob collects the first."""
    _, ann, bob = pair(swarm={"deadline_s": 0.01})
    drive(ann, 0)
    drive(ann, 1)
    _, report = drive(bob, 0)
    assert report.metrics["external/groups"] == len(ann.assignment.plan("ann", 0))
    _, report = drive(bob, 1)
    assert report.metrics["external/groups"] == len(ann.assignment.plan("ann", 1))
    assert bob.ledger.account("ann").late == 0


def test_lockstep_counts_what_came_too_late(pair):
    _, ann, bob = pair(swarm={"deadline_s": 0.01})
    drive(ann, 0)
    _, report = drive(bob, 1)
    assert report.metrics["external/groups"] == 0
    assert report.metrics["admission/late"] == bob.ledger.account("ann").late == len(ann.assignment.plan("ann", 0))


@pytest.mark.parametrize("collaboration", ["vertical", "horizontal"])
def test_horizontal_shares_make_whole_groups(pair, collaboration):
    _, ann, bob = pair(swarm={"collaboration": collaboration})
    publish_only(bob, 0)
    _, report = drive(ann, 0)
    groups = {ask.prompt_id for name in ("ann", "bob") for ask in ann.assignment.plan(name, 0)}
    shared = {ask.prompt_id for ask in ann.assignment.plan("ann", 0)} & {
        ask.prompt_id for ask in ann.assignment.plan("bob", 0)
    }
    assert len(groups) == 6
    assert len(shared) == (6 if collaboration == "horizontal" else 0)
    assert report.metrics["own/completions"] == 12


def test_completions_that_cannot_be_scored_are_left_out_and_counted(pair, tmp_path):
    reward = tmp_path / "rewards.py"
    reward.write_text(
        "def picky(completions, **columns):\n"
        "    if any('1' in text for text in completions):\n"
        "        raise ValueError('no ones')\n"
        "    return [float(text.endswith('2')) for text in completions]\n"
    )
    rows = tmp_path / "rows.jsonl"
    rows.write_text("".join(f'{{"prompt": "{a}+2+3=", "answer": "02"}}\n' for a in range(1, 10)) * 4)
    _, ann, bob = pair(task={"name": str(rows), "reward": f"{reward}:picky"})
    publish_only(bob, 0)
    _, report = drive(ann, 0)
    scored = [rollout for group in read_archive(tmp_path / "archives1" / "ann.motet") for rollout in group.rollouts]
    assert report.metrics["own/completions"] == 12
    assert report.metrics["own/unscored"] == 12 - len(scored) > 0


def test_what_peers_are_not_worth_is_sampled_for_oneself(pair):
    _, ann, bob = pair(rollout={"prompts_per_round": 6, "top_up": True})
    publish_only(bob, 0)
    _, report = drive(ann, 0)
    assert report.metrics["own/groups"] == 6  # nothing is known of bob yet: as many as alone
    assert report.metrics["own/completions"] == 6 * 4
    assert report.metrics["external/groups"] == 3
    ann.ledger.account("bob").worth = 0.7
    publish_only(bob, 1)
    assert drive(ann, 1)[1].metrics["own/groups"] == 4  # 3 groups at 0.7 count as 2
    ann.ledger.account("bob").worth = 1.0
    publish_only(bob, 2)
    assert drive(ann, 2)[1].metrics["own/groups"] == 3


def test_what_is_sampled_on_top_stays_at_home_and_is_archived(pair, tmp_path):
    _, ann, bob = pair(rollout={"prompts_per_round": 6, "top_up": True})
    steps = publish_only(ann, 0)
    sent = bob.exchange.collect(0, deadline_s=1, max_lag=None)
    for _ in steps:
        pass
    archived = list(read_archive(tmp_path / "archives1" / "ann.motet"))
    assert len(sent) == 3
    assert len(archived) == len({group.prompt_id for group in archived}) == 6


def test_a_peers_worth_is_the_part_of_its_advantage_that_counts(pair):
    _, ann, bob = pair(rollout={"prompts_per_round": 12, "group_size": 8})
    publish_only(bob, 0)
    drive(ann, 0)
    whole = ann.ledger.account("bob").worth * 5
    assert 0.2 < whole < 0.6  # "either" keeps what is better than its group: half of the advantage, weighed


def test_gaps_are_filled_and_nothing_else(pair):
    _, ann, bob = pair(swarm={"collaboration": "gaps"}, rollout={"prompts_per_round": 8, "group_size": 2})
    seen = []
    learn = ann.learner.learn
    ann.learner.learn = lambda own, foreign: (seen.append((own, foreign)), learn(own, foreign))[1]
    for round in range(3):
        publish_only(bob, round)
        assert drive(ann, round)[1].metrics["external/groups"] == 8
    skipped = 0
    for own, foreign in seen:
        assert len(own) == 8
        failed = {group.prompt_id for group in own if not any(rollout.reward for rollout in group.rollouts)}
        assert {group.prompt_id for group in foreign} == failed
        skipped += 2 * (8 - len(failed))
    assert 0 < sum(len(foreign) for _, foreign in seen) < 24
    assert ann.ledger.account("bob").dropped["no_gap"] == skipped
