"""The run file as a guest gets it: what must agree between nodes, without what is only the inviter's.

It keeps every setting but these:

    run.dir, run.trackers          left out: where results go is for each owner to say
    swarm.listen, swarm.tls        left out: addresses and files of the inviter's machine
    swarm.connect                  the addresses of the invitation
    an absolute path               its last part: a guest has the same file somewhere else
    [[node]]                       name, pinned key, and model where its name means the same everywhere ("tiny:small",
                                   "pypi:...", a name of the hub), else "elsewhere"; nothing else. The nodes stay, as
                                   their number decides how many prompts of a round each node takes.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path, PureWindowsPath
from typing import Any, Final

from motet.config import NodeSettings, RunFile, dump_run_file

ELSEWHERE: Final = "elsewhere"
"""Model of a node that nobody but its owner can load."""

_TASK_PATHS: Final = ("name", "ood", "test_file", "ood_file", "reward")
_KINDS_WITH_FOLDERS: Final = ("gsm8k", "math500")


def guest_file(run: RunFile, addresses: Sequence[str]) -> str:
    """TOML for the guest; see the module's docstring."""
    content = run.model_dump(exclude_none=True)
    for section, key in (("run", "dir"), ("run", "trackers"), ("swarm", "listen"), ("swarm", "tls")):
        content[section].pop(key, None)
    content["swarm"]["connect"] = tuple(addresses)
    for key in _TASK_PATHS:
        if key in content["task"]:
            content["task"][key] = _without_folders(content["task"][key])
    if "template" in content["prompt"]:
        content["prompt"]["template"] = _without_folders(content["prompt"]["template"])
    content["node"] = [_node(node) for node in run.node]
    return dump_run_file(RunFile.model_validate(content))


def needed_files(run: RunFile) -> list[str]:
    """Files of the task and the prompt that a guest must have too, as they are named in the guest's file."""
    named = [getattr(run.task, key) for key in _TASK_PATHS] + [run.prompt.template]
    found = [_path_in(text) for text in named if text is not None]
    return [_bare(path) for path in dict.fromkeys(found) if path is not None]


def _node(node: NodeSettings) -> dict[str, Any]:
    public = {"name": node.name, "model": _shareable(node.model)}
    if node.key is not None:
        public["key"] = node.key
    if public["model"] != ELSEWHERE and node.revision is not None:
        public["revision"] = node.revision
    return public


def _shareable(model: str) -> str:
    if model.startswith(("tiny:", "pypi:")):
        return model
    is_path = _is_absolute(model) or model.startswith((".", "~")) or model.count("/") > 1 or "\\" in model
    return ELSEWHERE if is_path or model.endswith(".gguf") or Path(model).exists() else model


def _path_in(text: str) -> str | None:
    """The file or folder that a setting names: itself, or the part before or after a colon."""
    kind, _, rest = text.partition(":")
    if kind in _KINDS_WITH_FOLDERS:
        return rest or None
    path = text.rpartition(":")[0] if ".py:" in text else text
    return path if path.endswith((".py", ".jsonl", ".json", ".jinja", ".j2")) or Path(path).is_file() else None


def _without_folders(text: str) -> str:
    path = _path_in(text)
    return text if path is None else text.replace(path, _bare(path))


def _bare(path: str) -> str:
    """The last part of an absolute path; other paths as they are."""
    return PureWindowsPath(path).name if _is_absolute(path) else path  # it takes both kinds of slashes


def _is_absolute(path: str) -> bool:
    return Path(path).is_absolute() or PureWindowsPath(path).is_absolute()
