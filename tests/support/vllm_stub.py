"""A server that speaks vLLM's protocol over real sockets and samples from a real model, with faults on demand."""

from __future__ import annotations

import copy
import json
import threading
import warnings
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import torch

WIDEST_SEED = 2**63 - 1


@dataclass
class Faults:
    """What the server does wrong.

    Numbers say how often: the next N requests for completions (or, for `hangs_up`, for anything).
    """

    fails: int = 0  # status 500
    dead: bool = False  # /health says 503, completions 500
    hangs_up: int = 0  # closes the connection without an answer
    silent: bool = False  # accepts and says nothing until the stub is closed
    garbage: bool = False  # completions that are not JSON
    not_http: bool = False
    raw: bool = False  # --logprobs-mode raw_logprobs
    logits: bool = False  # --logprobs-mode processed_logits
    top_k: int | None = None  # sampling is truncated whatever is asked for
    beyond: bool = False  # ids beyond the vocabulary
    no_ids: bool = False  # knows neither return_token_ids nor return_tokens_as_token_ids
    no_token_ids: bool = False  # knows only return_tokens_as_token_ids
    no_logprobs: bool = False
    end_not_in_ids: bool = False  # token_ids without the end token, log-probs with it
    no_end: bool = False  # neither
    cut_at: int | None = None  # a limit on new tokens that nobody asked for
    truncates_prompt: bool = False
    aborts: bool = False
    one_too_few: bool = False
    no_adapters: bool = False  # VLLM_ALLOW_RUNTIME_LORA_UPDATING is not set
    no_dev_mode: bool = False
    no_weights_path: bool = False  # reload_weights is older than its argument
    stale: bool = False  # says yes to new weights and keeps the old
    ignores_adapter: bool = False
    no_version: bool = False


@dataclass
class Server:
    """State of a stub and what it saw.

    Attributes:
        model: the served model; None before any weights.
        adapters: adapters by name.
        seen: path and body of every request.
    """

    model: torch.nn.Module | None = None
    adapters: dict[str, torch.nn.Module] = field(default_factory=dict)
    faults: Faults = field(default_factory=Faults)
    version: str = "0.28.0"
    max_model_len: int | None = 128
    api_key: str | None = None
    seen: list[tuple[str, dict[str, object]]] = field(default_factory=list)
    keys: list[str | None] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._sampling = threading.Lock()  # one engine
        self.closing = threading.Event()
        server = self

        class Handler(_Handler):
            state = server

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.01})

    def __enter__(self) -> Server:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.closing.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_address[1]}"

    def paths(self) -> list[str]:
        return [path for path, _ in self.seen]

    def bodies(self, path: str) -> list[dict[str, object]]:
        return [body for seen, body in self.seen if seen == path]

    def complete(self, body: dict[str, object]) -> tuple[int, object]:
        name = body["model"]
        if name != "base" and name not in self.adapters:
            return _error(404, f"The model `{name}` does not exist.")
        if len(body["prompt"]) + body["max_tokens"] > (self.max_model_len or 10**9):
            return _error(400, "This model's maximum context length is smaller")
        if body["temperature"] == 0 and body["n"] > 1:
            return _error(400, f"n must be 1 when using greedy sampling, got {body['n']}.")
        with self._sampling:
            rows = sample(self.adapters.get(name, self.model), body, self.faults)
        return 200, {"model": name, "choices": [self._choice(i, body, *row) for i, row in enumerate(rows)]}

    def _choice(self, index: int, body: dict[str, object], ids: list[int], logp: list[float]) -> dict[str, object]:
        faults = self.faults
        stopped = ids[-1] in body["stop_token_ids"]
        if faults.beyond:
            ids = [*ids[:-1], 70_000]
        token_ids = ids[:-1] if stopped and (faults.end_not_in_ids or faults.no_end) else ids
        if stopped and faults.no_end:
            ids, logp = ids[:-1], logp[:-1]
        tokens = [f"token_id:{i}" for i in ids]
        choice: dict[str, object] = {
            "index": index,
            "text": "",
            "finish_reason": "abort" if faults.aborts else "stop" if stopped else "length",
            "logprobs": {"tokens": tokens, "token_logprobs": logp, "top_logprobs": [], "text_offset": []},
            "token_ids": token_ids,
            "prompt_token_ids": body["prompt"][1:] if faults.truncates_prompt else body["prompt"],
        }
        if faults.no_ids:
            choice["logprobs"]["tokens"] = ["a" for _ in ids]
        if faults.no_ids or faults.no_token_ids:
            del choice["token_ids"], choice["prompt_token_ids"]
        if faults.no_logprobs:
            choice["logprobs"] = None
        return choice

    def load_adapter(self, body: dict[str, object]) -> tuple[int, object]:
        if self.faults.no_adapters:
            return _error(404, "Not Found")
        name, path = str(body["lora_name"]), Path(str(body["lora_path"]))
        if name in self.adapters:
            return _error(400, f"The lora adapter '{name}' has already been loaded.")
        if not (path / "adapter_model.safetensors").is_file():
            return _error(404, f"No adapter found for {path}")
        self.adapters[name] = self.model if self.faults.ignores_adapter else with_adapter(self.model, path)
        return 200, "Success"

    def unload_adapter(self, body: dict[str, object]) -> tuple[int, object]:
        if self.adapters.pop(body["lora_name"], None) is None:
            return _error(404, "The lora adapter cannot be found.")
        return 200, "Success"

    def reload(self, body: dict[str, object]) -> tuple[int, object]:
        if self.faults.no_dev_mode:
            return _error(404, "Not Found")
        if self.faults.no_weights_path:
            return _error(500, "reload_weights() got an unexpected keyword argument 'weights_path'")
        assert body["method"] == "reload_weights"
        if not (self.faults.stale and self.model is not None):
            self.model = load(Path(body["kwargs"]["weights_path"]))
        return 200, {"results": [None]}


class _Handler(BaseHTTPRequestHandler):
    state: Server

    def log_message(self, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        self._serve({})

    def do_POST(self) -> None:
        self._serve(json.loads(self.rfile.read(int(self.headers["Content-Length"])) or b"{}"))

    def _serve(self, body: dict[str, object]) -> None:
        state, faults = self.state, self.state.faults
        state.seen.append((self.path, body))
        state.keys.append(self.headers.get("Authorization"))
        if faults.silent:
            state.closing.wait()
            return
        if faults.hangs_up:
            faults.hangs_up -= 1
            return
        if faults.not_http:
            self.wfile.write(b"220 mail.example.org ESMTP\r\n")
            self.close_connection = True
            return
        if (
            state.api_key
            and self.path.startswith("/v1")
            and self.headers.get("Authorization") != f"Bearer {state.api_key}"
        ):
            self._answer(401, {"error": "Unauthorized"})
            return
        self._answer(*self._route(body))

    def _route(self, body: dict[str, object]) -> tuple[int, object]:
        state, faults = self.state, self.state.faults
        match self.path:
            case "/version":
                return _error(404, "Not Found") if faults.no_version else (200, {"version": state.version})
            case "/health":
                return (503 if faults.dead else 200), ""
            case "/v1/models":
                adapters = [{"id": name, "parent": "base"} for name in state.adapters]
                return 200, {"data": [*adapters, {"id": "base", "parent": None, "max_model_len": state.max_model_len}]}
            case "/v1/completions":
                if faults.dead or faults.fails:
                    faults.fails = max(0, faults.fails - 1)
                    return _error(500, "EngineCore encountered an issue.")
                return (200, b"<html>") if faults.garbage else state.complete(body)
            case "/v1/load_lora_adapter":
                return state.load_adapter(body)
            case "/v1/unload_lora_adapter":
                return state.unload_adapter(body)
            case "/collective_rpc":
                return state.reload(body)
            case "/reset_prefix_cache":
                return 200, ""
        return _error(404, "Not Found")

    def _answer(self, status: int, content: object) -> None:
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def _error(status: int, message: str) -> tuple[int, object]:
    return status, {"error": {"message": message, "type": "Error", "code": status}}


def load(folder: Path) -> torch.nn.Module:
    """The causal model of a Hugging Face folder."""
    from transformers import AutoModelForCausalLM

    with torch.random.fork_rng(devices=[]):
        return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()


def with_adapter(model: torch.nn.Module | None, folder: Path) -> torch.nn.Module:
    """A copy of the model with the adapter of a folder."""
    from peft import PeftModel

    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="`is_gradient_checkpointing` is deprecated", category=FutureWarning)
        return PeftModel.from_pretrained(copy.deepcopy(model), folder).eval()


@torch.no_grad()
def sample(
    model: torch.nn.Module | None, body: dict[str, object], faults: Faults
) -> list[tuple[list[int], list[float]]]:
    """Ids and log-probs of each completion, as the fields of a request and the server's mode have it."""
    assert model is not None, "the server has no weights"
    assert 0 <= body["seed"] <= WIDEST_SEED - body["n"]
    prompt, temperature = body["prompt"], body["temperature"]
    count = body["n"] - (faults.one_too_few and body["n"] > 1)
    max_tokens = min(body["max_tokens"], faults.cut_at or 10**9)
    randoms = [torch.Generator().manual_seed(body["seed"] + i) for i in range(count)]
    ids = torch.tensor([prompt] * count)
    logps = []
    for _ in range(max_tokens):
        logits = model(input_ids=ids, use_cache=False).logits[:, -1].float()
        processed = logits / temperature if temperature else logits
        top_k = faults.top_k or (body["top_k"] if body["top_k"] > 0 else None)
        if top_k:
            least = processed.topk(top_k).values[:, -1:]
            processed = processed.masked_fill(processed < least, -torch.inf)
        if temperature:
            probability = processed.softmax(-1)
            chosen = torch.cat(
                [torch.multinomial(p, 1, generator=g) for p, g in zip(probability, randoms, strict=True)]
            )
        else:
            chosen = processed.argmax(-1)
        logp = (logits if faults.raw else processed).log_softmax(-1)
        logps.append((processed if faults.logits else logp).gather(1, chosen[:, None]).squeeze(1))
        ids = torch.cat([ids, chosen[:, None]], 1)
        if torch.isin(ids[:, len(prompt) :], torch.tensor(body["stop_token_ids"])).any(dim=1).all():
            break
    rows = []
    for row, logp in zip(ids[:, len(prompt) :].tolist(), torch.stack(logps, 1).tolist(), strict=True):
        end = next((place + 1 for place, i in enumerate(row) if i in body["stop_token_ids"]), len(row))
        rows.append((row[:end], logp[:end]))
    return rows
