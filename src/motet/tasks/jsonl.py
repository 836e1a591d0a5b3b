"""Any JSON-lines file of prompts and answers as a task."""

from __future__ import annotations

import difflib
import json
from pathlib import Path
from typing import Any

from motet.errors import UsageError
from motet.tasks.messages import read_messages
from motet.tasks.rewards import RewardFunction, load_reward
from motet.tasks.table import TableTask
from motet.tasks.task import SPLITS, Message, Prompt, Split

PROMPT_COLUMNS = ("prompt", "question", "problem")
ANSWER_COLUMNS = ("answer", "solution", "target")
_HELD_OUT_EVERY = 10

Row = tuple[str, dict[str, Any]]
Item = tuple[str, str, dict[str, Any], tuple[Message, ...]]


class JsonLinesTask(TableTask):
    """Prompts and answers from JSON lines, one object a line; implements `Task`.

    A prompt is a text, or a chat: a list of messages {"role": ..., "content": ...} that ends with the user's.

    Without `test_file` every tenth line of `file` is held out (of fewer than ten, the last). A training line whose
    prompt is also held out is left out of training.

    Args:
        file: the training prompts.
        test_file: held-out prompts.
        ood_file: out-of-distribution prompts; without it that split is empty.
        prompt_column: key of the prompt. Without it: prompt, question or problem, whichever the file has.
        answer_column: key of the answer. Without it: answer, solution or target, whichever the file has.
        reward: a reward, or what `load_reward` takes; it is tried on two rows at once.
        score_timeout_s: longest time to score one completion, where `load_reward` has a process of its own for it.

    Attributes:
        reward: the reward function.
        num_left_out: training lines left out because their prompt is held out.

    Raises:
        UsageError: a file, a line, a column or the reward is wrong; the message says where and what to set.
    """

    def __init__(
        self,
        file: str | Path,
        *,
        test_file: str | Path | None = None,
        ood_file: str | Path | None = None,
        prompt_column: str | None = None,
        answer_column: str | None = None,
        reward: str | RewardFunction = "exact",
        score_timeout_s: float = 10.0,
    ) -> None:
        reward = load_reward(reward, timeout_s=score_timeout_s) if isinstance(reward, str) else reward
        rows = {"train": read_rows(Path(file), "name")}
        rows["ood"] = read_rows(Path(ood_file), "ood_file") if ood_file is not None else []
        if test_file is not None:
            rows["test"] = read_rows(Path(test_file), "test_file")
        else:
            rows["train"], rows["test"] = _hold_out(rows["train"], Path(file))
        columns = _Columns(prompt_column, answer_column, reward)
        read = {split: [columns.read(where, row) for where, row in rows[split]] for split in SPLITS}
        held_out = {_asked(item) for split in ("test", "ood") for item in read[split]}
        train = [item for item in read["train"] if _asked(item) not in held_out]
        self.num_left_out = len(read["train"]) - len(train)
        if not train:
            raise UsageError(f"{file}: every training prompt is also held out; none is left", code="E-TASK-05")
        read["train"] = train
        prompts: dict[Split, list[Prompt]] = {
            split: [Prompt(f"{split}/{i}", *item) for i, item in enumerate(read[split])] for split in SPLITS
        }
        reward.check(prompts["train"])
        super().__init__(Path(file).stem, prompts, reward=reward)


class _Columns:
    """Finds prompt and answer in rows."""

    def __init__(self, prompt_column: str | None, answer_column: str | None, reward: RewardFunction) -> None:
        self._prompt_column = prompt_column
        self._answer_column = answer_column
        self._reward = reward

    def read(self, where: str, row: dict[str, Any]) -> Item:
        """Text, answer, all columns and messages of a row. Raises `UsageError` naming the line."""
        key = self._find(where, row, "prompt", self._prompt_column, PROMPT_COLUMNS)
        text = row[key]
        messages = read_messages(f"{where}: '{key}'", text) if isinstance(text, list) else ()
        text = messages[-1].content if messages else text
        if not isinstance(text, str) or not text:
            raise UsageError(f"{where}: '{key}' must be a text that is not empty", code="E-TASK-04")
        answer = self._answer(where, row)
        contents = [(key, message.content) for message in messages]
        for name, value in (*contents, (key, text), ("answer", answer)):
            if any("\ud800" <= char <= "\udfff" for char in value):
                raise UsageError(
                    f"{where}: '{name}' holds half of a surrogate pair, which is no text", code="E-TASK-04"
                )
        return text, answer, row, messages

    def _answer(self, where: str, row: dict[str, Any]) -> str:
        is_optional = not self._reward.needs_answer and self._answer_column is None
        if is_optional and not any(name in row for name in ANSWER_COLUMNS):
            return ""
        key = self._find(where, row, "answer", self._answer_column, ANSWER_COLUMNS)
        value = row[key]
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            if is_optional:
                return ""
            raise UsageError(f"{where}: '{key}' must be a text or a number", code="E-TASK-04")
        problem = self._reward.problem_with(str(value))
        if problem is not None:
            raise UsageError(f"{where}: '{key}' {problem}, which the reward compares", code="E-TASK-04")
        return str(value)

    def _find(
        self, where: str, row: dict[str, Any], what: str, setting: str | None, candidates: tuple[str, ...]
    ) -> str:
        for name in (setting,) if setting is not None else candidates:
            if name in row:
                return name
        present = ", ".join(f"'{name}'" for name in row) or "none"
        wanted = f"'{setting}'" if setting is not None else " or ".join(f"'{name}'" for name in candidates)
        nearest = difflib.get_close_matches(setting or what, row, n=1, cutoff=0.4) or list(row)[:1]
        example = f', such as task.{what}_column = "{nearest[0]}"' if nearest else ""
        raise UsageError(
            f"{where}: no column {wanted} for the {what}; columns present: {present}. Set task.{what}_column{example}",
            code="E-TASK-04",
        )


def _asked(item: Item) -> tuple[str, tuple[Message, ...]]:
    return item[0], item[3]


def read_rows(path: Path, setting: str) -> list[Row]:
    """Every row of a JSON-lines file with its place, "file:line".

    Raises:
        UsageError: the file cannot be read, is empty, or a line is no JSON object; `setting` is the key to name.
    """
    try:
        lines = path.read_bytes().removeprefix(b"\xef\xbb\xbf").split(b"\n")
    except OSError as error:
        raise UsageError(f"task.{setting}: cannot read {path}: {error.strerror}", code="E-TASK-02") from error
    rows: list[Row] = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        where = f"{path}:{number}"
        try:
            row = json.loads(line.decode("utf-8"))
        except UnicodeDecodeError as error:
            raise UsageError(f"{where}: is not UTF-8 (byte {error.start + 1} of the line)", code="E-TASK-03") from error
        except (ValueError, RecursionError) as error:
            raise UsageError(f"{where}: is not JSON: {error}; write one object a line", code="E-TASK-03") from error
        if not isinstance(row, dict):
            raise UsageError(f"{where}: is a JSON {type(row).__name__}; write one object a line", code="E-TASK-03")
        rows.append((where, row))
    if not rows:
        raise UsageError(f"task.{setting}: {path} has no lines", code="E-TASK-05")
    return rows


def _hold_out(rows: list[Row], path: Path) -> tuple[list[Row], list[Row]]:
    if len(rows) == 1:
        raise UsageError(
            f"{path}: has one line, so none can be held out; add lines or set task.test_file", code="E-TASK-05"
        )
    held_out = set(range(_HELD_OUT_EVERY - 1, len(rows), _HELD_OUT_EVERY)) or {len(rows) - 1}
    train = [row for i, row in enumerate(rows) if i not in held_out]
    return train, [rows[i] for i in sorted(held_out)]
