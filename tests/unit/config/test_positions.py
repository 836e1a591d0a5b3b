"""Lines of keys, checked against `tomllib`: in a generated text each leaf is a number that occurs once."""

from __future__ import annotations

import itertools
import re
import tomllib
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from motet.config.positions import Loc, key_lines

KEYS = ["a", "b-c", "D_1", "7", '"quoted key"', '"x # = ] y"', "'lit.eral'", '"e\\u0041\\""', '""']
NOISE = [
    '"""\nfake = 1\n[[fake]]\n"""',
    "'''\n# no ]\n''''",
    '"""ends in quotes"""""',
    '"a # b = [1] \\" c"',
    "'c:\\'",
    '""',
    "1979-05-27 07:32:00Z",
    "-1.5e-3",
    "true",
]
GAPS = ["", " ", "\n", "\n\n # ], } = [x]\n", "\t"]


def values(depth: int = 2) -> st.SearchStrategy[str]:
    """Text of a value; "@" stands where a number of its own will be put."""
    leaf = st.just("@") | st.sampled_from(NOISE)
    if depth == 0:
        return leaf
    inner = values(depth - 1)
    arrays = st.builds(
        lambda items, gap, comma: (
            f"[{gap}" + f"{gap},{gap}".join(items) + (f"{gap}," if comma and items else "") + f"{gap}]"
        ),
        st.lists(inner, max_size=3),
        st.sampled_from(GAPS),
        st.booleans(),
    )
    flat = st.lists(st.tuples(st.sampled_from(KEYS), inner), max_size=3, unique_by=lambda pair: pair[0])
    tables = flat.map(lambda pairs: "{ " + ", ".join(f"{key} = {value}" for key, value in pairs) + " }")
    return leaf | arrays | tables


def bodies() -> st.SearchStrategy[str]:
    """Text of some settings, some of them with dotted keys, some after comments and blank lines."""
    pairs = st.lists(
        st.tuples(st.sampled_from(KEYS), st.sampled_from(["", " . sub", ".'s u b'"]), values()), max_size=4
    )
    unique = pairs.map(lambda found: {key: (dots, value) for key, dots, value in found})
    between = st.sampled_from(["\n", "\n\n", "\n# [x] y = 1\n", " # = 3 [[\n", "\r\n"])
    return st.builds(
        lambda body, gap: gap + "".join(f"{key}{dots} = {value}{gap}" for key, (dots, value) in body.items()),
        unique,
        between,
    )


BODIES = bodies()


@st.composite
def texts(draw: st.DrawFn) -> str:
    parts = [draw(BODIES)]
    for index in range(draw(st.integers(0, 3))):
        name = draw(st.sampled_from([f"t{index}", f'"t {index}"', f"t{index}.deep", f" t{index} . 'de.ep' "]))
        if draw(st.booleans()):
            parts += [f"[{name}]", draw(BODIES)]
            continue
        for _ in range(draw(st.integers(1, 3))):
            parts += [f"[[{name}]]", draw(BODIES)]
            if draw(st.booleans()):
                parts += [f"  [{name}.below]", draw(BODIES)]
            for _ in range(draw(st.integers(0, 2))):
                parts += [f"[[{name}.many]] # ]", draw(BODIES)]
    numbers = itertools.count(100_001)
    return re.sub("@", lambda _: str(next(numbers)), "".join(parts))


def leaves(value: Any, loc: Loc = ()) -> Iterator[tuple[Loc, Any]]:
    yield loc, value
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in inner:
        yield from leaves(item, (*loc, key))


@given(texts())
@settings(max_examples=100, deadline=None)
def test_every_place_has_the_line_on_which_it_stands(text: str) -> None:
    places = dict(leaves(tomllib.loads(text)))
    lines = key_lines(text)
    assert set(lines) == set(places) - {()}
    rows = text.split("\n")
    numbers = {loc: value for loc, value in places.items() if isinstance(value, int) and value > 100_000}
    for loc, number in numbers.items():
        assert str(number) in rows[lines[loc] - 1]


@pytest.mark.parametrize(
    ("text", "loc", "line"),
    [
        ("a = 1", ("a",), 1),
        ("\n\n[run]\nname = 'x'\n", ("run",), 3),
        ("\n\n[run]\nname = 'x'\n", ("run", "name"), 4),
        ("run = { name = 'x', seed = 3 }", ("run", "seed"), 1),
        ("[[node]]\nname='a'\n[[node]]\nname='b'\n[node.lora]\nrank=3", ("node", 1, "lora", "rank"), 6),
        ("[[node]]\nname='a'\n[[node]]\nname='b'\n[node.lora]\nrank=3", ("node", 1), 3),
        ("run.name = 'x'\nrun.seed = 1", ("run", "seed"), 2),
        ("terms = [\n 1,\n 2,\n]\nz = 1", ("terms", 1), 3),
        ("terms = [\n 1,\n 2,\n]\nz = 1", ("z",), 5),
    ],
)
def test_by_hand(text: str, loc: Loc, line: int) -> None:
    assert key_lines(text)[loc] == line
