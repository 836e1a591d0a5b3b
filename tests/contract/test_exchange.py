"""What every exchange must do. Another one passes by adding how its nodes meet to `HUBS`.

The exchange over the network is tested over every link of `network_hub.LINKS`, and once with its steps done by hand.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from multiprocessing import Pipe
from typing import Protocol

import pytest
from network_hub import LINKS, network_hub

from motet.swarm import Exchange, MemoryHub, Parcel, PipeExchange, serve_exchange

SHORT_S = 0.02
LONG_S = 30.0


class Hub(Protocol):
    def join(self, name: str) -> Exchange: ...


class PipedHub:
    """A memory hub at the far ends of pipes, as in the process that runs a swarm."""

    def __init__(self) -> None:
        self._hub = MemoryHub()

    def join(self, name: str) -> PipeExchange:
        ours, theirs = Pipe()
        threading.Thread(target=serve_exchange, args=(self._hub.join(name), ours), daemon=True).start()
        return PipeExchange(name, theirs)


HUBS: dict[str, Callable[[], AbstractContextManager[Hub]]] = {
    "memory": lambda: nullcontext(MemoryHub()),
    "pipes": lambda: nullcontext(PipedHub()),
    "network by hand": partial(network_hub, LINKS["memory"], threads=False),
    **{f"network over {name}": partial(network_hub, factory) for name, factory in LINKS.items()},
}
IN_MEMORY = {"memory", "pipes", "network by hand", "network over memory"}


@pytest.fixture(
    params=[
        pytest.param(meet, id=name, marks=() if name in IN_MEMORY else pytest.mark.network)
        for name, meet in HUBS.items()
    ]
)
def hub(request):
    before = set(threading.enumerate())
    with request.param() as hub:
        yield hub
    left = [thread.name for thread in set(threading.enumerate()) - before if thread.name.startswith("motet ")]
    assert left == [], "threads that outlive their exchange"


@pytest.fixture
def trio(hub):
    exchanges = [hub.join(name) for name in ("ann", "bob", "cid")]
    yield exchanges
    for exchange in exchanges:
        exchange.close()


def in_thread(call):
    """Runs `call` in a thread; the returned function waits for its result."""
    results = []
    started = threading.Event()

    def work():
        started.set()
        results.append(call())

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    assert started.wait(LONG_S)

    def result():
        thread.join(LONG_S)
        assert results, "still waiting"
        return results[0]

    return result


class TestExchange:
    def test_names_and_peers(self, trio):
        ann, bob, cid = trio
        assert [exchange.name for exchange in trio] == ["ann", "bob", "cid"]
        assert ann.peers() == ["bob", "cid"]
        assert bob.peers() == ["ann", "cid"]
        assert cid.peers() == ["ann", "bob"]

    def test_alone_is_a_normal_state(self, hub):
        ann = hub.join("ann")
        ann.publish(0, [b"x"])
        assert ann.peers() == []
        assert ann.waiting_for(0) == []
        assert ann.collect(0, deadline_s=LONG_S) == []
        assert ann.collect(0, deadline_s=LONG_S, max_lag=3) == []
        assert ann.num_late() == {}

    def test_delivers_to_all_others_and_not_to_the_publisher(self, trio):
        for exchange in trio:
            exchange.publish(0, [exchange.name.encode()])
        for exchange in trio:
            parcels = exchange.collect(0, deadline_s=LONG_S)
            assert [parcel.peer for parcel in parcels] == exchange.peers()
            assert all(parcel == Parcel(parcel.peer, 0, parcel.peer.encode()) for parcel in parcels)

    def test_delivers_at_most_once(self, trio):
        ann, bob, cid = trio
        for exchange in trio:
            exchange.publish(0, [b"x", b"x"])
        assert len(ann.collect(0, deadline_s=LONG_S)) == 4
        assert ann.collect(0, deadline_s=LONG_S) == []
        assert ann.collect(0, deadline_s=LONG_S, max_lag=5) == []
        assert len(bob.collect(0, deadline_s=LONG_S, max_lag=5)) == 4
        assert bob.collect(0, deadline_s=LONG_S) == []
        assert ann.num_late() == bob.num_late() == cid.num_late() == {}

    def test_payloads_arrive_whole_and_unaltered_whatever_they_are(self, trio):
        ann, bob, cid = trio
        reused = bytearray(b"first")
        payloads = [b"", b"\x00\xff" * 100_000, b"not a group", bytes(reused)]
        ann.publish(0, [*payloads, reused])
        reused[:] = b"later"
        bob.publish(0, [])
        parcels = cid.collect(0, deadline_s=LONG_S)
        assert [parcel.payload for parcel in parcels] == [*payloads, b"first"]

    def test_order_depends_on_content_only(self, trio):
        ann, bob, cid = trio
        bob.publish(1, [b"b1"])
        ann.publish(2, [b"a2"])
        bob.publish(0, [b"b0-", b"b0"])
        ann.publish(0, [b"a0-", b"a0", b"a"])
        ann.publish(1, [])
        parcels = cid.collect(0, deadline_s=LONG_S, max_lag=0)
        assert [parcel.payload for parcel in parcels] == [b"a0-", b"a0", b"a", b"a2", b"b0-", b"b0", b"b1"]

    def test_says_for_whom_a_lockstep_node_waits(self, trio):
        ann, bob, cid = trio
        assert ann.waiting_for(0) == ["bob", "cid"]
        cid.publish(0, [b"x"])
        assert ann.waiting_for(0) == ["bob"]
        bob.publish(0, [])
        assert ann.waiting_for(0) == []
        assert ann.waiting_for(1) == ["bob", "cid"]
        assert bob.waiting_for(0) == ["ann"]

    def test_publishing_nothing_counts_as_publishing(self, trio):
        ann, bob, cid = trio
        bob.publish(0, [])
        cid.publish(0, ())
        assert ann.collect(0, deadline_s=LONG_S) == []

    @pytest.mark.parametrize("deadline_s", [SHORT_S, 0.0, -1.0])
    def test_lockstep_returns_at_the_deadline_with_what_has_arrived(self, trio, deadline_s):
        ann, bob, _ = trio
        bob.publish(0, [b"x"])
        start = time.monotonic()
        parcels = ann.collect(0, deadline_s=deadline_s)
        took_s = time.monotonic() - start
        assert max(deadline_s, 0) <= took_s < LONG_S / 10
        assert parcels == [Parcel("bob", 0, b"x")]

    def test_lockstep_with_nothing_arrived_gives_an_empty_list(self, trio):
        assert trio[0].collect(0, deadline_s=SHORT_S) == []

    def test_endless_deadlines_are_allowed(self, trio):
        ann, bob, cid = trio
        bob.publish(0, [])
        cid.publish(0, [])
        assert ann.collect(0, deadline_s=1e30) == []

    def test_lockstep_keeps_later_rounds_and_discards_older_ones_counted(self, trio):
        ann, bob, cid = trio
        for round in (0, 1, 2):
            bob.publish(round, [f"b{round}".encode()])
            cid.publish(round, [f"c{round}".encode()] * 2)
        assert [parcel.payload for parcel in ann.collect(1, deadline_s=LONG_S)] == [b"b1", b"c1", b"c1"]
        assert ann.num_late() == {"bob": 1, "cid": 2}
        assert ann.num_late() == {}
        assert [parcel.payload for parcel in ann.collect(2, deadline_s=LONG_S)] == [b"b2", b"c2", b"c2"]
        assert ann.num_late() == {}

    def test_what_comes_after_the_deadline_is_late_in_the_next_round(self, trio):
        ann, bob, cid = trio
        cid.publish(0, [])
        assert ann.collect(0, deadline_s=0.0) == []
        bob.publish(0, [b"too late"])
        bob.publish(1, [b"in time"])
        cid.publish(1, [])
        assert ann.collect(1, deadline_s=LONG_S) == [Parcel("bob", 1, b"in time")]
        assert ann.num_late() == {"bob": 1}

    def test_free_pace_does_not_wait_and_takes_what_is_recent_enough(self, trio):
        ann, bob, cid = trio
        for round in range(6):
            bob.publish(round, [f"b{round}".encode()])
        start = time.monotonic()
        parcels = ann.collect(4, deadline_s=LONG_S, max_lag=2)
        assert time.monotonic() - start < LONG_S / 10, "ann and bob are most of the three: cid is not waited for"
        assert [parcel.round for parcel in parcels] == [2, 3, 4, 5]
        assert ann.num_late() == {"bob": 2}
        cid.publish(1, [b"old"])
        cid.publish(3, [b"fresh"])
        assert ann.collect(5, deadline_s=LONG_S, max_lag=2) == [Parcel("cid", 3, b"fresh")]
        assert ann.num_late() == {"cid": 1}

    def test_nobody_waits_for_a_node_that_has_left(self, trio):
        ann, bob, cid = trio
        bob.publish(0, [b"last words"])
        bob.close()
        bob.close()
        assert ann.peers() == ["cid"]
        assert ann.waiting_for(1) == ["cid"]
        cid.publish(0, [])
        assert ann.collect(0, deadline_s=LONG_S) == [Parcel("bob", 0, b"last words")]
        cid.publish(1, [])
        assert ann.collect(1, deadline_s=LONG_S) == []

    def test_a_node_that_has_left_gets_nothing_and_publishes_nothing(self, trio):
        ann, bob, cid = trio
        ann.publish(0, [b"x"])
        bob.close()
        cid.publish(0, [b"x"])
        assert bob.collect(0, deadline_s=LONG_S) == []
        assert bob.collect(0, deadline_s=LONG_S, max_lag=3) == []
        with pytest.raises(RuntimeError, match="'bob' has left"):
            bob.publish(0, [b"ghost"])
        assert [parcel.peer for parcel in ann.collect(0, deadline_s=LONG_S)] == ["cid"]

    def test_a_waiting_node_wakes_when_the_last_peer_publishes(self, trio):
        ann, bob, cid = trio
        cid.publish(0, [b"c"])
        result = in_thread(lambda: ann.collect(0, deadline_s=LONG_S))
        bob.publish(0, [b"b"])
        assert [parcel.payload for parcel in result()] == [b"b", b"c"]

    def test_a_waiting_node_wakes_when_the_last_peer_leaves(self, trio):
        ann, bob, cid = trio
        cid.publish(0, [b"c"])
        result = in_thread(lambda: ann.collect(0, deadline_s=LONG_S))
        bob.close()
        assert [parcel.payload for parcel in result()] == [b"c"]

    def test_a_waiting_node_wakes_when_it_leaves_itself(self, trio):
        ann = trio[0]
        result = in_thread(lambda: ann.collect(0, deadline_s=LONG_S))
        ann.close()
        assert result() == []

    def test_publishing_never_waits_for_receivers(self, trio):
        ann, bob, _ = trio
        start = time.monotonic()
        for round in range(300):
            bob.publish(round, [b"x" * 1000] * 4)
        assert time.monotonic() - start < LONG_S / 10
        assert len(ann.collect(299, deadline_s=LONG_S, max_lag=0)) == 4
        assert ann.num_late() == {"bob": 299 * 4}

    def test_rounds_of_real_threads_in_lockstep(self, trio):
        def play(exchange):
            collected = []
            for round in range(30):
                exchange.publish(round, [f"{exchange.name}{round}".encode()])
                collected.append([p.payload for p in exchange.collect(round, deadline_s=LONG_S)])
            return collected

        results = [in_thread(lambda exchange=exchange: play(exchange)) for exchange in trio]
        for exchange, result in zip(trio, results, strict=True):
            expected = [[f"{peer}{round}".encode() for peer in exchange.peers()] for round in range(30)]
            assert result() == expected
            assert exchange.num_late() == {}

    def test_threads_in_free_pace_get_every_parcel_once_or_count_it(self, trio):
        def play(exchange):
            count = 0
            for round in range(50):
                exchange.publish(round, [b"x", b"y"])
                count += len(exchange.collect(round, deadline_s=LONG_S, max_lag=1))
            return count

        results = [in_thread(lambda exchange=exchange: play(exchange)) for exchange in trio]
        counts = [result() for result in results]
        for exchange, count in zip(trio, counts, strict=True):
            rest = len(exchange.collect(50, deadline_s=LONG_S, max_lag=1))
            assert count + rest + sum(exchange.num_late().values()) == 2 * 50 * 2
