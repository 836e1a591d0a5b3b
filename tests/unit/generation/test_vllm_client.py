"""Addresses, retries and one-line messages of the HTTP client."""

from __future__ import annotations

import pytest

from motet.errors import EnvironmentFault, UsageError
from motet.generation.vllm_client import Refused, VLLMClient

pytestmark = pytest.mark.network


@pytest.fixture
def server(vllm_stub):
    with vllm_stub.Server() as running:
        yield running


@pytest.mark.parametrize(
    ("given", "used"),
    [
        ("http://127.0.0.1:8000", "http://127.0.0.1:8000"),
        ("http://127.0.0.1:8000/", "http://127.0.0.1:8000"),
        ("http://127.0.0.1:8000/v1", "http://127.0.0.1:8000"),
        ("http://127.0.0.1:8000/v1/", "http://127.0.0.1:8000"),
        ("https://gpu.example.org/models/one/v1", "https://gpu.example.org/models/one"),
        ("http://[::1]:8000", "http://[::1]:8000"),
    ],
)
def test_addresses(given, used):
    assert VLLMClient(given, timeout_s=1).url == used


@pytest.mark.parametrize("url", ["127.0.0.1:8000", "localhost", "ftp://localhost", "http://", ""])
def test_no_addresses(url):
    with pytest.raises(UsageError, match="http://127") as caught:
        VLLMClient(url, timeout_s=1)
    assert caught.value.code == "E-VLLM-09"


def test_a_path_before_the_routes(server):
    with pytest.raises(Refused) as caught:
        VLLMClient(f"{server.url}/models/one/v1", timeout_s=5).get("/version")
    assert caught.value.status == 404
    assert server.paths() == ["/models/one/version"]


def test_proxies_are_not_used(server, monkeypatch):
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    assert b"version" in VLLMClient(server.url, timeout_s=5).get("/version")


def test_what_is_not_tried_again(server):
    server.faults.dead = True
    waits = []
    with pytest.raises(EnvironmentFault):
        VLLMClient(server.url, timeout_s=5, pause=waits.append).post("/v1/completions", {}, retry=False)
    assert waits == []
    assert server.paths() == ["/v1/completions", "/health"]


def test_lost_connections_are_counted(server):
    server.faults.hangs_up = 2
    client = VLLMClient(server.url, timeout_s=5, pause=lambda _: None)
    client.get("/version")
    assert client.interruptions == 2


def test_the_server_s_words_are_kept_to_one_line(server):
    with pytest.raises(Refused) as caught:
        VLLMClient(server.url, timeout_s=5).post(
            "/v1/load_lora_adapter", {"lora_name": "a\nb" * 500, "lora_path": "/x"}
        )
    assert "No adapter found for /x" in str(caught.value)
    server.adapters["a\nb" * 500] = None
    with pytest.raises(Refused) as caught:
        VLLMClient(server.url, timeout_s=5).post(
            "/v1/load_lora_adapter", {"lora_name": "a\nb" * 500, "lora_path": "/x"}
        )
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500
