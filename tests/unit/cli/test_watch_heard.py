"""What `motet watch` makes of heartbeats at an address: whom it believes, what it shows, what it says in a pipe."""

from __future__ import annotations

import json
import socket
import threading
import time
from dataclasses import asdict

import pytest
from rich.console import Console

from motet.cli import watch
from motet.cli.main import Parser
from motet.cli.watch_heard import Audience, HeardNow
from motet.cli.watch_heard_view import lines_of, still_there, table_of
from motet.cli.watch_live import Listening, Place, audience_of, is_address, place_of_addresses, place_of_file
from motet.config import RunFile
from motet.errors import SwarmUnreachable, UsageError
from motet.swarm.identity.credentials import plain_credential
from motet.swarm.identity.envelope import Envelope, Kind, seal
from motet.swarm.identity.keyring import run_id_of
from motet.swarm.identity.keys import NodeKey, short
from motet.swarm.network.membership import Beat, Held, encode_beat

RUN_ID = run_id_of("sums", 0, None)
RUN_FILE = """
[run]
name = "sums"
rounds = 20
[swarm]
{swarm}
[[node]]
name = "ann"
model = "tiny:small"
[[node]]
name = "bob"
model = "tiny:small"
"""


class Speaker:
    """A node that says what it is told to."""

    def __init__(self, name: str, run_id: bytes = RUN_ID) -> None:
        self.name, self.run_id, self.key, self.seq = name, run_id, NodeKey.generate(), 0

    def beat(self, round: int = -1, *, digest: bytes = bytes(16), clock_gap_s: float = 0.0, **more) -> bytes:
        self.seq += 1
        fields = {"from_round": 0, "held": (), "leaving": False, "revocations": None, **more}
        clock_ms = int(1000 * (time.time() + clock_gap_s))
        credential = plain_credential(self.name, self.key.public)
        body = encode_beat(Beat(credential=credential, digest=digest, round=round, clock_ms=clock_ms, **fields))
        return seal(Envelope(self.run_id, Kind.BEAT, self.name, 1, self.seq, -1, 0, 1, body), self.key)

    def say(self, audience: Audience, round: int = -1, **more) -> None:
        audience.hear(f"beat/{self.name}", self.beat(round, **more))


@pytest.fixture
def clock():
    now = [100.0]
    return now


@pytest.fixture
def audience(clock):
    return Audience(run_of(), RUN_ID, names={RUN_ID.hex(): "sums"}, clock=lambda: clock[0])


def run_of() -> RunFile:
    nodes = [{"name": name, "model": "tiny:small"} for name in ("ann", "bob")]
    return RunFile.model_validate(
        {"run": {"name": "sums", "rounds": 20}, "swarm": {"transport": "zenoh"}, "node": nodes}
    )


def now_of(audience: Audience, *, fault: str | None = None, connected: str = "tcp/192.0.2.1:7447 (relay)") -> HeardNow:
    swarms, others, refused, events = audience.look()
    ends = [] if fault else [connected]
    return HeardNow(["tcp/192.0.2.1:7447"], ends, fault, 65.0, swarms, others, refused, events)


def text_of(now: HeardNow, width: int = 80) -> str:
    console = Console(width=width, force_terminal=False)
    with console.capture() as capture:
        console.print(table_of(now))
    return capture.get()


def test_who_is_there_and_how_far(audience, clock):
    ann, bob = Speaker("ann"), Speaker("bob")
    ann.say(audience, 11, held=tuple(Held(round, 1, 8) for round in range(8, 12)))
    bob.say(audience, 11)
    bob.say(audience, 9, from_round=4)  # claims never go back
    clock[0] += 2
    ann.say(audience, 12, held=(Held(12, 1, 8),))
    (swarm,) = now_of(audience).swarms
    assert (swarm.run, swarm.round, swarm.rounds, swarm.finished) == ("sums", 12, 20, False)
    there, late = swarm.nodes
    assert (there.name, there.state, there.round, there.held, there.groups) == ("ann", "live", 13, "13", 8)
    assert (late.name, late.state, late.round, late.from_round, late.heard_s) == ("bob", "live", 12, 5, 2.0)
    assert there.key == short(ann.key.public)
    clock[0] += 4
    ann.say(audience, 15)
    (swarm,) = now_of(audience).swarms
    assert [(node.state, node.lag) for node in swarm.nodes] == [("live", 0), ("silent", 4)]
    bob.say(audience, 12, leaving=True)
    assert now_of(audience).swarms[0].nodes[1].state == "left"
    shown = text_of(now_of(audience))
    assert shown.splitlines()[:2] == [
        "listening at tcp/192.0.2.1:7447 (relay)",
        "sums  round 16/20  #############---",
    ]
    assert "silent bob (sums)" in shown
    assert "left bob (sums)" in shown
    assert "neither rewards" in shown
    assert max(map(len, shown.splitlines())) <= 80


def test_only_what_the_run_file_believes_is_shown(audience):
    bob, twin, stranger, other = Speaker("bob"), Speaker("bob"), Speaker("eve"), Speaker("ann", bytes(16))
    audience.hear("roll/bob/1", bob.beat())
    for topic, message in (("beat/bob", b"nonsense"), ("beat/bob", bob.beat()[:-1] + b"?")):
        audience.hear(topic, message)
    assert not audience.wait(0.0)
    for speaker in (bob, twin, stranger, other):
        speaker.say(audience, 3)
    assert audience.wait(0.0)
    now = now_of(audience)
    assert [node.name for node in now.swarms[0].nodes] == ["bob"]
    assert now.refused == {"malformed": 1, "bad_signature": 1, "wrong_key": 1, "unknown_peer": 1}
    assert now.other_runs == ["00000000"]
    assert "would believe: bad_signature 1, malformed 1" in " ".join(text_of(now, 120).split())


def test_at_an_address_all_runs_are_heard_or_the_wanted_one():
    place = Place("zenoh", ("tcp/192.0.2.1:7447",), None)
    speakers = [Speaker("ann"), Speaker("bob", bytes(15) + b"1"), Speaker("bob", bytes(16))]

    def heard(wanted: str | None) -> tuple[list[tuple[str, str]], list[str]]:
        audience = audience_of(place, wanted)
        for speaker in speakers:
            speaker.say(audience)
        now = now_of(audience)
        return [(swarm.run, node.name) for swarm in now.swarms for node in swarm.nodes], now.other_runs

    own = RUN_ID.hex()[:8]
    assert sorted(heard(None)[0]) == sorted([("00000000", "bob"), ("00000000", "bob"), (own, "ann")])
    assert heard("sums") == ([("sums", "ann")], ["00000000"])
    assert heard(RUN_ID.hex()[:10]) == ([(own, "ann")], ["00000000"])
    audience = audience_of(place, None)
    for _ in range(2):
        Speaker("ann").say(audience)  # two keys, and nobody here knows which is the right one
    assert now_of(audience).refused == {"wrong_key": 1}


def test_what_is_amiss_is_told(audience):
    Speaker("ann").say(audience, 3, digest=b"a" * 16)
    Speaker("bob").say(audience, 3, digest=b"b" * 16, clock_gap_s=7200)
    shown = " ".join(text_of(now_of(audience), 120).split())
    assert "they differ in what must agree, and do not learn from one another: ann | bob" in shown
    assert "the clock of bob is 2 h ahead of this one" in shown
    assert "no connection: nothing listens there; trying again" in text_of(
        now_of(audience, fault="nothing listens there")
    )


def test_a_run_that_all_have_done_and_left_is_finished(audience):
    ann, bob = Speaker("ann"), Speaker("bob")
    ann.say(audience, 19)
    bob.say(audience, 19)
    assert not now_of(audience).finished
    ann.say(audience, 19, leaving=True)
    assert not now_of(audience).finished
    bob.say(audience, 19, leaving=True)
    now = now_of(audience)
    assert now.finished
    assert list(lines_of(now, None))[-1] == "run=sums state=finished"


def test_a_line_for_each_change_and_now_and_then_one_without(audience):
    nobody = now_of(audience)
    assert list(lines_of(nobody, None)) == ['state=connected address="tcp/192.0.2.1:7447 (relay)" heard=nobody']
    assert list(still_there(nobody)) == ["state=connected heard=nobody listening_s=65"]
    assert "nobody heard yet" in text_of(nobody)
    ann = Speaker("ann")
    ann.say(audience, 3)
    first = now_of(audience)
    _, line = lines_of(first, nobody)
    assert line == f"run=sums node=ann state=live round=4/20 from_round=1 key={short(ann.key.public)}"
    ann.say(audience, 3)
    assert list(lines_of(now_of(audience), first)) == []
    assert list(still_there(first)) == ["run=sums round=4/20 live=1 silent=0 left=0 listening_s=65"]
    ann.say(audience, 4)
    (line,) = lines_of(now_of(audience), first)
    assert "round=5/20" in line
    lost = now_of(audience, fault="the relay has gone")
    assert 'state=disconnected address=tcp/192.0.2.1:7447 why="the relay has gone"' in list(lines_of(lost, first))


# --- where to listen -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("tcp/127.0.0.1:7447", True),
        ("tls/relay.example.org:7447", True),
        ("tls://hub:4222", True),
        ("nats://10.0.0.1:4222", True),
        ("tcp/[::1]:7447", True),
        ("tcp/127.0.0.1", True),
        ("127.0.0.1:7447", True),
        ("runs", False),
        ("runs/team", False),
        ("tcp", False),
    ],
)
def test_what_is_an_address(text, expected):
    assert is_address(text) == expected


def test_where_a_run_file_is_listened_to(tmp_path):
    path = tmp_path / "sums.toml"

    def place(swarm: str) -> Place:
        path.write_text(RUN_FILE.format(swarm=swarm), encoding="utf-8")
        return place_of_file(str(path))

    (embedded,) = place('transport = "zenoh"').addresses
    assert embedded.startswith("tcp/127.0.0.1:")
    listen = 'transport = "zenoh"\nlisten = ["tcp/0.0.0.0:7447"]\n'
    assert place(listen).addresses == ("tcp/127.0.0.1:7447",)
    assert place(f'{listen}connect = ["tcp/192.0.2.1:7447"]').addresses == ("tcp/192.0.2.1:7447",)
    nats = place('transport = "nats"\nconnect = ["nats://192.0.2.1:4222"]')
    assert (nats.transport, nats.addresses, nats.run_id) == ("nats", ("nats://192.0.2.1:4222",), RUN_ID)
    with pytest.raises(UsageError, match="motet watch runs/sums") as caught:
        place('transport = "memory"')
    assert caught.value.code == "E-WATCH-01"


@pytest.mark.parametrize("text", ["tcp/192.0.2.1", "192.0.2.1:7447", "tcp://192.0.2.1:7447"])
def test_an_address_that_lacks_something(text):
    with pytest.raises(UsageError, match=r'did you mean "tcp/192.0.2.1:7447"'):
        place_of_addresses([text], None)


def test_certificates_are_asked_for():
    with pytest.raises(UsageError, match="--tls FOLDER") as caught:
        place_of_addresses(["tls/192.0.2.1:7447"], None)
    assert caught.value.code == "E-LINK-03"


@pytest.mark.parametrize(
    "words",
    [
        ["tcp/192.0.2.1:7447", "nats://192.0.2.1:4222"],
        ["tcp/192.0.2.1:7447", "runs"],
        ["one.toml", "two.toml"],
        ["runs", "--run", "sums"],
        ["one.toml", "--tls", "tls"],
        ["tcp/192.0.2.1:7447", "--set", "run.rounds=3"],
    ],
)
def test_what_does_not_go_together(words):
    with pytest.raises(UsageError) as caught:
        run_verb(*words)
    assert caught.value.code == "E-WATCH-01"


def run_verb(*words: str) -> int:
    parser = Parser()
    watch.add_parser(parser.add_subparsers())
    return watch.run(parser.parse_args(["watch", *words]))


# --- over links ------------------------------------------------------------------------------------------------------


def free_address() -> str:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"tcp/127.0.0.1:{server.getsockname()[1]}"


@pytest.mark.network
@pytest.mark.slow
def test_nobody_at_the_address_is_told_at_once_and_ends_it_at_the_deadline(capsys):
    address = free_address()
    ears = Listening(place_of_addresses([address], None), Audience())
    with pytest.raises(SwarmUnreachable, match="nothing listens there") as caught:
        ears.open(patience_s=7.0)
    assert (caught.value.code, caught.value.exit_code) == ("E-LINK-01", 5)
    assert "trying for 7 s" in capsys.readouterr().err


@pytest.mark.network
@pytest.mark.slow
def test_heard_over_zenoh_and_again_after_the_connection_was_lost():
    from motet.swarm.engines.zenoh_link import ZenohLink

    address = free_address()
    audience = Audience()
    ears = Listening(place_of_addresses([address], None), audience)
    node = ZenohLink("bob", RUN_ID.hex(), listen=[address])
    bob, asked, met = Speaker("bob"), [], []

    def open_node() -> None:
        node.open(inbox=lambda topic, _: met.append(topic), answer=lambda topic: asked.append(topic) or [], pushed=True)

    def until(condition, what: str) -> HeardNow:
        until_s = time.monotonic() + 60
        while True:
            node.send("beat/bob", bob.beat(3))
            now = ears.look()
            if condition(now):
                return now
            assert time.monotonic() < until_s, f"{what}: {now}"
            time.sleep(0.05)

    open_node()
    try:
        ears.open()
        now = until(lambda now: now.swarms, "heard")
        assert now.connected_to == [f"{address} (node)"]
        assert [node.name for swarm in now.swarms for node in swarm.nodes] == ["bob"]
        assert node.fetch("roll/watch/0", timeout_s=0.5) == []
        node.close()
        lost = until(lambda now: now.link_fault, "lost")
        assert "no connection" in lost.link_fault
        open_node()
        until(lambda now: now.link_fault is None, "found again")
        heard_s = time.monotonic()
        until(lambda now: now.swarms[0].nodes[0].heard_s < time.monotonic() - heard_s, "heard again")
    finally:
        ears.close()
        node.close()
    assert (asked, met) == ([], [])  # the listener neither spoke nor asked


@pytest.mark.network
def test_once_as_json_over_zenoh(capsys):
    from motet.swarm.engines.zenoh_link import ZenohLink

    address, ends = free_address(), threading.Event()
    node, bob = ZenohLink("bob", RUN_ID.hex(), listen=[address]), Speaker("bob")
    node.open(inbox=lambda _topic, _message: None, answer=lambda _: [], pushed=True)

    def speak() -> None:
        while not ends.wait(0.1):
            node.send("beat/bob", bob.beat(3))

    speaker = threading.Thread(target=speak)
    speaker.start()
    try:
        assert run_verb(address, "--run", "sums", "--once", "--json") == 0
    finally:
        ends.set()
        speaker.join()
        node.close()
    found = json.loads(capsys.readouterr().out)
    assert [swarm["run"] for swarm in found["swarms"]] == ["sums"]
    assert set(found) == set(asdict(now_of(Audience())))
