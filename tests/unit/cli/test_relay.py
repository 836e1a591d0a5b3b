from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from motet.cli.main import main
from motet.swarm.engines.zenoh_link import ZenohLink

RUN_FILE = """
[run]
name = "far"

[swarm]
transport = "zenoh"

[[node]]
name = "ann"
model = "tiny:small"

[[node]]
name = "bob"
model = "tiny:small"
"""


@pytest.fixture
def run_file(tmp_path):
    path = tmp_path / "far.toml"
    path.write_text(RUN_FILE)
    return path


@pytest.fixture
def start(run_file):
    """Starts `motet relay` as a process of its own; each is ended afterwards."""
    processes = []

    def start(*arguments):
        argv = [sys.executable, "-m", "motet", "relay", str(run_file), *arguments]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        processes.append(subprocess.Popen(argv, **pipes))
        return processes[-1]

    yield start
    for process in processes:
        process.kill()
        process.communicate()


def complaint(capsys, *arguments):
    assert main(["relay", *map(str, arguments)]) == 2
    return capsys.readouterr().err


class TestMistakes:
    def test_no_address(self, run_file, capsys):
        assert "no address to listen on; name one with --listen" in complaint(capsys, run_file)

    def test_another_transport(self, run_file, capsys):
        said = complaint(capsys, run_file, "--set", "swarm.transport=memory", "--listen", "tcp/127.0.0.1:0")
        assert 'swarm.transport is "memory"; a relay carries "zenoh"  [E-RELAY-01]' in said

    def test_not_an_address(self, run_file, capsys):
        assert 'did you mean "tcp/127.0.0.1:7447"?' in complaint(capsys, run_file, "--listen", "127.0.0.1:7447")

    def test_members_without_certificates(self, run_file, capsys):
        said = complaint(capsys, run_file, "--listen", "tcp/127.0.0.1:0", "--members", "ann")
        assert "[E-RELAY-02]" in said


@pytest.mark.network
class TestRelay:
    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
    def test_carries_until_it_is_told_to_stop(self, start, number):
        relay = start("--listen", "tcp/127.0.0.1:0")
        word, address = relay.stdout.readline().split()
        assert word == "relay"
        assert relay.stdout.readline().split(maxsplit=1) == ["carries", "any run, for whoever connects\n"]
        assert relay.stderr.readline() == "relay=far nodes=- relays=-\n"
        link = ZenohLink("ann", "ab12", connect=[address])
        link.open(inbox=lambda *_: None, answer=lambda _: [], pushed=True)
        try:
            assert relay.stderr.readline().startswith("relay=far nodes=tcp/127.0.0.1:")
        finally:
            link.close()
        assert relay.stderr.readline() == "relay=far nodes=- relays=-\n"
        relay.send_signal(number)
        _, said = relay.communicate(timeout=60)
        assert (relay.returncode, said) == (0, "relay stopped\n")

    def test_two_know_each_other(self, start):
        first = start("--listen", "tcp/127.0.0.1:0")
        address = first.stdout.readline().split()[1]
        second = start("--listen", "tcp/127.0.0.1:0", "--connect", address)
        assert second.stdout.readline()
        assert first.stderr.readline() == "relay=far nodes=- relays=-\n"
        assert first.stderr.readline().startswith("relay=far nodes=- relays=tcp/127.0.0.1:")

    def test_takes_the_port_that_nodes_are_told_to_connect_to(self, start, free_port):
        relay = start("--set", f"swarm.connect=['tcp/relay.example.org:{free_port}']")
        addresses = {relay.stdout.readline().split()[1]}
        while (line := relay.stdout.readline()).startswith("relay"):
            addresses.add(line.split()[1])
        assert f"tcp/127.0.0.1:{free_port}" in addresses


@pytest.fixture
def free_port():
    import socket

    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    return port
