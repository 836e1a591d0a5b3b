from __future__ import annotations

import socket
import ssl
import threading
from contextlib import contextmanager

import pytest

from motet.swarm.engines.addresses import Address
from motet.swarm.engines.unreachable import why_unreachable
from motet.swarm.identity.certificates import create_ca, issue_leaf

pytestmark = pytest.mark.network
LOOPBACK = "127.0.0.1"
LONG_S = 30.0


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """TLS folders of two authorities: `hub` and `ann` of one, `eve` of the other; `old` has a name of no host."""
    base = tmp_path_factory.mktemp("tls")
    for authority, names in {"ca": ("hub", "ann"), "other": ("eve",)}.items():
        create_ca(base / authority, name=authority)
        for name in names:
            issue_leaf(base / authority, name, [LOOPBACK, "localhost"], 1).write(base / name)
    issue_leaf(base / "ca", "nameless", [], 1).write(base / "nameless")
    return base


@contextmanager
def listening(serve=None):
    """A port at which somebody listens; `serve(connection)` runs for the first who comes."""
    with socket.create_server((LOOPBACK, 0)) as server:

        def work():
            try:
                connection, _ = server.accept()
            except OSError:
                return
            with connection:
                serve(connection)

        thread = threading.Thread(target=work, daemon=True)
        if serve is not None:
            thread.start()
        yield server.getsockname()[1]
        if serve is not None:
            thread.join(LONG_S)
            assert not thread.is_alive()


def tls_server(folder, *, wants_certificate=True):
    def serve(connection):
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=folder / "ca.pem")
        context.load_cert_chain(folder / "node.pem", folder / "node.key")
        context.verify_mode = ssl.CERT_REQUIRED if wants_certificate else ssl.CERT_NONE
        try:
            with context.wrap_socket(connection, server_side=True) as wrapped:
                wrapped.recv(1)
        except OSError:
            pass

    return serve


def say(words):
    def serve(connection):
        connection.recv(100)
        connection.sendall(words)

    return serve


class TestPlain:
    def test_nothing_listens(self):
        with listening() as port:
            pass
        assert "nothing listens there" in why_unreachable(Address("tcp", LOOPBACK, port), None)

    def test_an_unknown_machine(self):
        reason = why_unreachable(Address("tcp", "nobody.invalid", 7447), None)
        assert reason == 'no machine is known by the name "nobody.invalid"'

    def test_somebody_else_listens(self):
        with listening(say(b"HTTP/1.1 400 Bad Request\r\n\r\n")) as port:
            reason = why_unreachable(Address("tcp", LOOPBACK, port), None)
        assert reason == "something listens there, but no node or relay of motet"

    def test_somebody_listens_and_is_silent(self):
        with listening() as port:
            reason = why_unreachable(Address("tcp", LOOPBACK, port), None, timeout_s=0.2)
        assert reason == "something listens there, but no node or relay of motet"

    @pytest.mark.parametrize("wants_certificate", [True, False])
    def test_it_speaks_tls(self, folders, wants_certificate):
        with listening(tls_server(folders / "hub", wants_certificate=wants_certificate)) as port:
            reason = why_unreachable(Address("tcp", LOOPBACK, port), None)
        assert reason == "it speaks TLS: write tls/ instead of tcp/, and set swarm.tls"

    def test_it_speaks_tls_and_this_node_has_no_certificates(self, folders):
        with listening(tls_server(folders / "hub")) as port:
            reason = why_unreachable(Address("tls", LOOPBACK, port), None)
        assert "`motet keys issue`" in reason
        assert "tls/ instead" not in reason

    def test_no_answer(self, monkeypatch):
        def vanish(*arguments, **options):
            raise TimeoutError

        monkeypatch.setattr(socket, "create_connection", vanish)
        assert "a firewall is in the way" in why_unreachable(Address("tcp", LOOPBACK, 1), None)

    def test_quic_is_not_tried(self):
        assert "no answer over UDP" in why_unreachable(Address("quic", LOOPBACK, 1), None)
        assert "no machine is known" in why_unreachable(Address("quic", "nobody.invalid", 1), None)


class TestTls:
    def reason(self, port, folder, host=LOOPBACK, timeout_s=2.0):
        return why_unreachable(Address("tls", host, port), folder, timeout_s=timeout_s)

    def test_its_certificate_is_of_another_ca(self, folders):
        with listening(tls_server(folders / "eve")) as port:
            assert self.reason(port, folders / "ann") == "its certificate is of another CA than ca.pem"

    def test_this_nodes_certificate_is_of_another_ca(self, folders, tmp_path):
        mixed = tmp_path / "mixed"  # believes the hub, and is not believed
        mixed.mkdir()
        for source, file in (("hub", "ca.pem"), ("eve", "node.pem"), ("eve", "node.key")):
            (mixed / file).write_bytes((folders / source / file).read_bytes())
        (mixed / "node.key").chmod(0o600)
        with listening(tls_server(folders / "hub")) as port:
            reason = self.reason(port, mixed)
        assert reason == "it does not take this node's certificate: that is of another CA than its own"

    def test_its_certificate_names_no_host(self, folders):
        with listening(tls_server(folders / "nameless")) as port:
            assert self.reason(port, folders / "ann") == f"its certificate does not name {LOOPBACK}"

    def test_it_speaks_no_tls(self, folders):
        with listening(say(b"HTTP/1.1 400 Bad Request\r\n\r\n")) as port:
            assert self.reason(port, folders / "ann").startswith("it does not speak TLS: write tcp/")

    def test_it_hangs_up(self, folders):
        with listening(lambda connection: connection.recv(100)) as port:
            assert self.reason(port, folders / "ann") == "it ends the connection at once"

    def test_it_is_silent(self, folders):
        with listening() as port:
            reason = self.reason(port, folders / "ann", timeout_s=0.2)
        assert reason == "something listens there, but it does not answer TLS"

    def test_all_is_well_but_it_is_no_node(self, folders):
        with listening(tls_server(folders / "hub")) as port:
            reason = self.reason(port, folders / "ann", timeout_s=0.5)
        assert reason.startswith("TLS is in order, but what answers is no node or relay")

    def test_the_files_belong_to_two_certificates(self, folders, tmp_path):
        mixed = tmp_path / "mixed"
        mixed.mkdir()
        for source, file in (("hub", "ca.pem"), ("ann", "node.pem"), ("hub", "node.key")):
            (mixed / file).write_bytes((folders / source / file).read_bytes())
        (mixed / "node.key").chmod(0o600)
        with listening() as port:
            reason = self.reason(port, mixed)
        assert reason.startswith("this node's certificate cannot be used: key values mismatch")
