"""Sampling from a vLLM server: requests, refreshed weights, and log-probs that are held against the learner's own."""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import torch
from numpy.typing import NDArray

from motet.core import chunked_logprobs
from motet.errors import EnvironmentFault, UsageError
from motet.generation.generator import Completion
from motet.generation.vllm_answer import Asked, read_answer
from motet.generation.vllm_client import API_KEY_VARIABLE, Refused, VLLMClient
from motet.generation.vllm_weights import WeightPush
from motet.models import Policy

Score = Callable[[Sequence[int], Sequence[int], float], NDArray[np.float32]]
"""score(prompt ids, completion ids, temperature): log-prob of each completion id under the learner's weights."""

_LEAST_VERSION: Final = (0, 10, 2)  # the first with return_token_ids and --logprobs-mode processed_logprobs
_CHECK_TOKENS: Final = 32
_CHECK_TEMPERATURE: Final = 2.0  # far from 1, where log-probs with and without temperature are the same
_SEED_BYTES: Final = 7  # the server adds a completion's number to a seed, and must stay below 2**63


@dataclass(frozen=True, slots=True)
class Agreement:
    """How far the sampler's log-probs are from the learner's, on one completion.

    Attributes:
        mean: mean absolute difference, nats.
        max: the largest.
        num_tokens: tokens compared.
    """

    mean: float
    max: float
    num_tokens: int


class VLLMGenerator:
    """Implements `Generator` by a vLLM server that was started with --logprobs-mode processed_logprobs.

    Weights reach the server through `refresh`. After each refresh, and before the first completions, one completion at
    temperature 2 is scored by the learner too: log-probs without temperature, truncated sampling, an ignored adapter,
    another model and weights that never arrived all show there. One thread at a time samples.

    The seed of each prompt is derived from the call's. A server gives the same completions for them only as long as it
    batches requests the same way: unlike other generators, this one promises repeatability loosely.

    Args:
        policy: the learner's model: its end tokens, vocabulary, weights and log-probs.
        url: address of the server.
        refresh_dir: folder that both see; without it the server must serve the policy's weights as they are.
        policy_step: optimiser steps that the policy has seen. If given, each call refreshes a server that is behind.
        timeout_s: longest wait for one answer.
        tolerance: largest mean absolute difference between the server's log-probs and the learner's, in nats.
        max_requests: prompts that are asked for at once.
        score: the learner's log-probs; without it, those of `policy`.
        pause: waits between attempts, in seconds.

    Raises:
        UsageError: E-VLLM-09 if `url` is no address.
    """

    def __init__(
        self,
        policy: Policy,
        url: str,
        *,
        refresh_dir: Path | None = None,
        policy_step: Callable[[], int] | None = None,
        timeout_s: float = 600.0,
        tolerance: float = 0.05,
        max_requests: int = 32,
        score: Score | None = None,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._policy = policy
        self._client = VLLMClient(url, timeout_s=timeout_s, api_key=os.environ.get(API_KEY_VARIABLE), pause=pause)
        self._push = None if refresh_dir is None else WeightPush(self._client, refresh_dir)
        self._policy_step = policy_step
        self._tolerance = tolerance
        self._max_requests = max_requests
        self._score = score or plain_score(policy)
        self._alone = threading.RLock()
        self._base: _ServedModel | None = None
        self._model = ""
        self._salt = ""
        self._step: int | None = None
        self._agreement: Agreement | None = None

    @property
    def served_step(self) -> int | None:
        """Optimiser steps of the weights that the server has; None before the first refresh."""
        return self._step

    @property
    def agreement(self) -> Agreement | None:
        """What the latest comparison with the learner's log-probs found."""
        return self._agreement

    def connect(self) -> None:
        """Find out whether a usable server is there. Happens by itself at the first use.

        Raises:
            EnvironmentFault: E-VLLM-01 if nothing answers, E-VLLM-02 if it is no vLLM or too old, E-VLLM-03 if it
                serves no model.
        """
        with self._alone:
            self._check_version()
            self._base = self._served_model()
            self._model = self._base.id

    def refresh(self, step: int, save: Callable[[Path], None] | None = None) -> None:
        """Give the server the weights of a step, unless it has them; returns when it answers again.

        Args:
            step: optimiser steps that the weights have seen.
            save: writes them as a Hugging Face folder; without it, `Policy.save`.

        Raises:
            EnvironmentFault: as `connect`, and E-VLLM-06 or E-VLLM-07 if the server does not take them.
            UsageError: E-VLLM-06 for an adapter that vLLM cannot serve, E-VLLM-09 without a usable refresh_dir.
        """
        with self._alone:
            if step == self._step:
                return
            if self._push is None:
                raise UsageError(
                    "node.generation.refresh_dir: missing; a server can follow the training only through a folder "
                    "that both see",
                    code="E-VLLM-09",
                )
            if self._base is None:
                self.connect()
            assert self._base is not None
            self._step = self._agreement = None
            self._model = self._push.push(step, save or self._policy.save, base_model=self._base.id)
            self._salt = f"{self._model}-{step}"
            self._client.get("/health")
            self._step = step

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        *,
        num_completions: Sequence[int] | int,
        max_new_tokens: int,
        temperature: float,
        seed: int,
    ) -> list[list[Completion]]:
        """See `Generator.generate`.

        Raises:
            EnvironmentFault: as `refresh`, and E-VLLM-03 if prompts and completions are longer than the server
                allows, E-VLLM-04 if an answer is not what was asked for, E-VLLM-05 if its log-probs are not the
                learner's.
            UsageError: as `refresh`.
        """
        counts = [num_completions] * len(prompts) if isinstance(num_completions, int) else list(num_completions)
        if not any(counts):
            return [[] for _ in prompts]
        with self._alone:
            interruptions = self._client.interruptions
            self._prepare(prompts, max_new_tokens)

            def ask(number: int) -> list[Completion]:
                return self._ask(
                    prompts[number],
                    counts[number],
                    max_new_tokens=max_new_tokens,
                    temperature=temperature,
                    seed=_prompt_seed(seed, number),
                    end_token_ids=self._policy.tokenizer.end_token_ids,
                )

            groups = self._in_parallel(ask, len(prompts))
            if self._client.interruptions != interruptions:
                self._step = self._agreement = None  # started anew? then it has its first weights again
            return groups

    def _prepare(self, prompts: Sequence[Sequence[int]], max_new_tokens: int) -> None:
        if self._base is None:
            self.connect()
        if self._policy_step is not None:
            self.refresh(self._policy_step())
        assert self._base is not None
        longest, limit = max(map(len, prompts)), self._base.max_model_len
        if limit is not None and longest + max_new_tokens > limit:
            raise EnvironmentFault(
                f"the vLLM server at {self._client.url} allows {limit} tokens, but a prompt of {longest} and "
                f"rollout.max_new_tokens = {max_new_tokens} are {longest + max_new_tokens}; raise its --max-model-len",
                code="E-VLLM-03",
            )
        if self._agreement is None:
            room = _CHECK_TOKENS if limit is None else min(_CHECK_TOKENS, limit - longest)
            self._agreement = self._compare(prompts[0], room)

    def _in_parallel(self, ask: Callable[[int], list[Completion]], number: int) -> list[list[Completion]]:
        with ThreadPoolExecutor(self._max_requests, thread_name_prefix="vllm") as pool:
            futures = [pool.submit(ask, index) for index in range(number)]
            try:
                return [future.result() for future in futures]
            finally:
                pool.shutdown(wait=False, cancel_futures=True)  # after a failure the rest need not be asked for

    def _ask(
        self,
        prompt: Sequence[int],
        count: int,
        *,
        max_new_tokens: int,
        temperature: float,
        seed: int,
        end_token_ids: Sequence[int],
    ) -> list[Completion]:
        if count == 0:
            return []
        greedy = temperature == 0  # the server refuses to give the same thing several times
        asked = Asked(prompt, 1 if greedy else count, max_new_tokens, end_token_ids, self._policy.vocab_size)
        body = {
            "model": self._model,
            "prompt": list(prompt),
            "n": asked.count,
            "max_tokens": max_new_tokens,
            "temperature": temperature,
            "seed": seed,
            "logprobs": 0,  # of the sampled id alone
            "return_token_ids": True,
            "return_tokens_as_token_ids": True,
            # Only our end tokens end a completion.
            "stop_token_ids": list(end_token_ids),
            "ignore_eos": True,
            "skip_special_tokens": False,
            **_UNTRUNCATED,
        }
        if self._salt:
            body["cache_salt"] = self._salt  # no keys and values of earlier weights
        completions = read_answer(self._client.post("/v1/completions", body), asked, url=self._client.url)
        return completions * count if greedy else completions

    def _compare(self, prompt: Sequence[int], num_tokens: int) -> Agreement:
        """One completion at a temperature, scored by both. Raises EnvironmentFault E-VLLM-05 if they differ."""
        (completion,) = self._ask(
            prompt, 1, max_new_tokens=num_tokens, temperature=_CHECK_TEMPERATURE, seed=0, end_token_ids=()
        )
        token_ids = completion.token_ids.tolist()
        theirs, ours = completion.logp_gen, self._score(prompt, token_ids, _CHECK_TEMPERATURE)
        difference = np.abs(theirs - ours)
        agreement = Agreement(float(difference.mean()), float(difference.max()), len(token_ids))
        if agreement.mean <= self._tolerance:
            return agreement
        untempered = float(np.abs(theirs - self._score(prompt, token_ids, 1.0)).mean())
        if untempered <= self._tolerance:
            why = "they are those of temperature 1: start it with --logprobs-mode processed_logprobs"
        else:
            why = "it has other weights, leaves something out (an adapter?), truncates, or computes too coarsely"
        raise EnvironmentFault(
            f"the vLLM server at {self._client.url} and the learner {self._policy.label} disagree about the log-probs "
            f"of {agreement.num_tokens} tokens at temperature {_CHECK_TEMPERATURE:g}: {theirs.mean():.4f} against "
            f"{ours.mean():.4f} on average, "
            f"{agreement.mean:.4f} nats apart (at most {agreement.max:.4f}), allowed {self._tolerance:g}; {why}",
            code="E-VLLM-05",
        )

    def _check_version(self) -> None:
        url = self._client.url
        try:
            version = str(_json(self._client.get("/version"), url)["version"])
        except (Refused, KeyError) as error:
            if isinstance(error, Refused) and error.status != 404:
                raise
            raise EnvironmentFault(
                f"what answers at {url} is no vLLM server (it has no /version)", code="E-VLLM-02"
            ) from None
        match = re.match(r"(\d+)\.(\d+)\.(\d+)", version)  # builds from source may have no number
        if match is not None and tuple(map(int, match.groups())) < _LEAST_VERSION:
            least = ".".join(map(str, _LEAST_VERSION))
            raise EnvironmentFault(
                f"the vLLM server at {url} is version {version}; this needs {least} or newer", code="E-VLLM-02"
            )

    def _served_model(self) -> _ServedModel:
        url = self._client.url
        try:
            listed = msgspec.json.decode(self._client.get("/v1/models"), type=_ServedModels).data
        except msgspec.DecodeError as error:
            raise EnvironmentFault(
                f"what answers at {url} is no vLLM server (/v1/models: {error})", code="E-VLLM-02"
            ) from None
        base = next((model for model in listed if model.parent is None), None)  # adapters have a parent
        if base is None:
            raise EnvironmentFault(f"the vLLM server at {url} serves no model", code="E-VLLM-03")
        return base


_UNTRUNCATED: Final[dict[str, object]] = {
    "top_p": 1.0,
    "top_k": -1,
    "min_p": 0.0,
    "min_tokens": 0,
    "repetition_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
}
"""All of them said, because the server's own defaults may come from the model's generation config."""


class _ServedModel(msgspec.Struct):
    id: str
    max_model_len: int | None = None
    parent: str | None = None


class _ServedModels(msgspec.Struct):
    data: list[_ServedModel]


def _json(body: bytes, url: str) -> dict[str, Any]:
    try:
        return msgspec.json.decode(body, type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise EnvironmentFault(f"what answers at {url} is no vLLM server ({error})", code="E-VLLM-02") from None


def _prompt_seed(seed: int, number: int) -> int:
    """A seed for one prompt of a call. Those of neighbours lie far apart: the server counts up from each."""
    text = f"{seed}\n{number}".encode()
    return int.from_bytes(blake2b(text, digest_size=_SEED_BYTES, person=b"motet.vllm").digest(), "big")


def plain_score(policy: Policy) -> Score:
    """The learner's log-probs of one completion: one row, no padding, no cache."""

    @torch.no_grad()
    def score(prompt: Sequence[int], token_ids: Sequence[int], temperature: float) -> NDArray[np.float32]:
        row = torch.tensor([[*prompt, *token_ids]], device=policy.device)
        hidden = policy.hidden_states(row, torch.arange(row.shape[1], device=policy.device)[None])
        logp = chunked_logprobs(
            hidden[0, len(prompt) - 1 : -1],
            policy.head,
            row[0, len(prompt) :],
            torch.full((len(token_ids),), temperature, device=policy.device),
            vocab_size=policy.vocab_size,
            softcap=policy.softcap,
        )
        return logp.float().cpu().numpy()

    return score
