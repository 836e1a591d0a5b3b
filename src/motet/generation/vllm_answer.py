"""From a vLLM server's answer to completions; whatever an answer lacks is an error, never a guess."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
import numpy as np

from motet.errors import EnvironmentFault
from motet.generation.generator import Completion

_ID_PREFIX: Final = "token_id:"
_LEAST_LOGP: Final = -9999.0  # what vLLM writes for minus infinity
_ROUNDING: Final = 1e-4  # a log-prob this little above 0 is 0, rounded


class _Logprobs(msgspec.Struct):
    tokens: list[str]
    token_logprobs: list[float | None]


class _Choice(msgspec.Struct):
    index: int
    finish_reason: str | None = None
    logprobs: _Logprobs | None = None
    token_ids: list[int] | None = None
    prompt_token_ids: list[int] | None = None


class _Answer(msgspec.Struct):
    choices: list[_Choice]


class _Fault(Exception):
    """What is wrong with an answer, without saying whose."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What a request to /v1/completions asked for.

    Attributes:
        prompt: token ids.
        count: how many completions.
        max_new_tokens: limit of their length.
        end_token_ids: ids that end one.
        vocab_size: ids are below it.
    """

    prompt: Sequence[int]
    count: int
    max_new_tokens: int
    end_token_ids: Sequence[int]
    vocab_size: int


def read_answer(body: bytes, asked: Asked, *, url: str) -> list[Completion]:
    """The completions of an answer, in order.

    Raises:
        EnvironmentFault: E-VLLM-04 if the answer is not what was asked for: no ids or log-probs, ids beyond the
            vocabulary, log-probs above 0, an end token left out, a completion cut short, a changed prompt.
    """
    try:
        choices = sorted(msgspec.json.decode(body, type=_Answer).choices, key=lambda choice: choice.index)
        if len(choices) != asked.count:
            raise _Fault(f"{len(choices)} completions where {asked.count} were asked for")
        return [_completion(choice, asked) for choice in choices]
    except msgspec.DecodeError as error:
        fault: Exception = _Fault(f"it is no answer of vLLM's ({error})")
    except _Fault as error:
        fault = error
    raise EnvironmentFault(f"answer of the vLLM server at {url}: {fault}", code="E-VLLM-04")


def _completion(choice: _Choice, asked: Asked) -> Completion:
    if choice.prompt_token_ids is not None and choice.prompt_token_ids != list(asked.prompt):
        raise _Fault("it changed the prompt's ids; start it without truncation and with the same tokenizer")
    token_ids, logp = _ids_and_logp(choice)
    if not 1 <= len(token_ids) <= asked.max_new_tokens:
        raise _Fault(f"a completion of {len(token_ids)} tokens; allowed: 1 to {asked.max_new_tokens}")
    beyond = next((i for i in token_ids if not 0 <= i < asked.vocab_size), None)
    if beyond is not None:
        raise _Fault(f"id {beyond}, but the vocabulary has {asked.vocab_size}; it serves another model")
    ended = token_ids[-1] in asked.end_token_ids
    if any(token_id in asked.end_token_ids for token_id in token_ids[:-1]):
        raise _Fault("a completion goes on behind an end token")
    if choice.finish_reason == "stop" and not ended:
        raise _Fault("a completion stopped, but its end token and that token's log-prob are left out")
    if choice.finish_reason not in ("stop", "length"):
        raise _Fault(f'a completion ended with "{choice.finish_reason}"')
    if not ended and len(token_ids) < asked.max_new_tokens:
        raise _Fault(
            f"a completion was cut at {len(token_ids)} tokens, before rollout.max_new_tokens = "
            f"{asked.max_new_tokens}; start it with --generation-config vllm and a larger --max-model-len"
        )
    return Completion(
        np.array(token_ids, dtype=np.uint32), np.array(logp, dtype=np.float32), "stop" if ended else "length"
    )


def _ids_and_logp(choice: _Choice) -> tuple[list[int], list[float]]:
    """Ids as the log-probs name them: these are there for the end token too, wherever `token_ids` leaves it out."""
    if choice.logprobs is None:
        raise _Fault("it has no log-probs")
    tokens, found = choice.logprobs.tokens, choice.logprobs.token_logprobs
    token_ids = [
        int(token.removeprefix(_ID_PREFIX))
        for token in tokens
        if token.startswith(_ID_PREFIX) and token.removeprefix(_ID_PREFIX).isdecimal()
    ]
    if len(token_ids) != len(tokens):
        raise _Fault("it has no token ids; this needs a server that knows return_tokens_as_token_ids")
    if choice.token_ids is not None and choice.token_ids not in (token_ids, token_ids[:-1]):
        raise _Fault("its token ids and those of its log-probs differ")
    logp = [-math.inf if value is None else value for value in found]
    if len(logp) != len(token_ids):
        raise _Fault(f"{len(logp)} log-probs for {len(token_ids)} tokens")
    for value in logp:
        if not _LEAST_LOGP < value <= _ROUNDING:
            raise _Fault(f"a sampled token's log-prob is {value:g}; start it with --logprobs-mode processed_logprobs")
    return token_ids, [min(value, 0.0) for value in logp]
