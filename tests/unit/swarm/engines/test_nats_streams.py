from __future__ import annotations

import pytest

from motet.swarm.engines.nats_streams import MAX_MESSAGES_PER_ROUND, WIDEST_ROUNDS_BYTES, StreamTerms, stream_terms
from motet.swarm.engines.nats_subjects import Subjects

ROUNDS, BEATS = stream_terms(Subjects("0a"), keep_rounds=3, max_message_bytes=1000)


@pytest.mark.parametrize("terms", [ROUNDS, BEATS])
def test_what_is_asked_for_will_do(terms: StreamTerms) -> None:
    assert terms.shortfall(terms.request(num_replicas=3)) is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("subjects", ["motet.0a.>"]),
        ("subjects", None),
        ("retention", "workqueue"),
        ("discard", "new"),
        ("allow_direct", False),
        ("max_msgs_per_subject", 1),
        ("max_bytes", 1000),
        ("max_age", 1_000_000_000),
        ("max_msg_size", 999),
    ],
)
def test_a_stream_that_holds_less_will_not_do(key: str, value: object) -> None:
    config = {**ROUNDS.request(num_replicas=1), key: value}
    assert key in str(ROUNDS.shortfall(config))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("max_msgs_per_subject", -1),
        ("max_bytes", -1),
        ("max_age", 0),
        ("max_msg_size", -1),
        ("max_msgs_per_subject", 9999),
    ],
)
def test_a_stream_that_holds_more_will_do(key: str, value: object) -> None:
    assert ROUNDS.shortfall({**ROUNDS.request(num_replicas=1), key: value}) is None


def test_of_heartbeats_the_stream_must_keep_one() -> None:
    assert "not 1" in str(BEATS.shortfall({**BEATS.request(num_replicas=1), "max_msgs_per_subject": 2}))


def test_rounds_get_room_for_as_many_as_are_kept() -> None:
    assert ROUNDS.max_bytes == 3 * MAX_MESSAGES_PER_ROUND * 1000
    wide, _ = stream_terms(Subjects("0a"), keep_rounds=50, max_message_bytes=4_000_000)
    assert wide.max_bytes == WIDEST_ROUNDS_BYTES


def test_nobody_may_wipe_a_stream() -> None:
    for terms in (ROUNDS, BEATS):
        request = terms.request(num_replicas=1)
        assert (request["deny_delete"], request["deny_purge"], request["allow_rollup_hdrs"]) == (True, True, False)
