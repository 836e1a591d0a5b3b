"""GSM8K and MATH-500: word problems and competition problems, with the binary reward "format and answer"."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from motet.errors import UsageError
from motet.tasks.hub import hub_rows, parquet_rows
from motet.tasks.jsonl import read_rows
from motet.tasks.rewards import load_reward
from motet.tasks.table import TableTask
from motet.tasks.task import Message, Prompt, Split

INSTRUCTION: Final = "Please reason step by step, and put your final answer within \\boxed{}."
_SPLITS: Final[tuple[Split, ...]] = ("train", "test")
_ENDINGS: Final = (".parquet", ".jsonl", ".json")

Row = tuple[str, Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class _Source:
    """Where a data set is, and what its columns are called."""

    repo: str
    config: str | None
    splits: tuple[Split, ...]
    question: str


_SOURCES: Final[Mapping[str, _Source]] = {
    "gsm8k": _Source("openai/gsm8k", "main", ("train", "test"), "question"),
    "math500": _Source("HuggingFaceH4/MATH-500", None, ("test",), "problem"),
}
MATH_SETS: Final = tuple(_SOURCES)


def load_math_set(name: str, folder: str | None = None, *, timeout_s: float = 10.0) -> TableTask:
    r"""GSM8K or MATH-500. The reward is 1.0 if the completion has a \boxed{} whose content is the answer.

    Prompts are a chat of a system message with the instruction and a user message with the problem; `text` is both.

    Args:
        name: "gsm8k" or "math500".
        folder: local copy: parquet or JSON-lines files whose names begin with "train" and "test". Without it the hub.
        timeout_s: longest time to score one completion.

    Raises:
        UsageError: the folder, or a row, is not of the data set's form.
        EnvironmentFault: a package is missing, or the hub cannot be reached.
    """
    source = _SOURCES[name]
    reward = load_reward("boxed", timeout_s=timeout_s)
    rows = _from_hub(source) if folder is None else _from_folder(Path(folder), source)
    prompts: dict[Split, list[Prompt]] = {"train": [], "test": [], "ood": []}
    for split in _SPLITS:
        prompts[split] = [_prompt(name, f"{split}/{i}", row) for i, row in enumerate(rows.get(split, []))]
    tested = {prompt.text for prompt in prompts["test"]}
    kept = [prompt for prompt in prompts["train"] if prompt.text not in tested]
    prompts["train"] = [
        Prompt(f"train/{i}", prompt.text, prompt.answer, prompt.columns, prompt.messages)
        for i, prompt in enumerate(kept)
    ]
    return TableTask(name, prompts, reward=reward)


def gsm8k_answer(solution: str) -> str | None:
    """The number after the last "####", without thousands' commas; None without any.

    >>> gsm8k_answer("5 * 250 = <<5*250=1250>>1250\\n#### 1,250")
    '1250'
    """
    _, mark, answer = solution.rpartition("####")
    return answer.strip().replace(",", "") or None if mark else None


def _prompt(name: str, prompt_id: str, row: Row) -> Prompt:
    where, columns = row
    question = _text(where, columns, _SOURCES[name].question)
    answer: str | None = _text(where, columns, "answer")
    if name == "gsm8k":
        answer = gsm8k_answer(str(answer))
    if answer is None:
        raise UsageError(f"{where}: 'answer' has no number after ####, as gsm8k has", code="E-TASK-12")
    messages = (Message("system", INSTRUCTION), Message("user", question))
    return Prompt(prompt_id, f"{INSTRUCTION}\n\n{question}", answer, dict(columns), messages)


def _text(where: str, columns: Mapping[str, Any], key: str) -> str:
    value = columns.get(key)
    if isinstance(value, str) and value.strip():
        return value
    present = ", ".join(f"'{name}'" for name in columns) or "none"
    raise UsageError(f"{where}: '{key}' must be a text that is not empty; columns: {present}", code="E-TASK-12")


def _from_hub(source: _Source) -> dict[Split, list[Row]]:
    return {
        split: [
            (f"{source.repo} {split}[{i}]", row) for i, row in enumerate(hub_rows(source.repo, source.config, split))
        ]
        for split in source.splits
    }


def _from_folder(folder: Path, source: _Source) -> dict[Split, list[Row]]:
    if not folder.is_dir():
        raise UsageError(f"task.name: no folder {folder} (looked in {Path.cwd()})", code="E-TASK-12")
    inner = folder / (source.config or "data")
    places = [place for place in (folder, inner) if place.is_dir()]
    found = {split: _files(places, split) for split in _SPLITS}
    if not found["test"]:
        raise UsageError(
            f"task.name: {folder} has no file test*.parquet or test*.jsonl (looked in "
            f"{' and '.join(str(place) for place in places)})",
            code="E-TASK-12",
        )
    return {split: [row for file in files for row in _read(file)] for split, files in found.items()}


def _files(places: Sequence[Path], split: str) -> list[Path]:
    return sorted(
        path
        for place in places
        for path in place.iterdir()
        if path.name.startswith(split) and path.suffix in _ENDINGS and path.is_file()
    )


def _read(path: Path) -> list[Row]:
    if path.suffix == ".parquet":
        return [(f"{path}[{i}]", row) for i, row in enumerate(parquet_rows(path))]
    return list(read_rows(path, "name"))
