from __future__ import annotations

import pytest
import torch

from motet.core import group_advantages, importance_weights, keep_mask, kl_gen_old

X = torch.zeros(1, 1)
X_B = torch.zeros(1)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: group_advantages(X_B, X_B.long(), scale="mad"), "scale is 'mad'; allowed: 'std', 'none'"),
        (lambda: importance_weights(X, X, X, kind="tis"), "kind is 'tis'; allowed: 'none', 'vanilla', 'truncated'"),
        (lambda: importance_weights(X, X, X, level="word"), "level is 'word'; allowed: 'token', 'sequence'"),
        (lambda: kl_gen_old(X, X, X, estimator="k4"), "estimator is 'k4'; allowed: 'k1', 'k2', 'k3'"),
        (lambda: kl_gen_old(X, X, X, reduction="max"), "reduction is 'max'; allowed: 'sum', 'mean'"),
        (lambda: keep_mask(X_B, X_B, X_B, rule="and"), "rule is 'and'; allowed: 'either', 'both', 'off'"),
    ],
)
def test_an_unknown_option_is_named_with_what_is_allowed(call, words):
    with pytest.raises(ValueError, match=words):
        call()
