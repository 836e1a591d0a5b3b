"""Functions of the user's for the method: loaded, tried, and refused in one line."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from motet.errors import UsageError
from motet.node.own_method import rule_of, weights_of

GOOD = """
import torch

def weights(old, gen, mask):
    return (old - gen).exp().clamp(max=3.0) * mask

def near(advantage, kl, is_external):
    return kl < 5.0
"""


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A method file in the current folder, and its path."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "mine.py"
    path.write_text(GOOD, encoding="utf-8")
    return path


def test_words_of_ours_stay_words() -> None:
    assert (weights_of("vanilla"), rule_of("both")) == ("vanilla", "both")


def test_functions_are_loaded(mine: Path) -> None:
    weights, rule = weights_of("mine.py:weights"), rule_of(f"{mine}:near")
    assert not isinstance(weights, str)
    assert not isinstance(rule, str)
    assert weights(torch.tensor([[0.0]]), torch.tensor([[0.0]]), torch.tensor([[True]])).tolist() == [[1.0]]
    assert rule(torch.ones(2), torch.tensor([4.0, 6.0]), torch.tensor([True, True])).tolist() == [True, False]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("return old - gen.sum(dim=1)", r"mine\.py:f failed: RuntimeError: The size of .* \(mine\.py:4\)"),
        ("return old.sum(dim=1)", r"mine\.py:f returned shape \(2,\); a weight needs \(2, 3\)"),
        ("return mask / 0", r"mine\.py:f returned a weight that is not finite"),
        ("return mask / mask.sum()", r"mine\.py:f says of two completions together something else than of each alone"),
        ("return torch.rand(old.shape)", r"mine\.py:f says of two .*, nor change from call to call"),
        ("return mask.nothing()", r"mine\.py:f failed: AttributeError: .* \(mine\.py:4\)$"),
        ("raise SystemExit(3)", r"mine\.py:f failed: SystemExit: 3 \(mine\.py:4\)"),
    ],
)
def test_weights_that_do_not_work(mine: Path, body: str, words: str) -> None:
    mine.write_text(f"import torch\n\ndef f(old, gen, mask):\n    {body}\n", encoding="utf-8")
    with pytest.raises(UsageError, match=f"^method.weights: {words}") as caught:
        weights_of("mine.py:f")
    assert caught.value.code == "E-METHOD-02"
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("return advantage", r"mine\.py:f returned torch\.float32; a rule needs torch\.bool"),
        ("return advantage >= advantage.max()", r"mine\.py:f says of two completions together something else"),
        ("return kl < LIMIT", r"mine\.py:f failed: NameError: name 'LIMIT' is not defined \(mine\.py:4\)"),
    ],
)
def test_a_rule_that_does_not_work(mine: Path, body: str, words: str) -> None:
    mine.write_text(f"import torch\n\ndef f(advantage, kl, is_external):\n    {body}\n", encoding="utf-8")
    with pytest.raises(UsageError, match=f"^method.rule: {words}") as caught:
        rule_of("mine.py:f")
    assert caught.value.code == "E-METHOD-02"


def test_what_fails_later_fails_in_one_line_too(mine: Path) -> None:
    mine.write_text("def f(old, gen, mask):\n    return mask.float() if len(old) < 3 else None\n", encoding="utf-8")
    weights = weights_of("mine.py:f")
    assert not isinstance(weights, str)
    with pytest.raises(UsageError, match=r"^method\.weights: mine\.py:f returned NoneType") as caught:
        weights(torch.zeros(3, 1), torch.zeros(3, 1), torch.ones(3, 1, dtype=torch.bool))
    assert caught.value.code == "E-METHOD-02"


@pytest.mark.usefixtures("mine")
@pytest.mark.parametrize(
    ("spec", "words"), [("mine.py:nears", "it has: near, weights"), ("none.py:f", "no file none.py")]
)
def test_what_cannot_be_loaded(spec: str, words: str) -> None:
    with pytest.raises(UsageError, match=f"^method.rule: .*{words}") as caught:
        rule_of(spec)
    assert caught.value.code == "E-METHOD-01"
