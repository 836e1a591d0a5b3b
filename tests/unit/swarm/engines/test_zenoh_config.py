from __future__ import annotations

from pathlib import Path

import pytest

from motet.errors import UsageError
from motet.swarm.engines.addresses import Address
from motet.swarm.engines.zenoh_config import MAX_MESSAGE_BYTES, check_tls, session_config

PLAIN, SAFE, QUIC = Address("tcp", "a", 1), Address("tls", "a", 1), Address("quic", "a", 1)
MODES = ["peer", "client", "gateway", "router"]


def config(mode="peer", **options):
    return session_config(mode, **{"listen": [], "connect": [PLAIN], "tls": None, "timeout_s": 5.0, **options})


class TestSessionConfig:
    @pytest.mark.parametrize("mode", MODES)
    def test_nothing_is_shared_announced_or_listened_to_unasked(self, mode):
        made = config(mode)
        assert made["transport"]["shared_memory"] == {"enabled": False}
        assert made["scouting"]["multicast"] == {"enabled": False}
        assert made["listen"] == {"endpoints": []}
        assert "access_control" not in made

    @pytest.mark.parametrize("mode", MODES)
    def test_slow_lines_get_time_and_messages_end_at_a_size(self, mode):
        link = config(mode)["transport"]["link"]
        patience = link["tx"]["queue"]["congestion_control"]["drop"]
        assert patience["max_wait_before_drop_fragments"] > patience["wait_before_drop"] > 1000
        assert MAX_MESSAGE_BYTES < link["rx"]["max_message_size"] < 1.01 * MAX_MESSAGE_BYTES

    def test_a_client_gives_up_and_all_others_try_for_ever(self):
        assert config("client")["connect"]["timeout_ms"] == config("gateway")["connect"]["timeout_ms"] == 5000
        assert config("peer")["connect"]["timeout_ms"] == config("router")["connect"]["timeout_ms"] == -1
        assert [config(mode)["connect"]["exit_on_failure"] for mode in MODES] == [False, True, True, False]

    def test_with_certificates_nothing_else_is_spoken(self):
        link = config(connect=[SAFE], tls=Path("keys"))["transport"]["link"]
        assert link["protocols"] == ["tls", "quic"]
        assert link["tls"]["enable_mtls"] is True
        assert link["tls"]["verify_name_on_connect"] is True
        assert link["tls"]["connect_private_key"] == link["tls"]["listen_private_key"] == str(Path("keys/node.key"))
        assert config()["transport"]["link"]["protocols"] == ["tcp"]


class TestCheckTls:
    @pytest.mark.parametrize("address", [SAFE, QUIC])
    def test_encryption_needs_certificates(self, address):
        with pytest.raises(UsageError, match="needs swarm") as caught:
            check_tls([PLAIN, address], None, where="here")
        assert caught.value.code == "E-LINK-03"

    def test_plain_addresses_need_none(self):
        check_tls([PLAIN], None, where="here")

    @pytest.mark.parametrize("missing", ["ca.pem", "node.pem", "node.key"])
    def test_all_three_files_are_needed(self, tmp_path, missing):
        for name in {"ca.pem", "node.pem", "node.key"} - {missing}:
            (tmp_path / name).write_text("x")
        with pytest.raises(UsageError, match=f"{missing}"):
            check_tls([SAFE], tmp_path, where="here")
        (tmp_path / missing).write_text("x")
        check_tls([SAFE], tmp_path, where="here")

    def test_a_plain_address_beside_certificates_is_an_oversight(self, tmp_path):
        with pytest.raises(UsageError, match=r'"tcp/a:1" is not encrypted, but .*write "tls/a:1"'):
            check_tls([SAFE, PLAIN], tmp_path, where="here")
