"""Reading a chat from a data file."""

from __future__ import annotations

from collections.abc import Sequence

from motet.errors import UsageError
from motet.tasks.task import Message

_ROLES = ("system", "user", "assistant")


def read_messages(where: str, found: Sequence[object]) -> tuple[Message, ...]:
    """The chat that a list of {"role": ..., "content": ...} describes.

    Args:
        where: place of the list, for messages, such as "sums.jsonl:3: 'prompt'".
        found: the list.

    Raises:
        UsageError: it is empty, a message is of another form or role, or the last one is not the user's.

    >>> read_messages("a.jsonl:1: 'prompt'", [{"role": "user", "content": "1+1="}])
    (Message(role='user', content='1+1='),)
    """
    if not found:
        raise UsageError(f"{where} is an empty list of messages", code="E-TASK-04")
    messages = tuple(_message(f"{where}[{i}]", message, i) for i, message in enumerate(found))
    if messages[-1].role != "user":
        raise UsageError(
            f"{where} ends with a message of the role '{messages[-1].role}'; the last one must be the user's",
            code="E-TASK-04",
        )
    return messages


def _message(where: str, found: object, place: int) -> Message:
    if not isinstance(found, dict) or not isinstance(found.get("content"), str) or not found["content"]:
        raise UsageError(
            f'{where} is no message; write {{"role": "user", "content": "..."}} with a text that is not empty',
            code="E-TASK-04",
        )
    role = found.get("role")
    if role not in _ROLES:
        raise UsageError(f"{where} has the role {role!r}; allowed: {', '.join(_ROLES)}", code="E-TASK-04")
    if role == "system" and place:
        raise UsageError(f"{where} is a system message; only the first message may be one", code="E-TASK-04")
    return Message(role, found["content"])
