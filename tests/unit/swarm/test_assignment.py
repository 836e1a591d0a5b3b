from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from motet.errors import UsageError
from motet.swarm import Ask, Assignment

COLLABORATIONS = ["vertical", "horizontal", "gaps"]

settings = st.fixed_dictionaries(
    {
        "seed": st.integers(0, 2**63 - 1),
        "peers": st.lists(st.text("abcdefgh", min_size=1), min_size=1, max_size=6, unique=True),
        "prompts_per_round": st.integers(1, 12),
        "group_size": st.integers(1, 9),
        "num_train_prompts": st.integers(12, 60),
    }
)


def plans(assignment, peers, round):
    return {peer: assignment.plan(peer, round) for peer in peers}


@given(settings, st.integers(0, 10**9))
def test_vertical_shares_out_the_prompts_and_gives_whole_groups(chosen, round):
    shared = plans(Assignment(**chosen, collaboration="vertical"), chosen["peers"], round)
    sizes = [len(plan) for plan in shared.values()]
    assert sum(sizes) == chosen["prompts_per_round"]
    assert max(sizes) - min(sizes) <= 1
    for plan in shared.values():
        assert len({ask.prompt_id for ask in plan}) == len(plan)
        assert all(ask.num_completions == chosen["group_size"] for ask in plan)


@given(settings, st.integers(0, 10**9))
def test_horizontal_shares_out_every_group(chosen, round):
    shared = plans(Assignment(**chosen, collaboration="horizontal"), chosen["peers"], round)
    completions = Counter()
    for plan in shared.values():
        assert all(ask.num_completions > 0 for ask in plan)
        assert len({ask.prompt_id for ask in plan}) == len(plan)
        completions.update({ask.prompt_id: ask.num_completions for ask in plan})
    assert len(completions) == chosen["prompts_per_round"]
    assert set(completions.values()) == {chosen["group_size"]}
    loads = [sum(ask.num_completions for ask in plan) for plan in shared.values()]
    assert max(loads) - min(loads) <= chosen["prompts_per_round"]


@given(settings, st.integers(0, 10**9))
def test_gaps_gives_everybody_the_same_prompts_with_whole_groups(chosen, round):
    shared = plans(Assignment(**chosen, collaboration="gaps"), chosen["peers"], round)
    assert len(set(shared.values())) == 1
    (plan,) = set(shared.values())
    assert len({ask.prompt_id for ask in plan}) == len(plan) == chosen["prompts_per_round"]
    assert all(ask.num_completions == chosen["group_size"] for ask in plan)


@given(settings, st.integers(0, 10**6), st.sampled_from(COLLABORATIONS))
def test_expected_is_the_plan_and_ids_exist(chosen, round, collaboration):
    assignment = Assignment(**chosen, collaboration=collaboration)
    for peer in chosen["peers"]:
        asked = {ask.prompt_id: ask.num_completions for ask in assignment.plan(peer, round)}
        for index in range(chosen["num_train_prompts"] + 2):
            assert assignment.expected(peer, round, f"train/{index}") == asked.pop(f"train/{index}", 0)
        assert asked == {}


@pytest.mark.parametrize("collaboration", COLLABORATIONS)
def test_a_lone_node_takes_everything(collaboration):
    plan = Assignment(3, ["ann"], 16, 8, 100, collaboration).plan("ann", 5)
    assert len(plan) == 16
    assert {ask.num_completions for ask in plan} == {8}


@pytest.mark.parametrize("collaboration", ["vertical", "horizontal"])
def test_rests_rotate_so_that_everybody_generates_the_same(collaboration):
    peers = ["ann", "bob", "cid"]
    assignment = Assignment(3, peers, 4, 5, 100, collaboration)
    loads = Counter()
    for round in range(3):
        for peer in peers:
            loads[peer] += sum(ask.num_completions for ask in assignment.plan(peer, round))
    assert set(loads.values()) == {4 * 5}


def test_plans_never_change():
    vertical = Assignment(7, ["bob", "ann"], 3, 8, 100_000)
    assert vertical.plan("ann", 12) == (Ask("train/8628", 8), Ask("train/30708", 8))
    horizontal = Assignment(7, ["bob", "ann"], 3, 3, 100_000, "horizontal")
    assert horizontal.plan("ann", 12) == (Ask("train/5121", 2), Ask("train/19747", 1), Ask("train/70323", 2))
    assert horizontal.plan("bob", 12) == (Ask("train/5121", 1), Ask("train/19747", 2), Ask("train/70323", 1))


def test_seed_peer_and_round_decide():
    def drawn(seed=1, peer="ann", round=0):
        return Assignment(seed, ["ann", "bob"], 20, 2, 10**6).plan(peer, round)

    assert drawn() == drawn()
    assert len({drawn(), drawn(seed=2), drawn(peer="bob"), drawn(round=1)}) == 4


def test_the_order_in_which_nodes_are_listed_does_not_matter():
    for collaboration in COLLABORATIONS:
        one, other = (Assignment(1, names, 5, 3, 50, collaboration) for names in (["a", "b", "c"], ["c", "a", "b"]))
        assert all(one.plan(peer, round) == other.plan(peer, round) for peer in "abc" for round in range(4))


def test_draws_are_uniform():
    assignment = Assignment(5, ["ann"], 10, 2, 20)
    drawn = Counter(ask.prompt_id for round in range(2000) for ask in assignment.plan("ann", round))
    assert len(drawn) == 20
    assert all(900 < count < 1100 for count in drawn.values())


def test_strangers_and_foreign_ids_are_expected_to_send_nothing():
    assignment = Assignment(1, ["ann", "bob"], 4, 3, 50)
    for prompt_id in ("test/0", "train/50", "", "\ud800"):
        assert assignment.expected("ann", 0, prompt_id) == 0
    assert assignment.expected("eve", 0, assignment.plan("ann", 0)[0].prompt_id) == 0
    with pytest.raises(KeyError):
        assignment.plan("eve", 0)


def test_remembered_plans_are_bounded_and_threads_agree():
    assignment = Assignment(1, ["ann", "bob"], 4, 3, 50)
    rounds = [round % 40 for round in range(400)]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda round: assignment.plan("ann", round), rounds))
    assert found == [Assignment(1, ["ann", "bob"], 4, 3, 50).plan("ann", round) for round in rounds]
    assert len(assignment._shares) <= 16


def test_impossible_settings_are_the_users_mistake():
    with pytest.raises(UsageError, match="prompts_per_round: 32 is more than the task's 8 training prompts") as caught:
        Assignment(1, ["ann"], 32, 8, 8)
    assert caught.value.code == "E-SWARM-02"
    with pytest.raises(UsageError, match="two nodes have the same name"):
        Assignment(1, ["ann", "ann"], 2, 8, 8)


@given(settings, st.integers(0, 10**6))
def test_in_an_open_swarm_everybody_knows_the_prompts_of_everybody(chosen, round):
    names = chosen.pop("peers")
    ends = [Assignment(peers=[name], **chosen, is_open=True) for name in names]
    for name, own in zip(names, ends, strict=True):
        plan = own.plan(name, round)
        assert len(plan) == chosen["prompts_per_round"]
        for other in ends:
            assert other.plan(name, round) == plan
            assert all(other.expected(name, round, ask.prompt_id) == chosen["group_size"] for ask in plan)
    stranger = ends[0].plan("stranger", round)
    assert len(stranger) == chosen["prompts_per_round"]


def test_an_open_swarm_forgets_shares_of_names_that_nobody_has():
    assignment = Assignment(1, ["ann"], 2, 2, num_train_prompts=50, is_open=True)
    before = assignment.plan("ann", 0)
    for number in range(5000):
        assignment.expected(f"made-up-{number}", number, "train/0")
    assert len(assignment._shares) <= 2048
    assert assignment.plan("ann", 0) == before


def test_beyond_the_plan_come_the_next_prompts_of_the_same_drawing():
    small = Assignment(7, ["ann", "bob"], 6, 4, num_train_prompts=100)
    large = Assignment(7, ["ann", "bob"], 16, 4, num_train_prompts=100)
    assert small.plan("ann", 3) + small.beyond("ann", 3, 5) == large.plan("ann", 3)
    assert small.beyond("ann", 3, 0) == ()
    few = Assignment(7, ["ann", "bob"], 6, 4, num_train_prompts=7)
    assert len(few.beyond("ann", 3, 50)) == 4  # the task has no more


@pytest.mark.parametrize("collaboration", ["horizontal", "gaps"])
def test_where_prompts_are_shared_nobody_has_prompts_beyond_the_plan(collaboration):
    shared = Assignment(7, ["ann", "bob"], 6, 4, num_train_prompts=100, collaboration=collaboration)
    with pytest.raises(ValueError, match="vertical"):
        shared.beyond("ann", 0, 1)
