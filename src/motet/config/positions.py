"""On which line of a TOML text each key stands. `tomllib` does not say, and an error message needs it."""

from __future__ import annotations

import re
import tomllib
from bisect import bisect_right

Loc = tuple[str | int, ...]
"""Place of a value in a parsed file: ("node", 1, "model")."""

_BLANK = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_KEY = re.compile(r"""(?:"(?:[^"\\]|\\.)*"|'[^']*'|[^"'=\]])*""")
_STRING = re.compile(
    r'"""(?:[^\\]|\\.)*?"""(?:"{1,2})?'  # up to two quotes may precede the closing three
    r"|'''.*?'''(?:'{1,2})?"
    r'|"(?:[^"\\]|\\.)*"'
    r"|'[^']*'",
    re.DOTALL,
)
_SCALAR = re.compile(r"[^,\]}#\n]*")


def key_lines(text: str) -> dict[Loc, int]:
    r"""Line (from 1) of every key, table header and list element of a text that `tomllib` accepts.

    >>> key_lines('run = { seed = 7 }\n[[node]]\nname = "a"')[("node", 0, "name")]
    3
    """
    return _Scanner(text).scan()


class _Scanner:
    """Walks over valid TOML once, looking at keys and skipping values."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._pos = 0
        self._newlines = [match.start() for match in re.finditer("\n", text)]
        self._lines: dict[Loc, int] = {}
        self._num_tables: dict[Loc, int] = {}  # per array of tables, how many have been opened

    def scan(self) -> dict[Loc, int]:
        """The lines of the whole text."""
        table: Loc = ()
        self._take(_BLANK)
        while self._pos < len(self._text):
            if self._text[self._pos] == "[":
                table = self._header()
            else:
                self._pair(table)
            self._take(_BLANK)
        return self._lines

    def _take(self, pattern: re.Pattern[str]) -> str:
        match = pattern.match(self._text, self._pos)
        taken = match.group() if match else ""
        self._pos += len(taken)
        return taken

    def _note(self, loc: Loc, start: int) -> None:
        self._lines.setdefault(loc, bisect_right(self._newlines, start) + 1)

    def _key(self) -> list[str]:
        inner: object = tomllib.loads(self._take(_KEY) + "= 0")
        parts = []
        while isinstance(inner, dict):
            part, inner = next(iter(inner.items()))
            parts.append(part)
        return parts

    def _header(self) -> Loc:
        start = self._pos
        brackets = 2 if self._text.startswith("[[", start) else 1
        self._pos += brackets
        parts = self._key()
        self._pos += brackets
        loc: Loc = ()
        for depth, part in enumerate(parts, start=1):
            loc = (*loc, part)
            self._note(loc, start)
            if brackets == 2 and depth == len(parts):
                self._num_tables[loc] = self._num_tables.get(loc, 0) + 1
            if loc in self._num_tables:
                loc = (*loc, self._num_tables[loc] - 1)
                self._note(loc, start)
        return loc

    def _pair(self, table: Loc) -> None:
        start = self._pos
        loc = table
        for part in self._key():
            loc = (*loc, part)
            self._note(loc, start)
        self._pos += 1  # the equals sign
        self._take(_BLANK)
        self._value(loc)

    def _value(self, loc: Loc) -> None:
        opening = self._text[self._pos]
        if opening not in "[{":
            self._take(_STRING if opening in "\"'" else _SCALAR)
            return
        self._pos += 1
        self._take(_BLANK)
        index = 0
        while self._text[self._pos] not in "]}":
            if opening == "{":
                self._pair(loc)
            else:
                self._note((*loc, index), self._pos)
                self._value((*loc, index))
                index += 1
            self._take(_BLANK)
            if self._text[self._pos] == ",":
                self._pos += 1
                self._take(_BLANK)
        self._pos += 1
