"""Loading and saving without the progress bars and retry notices of libraries, which would run into our display."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

_BETWEEN_LIBRARIES = ("`is_gradient_checkpointing` is deprecated", "The given NumPy array is not writable")


@contextmanager
def quiet_loggers() -> Iterator[None]:
    """Inside the block transformers tells of no fallback and the hub's client of no retry; downloads have bars."""
    loggers = [logging.getLogger(name) for name in ("huggingface_hub", "transformers")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


@contextmanager
def quiet_libraries() -> Iterator[None]:
    """Inside the block there are no bars either, and no warnings that neither we nor our users can heed."""
    from transformers import modeling_gguf_pytorch_utils
    from transformers.utils import logging as transformers_logging

    gguf_files: Any = modeling_gguf_pytorch_utils
    bar = gguf_files.tqdm
    shown = transformers_logging.is_progress_bar_enabled()
    transformers_logging.disable_progress_bar()
    gguf_files.tqdm = partial(bar, disable=True)  # its one bar obeys no setting
    try:
        with quiet_loggers(), warnings.catch_warnings():
            for message in _BETWEEN_LIBRARIES:
                warnings.filterwarnings("ignore", message=message)
            yield
    finally:
        gguf_files.tqdm = bar
        if shown:
            transformers_logging.enable_progress_bar()
