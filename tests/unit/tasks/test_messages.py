from __future__ import annotations

import pytest

from motet.errors import UsageError
from motet.tasks.messages import read_messages

USER = {"role": "user", "content": "q"}
SYSTEM = {"role": "system", "content": "s"}
ASSISTANT = {"role": "assistant", "content": "a"}


def test_several_turns_are_kept_in_order():
    found = read_messages("here", [SYSTEM, USER, ASSISTANT, {**USER, "content": "q2"}])
    assert [message.role for message in found] == ["system", "user", "assistant", "user"]
    assert found[-1].content == "q2"


@pytest.mark.parametrize(
    ("found", "words"),
    [
        ([], "^here is an empty list of messages$"),
        ([USER, ASSISTANT], "^here ends with a message of the role 'assistant'; the last one must be the user's$"),
        ([USER, SYSTEM, USER], r"^here\[1\] is a system message; only the first"),
        (
            [{"role": "tool", "content": "x"}, USER],
            r"^here\[0\] has the role 'tool'; allowed: system, user, assistant$",
        ),
        ([{"content": "x"}], r"^here\[0\] has the role None"),
        ([{"role": ["user"], "content": "x"}], r"^here\[0\] has the role \['user'\]"),
        ([{"role": "user", "content": ""}], r"^here\[0\] is no message"),
        ([{"role": "user", "content": [{"type": "text", "text": "q"}]}], r"^here\[0\] is no message"),
        (["q"], r"^here\[0\] is no message"),
    ],
)
def test_what_is_no_chat_is_named(found, words):
    with pytest.raises(UsageError, match=words) as caught:
        read_messages("here", found)
    assert caught.value.code == "E-TASK-04"
