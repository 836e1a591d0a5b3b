from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from motet.swarm import Ledger
from motet.swarm.ledger import OTHERS, shown_name

PEERS = st.sampled_from(["ann", "bob", "cid"])
REASONS = st.sampled_from(["bad_logp", "duplicate", "malformed"])
EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("verdict"), PEERS, st.none() | REASONS, st.integers(0, 10**6), st.integers(0, 8)),
        st.tuples(st.just("use"), PEERS, st.integers(0, 8), st.dictionaries(REASONS, st.integers(0, 8))),
        st.tuples(st.just("late"), PEERS, st.integers(1, 5)),
        st.tuples(st.just("refused"), PEERS, st.dictionaries(REASONS, st.integers(1, 8))),
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
        elif kind == "late":
            ledger.record_late(peer, values[0])
        else:
            ledger.record_refused(peer, values[0])
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
    ledger.record_verdict(peer="bob", accepted=False, reason="bad_logp", num_bytes=100, strikes=1, quarantined_until=9)
    ledger.record_refused("bob", {"malformed": 2, "wrong_key": 1})
    ledger.record_use("bob", kept=5, dropped={"advantage": 2, "kl": 1})
    ledger.record_use("bob", kept=1, dropped={"advantage": 1})
    ledger.record_late("bob", 3)
    assert ledger.to_dict() == {
        "bob": {
            "received": 2,
            "accepted": 1,
            "rejected": {"bad_logp": 1},
            "late": 3,
            "num_bytes": 200,
            "reward_mismatches": 2,
            "kept": 6,
            "dropped": {"advantage": 3, "kl": 1},
            "refused": {"malformed": 2, "wrong_key": 1},
            "worth": 0.0,
            "strikes": 1.0,
            "quarantines": 1,
            "quarantined_until": 9,
        }
    }


def test_quarantines_are_counted_once_each():
    ledger = Ledger()
    for until in [None, 9, 9, 9, None, 30, 30, None]:
        ledger.record_verdict(
            peer="bob", accepted=until is None, reason=until and "quarantined", num_bytes=1, quarantined_until=until
        )
    account = ledger.account("bob")
    assert (account.quarantines, account.quarantined_until) == (2, None)


def test_refused_messages_are_no_groups():
    """Whoever forges bob's name does not change what is known of bob's groups."""
    ledger = Ledger()
    ledger.record_refused("bob", {"bad_signature": 1000})
    account = ledger.account("bob")
    assert (account.received, account.rejected.total(), account.num_bytes, account.strikes) == (0, 0, 0, 0)
    assert dict(account.refused) == {"bad_signature": 1000}


def test_an_account_of_an_earlier_version_is_read():
    account = Ledger.from_dict({"bob": {"received": 1, "accepted": 1, "rejected": {}, "late": 0}}).account("bob")
    assert (account.refused.total(), account.strikes, account.quarantined_until) == (0, 0, None)


def test_names_of_strangers_are_made_harmless_and_bounded():
    ledger = Ledger()
    ledger.record_refused("\x1b[2J<b>\n" + "x" * 10_000, {"unknown \x07peer": 1})
    (name,) = ledger.peers()
    assert name.isprintable()
    assert len(name) <= 64
    assert dict(ledger.account(name).refused) == {"unknown\\x20\\x07peer": 1}


def test_a_flood_of_names_shares_one_account():
    ledger = Ledger()
    for number in range(5000):
        ledger.record_refused(f"stranger-{number}", {"unknown_peer": 1})
    assert len(ledger.peers()) == 4097
    assert ledger.account(OTHERS).refused["unknown_peer"] == 5000 - 4096
    ledger.record_refused("stranger-7", {"unknown_peer": 1})
    assert ledger.account("stranger-7").refused["unknown_peer"] == 2


@given(st.text(max_size=200))
def test_a_shown_name_is_one_printable_word(text):
    shown = shown_name(text)
    assert shown.isascii()
    assert shown.isprintable()
    assert " " not in shown
    assert len(shown) <= 64
    assert shown_name(shown) == shown


@pytest.mark.parametrize("name", ["ann", "node-7.example", "A_b-c.9"])
def test_names_of_run_files_are_shown_as_they_are(name):
    assert shown_name(name) == name


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


def test_worth_follows_what_was_learned_from_and_begins_at_nothing():
    ledger = Ledger()
    assert ledger.account("bob").worth == 0
    for worth in (1.0, None, 0.5):
        ledger.record_use("bob", kept=1, dropped={}, worth=worth)
    assert ledger.account("bob").worth == pytest.approx(0.2 + (0.5 - 0.2) / 5)
    assert Ledger.from_dict(ledger.to_dict()).account("bob").worth == ledger.account("bob").worth
