"""Text to ids and back, and the fingerprint by which two nodes know that ids mean the same to both."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


class Tokenizer:
    """A Hugging Face tokenizer, narrowed to what a node needs.

    Attributes:
        end_token_ids: ids that end a completion.
        vocab_size: ids are below it.
        fingerprint: hex digest over vocabulary, merges, normaliser, pre-tokeniser and special tokens.
    """

    def __init__(self, inner: PreTrainedTokenizerBase, *, end_token_ids: Sequence[int], vocab_size: int) -> None:
        self._inner = inner
        self.end_token_ids = tuple(sorted(set(end_token_ids)))
        self.vocab_size = vocab_size
        self.fingerprint = tokenizer_fingerprint(inner)

    def encode_prompt(self, text: str) -> list[int]:
        """Ids of a prompt, with the tokenizer's own beginning-of-text id if it has one."""
        return list(self._inner.encode(text))

    def decode_completion(self, token_ids: Sequence[int]) -> str:
        """Text of a completion, without special tokens.

        Raises:
            Exception: whatever the tokenizer raises for ids outside its vocabulary; check ids first.
        """
        return str(self._inner.decode([int(i) for i in token_ids], skip_special_tokens=True))

    def save(self, folder: str) -> None:
        """Write the tokenizer's files into a Hugging Face folder."""
        self._inner.save_pretrained(folder)


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
