"""Text of strangers (names, reasons, messages), made harmless for a terminal and for lines of key=value."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

_BARE = re.compile(r"[A-Za-z0-9_.:,;/@%+*#()\[\]-]+")


def plain(text: str, most: int = 200) -> str:
    r"""The text on one line, without anything that steers a terminal, and no longer than `most` characters.

    >>> plain("bob\x1b[2J\nkim"), plain("[red]x[/red]"), plain("abcdef", most=4)
    ('bob?[2J?kim', '[red]x[/red]', 'abc~')
    """
    shown = "".join(char if char.isprintable() else "?" for char in text[: most + 1])
    return shown if len(shown) <= most else f"{shown[: most - 1]}~"


def pairs(values: Mapping[str, object]) -> str:
    r"""One line of key=value; None and empty text are left out, and what is more than one word is quoted.

    >>> pairs({"node": "bob", "round": 3, "lag": None, "why": "no route\nto host"})
    'node=bob round=3 why="no route?to host"'
    """
    return " ".join(f"{key}={_value(value)}" for key, value in values.items() if value is not None and value != "")


def _value(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    text = plain(str(value))
    return text if _BARE.fullmatch(text) else json.dumps(text)
