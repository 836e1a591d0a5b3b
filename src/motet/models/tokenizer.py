"""Text to ids and back, and the fingerprint by which two nodes know that ids mean the same to both."""

from __future__ import annotations

import hashlib
import json
import struct
import textwrap
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from motet.errors import UsageError
from motet.models.prompting import DEFAULT_STYLE, PromptStyle, Renderer, Turn

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_SHOWN_CHARACTERS = 60


class Tokenizer:
    """A Hugging Face tokenizer, narrowed to what a node needs.

    Args:
        inner: the tokenizer of transformers.
        end_token_ids: ids that end a completion. Under a chat template the token with which it closes an assistant's
            turn is added.
        vocab_size: ids are below it.
        style: how prompts are rendered.
        name: the model's name, for messages.

    Attributes:
        end_token_ids: ids that end a completion, in order.
        vocab_size: ids are below it.
        fingerprint: hex digest over vocabulary, merges, normaliser, pre-tokeniser and special tokens.

    Raises:
        UsageError: E-MODEL-12 if prompts cannot be rendered in this style.
    """

    def __init__(
        self,
        inner: PreTrainedTokenizerBase,
        *,
        end_token_ids: Sequence[int],
        vocab_size: int,
        style: PromptStyle = DEFAULT_STYLE,
        name: str = "",
    ) -> None:
        self._inner = inner
        self._name = name
        self._renderer = Renderer(name, inner, style)
        self.end_token_ids = tuple(sorted({*end_token_ids, *self._turn_end_ids()}))
        self.vocab_size = vocab_size
        self.fingerprint = tokenizer_fingerprint(inner)

    @property
    def uses_template(self) -> bool:
        """True if prompts pass through a chat template."""
        return self._renderer.is_chat

    def render_prompt(self, text: str, messages: Sequence[Turn] = ()) -> str:
        """The prompt as the text that is encoded; see `encode_prompt`."""
        return self._renderer.render(text, messages)

    def encode_prompt(self, text: str, messages: Sequence[Turn] = ()) -> list[int]:
        """Ids of a prompt.

        Raw text gets the tokenizer's own beginning-of-text id if it has one; a chat template writes its own.

        Args:
            text: the prompt where there is no chat.
            messages: (role, content) of a chat; empty: `text` as one user message.

        Raises:
            UsageError: E-MODEL-12 if the template fails on these messages; E-MODEL-19 if the vocabulary cannot write
                the text.
        """
        rendered = self._renderer.render(text, messages)
        try:
            if self._renderer.is_chat:
                return list(self._inner.encode(rendered, add_special_tokens=False))
            return list(self._inner.encode(rendered))
        except Exception as error:
            if type(error) is not Exception:  # tokenizers raises nothing more special for a text that it cannot write
                raise
            short = textwrap.shorten(rendered, _SHOWN_CHARACTERS, placeholder=" ...")
            raise UsageError(
                f"{self._name}: its vocabulary cannot write the prompt {short!r} ({error}); use another model or "
                "another task.name",
                code="E-MODEL-19",
            ) from error

    def prompts_digest(self, prompts: Iterable[tuple[str, Sequence[Turn]]]) -> str:
        """Hex digest of the ids of (text, messages) prompts: equal where two nodes see the same."""
        digest = hashlib.sha256()
        for text, messages in prompts:
            ids = self.encode_prompt(text, messages)
            digest.update(struct.pack(f"<I{len(ids)}I", len(ids), *ids))
        return digest.hexdigest()[:16]

    def decode_completion(self, token_ids: Sequence[int]) -> str:
        """Text of a completion, without special tokens.

        Raises:
            Exception: whatever the tokenizer raises for ids outside its vocabulary; check ids first.
        """
        return str(self._inner.decode([int(i) for i in token_ids], skip_special_tokens=True))

    def save(self, folder: str) -> None:
        """Write the tokenizer's files into a Hugging Face folder."""
        self._inner.save_pretrained(folder)

    def _turn_end_ids(self) -> list[int]:
        """The first added or special token behind an assistant's message, if the template closes turns with one."""
        ids = self._inner.encode(self._renderer.turn_end(), add_special_tokens=False) if self.uses_template else []
        known = {*self._inner.all_special_ids, *getattr(self._inner, "added_tokens_decoder", {})} if ids else set()
        return [token_id for token_id in ids if token_id in known][:1]


def tokenizer_fingerprint(inner: PreTrainedTokenizerBase) -> str:
    """Digest of what decides the ids of a text; the model's name and padding settings play no part."""
    backend = getattr(inner, "backend_tokenizer", None)
    if backend is not None:
        description = json.loads(backend.to_str())
        description.pop("padding", None)
        description.pop("truncation", None)
    else:
        description = {"vocabulary": inner.get_vocab(), "class": type(inner).__name__}
    description["special_tokens"] = {name: str(token) for name, token in inner.special_tokens_map.items()}
    canonical = json.dumps(description, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:16]
