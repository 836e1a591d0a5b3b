from __future__ import annotations

import socket
import ssl
from collections.abc import Sequence
from pathlib import Path

import pytest

from motet.errors import SwarmUnreachable, UsageError
from motet.swarm.engines.nats_reasons import address_of, all_refused, check_servers, load_tls, refusal

SERVER = "tls://kim:secret@hub.example.org:4222"


@pytest.mark.parametrize(
    "servers",
    [
        [],
        ["hub.example.org:4222"],
        ["tcp/127.0.0.1:4222"],
        ["http://hub"],
        ["nats://"],
        ["nats://hub:0"],
        ["nats://hub:x"],
        ["nats://hub:99999"],
        ["nats://hub/path"],
        ["nats://hub:4222", "ws://hub"],
        ["nats://[::1"],
    ],
)
def test_what_is_no_address_is_refused(servers: Sequence[str]) -> None:
    with pytest.raises(UsageError, match=r"swarm\.connect") as caught:
        check_servers(servers)
    assert caught.value.code == "E-LINK-10"


def test_addresses_are_let_through() -> None:
    check_servers(["nats://hub", "nats://10.0.0.5:4222", "tls://[::1]:4222/", SERVER])


def test_secrets_are_not_repeated() -> None:
    assert address_of(SERVER) == "tls://hub.example.org:4222"
    assert "secret" not in str(refusal(SERVER, OSError("x"), 5.0))


@pytest.mark.parametrize(
    ("error", "code", "says"),
    [
        (ConnectionRefusedError(111, "Connect call failed"), "E-LINK-01", "refused"),
        (OSError("Multiple exceptions: [Errno 111] Connect call failed ('::1', 1), ..."), "E-LINK-01", "refused"),
        (TimeoutError(), "E-LINK-01", "no answer within 5 s"),
        (socket.gaierror(-2, "Name or service not known"), "E-LINK-01", "no such host"),
        (Exception("nats: empty response from server when expecting INFO message"), "E-LINK-01", "no NATS server"),
        (ConnectionResetError("reset"), "E-LINK-12", "hung up"),
        (Exception("nats: unexpected EOF"), "E-LINK-12", "hung up"),
        (ssl.SSLError(1, "TLSV13_ALERT_CERTIFICATE_REQUIRED"), "E-LINK-12", "TLS failed"),
        (Exception("nats: 'Authorization Violation'"), "E-LINK-13", "no user"),
        (Exception("nats: 'User Authentication Expired'"), "E-LINK-13", "Expired"),
        (Exception("something else"), "E-LINK-01", "something else"),
    ],
)
def test_every_refusal_has_a_reason(error: Exception, code: str, says: str) -> None:
    told = refusal(SERVER, error, 5.0)
    assert told.code == code
    assert says in str(told)
    assert "\n" not in str(told)


def test_of_several_refusals_the_most_telling_gives_the_code() -> None:
    nobody = SwarmUnreachable("one: refused", code="E-LINK-01")
    tls = SwarmUnreachable("two: TLS", code="E-LINK-12")
    assert all_refused([nobody]) is nobody
    both = all_refused([nobody, tls])
    assert both.code == "E-LINK-12"
    assert "one: refused" in str(both)
    assert "two: TLS" in str(both)


@pytest.mark.parametrize("missing", ["ca.pem", "node.pem", "node.key"])
def test_a_folder_without_a_certificate_says_what_is_missing(tmp_path: Path, missing: str) -> None:
    for name in {"ca.pem", "node.pem", "node.key"} - {missing}:
        (tmp_path / name).write_text("x")
    with pytest.raises(UsageError, match=f"{missing} is missing") as caught:
        load_tls(tmp_path)
    assert caught.value.code == "E-LINK-11"


def test_damaged_certificates_are_a_mistake_of_the_user(tmp_path: Path) -> None:
    for name in ("ca.pem", "node.pem", "node.key"):
        (tmp_path / name).write_text("not a certificate")
    with pytest.raises(UsageError, match="belong together"):
        load_tls(tmp_path)
