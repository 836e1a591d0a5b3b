from __future__ import annotations

import re

import pytest

from motet.journal import METRICS, known, metrics_table_markdown

# Journals of earlier runs and people's plots use these names: a name may be added, none may go.
NAMES = [
    "accuracy/ood",
    "accuracy/ood/cut_share",
    "accuracy/ood/format_failures",
    "accuracy/ood/num_prompts",
    "accuracy/ood/reward_mean",
    "accuracy/ood/se",
    "accuracy/ood_greedy",
    "accuracy/ood_greedy/cut_share",
    "accuracy/ood_greedy/format_failures",
    "accuracy/ood_greedy/num_prompts",
    "accuracy/ood_greedy/reward_mean",
    "accuracy/ood_greedy/se",
    "accuracy/test",
    "accuracy/test/cut_share",
    "accuracy/test/format_failures",
    "accuracy/test/num_prompts",
    "accuracy/test/reward_mean",
    "accuracy/test/se",
    "accuracy/test_greedy",
    "accuracy/test_greedy/cut_share",
    "accuracy/test_greedy/format_failures",
    "accuracy/test_greedy/num_prompts",
    "accuracy/test_greedy/reward_mean",
    "accuracy/test_greedy/se",
    "admission/late",
    "admission/length_ratio",
    "admission/quarantined",
    "admission/refused",
    "admission/refused/<reason>",
    "admission/rejected",
    "admission/rejected/<reason>",
    "admission/reward_mismatches",
    "admission/strikes",
    "clip/share",
    "completion/cut_share",
    "completion/length_mean",
    "external/groups",
    "external/influence_max",
    "external/influence_scale",
    "external/influence_share",
    "filter/dropped/advantage",
    "filter/dropped/advantage_and_kl",
    "filter/dropped/kl",
    "filter/dropped/non_finite",
    "filter/dropped/rule",
    "filter/dropped_share",
    "group/zero_variance_share",
    "kl_gen_old/sum_p50",
    "kl_gen_old/sum_p95",
    "kl_gen_old/token_mean",
    "loss/value",
    "optim/grad_norm",
    "optim/learning_rate",
    "optim/skipped",
    "own/completions",
    "own/groups",
    "own/unscored",
    "reward/external_mean",
    "reward/mean",
    "reward/own_mean",
    "samples/backward",
    "self_check/logp_gap_max",
    "self_check/logp_gap_mean",
    "self_check/non_finite_share",
    "self_check/weight_mean",
    "time/admit_s",
    "time/evaluate_s",
    "time/generate_s",
    "time/idle_s",
    "time/idle_share",
    "time/learn_s",
    "time/publish_s",
    "time/top_up_s",
    "time/wait_s",
    "weight/capped_share",
    "weight/effective_sample_size",
    "weight/mean_before_cap",
    "wire/bytes_per_token",
    "wire/bytes_received",
    "wire/bytes_sent",
    "wire/tokens_sent",
]


def test_the_names_are_pinned() -> None:
    assert sorted(metric.name for metric in METRICS) == sorted(NAMES)


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_every_metric_is_described(metric: object) -> None:
    name, unit, meaning, healthy = (getattr(metric, key) for key in ("name", "unit", "meaning", "healthy"))
    assert re.fullmatch(r"[a-z_]+(/[a-z_0-9]+)+(/<reason>)?", name)
    assert unit
    assert len(meaning) > 10
    assert "\n" not in meaning + healthy
    assert known(name)


def test_known() -> None:
    assert known("admission/rejected/bad_token")
    for name in ("", "reward", "reward/men", "admission/rejected/", "admission/rejected/a/b", "filter/dropped/new"):
        assert not known(name)


def test_the_table_has_four_cells_in_every_row() -> None:
    lines = metrics_table_markdown().splitlines()
    assert len(lines) == len(METRICS) + 2
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in lines} == {5}
    assert lines[2].startswith("| `accuracy/test` | share | ")
