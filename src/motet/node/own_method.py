"""Weights and rules that users bring: loaded, tried on two completions, and called so that a fault is one line."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor

from motet.core import Rule, RuleFunction, WeightFunction, WeightKind, importance_weights, keep_mask
from motet.core.own_functions import require_keeps, require_weights
from motet.errors import UsageError
from motet.tasks.faults import Fault, call_own_code
from motet.tasks.own_code import load_own

_ROWS = (slice(0, 1), slice(1, 2))


class OwnFunction:
    """A function of the user's, called in `motet.core` as any other.

    Args:
        spec: "module:function" or "file.py:function".
        setting: key of the run file, for messages.
        require: raises ValueError for a result that is none, of (result, the last or the first argument, name).
        like: which argument the result must be like.

    Raises:
        UsageError: E-METHOD-01 if it cannot be loaded; E-METHOD-02 from a call that raises or returns something wrong.
    """

    def __init__(self, spec: str, *, setting: str, require: Callable[..., None], like: int) -> None:
        self.__name__ = spec
        self._setting = setting
        self._function: Callable[..., Any] = load_own(spec, setting=setting, code="E-METHOD-01")
        self._require = require
        self._like = like

    def __call__(self, *given: Tensor) -> Tensor:
        """What the function returns."""
        like = given[self._like].clone()  # the function may change what it is given
        outcome = call_own_code(partial(self._function, *given))
        if isinstance(outcome, Fault):
            raise self.error(f"{self.__name__} failed: {outcome.line}")
        try:
            self._require(outcome, like, name=self.__name__)
        except ValueError as error:
            raise self.error(str(error)) from None
        return cast(Tensor, outcome)

    def error(self, what: str) -> UsageError:
        """What is wrong with it."""
        return UsageError(f"{self._setting}: {what}", code="E-METHOD-02")

    def require_steady(self, both: Tensor, alone: Tensor) -> None:
        """Refuse a function that says something else of two completions than of each alone."""
        if not torch.allclose(both.double(), alone.double(), rtol=1e-4, atol=1e-6):
            raise self.error(
                f"{self.__name__} says of two completions together something else than of each alone; it is called on "
                "parts of a batch, so its word on one must not depend on the others, nor change from call to call"
            )


def weights_of(name: str) -> WeightKind | WeightFunction:
    """The weights that `method.weights` names, tried if they are the user's.

    Raises:
        UsageError: E-METHOD-01, E-METHOD-02.
    """
    if ":" not in name:
        return cast(WeightKind, name)
    own = OwnFunction(name, setting="method.weights", require=require_weights, like=2)
    logp_old_BT = torch.tensor([[-0.5, -1.0, -2.5], [-2.0, -0.1, 0.0]])
    logp_gen_BT = torch.tensor([[-0.7, -0.2, -4.0], [-1.0, -0.1, 0.0]])
    given = logp_old_BT, logp_gen_BT, torch.tensor([[True, True, True], [True, True, False]])
    both_BT = importance_weights(*given, kind=own)
    alone = [importance_weights(*(tensor[row] for tensor in given), kind=own) for row in _ROWS]
    own.require_steady(both_BT, torch.cat(alone))
    return own


def rule_of(name: str) -> Rule | RuleFunction:
    """The filter that `method.rule` names, tried if it is the user's.

    Raises:
        UsageError: E-METHOD-01, E-METHOD-02.
    """
    if ":" not in name:
        return cast(Rule, name)
    own = OwnFunction(name, setting="method.rule", require=require_keeps, like=0)
    given = torch.tensor([1.0, -1.0]), torch.tensor([0.5, 80.0]), torch.tensor([True, True])
    both_B = keep_mask(*given, rule=own)
    own.require_steady(both_B, torch.cat([keep_mask(*(tensor[row] for tensor in given), rule=own) for row in _ROWS]))
    return own
