from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from motet.swarm import Ledger

PEERS = st.sampled_from(["ann", "bob", "cid"])
REASONS = st.sampled_from(["bad_logp", "duplicate", "malformed"])
EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("verdict"), PEERS, st.none() | REASONS, st.integers(0, 10**6), st.integers(0, 8)),
        st.tuples(st.just("use"), PEERS, st.integers(0, 8), st.dictionaries(REASONS, st.integers(0, 8))),
        st.tuples(st.just("late"), PEERS, st.integers(1, 5)),
    )
)


def played(events):
    ledger = Ledger()
    for kind, peer, *values in events:
        if kind == "verdict":
            reason, num_bytes, mismatches = values
            ledger.record_verdict(
                peer=peer, accepted=reason is None, reason=reason, num_bytes=num_bytes, reward_mismatches=mismatches
            )
        elif kind == "use":
            ledger.record_use(peer, kept=values[0], dropped=values[1])
        else:
            ledger.record_late(peer, values[0])
    return ledger


@given(EVENTS)
def test_every_group_received_is_accepted_or_has_one_reason(events):
    ledger = played(events)
    verdicts = [event for event in events if event[0] == "verdict"]
    for peer in ledger.peers():
        account = ledger.account(peer)
        assert account.received == account.accepted + account.rejected.total()
        assert account.received == sum(event[1] == peer for event in verdicts)
        assert account.num_bytes == sum(event[3] for event in verdicts if event[1] == peer)


@given(EVENTS)
def test_a_ledger_survives_a_checkpoint(events):
    ledger = played(events)
    plain = json.loads(json.dumps(ledger.to_dict()))
    restored = Ledger.from_dict(plain)
    assert restored.to_dict() == ledger.to_dict()
    restored.record_verdict(peer="ann", accepted=False, reason="bad_logp", num_bytes=1)
    assert restored.account("ann").rejected["bad_logp"] == ledger.account("ann").rejected["bad_logp"] + 1


def test_counts_by_hand():
    ledger = Ledger()
    ledger.record_verdict(peer="bob", accepted=True, num_bytes=100, reward_mismatches=2)
    ledger.record_verdict(peer="bob", accepted=False, reason="duplicate", num_bytes=100)
    ledger.record_use("bob", kept=5, dropped={"advantage": 2, "kl": 1})
    ledger.record_use("bob", kept=1, dropped={"advantage": 1})
    ledger.record_late("bob", 3)
    assert ledger.to_dict() == {
        "bob": {
            "received": 2,
            "accepted": 1,
            "rejected": {"duplicate": 1},
            "late": 3,
            "num_bytes": 200,
            "reward_mismatches": 2,
            "kept": 6,
            "dropped": {"advantage": 3, "kl": 1},
        }
    }


@pytest.mark.parametrize(("accepted", "reason"), [(True, "bad_logp"), (False, None)])
def test_a_verdict_is_accepted_or_has_a_reason(accepted, reason):
    ledger = Ledger()
    with pytest.raises(ValueError, match="either accepted, or rejected with a reason"):
        ledger.record_verdict(peer="bob", accepted=accepted, reason=reason, num_bytes=1)
    assert ledger.peers() == []


@pytest.mark.parametrize("counts", [{"received": 2, "accepted": 1}, {"unheard_of": 1}])
def test_damaged_accounts_are_refused(counts):
    with pytest.raises(ValueError, match="account of 'bob'"):
        Ledger.from_dict({"bob": counts})
