"""The tiny models that come with the package: decoders of different size and habits, one character tokenizer.

All were pre-trained on running sums by `scripts/pretrain_tiny.py`, to be right in about a third of their samples:

    tiny:small    74k parameters; more often wrong the longer the sum, off by one
    tiny:large    454k; more often wrong the shorter the sum, off by one or by ten
    tiny:short    168k; good at 3 and 4 terms, bad at 5 and 6, off by up to three
    tiny:long     168k; bad at 3 and 4 terms, good at 5 and 6, off by about ten
    tiny:direct   95k; writes the sum without partial sums, and guesses where there are 6 terms or more
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from types import MappingProxyType

from motet.errors import UsageError

_FOLDER = Path(__file__).parent / "tiny_weights"

TINY_MODELS: Mapping[str, Path] = MappingProxyType(
    {f"tiny:{name}": _FOLDER / name for name in ("small", "large", "short", "long", "direct")},
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
