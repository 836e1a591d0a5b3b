"""`motet export` as a user meets it: from a finished run to a folder that others load, and what it refuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import Ended, Place

pytestmark = pytest.mark.slow
Finished = Callable[[], tuple["Place", "Ended"]]


def test_a_whole_model_loads_in_plain_transformers_and_is_the_run_s(finished: Finished, tmp_path: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    place, _ = finished()
    folder = tmp_path / "out"
    ended = place.motet("export", "runs/r", "--node", "small", "-o", folder)
    assert ended.code == 0, ended.stderr
    assert ended.stderr == ""
    wrote, loaded = ended.stdout.splitlines()
    assert wrote == f"wrote {folder}"
    assert loaded.startswith("loaded in plain transformers: log-probs of ")
    model = AutoModelForCausalLM.from_pretrained(folder)
    AutoTokenizer.from_pretrained(folder)
    trained = AutoModelForCausalLM.from_pretrained(place.run_dir / "models/small")
    for ours, theirs in zip(model.parameters(), trained.parameters(), strict=True):
        assert torch.equal(ours, theirs)
    card = (folder / "README.md").read_text(encoding="utf-8")
    summary = json.loads((place.run_dir / "summary.json").read_text())
    assert f"| {100 * summary['nodes']['small']['accuracy']['test']['end']['value']:.1f} % (" in card
    again = place.motet("eval", folder, "--task", "sums.jsonl", "--num-prompts", "4", "--max-new-tokens", "8")
    assert again.code == 0, again.stderr


def test_an_adapter_alone_and_merged_at_the_best_checkpoint(place: Place) -> None:
    pytest.importorskip("peft", reason="needs the extra lora")
    text = (place.path / "run.toml").read_text(encoding="utf-8")
    keep = "keep_best = true\n\n[task]"
    changed = text.replace("\n[task]", keep, 1).replace('model = "tiny:large"', 'model = "tiny:large"\nlora = {}')
    (place.path / "run.toml").write_text(changed, encoding="utf-8")
    assert place.motet("swarm", "run.toml").code == 0
    best = json.loads((place.run_dir / "best.json").read_text())["round"]
    ended = place.motet("export", "runs/r", "--node", "large", "--best", "-o", "adapter")
    assert ended.code == 0, ended.stderr
    assert "loaded in plain transformers and peft: " in ended.stdout
    assert f"after {best} of 4 rounds" in (place.path / "adapter/README.md").read_text(encoding="utf-8")
    assert (place.path / "adapter/adapter_model.safetensors").is_file()
    merged = place.motet(
        "export", "runs/r", "--node", "large", "--checkpoint", f"round_{best}", "--merge", "-o", "whole"
    )
    assert merged.code == 0, merged.stderr
    assert (place.path / "whole/model.safetensors").is_file()
    measured = place.motet("eval", "runs/r", "--best", "--node", "large", "--greedy", "--num-prompts", "4")
    whole = place.motet(
        "eval", "whole", "--task", "sums.jsonl", "--greedy", "--num-prompts", "4", "--max-new-tokens", "8"
    )
    assert (measured.code, whole.code) == (0, 0), measured.stderr + whole.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["runs/r", "-o", "new"], "E-CLI-02", "--node: runs/r has several nodes; name one of small, large"),
        (["runs/r", "--node", "lagre", "-o", "new"], "E-CLI-02", "no such node; it has small, large"),
        (["runs/r", "--node", "small"], "E-CLI-02", "-o/--output"),
        (["runs/r", "--node", "small", "-o", "runs"], "E-EXPORT-01", "runs: is there already"),
        (["runs/r", "--node", "small", "-o", "sums.jsonl"], "E-CLI-02", "sums.jsonl is no folder"),
        (["runs/r", "--node", "small", "--merge", "-o", "new"], "E-EXPORT-03", "trains no adapter"),
        (["runs/r", "--node", "small", "--best", "-o", "new"], "E-RUN-05", "no best checkpoint"),
        (["runs/r", "--node", "small", "--checkpoint", "9", "-o", "new"], "E-RUN-05", "the run has round_3, round_4"),
        (["tiny:small", "-o", "new"], "E-RUN-02", "no such folder"),
        (["runs", "-o", "new"], "E-RUN-02", "did you mean runs/r?"),
    ],
)
def test_what_cannot_be_exported_costs_one_line(finished: Finished, arguments: list[str], code: str, says: str) -> None:
    place, _ = finished()
    refused = place.motet("export", *arguments)
    assert refused.code == 2
    assert refused.stdout == ""
    assert says in refused.error
    assert refused.error.endswith(f"[{code}]")
    assert not (place.path / "new").exists()
