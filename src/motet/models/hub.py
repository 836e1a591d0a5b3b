"""Models of the Hugging Face hub: a name and a revision become a folder in the hub's own cache, at one commit."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from motet.errors import EnvironmentFault, UsageError

_LIGHT = ("*.json", "*.jinja", "*.txt", "*.model")
_WEIGHTS = ("*.safetensors",)
_DEEPER = ("*/*",)
_COMMIT = re.compile(r"[0-9a-f]{40}")
_ANSWER_S = 10.0


def hub_folder(name: str, revision: str | None, *, weights: bool) -> Path:
    """Folder with the model's files, downloaded if need be; its name is the commit.

    One question without retries is asked first: where the hub cannot be reached, what an earlier download left is
    used, and without that the error comes at once.

    Args:
        name: "model" or "owner/model".
        revision: branch, tag or commit; None: the main branch.
        weights: also the weights; without, configuration and tokenizer alone.

    Raises:
        EnvironmentFault: E-MODEL-09 if the hub cannot be reached and the model is not in its cache.
        UsageError: E-MODEL-10 if the hub has no such model or revision, or does not give it to this user.
    """
    from huggingface_hub import snapshot_download

    wanted = [*_LIGHT, *(_WEIGHTS if weights else ())]
    known = _cached(name, revision, wanted) if revision is not None and _COMMIT.fullmatch(revision) else None
    if known is not None:
        return known
    if not _is_reachable(name, revision):
        known = _cached(name, revision, wanted)
        if known is None:
            _unreachable(name)
        return known
    try:
        return Path(snapshot_download(name, revision=revision, allow_patterns=wanted, ignore_patterns=list(_DEEPER)))
    except OSError as error:  # of the hub's client
        _refused(name, revision, error)


def _cached(name: str, revision: str | None, wanted: Sequence[str]) -> Path | None:
    from huggingface_hub import snapshot_download

    try:
        folder = snapshot_download(
            name, revision=revision, allow_patterns=list(wanted), ignore_patterns=list(_DEEPER), local_files_only=True
        )
    except (OSError, ValueError):  # not there, not complete, or no possible name
        return None
    return Path(folder)


def _is_reachable(name: str, revision: str | None) -> bool:
    import httpx2
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, OfflineModeIsEnabled

    try:
        HfApi().model_info(name, revision=revision, timeout=_ANSWER_S)
    except (OfflineModeIsEnabled, httpx2.TransportError):
        return False
    except HfHubHTTPError as error:
        if error.response.status_code >= 500:
            return False
        _refused(name, revision, error)
    except HFValidationError:
        raise UsageError(
            f'node.model {name!r} is neither a folder here nor a possible name on the hub ("model" or "owner/model")',
            code="E-MODEL-10",
        ) from None
    return True


def _unreachable(name: str) -> NoReturn:
    raise EnvironmentFault(
        f"node.model {name!r}: there is no folder of that name here, the hub cannot be reached, and its cache on this "
        "machine does not have the model; check the name and the network, or give a folder",
        code="E-MODEL-09",
    )


def _refused(name: str, revision: str | None, error: OSError) -> NoReturn:
    from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError, RevisionNotFoundError

    if isinstance(error, GatedRepoError):
        why = f"is gated; ask for access on its page (https://huggingface.co/{name}), then log in with: hf auth login"
    elif isinstance(error, RevisionNotFoundError):
        why = f"has no revision {revision!r}; give a branch, a tag or a commit in node.revision"
    elif isinstance(error, RepositoryNotFoundError):
        why = "is neither a folder here nor a model on the hub that you may see; a private one needs: hf auth login"
    else:
        raise EnvironmentFault(
            f"node.model {name!r}: the download broke off ({' '.join(str(error).split())[:160]}); try again",
            code="E-MODEL-09",
        ) from error
    raise UsageError(f"node.model {name!r} {why}", code="E-MODEL-10") from error
