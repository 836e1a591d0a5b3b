"""The tiny models that come with the package: two decoders of different size and habits, one character tokenizer.

Both were pre-trained on running sums by `scripts/pretrain_tiny.py`, to be right in about a third of their samples.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from types import MappingProxyType

from motet.errors import UsageError

_FOLDER = Path(__file__).parent / "tiny_weights"

TINY_MODELS: Mapping[str, Path] = MappingProxyType(
    {"tiny:small": _FOLDER / "small", "tiny:large": _FOLDER / "large"},
)
"""Name in a run file -> Hugging Face folder (config, safetensors, tokenizer)."""


def tiny_path(name: str) -> Path:
    """Folder of a tiny model.

    >>> tiny_path("tiny:small").name
    'small'

    Raises:
        UsageError: E-MODEL-01, no tiny model of that name.
    """
    if name in TINY_MODELS:
        return TINY_MODELS[name]
    nearest = get_close_matches(name, TINY_MODELS, n=1, cutoff=0.0)
    known = ", ".join(f'"{known_name}"' for known_name in TINY_MODELS)
    raise UsageError(
        f'no tiny model is called "{name}"; known are {known}; did you mean "{nearest[0]}"?', code="E-MODEL-01"
    )
