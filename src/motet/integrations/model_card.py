"""README.md of an exported model: what it is, what it learned from and how well, for people and for the hub."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from motet import __version__
from motet.config import NodeSettings, RunFile
from motet.evaluation.estimators import Z_95, wilson
from motet.journal import RunDir, read_jsonl

Form = Literal["model", "adapter", "merged"]

_HUB_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*")
_LICENSE = re.compile(r"^license:[ \t]*([A-Za-z0-9.+-]+)[ \t]*$", re.MULTILINE)
_FRONT = re.compile(r"\A---\r?\n(.*?)^---", re.DOTALL | re.MULTILINE)
_SPLITS = {"test": "held-out", "ood": "out of distribution"}


@dataclass(frozen=True, slots=True)
class Subject:
    """The model that the card is about.

    Attributes:
        settings: of its node.
        form: a whole model, an adapter, or a whole model with its adapter merged into it.
        num_parameters: of the model.
        num_trained: those that training moved.
        rounds_done: rounds behind it.
        hub_name: the base model's name on the hub, if it came from there.
        commit: its commit, if it is known.
        license: the base model's licence, if it is known.
    """

    settings: NodeSettings
    form: Form
    num_parameters: int
    num_trained: int
    rounds_done: int
    hub_name: str | None = None
    commit: str | None = None
    license: str | None = None


def model_card(run: RunFile, run_dir: RunDir, subject: Subject, *, name: str, base: str) -> str:
    """The card.

    Args:
        run: settings of the run.
        run_dir: its directory, for what it measured.
        subject: the model.
        name: heading of the card, and name of the folder.
        base: how plain transformers calls the base model; used where the card says how to load an adapter.
    """
    rows = [row for row in read_jsonl(run_dir.metrics) if row["round"] < subject.rounds_done]
    sections = [
        _front_matter(run, subject),
        f"# {name}",
        _summary(run, subject),
        "## Use",
        _loading(run, subject, name=name, base=base),
        "## Results",
        _results(run, subject, rows),
        "## Training",
        _method(run, subject),
        "### Swarm",
        _swarm(run, run_dir, subject),
        "### Data",
        _data(run, subject, rows),
        "### Versions",
        _versions(run_dir),
    ]
    return "\n\n".join(sections) + "\n"


def license_of(folder: Path) -> str | None:
    """The licence that a model folder's own card names."""
    try:
        front = _FRONT.match((folder / "README.md").read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return None
    found = _LICENSE.search(front[1]) if front else None
    return found[1] if found else None


def _front_matter(run: RunFile, subject: Subject) -> str:
    settings = subject.settings
    lines = []
    if subject.hub_name is not None and _HUB_NAME.fullmatch(subject.hub_name):
        relation = "adapter" if subject.form == "adapter" else "finetune"
        lines += [f"base_model: {subject.hub_name}", f"base_model_relation: {relation}"]
    lines.append(f"library_name: {'peft' if subject.form == 'adapter' else 'transformers'}")
    lines.append("pipeline_tag: text-generation")
    if subject.license is not None:
        lines.append(f"license: {subject.license}")
    tags = ["motet", "grpo", "reinforcement-learning", run.method.name.replace("_", "-")]
    if subject.form == "adapter":
        tags.append("lora" if settings.lora is not None else "adapter")
    lines += ["tags:", *(f"- {tag}" for tag in tags)]
    return "\n".join(["---", *lines, "---"])


def _summary(run: RunFile, subject: Subject) -> str:
    settings = subject.settings
    what = {
        "model": f"a fine-tuned {_code(settings.model)}",
        "adapter": f"an adapter for {_code(settings.model)}",
        "merged": f"{_code(settings.model)} with a trained adapter merged into its weights",
    }[subject.form]
    pinned = f" at commit {_code(subject.commit)}" if subject.commit else ""
    count = len(run.node)
    company = f"together with {count - 1} other model{'s' if count > 2 else ''}" if run.shares_groups else "alone"
    return (
        f"This is {what}{pinned}, trained {company} by reinforcement learning (GRPO) on the task "
        f"{_code(run.task.name)} with motet. It was node {_code(settings.name)} of "
        f"the run {_code(run.run.name)}, after {subject.rounds_done} of {run.run.rounds} rounds."
    )


def _loading(run: RunFile, subject: Subject, *, name: str, base: str) -> str:
    where = json.dumps(name)
    if subject.form == "adapter":
        revision = f", revision={json.dumps(subject.commit)}" if subject.commit else ""
        lines = [
            "from peft import PeftModel",
            "from transformers import AutoModelForCausalLM, AutoTokenizer",
            f"model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained({json.dumps(base)}{revision}), "
            f"{where})",
            f"tokenizer = AutoTokenizer.from_pretrained({where})",
        ]
    else:
        lines = [
            "from transformers import AutoModelForCausalLM, AutoTokenizer",
            f"model = AutoModelForCausalLM.from_pretrained({where})",
            f"tokenizer = AutoTokenizer.from_pretrained({where})",
        ]
    prompt = run.prompt
    notes = [f"Prompts were rendered in the format {_code(prompt.format)}"]
    if prompt.system is not None:
        notes.append(f"with the system message {_code(prompt.system)}")
    if prompt.template_arguments:
        notes.append(f"with the template arguments {_code(json.dumps(prompt.template_arguments, default=str))}")
    return "\n".join(["```python", *lines, "```", "", ", ".join(notes) + "."])


def _results(run: RunFile, subject: Subject, rows: Sequence[Mapping[str, Any]]) -> str:
    own = [row for row in rows if row["node"] == subject.settings.name]
    table = ["| prompts | before | after | number |", "|---|---|---|---|"]
    for split, words in _SPLITS.items():
        examined = [row for row in own if f"accuracy/{split}" in row]
        if examined:
            first, last = examined[0], examined[-1]
            after = _share(last, split) if last["round"] == subject.rounds_done - 1 else "not measured at this round"
            before = _share(first, split) if first["round"] < 0 else "-"
            table.append(f"| {words} | {before} | {after} | {last[f'accuracy/{split}/num_prompts']} |")
    if len(table) == 2:
        return "No evaluation was made."
    temperature = run.evaluation.temperature
    temperature = run.rollout.temperature if temperature is None else temperature
    how = "the likeliest tokens (greedy)" if temperature == 0 else f"one answer sampled at temperature {temperature:g}"
    return "\n".join([*table, "", f"Share of prompts solved by {how}, with 95 % intervals over the prompts."])


def _share(row: Mapping[str, Any], split: str) -> str:
    value, n = float(row[f"accuracy/{split}"]), int(row[f"accuracy/{split}/num_prompts"])
    solved = round(value * n)
    if abs(value * n - solved) < 1e-6 and 0 <= solved <= n:
        low, high = wilson(solved, n)
    else:
        half = Z_95 * float(row[f"accuracy/{split}/se"])
        low, high = value - half, value + half
    return f"{100 * value:.1f} % ({100 * low:.1f} to {100 * high:.1f})"


def _method(run: RunFile, subject: Subject) -> str:
    method, learner, rollout = run.method, run.learner, run.rollout
    settings: dict[str, object] = {
        "method": method.name,
        "importance weights": method.resolved_weights,
        "filter": method.resolved_rule,
        "cap": method.cap if method.resolved_weights == "truncated" else None,
        "KL limit (nats)": method.kl_limit_nats if method.resolved_rule in ("either", "both") else None,
        "clip range": method.epsilon,
        "learning rate": learner.learning_rate,
        "schedule": learner.schedule,
        "precision": subject.settings.precision or learner.precision,
        "rounds (optimiser steps)": subject.rounds_done,
        "prompts a round": rollout.prompts_per_round,
        "completions a prompt": rollout.group_size,
        "longest completion (tokens)": rollout.max_new_tokens,
        "temperature": rollout.temperature,
        "seed": run.run.seed,
    }
    lines = [f"| {key} | {_cell(value)} |" for key, value in settings.items() if value is not None]
    return "\n".join(["| setting | value |", "|---|---|", *lines])


def _swarm(run: RunFile, run_dir: RunDir, subject: Subject) -> str:
    lines = ["| node | model | trains | parameters | trained |", "|---|---|---|---|---|"]
    known = _known_nodes(run_dir)
    for node in run.node:
        facts = known.get(node.name, {})
        if node.name == subject.settings.name:
            facts = {"parameters": subject.num_parameters, "trained_parameters": subject.num_trained}
        sizes = " | ".join(
            f"{facts[key]:,}" if isinstance(facts.get(key), int) else "-"
            for key in ("parameters", "trained_parameters")
        )
        this = " (this model)" if node.name == subject.settings.name else ""
        lines.append(f"| {node.name}{this} | {_cell(node.model)} | {_what_trains(node)} | {sizes} |")
    how = f"Collaboration: {run.swarm.collaboration}, pace: {run.swarm.pace}."
    return "\n".join([*lines, "", how if run.shares_groups else "Every node trained alone."])


def _what_trains(node: NodeSettings) -> str:
    if node.lora is not None:
        what = f"LoRA, rank {node.lora.rank}, alpha {node.lora.alpha:g}"
    elif node.peft is not None:
        what = f"adapter {_cell(node.peft.get('peft_type', ''))}"
    else:
        what = "all weights"
    return f"{what}; frozen: {', '.join(_cell(pattern) for pattern in node.freeze)}" if node.freeze else what


def _data(run: RunFile, subject: Subject, rows: Sequence[Mapping[str, Any]]) -> str:
    own = [row for row in rows if row["node"] == subject.settings.name]
    mine, others = (int(sum(row.get(f"{who}/groups", 0) for row in own)) for who in ("own", "external"))
    rejected = int(sum(row.get("admission/rejected", 0) for row in own))
    arguments = f" with {_code(json.dumps(run.task.arguments, default=str))}" if run.task.arguments else ""
    shares = [float(row["external/influence_share"]) for row in own if row.get("external/influence_share") is not None]
    influence = (
        f" Completions of others made up {100 * sum(shares) / len(shares):.0f} % of the updates." if others else ""
    )
    return (
        f"Prompts of the task {_code(run.task.name)}{arguments}; rewards by its scorer. The model "
        f"learned from {mine} groups of completions of its own and {others} of other nodes of the swarm ({rejected} "
        f"were rejected on arrival).{influence}"
    )


def _versions(run_dir: RunDir) -> str:
    info = _json(run_dir.info)
    words = [f"{key} {info[key]}" for key in ("motet", "torch", "transformers", "python") if info.get(key)]
    return f"Trained with {_cell(', '.join(words))}; exported with motet {__version__}."


def _known_nodes(run_dir: RunDir) -> Mapping[str, Mapping[str, Any]]:
    nodes = _json(run_dir.summary).get("nodes", {})
    return nodes if isinstance(nodes, dict) else {}


def _json(path: Path) -> Mapping[str, Any]:
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _code(text: str) -> str:
    """Text as it stands, between enough backticks; on one line."""
    line = " ".join(text.split())
    fence = "`" * (max((len(run) for run in _runs(line)), default=0) + 1)
    pad = " " if line.startswith("`") or line.endswith("`") else ""
    return f"{fence}{pad}{line}{pad}{fence}"


def _runs(text: str) -> Iterator[str]:
    return (match[0] for match in re.finditer("`+", text))


def _cell(value: object) -> str:
    """A value in a cell of a table, with nothing in it that Markdown or HTML would read."""
    text = f"{value:g}" if isinstance(value, float) else str(value)
    return re.sub(r"([\\`*_{}\[\]<>|#&])", r"\\\1", " ".join(text.split()))
