"""The same held-out prompts answered before training and at the end, for reading."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from motet.journal import RunDir, read_jsonl
from motet.reports.run_view import RunView

MAX_PROMPTS = 6
"""Prompts shown of each split."""
_LONGEST = 240  # characters of a text that are shown


@dataclass(frozen=True, slots=True)
class Answer:
    """One completion: its text, cut if it is long, and its reward (None if it could not be scored)."""

    text: str
    reward: float | None


@dataclass(frozen=True, slots=True)
class SampleRow:
    """One prompt with a node's answers before training and at the last evaluation."""

    split: str
    prompt: str
    before: Answer
    after: Answer


def before_and_after(run: RunView, node: str) -> tuple[SampleRow, ...]:
    """Rows for the first prompts of each split; none if the run left no texts of two evaluations."""
    rows = [row for row in read_jsonl(RunDir(run.path).completions(node)) if isinstance(row.get("round"), int)]
    if not rows:
        return ()
    first, last = rows[0]["round"], max(row["round"] for row in rows)
    if first == last:
        return ()
    before, after = _by_prompt(rows, first), _by_prompt(rows, last)
    shown: dict[str, list[SampleRow]] = {}
    for key in before:
        split = key[0]
        if key in after and len(shown.setdefault(split, [])) < MAX_PROMPTS:
            prompt = _cut(before[key].get("prompt"))
            shown[split].append(SampleRow(split, prompt, _answer(before[key]), _answer(after[key])))
    return tuple(row for split in shown.values() for row in split)


def _by_prompt(rows: list[dict[str, Any]], round: int) -> dict[tuple[str, str], dict[str, Any]]:
    return {(str(row.get("split")), str(row.get("prompt_id"))): row for row in rows if row["round"] == round}


def _answer(row: dict[str, Any]) -> Answer:
    reward = row.get("reward")
    return Answer(_cut(row.get("completion")), float(reward) if isinstance(reward, (int, float)) else None)


def _cut(text: object) -> str:
    whole = text if isinstance(text, str) else ""
    return whole if len(whole) <= _LONGEST else whole[:_LONGEST] + "..."
