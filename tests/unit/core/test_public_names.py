"""Names and parameters that scripts outside the project call."""

from __future__ import annotations

import dataclasses
import inspect

import pytest

import motet.core
from motet.core import FtisLoss


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("group_advantages", "reward_B, group_B, *, scale='std'"),
        ("importance_weights", "logp_old_BT, logp_gen_BT, mask_BT, *, kind='truncated', cap=2.0, level='token'"),
        ("kl_gen_old", "logp_old_BT, logp_gen_BT, mask_BT, *, estimator='k3', reduction='sum'"),
        ("keep_mask", "advantage_B, kl_B, is_external_B, *, rule='either', kl_limit_nats=50.0"),
        (
            "ftis_loss",
            "logp_theta_BT, logp_old_BT, logp_gen_BT, mask_BT, advantage_B, is_external_B, *, epsilon=0.2, "
            "epsilon_high=None, weights='truncated', cap=2.0, level='token', rule='either', kl_limit_nats=50.0, "
            "kl_estimator='k3', kl_reduction='sum', denominator=None",
        ),
    ],
)
def test_signatures(name, parameters):
    signature = inspect.signature(getattr(motet.core, name))
    bare = [parameter.replace(annotation=inspect.Parameter.empty) for parameter in signature.parameters.values()]
    assert str(inspect.Signature(bare)) == f"({parameters})"


def test_fields_of_the_loss():
    names = [field.name for field in dataclasses.fields(FtisLoss)]
    assert names == ["loss", "keep_B", "weight_BT", "kl_B", "reason_B", "clipped_BT"]


def test_everything_exported_exists_and_is_documented():
    assert motet.core.__all__ == sorted(motet.core.__all__)
    for name in motet.core.__all__:
        member = getattr(motet.core, name)
        if inspect.isclass(member) or inspect.isfunction(member):
            assert member.__doc__, name
