from __future__ import annotations

from motet.bench.batch import BatchPlan, draw_batch
from motet.bench.flops import ModelSize, Work, count_step, work_of_group

SIZE = ModelSize(matrix_weights=100, layers=2, heads_width=6, hidden=5, vocab=7)
LORA = ModelSize(matrix_weights=100, layers=2, heads_width=6, hidden=5, vocab=7, adapter_weights=10)
WORK = Work(tokens=4, keys=10, scored=3)


def test_a_forward_pass_by_hand() -> None:
    # 2*100*4 with matrices, 4*6*2*10 in attention, 2*5*7*3 in the output layer
    assert WORK.forward(SIZE) == 800 + 480 + 210


def test_a_backward_pass_is_twice_the_forward_pass() -> None:
    assert WORK.backward(SIZE) == 2 * WORK.forward(SIZE)


def test_with_an_adapter_frozen_matrices_give_only_the_gradient_of_their_input() -> None:
    assert WORK.forward(LORA) == 800 + 480 + 210 + 80
    assert WORK.backward(LORA) == 800 + 210 + 2 * (480 + 80)


def test_a_shared_prompt_is_counted_once() -> None:
    # prompt of 3: keys 1+2+3; a completion of 4 feeds 3 tokens that see 4, 5 and 6 keys; one of 1 feeds none
    assert work_of_group(3, [4, 1], shared=True) == Work(tokens=6, keys=6 + 15, scored=5)
    assert work_of_group(3, [4, 1], shared=False) == Work(tokens=9, keys=6 + 6 + 15, scored=5)


def test_nothing_is_nothing() -> None:
    assert work_of_group(3, [], shared=True) == Work()


def test_of_a_full_batch_all_definitions_count_the_same_rows() -> None:
    batch = draw_batch(BatchPlan(10, 8, kind="full"))
    found = count_step(batch, SIZE)
    by_hand = 0
    for group in batch.groups:
        prompt = len(batch.prompts[group.prompt_id])
        for rollout in group.rollouts:
            fed = prompt + len(rollout.token_ids) - 1
            by_hand += 3 * (2 * 100 * fed + 48 * fed * (fed + 1) // 2 + 70 * len(rollout.token_ids))
    assert found["all"] == found["repeated"] == by_hand
    assert found["needed"] < found["repeated"]


def test_a_typical_batch_needs_no_more_than_half() -> None:
    found = count_step(draw_batch(BatchPlan(44, 24)), SIZE)
    assert found["needed"] < found["repeated"] < 0.6 * found["all"]


def test_judging_costs_a_forward_pass_and_no_more() -> None:
    batch = draw_batch(BatchPlan(10, 8))
    far = [(g, row) for g, rows in zip(batch.foreign, batch.far, strict=True) for row in rows]
    assert far
    unshared = count_step(batch, SIZE)["repeated"]
    lengths = [(len(batch.prompts[g.prompt_id]), len(g.rollouts[row].token_ids)) for g, row in far]
    judged = sum(work_of_group(prompt, [length], shared=False).forward(SIZE) for prompt, length in lengths)
    assert (unshared - judged) % 3 == 0  # all else is one forward and two more of backward
