"""Sampling on time and one round ahead: which weights sample what, and that threads decide nothing."""

from __future__ import annotations

import threading
from time import perf_counter

import pytest
import torch

from motet.config import RunFile
from motet.errors import RunFailed
from motet.node import Stock
from motet.node.production import Ahead, Nothing, OnTime

AHEAD = {"rollout": {"ahead": 1}}
ALONE = {"method": {"name": "on_policy"}}


def play(node, rounds, before_learning=lambda: None):
    """Rounds of a node without peers; its groups, round by round, and the metrics."""
    made, reports = [], []
    produce = node.production.groups

    def groups(round):
        made.append(produce(round))
        before_learning()
        return made[-1]

    node.production.groups = groups
    for round in rounds:
        steps = node.run_round(round)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                reports.append(end.value.metrics)
                break
    return made, reports


def content(groups):
    return [
        (g.prompt_id, g.sampler.policy_step, [(r.token_ids.tolist(), r.logp_gen.tolist()) for r in g.rollouts])
        for g in groups
    ]


@pytest.fixture
def ann(make_run, assemble):
    """A node that trains alone with importance weights."""

    def build(**sections):
        run = make_run(nodes={"ann": "tiny:small"}, learner={"learning_rate": 0.01}, **sections)
        return assemble(run).members["ann"]

    return build


class TestOnTime:
    def test_nothing_is_ever_old(self, ann):
        made, _ = play(ann().node, range(3))
        assert [{g.sampler.policy_step for g in groups} for groups in made] == [{0}, {1}, {2}]

    def test_it_has_no_stock(self, ann):
        production = ann().node.production
        assert isinstance(production, OnTime)
        assert production.stock() is None
        production.restore(None)
        with pytest.raises(ValueError, match="sampled ahead"):
            production.restore(Stock(1, []))


class TestAhead:
    def test_own_completions_are_one_step_old_and_say_so(self, ann):
        made, reports = play(ann(**AHEAD).node, range(4))
        assert [{g.sampler.policy_step for g in groups} for groups in made] == [{0}, {0}, {1}, {2}]
        assert [[g.round for g in groups] for groups in made] == [[r] * len(groups) for r, groups in enumerate(made)]
        gaps = [metrics["self_check/logp_gap_mean"] for metrics in reports]
        assert gaps[0] < 1e-5 < min(gaps[1:]), "the weights have moved since"

    def test_the_next_round_is_sampled_from_the_weights_before_the_step(self, ann):
        on_time, ahead = ann().node, ann(**AHEAD).node
        first, expected = (
            on_time.production.sampler.sample(on_time.assignment.plan("ann", r), round=r, policy_step=0) for r in (0, 1)
        )
        made, _ = play(ahead, range(2))
        assert content(made[0]) == content(first)
        assert content(made[1]) == content(expected)

    def test_threads_decide_nothing(self, ann):
        """Whether sampling ends before the step begins or beside it, the numbers are the same."""
        beside, first = ann(**AHEAD).node, ann(**AHEAD).node
        made_beside, _ = play(beside, range(4))
        made_first, _ = play(first, range(4), before_learning=lambda: first.production.stock())
        assert [content(groups) for groups in made_beside] == [content(groups) for groups in made_first]

    def test_a_stock_continues_exactly(self, ann):
        whole, _ = play(ann(**AHEAD).node, range(4))
        stopped = ann(**AHEAD)
        play(stopped.node, range(2))
        stock = stopped.node.production.stock()
        assert stock.round == 2
        resumed = ann(**AHEAD)
        weights = zip(resumed.policy.trainable().values(), stopped.policy.trainable().values(), strict=True)
        with torch.no_grad():
            for new, old in weights:
                new.copy_(old)
        resumed.node.learner.restore_counters(stopped.node.learner.counters())
        resumed.node.production.restore(stock)
        made, _ = play(resumed.node, [2])
        assert content(made[0]) == content(whole[2])
        assert {g.sampler.policy_step for g in resumed.node.production.groups(3)} == {2}

    def test_nothing_is_sampled_for_rounds_behind_the_last(self, ann):
        node = ann(run={"rounds": 2}, **AHEAD).node
        play(node, range(2))
        assert node.production.stock() is None

    @pytest.mark.parametrize("learner", [{"precision": "bf16"}, {"precision": "fp32"}])
    def test_adapters_and_low_precision_are_copied_too(self, make_run, assemble, learner):
        settings = make_run(
            nodes={"ann": "tiny:small"}, learner={"learning_rate": 0.05, **learner}, **AHEAD
        ).model_dump()
        settings["node"][0]["lora"] = {"rank": 2}
        member = assemble(RunFile.model_validate(settings)).members["ann"]
        play(member.node, range(3))
        member.node.production.groups(3)
        copy = member.node.production.sampler._policy
        assert copy is not member.policy
        pairs = list(zip(copy.trainable().values(), member.policy.trainable().values(), strict=True))
        assert all(torch.equal(one, other) for one, other in pairs)
        assert all(one.data_ptr() != other.data_ptr() for one, other in pairs)
        assert any(bool(one.abs().sum() > 0) for name, one in copy.trainable().items() if "lora_B" in name)

    def test_what_sampling_raises_is_raised_where_its_groups_are_wanted(self, ann):
        member = ann(**AHEAD)
        steps = member.node.run_round(0)
        next(steps)
        with torch.no_grad():
            for weight in member.policy.trainable().values():
                weight.fill_(torch.nan)
        with pytest.raises(RunFailed) as caught:
            member.node.production.groups(1)
        assert caught.value.code == "E-LEARN-02"
        assert threading.current_thread() is threading.main_thread()

    def test_time_spent_sampling_beside_the_round(self, ann):
        production = ann(**AHEAD).node.production
        going_on, may_end = threading.Event(), threading.Event()

        def sample(asks, *, round, policy_step):
            if round == 1:
                going_on.set()
                assert may_end.wait(30)
            return []

        production.sampler.sample = sample
        before = perf_counter()
        production.groups(0)
        assert going_on.wait(30)
        since, until = perf_counter(), perf_counter() + 1
        assert production.sampling_s(since, until) == pytest.approx(until - since)
        assert 0 < production.sampling_s(before - 5, since) <= since - before
        may_end.set()
        production.stock()
        after = perf_counter()
        assert production.sampling_s(after, after + 1) == 0
        assert 0 < production.sampling_s(before, after) < after - before

    def test_it_is_chosen_by_the_setting(self, ann):
        assert isinstance(ann(**AHEAD).node.production, Ahead)


def test_rewards_are_asked_for_by_one_thread_at_a_time(make_run, assemble, tmp_path):
    reward = tmp_path / "rewards.py"
    reward.write_text(
        "import threading\n"
        "at_work, met = threading.Semaphore(1), []\n"
        "def lonely(completions, **columns):\n"
        "    if not at_work.acquire(blocking=False):\n"
        "        met.append(1)\n"
        "        return [0.0 for _ in completions]\n"
        "    scores = [float(sum(map(ord, text)) % 2) for text in completions for _ in range(200)][::200]\n"
        "    at_work.release()\n"
        "    return [float(len(met) == 0) * score for score in scores]\n"
    )
    rows = tmp_path / "rows.jsonl"
    rows.write_text("".join(f'{{"prompt": "{a}+2+3=", "answer": "02"}}\n' for a in range(1, 10)) * 4)
    task = {"name": str(rows), "reward": f"{reward}:lonely"}
    member = assemble(make_run(nodes={"ann": "tiny:small"}, task=task, **AHEAD)).members["ann"]
    task = member.examiner._task
    prompt = task.prompt("train/0")
    stop = threading.Event()

    def score():
        while not stop.is_set():
            task.score(prompt, ["1", "2"] * 50)

    other = threading.Thread(target=score)
    other.start()
    try:
        scores = [task.score(prompt, ["1", "2"] * 50) for _ in range(40)]
    finally:
        stop.set()
        other.join()
    assert all(score.value == 1 for row in scores for score in row[::2])


class TestNothing:
    def test_nothing_is_sampled_or_in_stock(self):
        production = Nothing()
        assert [production.groups(round) for round in range(2)] == [[], []]
        assert production.more(0, 0) == []
        assert production.sampling_s(0.0, perf_counter()) == 0
        assert production.stock() is None
        production.restore(None)
        production.close()

    def test_a_checkpoint_with_something_in_stock_is_of_another_run(self):
        with pytest.raises(ValueError, match="samples nothing"):
            Nothing().restore(Stock(1, []))

    def test_nobody_can_have_more_of_it(self):
        with pytest.raises(ValueError, match="samples nothing"):
            Nothing().more(0, 1)
