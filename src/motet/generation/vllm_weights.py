"""New weights for a vLLM server, through a folder that both see: a whole model reloaded, or an adapter exchanged."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final
from uuid import uuid4

from motet.errors import EnvironmentFault, UsageError
from motet.generation.vllm_client import Refused, VLLMClient

_NO_ROUTE: Final = (404, 405)
_OUTER_LAYERS: Final = ("lm_head", "embed_tokens", "embed_out", "wte", "output")


class WeightPush:
    """Brings one node's weights to its server, version by version.

    Every version has a name of its own, which no other node or run shares: an adapter that is loaded again under its
    old name may meet cached keys and values of the weights before.

    Args:
        client: of the server.
        folder: where both this process and the server find the weights.
    """

    def __init__(self, client: VLLMClient, folder: Path) -> None:
        self._client = client
        self._folder = folder
        self._prefix = f"motet-{uuid4().hex[:12]}"
        self._previous: Path | None = None

    def push(self, step: int, save: Callable[[Path], None], *, base_model: str) -> str:
        """Write the weights, have the server take them, and remove the version before.

        Args:
            step: optimiser steps that they have seen.
            save: writes a Hugging Face folder, of a model or of an adapter.
            base_model: the server's name of the model that it was started with.

        Returns:
            The name to ask the server for.

        Raises:
            EnvironmentFault: E-VLLM-06 if the server was started without what this needs, E-VLLM-07 if it fails.
            UsageError: E-VLLM-06 for an adapter that vLLM cannot serve, E-VLLM-09 for a folder that cannot be written.
        """
        folder = self._write(step, save)
        config = folder / "adapter_config.json"
        if config.is_file():
            _check_adapter(json.loads(config.read_text(encoding="utf-8")))
            self._exchange_adapter(folder)
            name = folder.name
        else:
            self._reload(folder)
            name = base_model
        if self._previous is not None:
            shutil.rmtree(self._previous, ignore_errors=True)
        self._previous = folder
        return name

    def _write(self, step: int, save: Callable[[Path], None]) -> Path:
        """A folder appears under its name once it is complete."""
        folder = self._folder.expanduser().resolve() / f"{self._prefix}-step-{step}"
        partial = folder.with_name(folder.name + ".partial")
        try:
            partial.mkdir(parents=True)
            save(partial)
            shutil.rmtree(folder, ignore_errors=True)
            partial.rename(folder)
        except OSError as error:
            raise UsageError(
                f"node.generation.refresh_dir: cannot write {folder} ({error.strerror or error})", code="E-VLLM-09"
            ) from None
        return folder

    def _exchange_adapter(self, folder: Path) -> None:
        # The old one first: the server may have room for one, and would fail to remove what it has pushed out.
        if self._previous is not None:
            try:
                self._client.post("/v1/unload_lora_adapter", {"lora_name": self._previous.name}, retry=False)
            except Refused as refusal:
                if refusal.status not in _NO_ROUTE:  # it was started anew and has none
                    raise
        try:
            self._client.post(
                "/v1/load_lora_adapter", {"lora_name": folder.name, "lora_path": str(folder)}, retry=False
            )
        except Refused as refusal:
            if refusal.status in _NO_ROUTE and str(folder) not in str(refusal):
                raise EnvironmentFault(
                    f"the vLLM server at {self._client.url} takes no adapters while it runs; start it with "
                    "VLLM_ALLOW_RUNTIME_LORA_UPDATING=True, --enable-lora and --max-lora-rank of at least the "
                    "adapter's rank",
                    code="E-VLLM-06",
                ) from None
            raise EnvironmentFault(f"{refusal}; {_SEES}", code="E-VLLM-06") from None

    def _reload(self, folder: Path) -> None:
        try:
            self._client.post(
                "/collective_rpc",
                {"method": "reload_weights", "kwargs": {"weights_path": str(folder)}},
                retry=False,
            )
            self._client.post("/reset_prefix_cache", {}, retry=False)
        except Refused as refusal:
            if refusal.status in _NO_ROUTE:
                raise EnvironmentFault(
                    f"the vLLM server at {self._client.url} reloads no weights while it runs; start it with "
                    "VLLM_SERVER_DEV_MODE=1",
                    code="E-VLLM-06",
                ) from None
            raise
        except EnvironmentFault as fault:
            if fault.code != "E-VLLM-07":
                raise
            raise EnvironmentFault(
                f"{fault}; reloading needs a vLLM whose reload_weights takes weights_path, and {_SEES}",
                code="E-VLLM-07",
            ) from None


_SEES: Final = "the server must see node.generation.refresh_dir under the same path"


def _check_adapter(config: dict[str, object]) -> None:
    """Refuse what the server would leave out or not load. What it leaves out gives plausible, wrong log-probs."""
    kind = config.get("peft_type")
    targets = config.get("target_modules")
    outer = [name for name in targets if name in _OUTER_LAYERS] if isinstance(targets, list) else []
    if kind != "LORA":
        what = f"adapters of the kind {kind}"
    elif config.get("use_dora"):
        what = "DoRA"
    elif config.get("bias") not in (None, "none"):
        what = "adapters that train biases"
    elif config.get("modules_to_save"):
        what = f"adapters that train {config['modules_to_save']} whole"
    elif outer:
        what = f"adapters on {outer[0]}"
    else:
        return
    raise UsageError(
        f'node.generation.engine: vLLM does not serve {what}; use engine = "hf", or another adapter', code="E-VLLM-06"
    )
