"""Tables from the Hugging Face hub and from parquet files. The only file that imports `datasets`."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from motet.errors import EnvironmentFault, UsageError
from motet.tasks.faults import Fault, call_own_code

_PATIENCE_S: Final = 10.0


def hub_rows(repo: str, config: str | None, split: str) -> list[dict[str, Any]]:
    """Rows of a split of a data set on the hub; without network from the local cache.

    Raises:
        EnvironmentFault: `datasets` is not installed, or the hub cannot be reached and the cache does not have it.
    """
    with _quiet_datasets() as datasets:
        is_offline = datasets.config.HF_HUB_OFFLINE
        probe = Fault("offline mode is set") if is_offline else call_own_code(lambda: _probe(repo))
        try:
            datasets.config.HF_HUB_OFFLINE = isinstance(probe, Fault)  # or it would try again and again
            found = call_own_code(lambda: datasets.load_dataset(repo, config, split=split).to_list())
        finally:
            datasets.config.HF_HUB_OFFLINE = is_offline
    if isinstance(found, Fault):
        reason = probe if isinstance(probe, Fault) else found
        raise EnvironmentFault(
            f"task.name: {repo} is not in the local cache and cannot be fetched from the hub ({reason.line[:120]}); "
            "give a local copy as <name>:<folder>",
            code="E-TASK-11",
        )
    return list(found)


def parquet_rows(path: Path) -> list[dict[str, Any]]:
    """Rows of a parquet file.

    Raises:
        UsageError: it cannot be read.
        EnvironmentFault: `datasets` is not installed.
    """
    with _quiet_datasets() as datasets, tempfile.TemporaryDirectory() as cache:
        found = call_own_code(
            lambda: datasets.Dataset.from_parquet(str(path), cache_dir=cache, keep_in_memory=True).to_list()
        )
    if isinstance(found, Fault):
        raise UsageError(f"task.name: cannot read {path}: {found.line}", code="E-TASK-12")
    return list(found)


def _probe(repo: str) -> None:
    from huggingface_hub import HfApi

    HfApi().dataset_info(repo, timeout=_PATIENCE_S)


@contextmanager
def _quiet_datasets() -> Iterator[ModuleType]:
    try:
        import datasets
    except ImportError as error:
        raise EnvironmentFault(
            "task.name: this task needs the package datasets, which is not installed: pip install 'motet[tasks]'",
            code="E-TASK-07",
        ) from error
    had_bars = datasets.utils.logging.is_progress_bar_enabled()
    level = datasets.utils.logging.get_verbosity()
    datasets.disable_progress_bars()
    datasets.utils.logging.set_verbosity(datasets.utils.logging.CRITICAL)
    try:
        yield datasets
    finally:
        datasets.utils.logging.set_verbosity(level)
        if had_bars:
            datasets.enable_progress_bars()
