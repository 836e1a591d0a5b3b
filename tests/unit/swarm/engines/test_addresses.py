from __future__ import annotations

import socket
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from motet.errors import UsageError
from motet.swarm.engines.addresses import Address, is_of_this_machine, parse_address, parse_addresses, without_own


class TestParse:
    @pytest.mark.parametrize(
        ("text", "address"),
        [
            ("tcp/10.0.0.5:7447", Address("tcp", "10.0.0.5", 7447)),
            ("tls/relay.example.org:443", Address("tls", "relay.example.org", 443)),
            ("quic/[2001:db8::1]:65535", Address("quic", "2001:db8::1", 65535)),
        ],
    )
    def test_takes_addresses_and_writes_them_as_they_were(self, text, address):
        assert parse_address(text, where="here") == address
        assert str(address) == text

    @pytest.mark.parametrize(
        ("text", "nearest"),
        [
            ("10.0.0.5:7447", "tcp/10.0.0.5:7447"),
            ("tcp://10.0.0.5:7447", "tcp/10.0.0.5:7447"),
            ("TLS/relay:7447", "tls/relay:7447"),
            ("tls:relay:7447", "tls/relay:7447"),
            ("relay.example.org", "tcp/relay.example.org:7447"),
            ("quic/[::1]", "quic/[::1]:7447"),
        ],
    )
    def test_names_the_nearest(self, text, nearest):
        with pytest.raises(UsageError, match="is not an address; expected tcp/host:port") as caught:
            parse_address(text, where="swarm.connect")
        assert caught.value.code == "E-LINK-02"
        assert str(caught.value).startswith(f'swarm.connect: "{text}"')
        assert str(caught.value).endswith(f'did you mean "{nearest}"?')

    def test_nats_belongs_elsewhere(self):
        with pytest.raises(UsageError, match=r'nats:// belongs to swarm\.transport = "nats"'):
            parse_address("nats://10.0.0.5:4222", where="swarm.connect")

    @pytest.mark.parametrize(
        "text", ["", "tcp/", "udp/a:1", "tcp/a b:1", "tcp/[10.0.0.1]:1", "tcp/a:1#iface=eth0", "é"]
    )
    def test_refuses_the_rest(self, text):
        with pytest.raises(UsageError) as caught:
            parse_address(text, where="here")
        assert caught.value.code == "E-LINK-02"

    @pytest.mark.parametrize("port", [0, 65536])
    def test_refuses_ports_that_do_not_exist(self, port):
        with pytest.raises(UsageError, match="no port that exists; expected 1 to 65535"):
            parse_address(f"tcp/a:{port}", where="here")

    def test_any_free_port_is_one_to_listen_on(self):
        assert parse_address("tcp/127.0.0.1:0", where="here", listens=True).port == 0

    def test_each_once(self):
        assert len(parse_addresses(["tcp/a:1", "tcp/b:1", "tcp/a:1"], where="here")) == 2

    @given(st.text(max_size=40))
    def test_whatever_is_written_gives_an_address_or_a_usage_error(self, text):
        with suppress(UsageError):
            assert str(parse_address(text, where="here")) == text


class TestWithoutOwn:
    def test_this_machine_does_not_wait_for_itself(self):
        listen = parse_addresses(["tcp/0.0.0.0:7447"], where="here")
        connect = parse_addresses(["tcp/127.0.0.1:7447", "tcp/127.0.0.1:7448", "tcp/192.0.2.7:7447"], where="here")
        assert without_own(connect, listen) == connect[1:]

    def test_knows_this_machine(self):
        assert is_of_this_machine("127.0.0.1")
        assert is_of_this_machine("localhost")
        assert not is_of_this_machine("192.0.2.7")

    def test_an_unknown_name_is_not_this_machine(self, monkeypatch):
        def unknown(*arguments, **options):
            raise socket.gaierror(socket.EAI_NONAME, "unknown")

        monkeypatch.setattr(socket, "getaddrinfo", unknown)
        assert not is_of_this_machine("nobody.invalid")
