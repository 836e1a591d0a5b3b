"""Every procedural task of reasoning-gym, with its own scorer. The only file that imports reasoning-gym."""

from __future__ import annotations

import dataclasses
import difflib
import json
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from importlib.metadata import version
from typing import Any, Final, Literal, cast, get_args

from motet.errors import EnvironmentFault, UsageError
from motet.tasks.faults import Fault, call_own_code
from motet.tasks.numbers import last_number, last_number_text
from motet.tasks.prompt_id import parse_prompt_id
from motet.tasks.task import Prompt, Score, Split

AnswerFrom = Literal["auto", "tag", "last_number", "text"]
_OURS: Final = ("answer", "exact")
_SIZE: Final = 20_000
_SIZES: Final = {"acre": 1_000}  # makes all of its questions at once
_HELD_OUT_KEY: Final = b"motet gym held out"
_MAX_DRAWS: Final = 200
_TAG: Final = re.compile(r"<answer>\s*(.*?)\s*</answer>", re.DOTALL)
_NUMBER: Final = re.compile(r"-?[0-9]+(\.[0-9]+)?")


class GymTask:
    """A task of reasoning-gym; implements `Task`.

    A question is held out iff a keyed hash of its text falls into a fixed fifth, the same for all of these tasks, so
    that nothing is trained on that any of them tests.

    The reward is the one of reasoning-gym, which for many tasks gives a part for an answer that is not right; the part
    "answer" is 1.0 if it gives 1, else 0.0. Such parts can be gamed: for chain_sum "-10" earns a third where 1 is
    right, because the digit is in it, and a model learns to write more digits. `exact` gives 1 or 0 only.

    Args:
        name: of the task, such as "chain_sum".
        arguments: parameters of the task, as reasoning-gym names them; `exact`, which is False by default; and
            `answer`, which says what of a completion is the answer: "tag", what stands in <answer></answer>;
            "last_number"; "text", all of it; "auto" (the default), the tag if there is one, else the last number if
            the right answer is a number, else all of it.

    Raises:
        UsageError: no such task, an argument that it does not have or allow, or too few different questions.
        EnvironmentFault: reasoning-gym is not installed.
    """

    def __init__(self, name: str, arguments: Mapping[str, Any]) -> None:
        options = dict(arguments)
        self._answer_from = _answer_from(options.pop("answer", "auto"))
        self._exact = _exact(options.pop("exact", False))
        size = options.pop("size", _SIZES.get(name, _SIZE))
        if not isinstance(size, int) or isinstance(size, bool) or size < 5:
            raise UsageError(f"task.arguments.size: got {size!r}; allowed: 5 and more", code="E-TASK-08")
        self._name = name
        self._dataset, settings = _make(name, {"seed": 0, **options, "size": size})
        self._size = size
        self._sizes: dict[Split, int] = {"train": size - size // 5, "test": size // 5, "ood": 0}
        scorer = f"{self._answer_from}{' exact' if self._exact else ''}"
        self._fingerprint = blake2b(f"gym/1 {scorer} {settings}".encode(), digest_size=16).hexdigest()
        self._entry = lru_cache(maxsize=4096)(self._find)
        for split in ("train", "test"):
            self._entry(f"{split}/0")

    @property
    def name(self) -> str:
        """Name for reports."""
        return f"gym:{self._name}"

    @property
    def fingerprint(self) -> str:
        """Hex digest of the settings, and of the versions of reasoning-gym and of this task."""
        return self._fingerprint

    def num_prompts(self, split: Split) -> int:
        """Prompts of a split; the same question may stand under several ids where there are few different ones."""
        return self._sizes[split]

    def prompt(self, prompt_id: str) -> Prompt:
        """The question with this id.

        Raises:
            KeyError: no such id.
            UsageError: too few different questions.
        """
        entry = self._entry(prompt_id)
        return Prompt(prompt_id, entry["question"], _reference(entry), {"metadata": entry["metadata"]})

    def score(self, prompt: Prompt, completions: Sequence[str]) -> list[Score | None]:
        """What reasoning-gym gives the answer found in each completion.

        Raises:
            Exception: whatever its scorer raises, as some do for answers of another form; `load_task` catches that.
        """
        entry = self._entry(prompt.id)
        return [self._score(entry, completion) for completion in completions]

    def _score(self, entry: dict[str, Any], completion: str) -> Score:
        answer = extract_answer(completion, _reference(entry), self._answer_from)
        value = 0.0 if answer is None else float(self._dataset.score_answer(answer, entry))
        right = float(value >= 1.0)
        return Score(right if self._exact else value, parts={"answer": right}, extracted=answer)

    def _find(self, prompt_id: str) -> dict[str, Any]:
        split, index = parse_prompt_id(prompt_id, self.num_prompts)
        if split == "test":
            index += self._sizes["train"]
        for draw in range(_MAX_DRAWS):
            entry = self._dataset[index]
            if _is_held_out(entry["question"]) == (split == "test"):
                return cast(dict[str, Any], entry)
            seed = f"{self._name}/{prompt_id}/{draw}".encode()
            index = int.from_bytes(blake2b(seed, digest_size=8).digest(), "big") % self._size
        where = "held out" if split == "test" else "to train on"
        raise UsageError(
            f"task.name: {self.name} has too few different questions: none {where} in {_MAX_DRAWS} draws; "
            "widen its task.arguments",
            code="E-TASK-08",
        )


def extract_answer(completion: str, reference: str, answer_from: AnswerFrom = "auto") -> str | None:
    """The answer that a completion gives, or None if it gives none.

    >>> extract_answer("I think <answer>7</answer>", "7"), extract_answer("7 + 5 = 12.", "11")
    ('7', '12')
    >>> extract_answer(" north ", "south")
    'north'
    """
    tags = _TAG.findall(completion) if answer_from in ("auto", "tag") else []
    if tags:
        return str(tags[-1])
    if answer_from == "tag":
        return None
    if answer_from == "text" or (answer_from == "auto" and not _NUMBER.fullmatch(reference.strip())):
        return completion.strip()
    number = last_number(completion)
    is_whole = number is not None and number.denominator == 1 and "." not in reference
    return str(number) if is_whole else last_number_text(completion)


def _reference(entry: Mapping[str, Any]) -> str:
    return "" if entry["answer"] is None else str(entry["answer"])


def _answer_from(value: object) -> AnswerFrom:
    if value in get_args(AnswerFrom):
        return cast(AnswerFrom, value)
    allowed = ", ".join(f'"{name}"' for name in get_args(AnswerFrom))
    raise UsageError(f"task.arguments.answer: got {value!r}; allowed: {allowed}", code="E-TASK-08")


def _exact(value: object) -> bool:
    if isinstance(value, bool):
        return value
    raise UsageError(f"task.arguments.exact: got {value!r}; allowed: true, false", code="E-TASK-08")


def _is_held_out(question: str) -> bool:
    digest = blake2b(question.encode(), digest_size=8, key=_HELD_OUT_KEY).digest()
    return int.from_bytes(digest, "big") % 5 == 0


def _make(name: str, options: dict[str, Any]) -> tuple[Any, str]:
    """The dataset of reasoning-gym, and what decides it."""
    try:
        from reasoning_gym.composite import DatasetSpec
        from reasoning_gym.factory import DATASETS
    except ImportError as error:
        raise EnvironmentFault(
            f"task.name: gym:{name} needs reasoning-gym, which is not installed: pip install 'motet[tasks]'",
            code="E-TASK-07",
        ) from error
    if name not in DATASETS:
        nearest = difflib.get_close_matches(name, DATASETS, n=3, cutoff=0.5)
        hint = f"; nearest: {', '.join(nearest)}" if nearest else ""
        raise UsageError(
            f'task.name: reasoning-gym has no task "{name}"{hint}; it has {len(DATASETS)}', code="E-TASK-01"
        )
    dataset_class, config_class = DATASETS[name]
    allowed = [field.name for field in dataclasses.fields(config_class)]
    for key in options:
        if key not in allowed:
            nearest = difflib.get_close_matches(key, allowed, n=1)
            hint = f'did you mean "{nearest[0]}"? ' if nearest else ""
            raise UsageError(
                f"task.arguments.{key}: gym:{name} has no such argument; {hint}allowed: "
                f"{', '.join(sorted([*allowed, *_OURS]))}",
                code="E-TASK-08",
            )
    specs = options.get("datasets", ()) if name == "composite" else None

    def make_config() -> Any:
        more = {} if specs is None else {"datasets": [DatasetSpec(**spec) for spec in specs]}
        return config_class(**{**options, **more})

    config = call_own_code(make_config)
    dataset = config if isinstance(config, Fault) else call_own_code(lambda: dataset_class(config=config))
    if isinstance(dataset, Fault):
        raise UsageError(f"task.arguments: gym:{name} refuses them: {dataset.line}", code="E-TASK-08")
    settings = json.dumps(dataclasses.asdict(cast(Any, config)), sort_keys=True, default=repr)
    return dataset, f"{name} {settings} reasoning-gym {version('reasoning-gym')}"
