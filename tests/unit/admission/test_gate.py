from __future__ import annotations

import dataclasses
import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from motet.admission import Gate, GateRules
from motet.records import Group, Rollout, SamplerInfo, WireLimits, decode_group, encode_group
from motet.tasks import Prompt, RunningSums, Score

TOKENIZER = "9c1f"
CHARS = "0123456789.;"
END = CHARS.index(";")
VOCAB_SIZE = 16
TASK = RunningSums()
PROMPT = TASK.prompt("train/0")  # 9+6+8=
RIGHT, WRONG = "15.23;", "15.24;"
ROUND = 3


def decode(ids):
    return "".join(CHARS[i] for i in ids if i != END)


def rollout(text, reward=None, **changes):
    ids = np.array([CHARS.index(char) for char in text], dtype=np.uint32)
    made = Rollout(
        token_ids=ids,
        logp_gen=np.full(len(ids), -0.5, dtype=np.float32),
        finish_reason="stop",
        reward=float(text == RIGHT) if reward is None else reward,
    )
    return dataclasses.replace(made, **changes)


def ids_of(*values):
    return np.array(values, dtype=np.uint32)


def logps(*values):
    return np.array(values, dtype=np.float32)


SAMPLER = SamplerInfo(model="tiny:large", policy_step=3, temperature=1.0, tokenizer=TOKENIZER)
GROUP = Group(peer="kim", round=ROUND, prompt_id="train/0", sampler=SAMPLER, rollouts=(rollout(RIGHT), rollout(WRONG)))


def expected(peer, round, prompt_id):
    return 4 if prompt_id in ("train/0", "train/1") and peer in ("kim", "lee") else 0


def make_gate(task=TASK, decode=decode, is_member=None, num_assigned=lambda *_: 2, **changes):
    rules = GateRules(
        name="own",
        members=frozenset({"own", "kim", "lee"}),
        tokenizer=TOKENIZER,
        vocab_size=VOCAB_SIZE,
        end_token_ids=frozenset({END, 15}),
        max_new_tokens=8,
        max_group_size=6,
    )
    return Gate(
        dataclasses.replace(rules, **changes),
        task=task,
        decode=decode,
        expected=expected,
        num_assigned=num_assigned,
        is_member=is_member,
    )


def admit(group, gate=None, *, peer="kim", round=ROUND, current_round=ROUND):
    payload = group if isinstance(group, bytes) else encode_group(group)
    return (gate or make_gate()).admit(peer=peer, round=round, payload=payload, current_round=current_round)


def group(**changes):
    return dataclasses.replace(GROUP, **changes)


def with_rollout(**changes):
    return group(rollouts=(rollout(RIGHT), rollout(WRONG, **changes)))


def with_sampler(**changes):
    return group(sampler=dataclasses.replace(SAMPLER, **changes))


def test_an_honest_group_comes_in_as_it_was_sent():
    verdict = admit(GROUP)
    assert verdict.accepted
    assert (verdict.peer, verdict.reason, verdict.detail, verdict.reward_mismatches) == ("kim", None, "", 0)
    assert encode_group(verdict.group) == encode_group(GROUP)


@pytest.mark.parametrize("collaboration", ["vertical", "horizontal"])
def test_rewards_are_ours_and_false_claims_are_counted(collaboration):
    liar = group(rollouts=(rollout(RIGHT, reward=0.0), rollout(WRONG, reward=1.0), rollout(RIGHT), rollout(WRONG)))
    verdict = admit(liar, make_gate(collaboration=collaboration))
    assert [each.reward for each in verdict.group.rollouts] == [1.0, 0.0, 1.0, 0.0]
    assert verdict.reward_mismatches == 2


def test_a_tiny_difference_of_rewards_is_no_mismatch():
    verdict = admit(group(rollouts=(rollout(RIGHT, reward=1.0 + 1e-9),)))
    assert (verdict.reward_mismatches, verdict.group.rollouts[0].reward) == (0, 1.0)


def test_log_probs_a_rounding_error_above_0_are_set_to_0():
    noisy = group(rollouts=(rollout("23;", logp_gen=logps(-0.5, 1e-5, 0.0)),))
    verdict = admit(noisy)
    assert verdict.group.rollouts[0].logp_gen.tolist() == [-0.5, 0.0, 0.0]
    assert verdict.group.rollouts[0].logp_gen.dtype == np.float32


def test_a_completion_cut_at_the_limit_comes_in():
    cut = rollout("12345678", finish_reason="length")
    assert admit(group(rollouts=(cut,))).accepted


@pytest.mark.parametrize("size", [1, 4, 6])
def test_vertical_groups_may_have_any_size_within_bounds(size):
    assert admit(group(rollouts=(rollout(RIGHT),) * size)).accepted


@pytest.mark.parametrize(("collaboration", "size"), [("vertical", 7), ("horizontal", 5), ("horizontal", 7)])
def test_larger_groups_are_rejected(collaboration, size):
    verdict = admit(group(rollouts=(rollout(RIGHT),) * size), make_gate(collaboration=collaboration))
    assert verdict.reason == "bad_group_size"
    assert verdict.detail == f"{size} rollouts, allowed 1..{4 if collaboration == 'horizontal' else 6}"


def test_a_horizontal_share_is_bounded_by_the_largest_group_too():
    gate = make_gate(collaboration="horizontal", max_group_size=3)
    assert admit(group(rollouts=(rollout(RIGHT),) * 4), gate).detail == "4 rollouts, allowed 1..3"


GOOD = encode_group(GROUP)
HOSTILE = {
    "empty": (b"", "malformed"),
    "text": (b"<img src=x onerror=alert(1)>", "malformed"),
    "cut": (GOOD[:-3], "malformed"),
    "longer": (GOOD + b"\x00", "malformed"),
    "zeros": (bytes(10_000), "malformed"),
    "pickle": (b"\x80\x04\x95\x1e\x00\x00\x00", "malformed"),
    "huge": (GOOD + bytes(5_000_000), "malformed"),
    "other version": (GOOD[:4] + b"\x63\x00" + GOOD[6:], "wrong_version"),
    "other peer's name": (group(peer="lee"), "impersonation"),
    "own name inside": (group(peer="own"), "impersonation"),
    "control characters": (group(peer="\x1b[31mkim\n"), "impersonation"),
    "other round": (group(round=ROUND + 1), "wrong_round"),
    "negative round": (group(round=-1), "wrong_round"),
    "huge round": (group(round=2**63), "wrong_round"),
    "other tokenizer": (with_sampler(tokenizer="ffff"), "wrong_tokenizer"),
    "temperature 0": (with_sampler(temperature=0.0), "bad_sampler"),
    "temperature -1": (with_sampler(temperature=-1.0), "bad_sampler"),
    "temperature tiny": (with_sampler(temperature=1e-30), "bad_sampler"),
    "temperature huge": (with_sampler(temperature=1e30), "bad_sampler"),
    "temperature nan": (with_sampler(temperature=math.nan), "bad_sampler"),
    "temperature inf": (with_sampler(temperature=math.inf), "bad_sampler"),
    "step negative": (with_sampler(policy_step=-1), "bad_sampler"),
    "step huge": (with_sampler(policy_step=2**63), "bad_sampler"),
    "foreign prompt": (group(prompt_id="train/99999999"), "unknown_prompt"),
    "prompt spelled otherwise": (group(prompt_id="train/00"), "unknown_prompt"),
    "prompt as a path": (group(prompt_id="../../etc/passwd\n"), "unknown_prompt"),
    "prompt of others": (group(prompt_id="train/2"), "unassigned_prompt"),
    "test prompt": (group(prompt_id="test/0"), "unassigned_prompt"),
    "too long": (with_rollout(token_ids=ids_of(*[1] * 8, END), logp_gen=logps(*[-1] * 9)), "bad_length"),
    "cut too early": (
        with_rollout(token_ids=ids_of(1, 2), logp_gen=logps(-1, -1), finish_reason="length"),
        "bad_length",
    ),
    "id beyond the vocabulary": (with_rollout(token_ids=ids_of(1, 16, END), logp_gen=logps(-1, -1, -1)), "bad_token"),
    "id of 32 bits": (with_rollout(token_ids=ids_of(1, 2**32 - 1), logp_gen=logps(-1, -1)), "bad_token"),
    "end token in the middle": (
        with_rollout(token_ids=ids_of(1, END, 2, END), logp_gen=logps(-1, -1, -1, -1)),
        "bad_token",
    ),
    "another end token in the middle": (
        with_rollout(token_ids=ids_of(1, 15, END), logp_gen=logps(-1, -1, -1)),
        "bad_token",
    ),
    "stop without an end token": (with_rollout(token_ids=ids_of(1, 2), logp_gen=logps(-1, -1)), "bad_token"),
    "length with an end token": (
        with_rollout(token_ids=ids_of(*[1] * 7, END), logp_gen=logps(*[-1] * 8), finish_reason="length"),
        "bad_token",
    ),
    "id that nothing decodes": (with_rollout(token_ids=ids_of(13, END), logp_gen=logps(-1, -1)), "bad_token"),
    "log-prob nan": (with_rollout(token_ids=ids_of(1, END), logp_gen=logps(math.nan, -1)), "bad_logp"),
    "log-prob -inf": (with_rollout(token_ids=ids_of(1, END), logp_gen=logps(-math.inf, -1)), "bad_logp"),
    "log-prob inf": (with_rollout(token_ids=ids_of(1, END), logp_gen=logps(-1, math.inf)), "bad_logp"),
    "log-prob above 0": (with_rollout(token_ids=ids_of(1, END), logp_gen=logps(-1, 2e-4)), "bad_logp"),
    "log-probs forged": (with_rollout(logp_gen=logps(*[-500] * 6)), "forged_logp"),
    "log-prob huge": (with_rollout(token_ids=ids_of(1, END), logp_gen=logps(-1, -3e38)), "bad_logp"),
    "reward nan": (with_rollout(reward=math.nan), "bad_reward"),
    "reward inf": (with_rollout(reward=-math.inf), "bad_reward"),
}


@pytest.mark.parametrize("collaboration", ["vertical", "horizontal"])
@pytest.mark.parametrize(("sent", "reason"), HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_groups_are_rejected_with_their_reason(sent, reason, collaboration):
    gate = make_gate(collaboration=collaboration)
    verdict = admit(sent, gate)
    assert (verdict.accepted, verdict.reason, verdict.peer) == (False, reason, "kim")
    assert verdict.group is None
    assert verdict.detail.isprintable()
    assert verdict.detail
    assert len(verdict.detail) < 200
    for text in ("kim", "lee", "passwd", "onerror", "\x1b"):
        assert text not in verdict.detail
    honest = dataclasses.replace(GROUP, prompt_id="train/1")
    assert admit(honest, gate).accepted, "one bad group must not close the gate"


def test_details_name_the_rollout_and_the_numbers():
    verdict = admit(HOSTILE["log-prob above 0"][0])
    assert verdict.detail == "rollout 1: log-prob 0.0002 is above 0"
    assert admit(HOSTILE["too long"][0]).detail == "rollout 1: 9 tokens, allowed 1..8"


@pytest.mark.parametrize(
    ("peer", "reason"),
    [("own", "impersonation"), ("eve", "unknown_peer"), ("", "unknown_peer"), ("\x00", "unknown_peer")],
)
def test_only_members_are_heard(peer, reason):
    assert admit(group(peer=peer), peer=peer).reason == reason


@pytest.mark.parametrize(
    ("rules", "admitted"),
    [
        ({}, [10]),
        ({"max_lag": 0}, [10]),
        ({"max_lag": 2}, [8, 9, 10, 11, 12]),
        ({"max_lag": 2, "max_lead": 0}, [8, 9, 10]),
        ({"max_lag": 1, "max_lead": 3}, [9, 10, 11, 12, 13]),
    ],
)
def test_rounds_outside_the_window_are_rejected(rules, admitted):
    gate = make_gate(**rules)
    verdicts = {round: admit(group(round=round), gate, round=round, current_round=10) for round in range(5, 16)}
    assert [round for round, verdict in verdicts.items() if verdict.accepted] == admitted
    assert {verdict.reason for verdict in verdicts.values() if not verdict.accepted} == {"wrong_round"}


def test_a_prompt_is_taken_once_per_peer_and_round():
    gate = make_gate(max_lag=2)
    assert admit(GROUP, gate).accepted
    verdict = admit(GROUP, gate)
    assert (verdict.reason, verdict.detail) == ("duplicate", "sent before in round 3")
    assert admit(group(peer="lee"), gate, peer="lee").accepted
    assert admit(group(prompt_id="train/1"), gate).accepted
    assert admit(group(round=4), gate, round=4, current_round=4).accepted
    assert admit(GROUP, gate, current_round=5).reason == "duplicate"


def test_a_rejected_group_cannot_be_tried_again():
    gate = make_gate()
    assert admit(HOSTILE["reward nan"][0], gate).reason == "bad_reward"
    assert admit(GROUP, gate).reason == "duplicate"


def test_what_is_remembered_is_bounded_by_the_window():
    gate = make_gate(max_lag=2, spare_groups=100)
    for round in range(200):
        for peer in ("kim", "lee"):
            for prompt_id in ("train/0", "train/1", "train/2", "train/3"):
                sent = group(peer=peer, round=round, prompt_id=prompt_id)
                admit(sent, gate, peer=peer, round=round, current_round=round)
        assert sum(len(seen) for seen in gate._seen.values()) <= 3 * 4
        assert len(gate.to_dict()["used"]) <= 3 * 2


def test_members_may_come_and_go():
    names = {"kim"}
    gate = make_gate(is_member=names.__contains__)
    assert admit(group(peer="lee"), gate, peer="lee").reason == "unknown_peer"
    names.add("lee")
    assert admit(group(peer="lee"), gate, peer="lee").accepted
    assert admit(group(peer="own"), make_gate(is_member=lambda _: True), peer="own").reason == "impersonation"


class Unread(bytes):
    """Nobody may look into it."""

    def __len__(self):
        return 10_000

    def __getitem__(self, place):
        raise AssertionError("read")

    __bytes__ = __iter__ = __getitem__


@pytest.mark.parametrize(
    ("rules", "before", "detail"),
    [
        ({"max_bytes_per_round": 9_999}, [], "10000 bytes after 0, allowed 9999 a round"),
        ({}, [GOOD] * 4, "4 groups before, 2 assigned and 2 to spare"),
    ],
)
def test_more_than_a_peer_may_send_is_not_read(rules, before, detail):
    gate = make_gate(**rules)
    for payload in before:
        admit(payload, gate)
    verdict = admit(Unread(), gate)
    assert (verdict.reason, verdict.detail, verdict.strikes) == ("over_quota", detail, 0.25)
    assert admit(group(peer="lee"), gate, peer="lee").accepted, "each peer has a quota of its own"
    assert admit(group(round=4), gate, round=4, current_round=4).accepted, "and each round"


def test_a_quarantined_peer_is_not_read_until_it_is_released():
    gate = make_gate(quarantine_after=3, quarantine_rounds=5)
    verdicts = [admit(b"", gate) for _ in range(3)]
    assert [verdict.strikes for verdict in verdicts] == [1, 1, 1]
    assert [verdict.quarantined_until for verdict in verdicts] == [None, None, ROUND + 6]
    verdict = admit(Unread(), gate)
    assert (verdict.reason, verdict.detail) == ("quarantined", "in quarantine, heard again in round 9")
    assert (verdict.strikes, verdict.quarantined_until) == (0, 9)
    assert admit(group(peer="lee"), gate, peer="lee").accepted
    assert admit(group(round=8), gate, round=8, current_round=8).reason == "quarantined"
    released = admit(group(round=9), gate, round=9, current_round=9)
    assert (released.accepted, released.quarantined_until) == (True, None)
    for _ in range(3):
        admit(b"", gate, round=10, current_round=10)
    assert gate.conduct.quarantined_until("kim", 20) == 21, "twice as long the second time"


def test_strangers_are_not_remembered():
    """Names cost nothing: whoever has no membership must not fill the memory of those who have."""
    gate = make_gate(max_lag=2)
    for number in range(100):
        assert admit(b"", gate, peer=f"stranger {number}").strikes == 0
    assert gate.to_dict() == make_gate().to_dict()


def test_lies_about_rewards_cost_strikes_in_the_end():
    gate = make_gate(max_lag=50, quarantine_after=1)
    lies = (rollout(RIGHT, reward=0.0), rollout(WRONG, reward=1.0)) * 3
    verdicts = [admit(group(round=round, rollouts=lies), gate, round=round, current_round=round) for round in range(4)]
    assert [verdict.strikes for verdict in verdicts] == [0.5, 0.5, 0.5, 0]
    assert [verdict.accepted for verdict in verdicts] == [True] * 3 + [False]
    assert verdicts[1].quarantined_until is None, "strikes fade"
    assert verdicts[3].reason == "quarantined"
    truths = [admit(group(round=round), make_gate(max_lag=50), round=round, current_round=round) for round in range(50)]
    assert sum(verdict.strikes for verdict in truths) == 0


def test_padding_is_compared_with_own_correct_completions():
    gate = make_gate(max_new_tokens=400)
    short = [group(peer="own", rollouts=(rollout(RIGHT),) * 4)] * 20
    gate.note_own(short)
    assert admit(GROUP, gate).length_ratio == 1
    long = rollout("1" * 50 + RIGHT, reward=1.0)
    verdict = admit(group(prompt_id="train/1", rollouts=(long, long)), make_gate(max_new_tokens=400))
    assert verdict.accepted, "nothing to compare with"


class PaysAll(RunningSums):
    def score(self, _prompt, completions):
        return [Score(1.0) for _ in completions]


def test_padding_far_outside_is_rejected():
    gate = make_gate(task=PaysAll(), max_new_tokens=400)
    gate.note_own([group(peer="own", rollouts=(rollout(RIGHT, reward=1.0),) * 4)] * 20)
    near = admit(group(rollouts=(rollout("1" * 23 + ";", reward=1.0),)), gate)
    assert (near.accepted, near.length_ratio) == (True, 4)
    far = admit(group(prompt_id="train/1", rollouts=(rollout("1" * 24 + ";", reward=1.0),)), gate)
    assert (far.reason, far.strikes) == ("padded", 0.25)
    assert far.detail == "correct completions of 25 tokens; 95 % of ours have 6 or less"


def test_a_leap_of_claims_is_unusual():
    gate = make_gate(max_lag=50)
    for round in range(30):
        assert admit(group(round=round), gate, round=round, current_round=round).accepted
    leap = tuple(dataclasses.replace(each, logp_gen=each.logp_gen - np.float32(1.9)) for each in GROUP.rollouts)
    verdict = admit(group(round=30, rollouts=leap), gate, round=30, current_round=30)
    assert (verdict.reason, verdict.strikes) == ("unusual_logp", 0.25)


def test_equal_completions_are_no_fault():
    """A model that has collapsed says one thing only. That teaches nothing, and it is no attack."""
    same = rollout(RIGHT, logp_gen=logps(*[-0.01] * 6))
    assert admit(group(rollouts=(same,) * 6)).accepted


class PartlyScorable(RunningSums):
    """Cannot score texts that end with 4, and scores others out of range."""

    def score(self, _prompt, completions):
        values = {"3": 0.25, "4": None, "5": math.nan}
        return [None if values[completion[-1]] is None else Score(values[completion[-1]]) for completion in completions]


def test_rollouts_that_cannot_be_scored_are_left_out():
    sent = group(rollouts=tuple(rollout(f"15.2{digit};", reward=0.25) for digit in (3, 4, 5, 3)))
    verdict = admit(sent, make_gate(task=PartlyScorable()))
    assert [decode(each.token_ids) for each in verdict.group.rollouts] == ["15.23", "15.23"]
    assert verdict.detail == "2 of 4 rollouts could not be scored"
    assert verdict.reward_mismatches == 0
    nothing = admit(group(rollouts=(rollout("4;"), rollout("5;"))), make_gate(task=PartlyScorable()))
    assert (nothing.reason, nothing.detail) == ("unscorable", "none of 2 rollouts could be scored")


def test_a_task_or_tokenizer_that_breaks_on_a_peers_text_does_not_break_the_gate():
    class Breaks(RunningSums):
        def score(self, _prompt, completions):
            raise RecursionError(completions[0])

    class Forgets(RunningSums):
        def score(self, _prompt, _completions):
            return [Score(1.0)]

    def cannot_decode(ids):
        raise OverflowError(str(ids))

    assert admit(GROUP, make_gate(task=Breaks())).reason == "unscorable"
    assert admit(GROUP, make_gate(task=Forgets())).reason == "unscorable"
    verdict = admit(GROUP, make_gate(decode=cannot_decode))
    assert (verdict.reason, verdict.detail) == ("bad_token", "2 of 2 rollouts cannot be decoded")


def test_the_task_scores_our_own_prompt_and_the_decoded_text():
    calls = []

    class Listens(RunningSums):
        def score(self, prompt, completions):
            calls.append((prompt, list(completions)))
            return [Score(0.5) for _ in completions]

    admit(GROUP, make_gate(task=Listens()))
    assert calls == [(PROMPT, ["15.23", "15.24"])]
    assert isinstance(calls[0][0], Prompt)


def test_limits_are_passed_on():
    gate = make_gate(limits=WireLimits(max_payload_bytes=len(GOOD) - 1))
    assert admit(GROUP, gate).reason == "malformed"
    assert admit(group(prompt_id="train/1"), make_gate(limits=WireLimits(max_payload_bytes=len(GOOD)))).accepted


names = st.sampled_from(["kim", "lee", "own", "eve"]) | st.text(max_size=8)
plausible_ids = st.lists(st.integers(0, 10), max_size=7).map(lambda ids: [*ids, END])
any_ids = st.lists(st.integers(0, 17) | st.integers(0, 2**32 - 1), min_size=1, max_size=9)
any_logp = st.floats(-3, 0.0, width=32) | st.floats(width=32)


@st.composite
def rollouts(draw):
    ids = draw(plausible_ids | any_ids)
    logp = [-0.5] * len(ids)
    if draw(st.booleans()):
        logp[draw(st.integers(0, len(ids) - 1))] = draw(any_logp)
    finish = draw(st.sampled_from(["stop", "stop", "length"]))
    return Rollout(ids_of(*ids), logps(*logp), finish, draw(st.sampled_from([0.0, 1.0, -7.5, math.nan])))


groups = st.builds(
    Group,
    peer=names,
    round=st.just(ROUND) | st.integers(-(2**63), 2**64 - 1),
    prompt_id=st.sampled_from(["train/0", "train/1", "train/2", "ood/0"]) | st.text(max_size=20),
    sampler=st.builds(
        SamplerInfo,
        model=st.text(max_size=8),
        policy_step=st.integers(-(2**63), 2**64 - 1),
        temperature=st.just(1.0) | st.floats(),
        tokenizer=st.just(TOKENIZER) | st.text(max_size=8),
    ),
    rollouts=st.lists(rollouts(), min_size=1, max_size=7).map(tuple),
)


def check_promises(verdict, payload):
    assert verdict.accepted == (verdict.reason is None)
    assert verdict.detail.isprintable()
    if verdict.accepted:
        for each in verdict.group.rollouts:
            assert 1 <= len(each.token_ids) == len(each.logp_gen) <= 8
            assert (each.token_ids < VOCAB_SIZE).all()
            assert (each.logp_gen <= 0).all()
            assert np.isfinite(each.logp_gen).all()
            assert each.reward in (0.0, 1.0)
        assert len(verdict.group.rollouts) == len(decode_group(payload).rollouts)


@given(groups, names, st.just(ROUND) | st.integers(), st.integers(0, 10), st.sampled_from([None, 2]))
def test_no_group_raises(sent, peer, round, current_round, max_lag):
    payload = encode_group(sent)
    gate = make_gate(max_lag=max_lag)
    check_promises(admit(payload, gate, peer=peer, round=round, current_round=current_round), payload)


@given(rollouts(), st.sampled_from(["vertical", "horizontal"]))
@settings(max_examples=200)
def test_no_rollout_in_a_proper_envelope_raises(sent, collaboration):
    payload = encode_group(group(rollouts=(rollout(RIGHT), sent)))
    check_promises(admit(payload, make_gate(collaboration=collaboration)), payload)


@given(st.binary(max_size=400))
def test_no_bytes_raise(payload):
    assert admit(payload).reason in ("malformed", "wrong_version")


@given(st.integers(0, len(GOOD) - 1), st.integers(1, 255), st.integers(0, 20))
@settings(max_examples=200)
def test_no_damaged_group_raises(place, flip, cut):
    damaged = bytearray(GOOD)
    damaged[place] ^= flip
    payload = bytes(damaged[: len(damaged) - cut])
    check_promises(admit(payload), payload)


def test_what_was_seen_survives_an_interruption():
    before = make_gate()
    assert admit(GROUP, before).accepted
    after = make_gate()
    after.restore(json.loads(json.dumps(before.to_dict())))
    assert admit(GROUP, after).reason == "duplicate"
    assert after.seen() == before.seen() == [(ROUND, "kim", "train/0")]
    older = make_gate()
    older.restore({"seen": [[ROUND, "kim", "train/0"]]})
    assert admit(GROUP, older).reason == "duplicate"


def test_everything_else_survives_an_interruption_too():
    before, after = make_gate(max_lag=50), make_gate(max_lag=50)
    before.note_own([group(peer="own", rollouts=(rollout(RIGHT),) * 70)])
    for round in range(4):
        admit(group(round=round), before, round=round, current_round=round)
        admit(b"", before, round=round, current_round=round)
    after.restore(json.loads(json.dumps(before.to_dict())))
    assert after.to_dict() == before.to_dict()
    assert before.to_dict()["conduct"]["kim"]["quarantines"] == 1
    assert admit(GROUP, after, round=4, current_round=4).reason == "quarantined"


@pytest.mark.parametrize(
    "damaged",
    [{"seen": [1]}, {"conduct": {"kim": {"strikes": "x"}}}, {"histories": {"kim": ["x"]}}, {"used": [[1, 2]]}],
)
def test_a_damaged_state_is_refused(damaged):
    with pytest.raises((TypeError, ValueError)):
        make_gate().restore(damaged)
