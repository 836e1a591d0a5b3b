"""Every metric that a run writes: name, unit, meaning, healthy range. The docs' table is generated from this one.

Names read `area/quantity[/stat]`. A name that ends in `/<reason>` stands for a family with one member per reason.
"own" is what the node itself sampled, "external" what came from peers; shares lie between 0 and 1.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Metric:
    """One quantity of a round, for one node.

    Attributes:
        name: key in `metrics.jsonl`.
        unit: "share" is a number between 0 and 1; "count" a whole number.
        meaning: one line.
        healthy: what to expect when all is well; empty if any value may be fine.
    """

    name: str
    unit: str
    meaning: str
    healthy: str = ""


def _accuracy(split: str, which: str, *, how: str = "one answer each", healthy: str = "") -> tuple[Metric, ...]:
    name = f"accuracy/{split}"
    return (
        Metric(name, "share", f"{which} prompts solved (reward of 1 or more) by {how}", healthy),
        Metric(f"{name}/se", "share", f"standard error of {name}"),
        Metric(f"{name}/num_prompts", "count", f"{which} prompts that were asked"),
        Metric(f"{name}/cut_share", "share", f"{which} answers cut at the length limit", "near 0"),
        Metric(f"{name}/format_failures", "share", f"{which} answers, not cut, without the task's format"),
        Metric(f"{name}/reward_mean", "reward", f"mean reward of {which} answers; 0 where none could be computed"),
    )


METRICS: tuple[Metric, ...] = (
    *_accuracy("test", "held-out", healthy="rises"),
    *_accuracy("ood", "out-of-distribution", healthy="does not fall"),
    *_accuracy("test_greedy", "held-out", how="one greedy answer each"),
    *_accuracy("ood_greedy", "out-of-distribution", how="one greedy answer each"),
    Metric("reward/mean", "reward", "mean reward of all completions, own and external", "rises"),
    Metric("reward/own_mean", "reward", "mean reward of own completions", "rises"),
    Metric("reward/external_mean", "reward", "mean reward of external completions, as scored here"),
    Metric("completion/length_mean", "tokens", "mean length of own completions", "steady"),
    Metric("completion/cut_share", "share", "own completions cut at the length limit", "below 0.3"),
    Metric("own/groups", "count", "own groups in the batch"),
    Metric("own/completions", "count", "completions that the node sampled in the round"),
    Metric("own/unscored", "count", "own completions that the task could not score; left out", "0"),
    Metric("external/groups", "count", "external groups in the batch", "above 0 with peers"),
    Metric("external/influence_share", "share", "external part of sum |advantage x weight| over kept tokens"),
    Metric(
        "external/influence_max", "share", "the same of the one peer with the most", "at most admission.max_influence"
    ),
    Metric(
        "external/influence_scale",
        "ratio",
        "what admission.max_influence leaves of a peer's part: all, or less (the least, if several)",
        "1",
    ),
    Metric("group/zero_variance_share", "share", "groups whose rewards are all equal: they teach nothing", "below 0.8"),
    Metric("samples/backward", "count", "completions that got a backward pass (kept, advantage not 0)", "above 0"),
    Metric("filter/dropped_share", "share", "external completions that the filter dropped", "below 1"),
    Metric("filter/dropped/advantage", "share", "external completions dropped for an advantage of 0 or less"),
    Metric("filter/dropped/kl", "share", "external completions dropped for a KL above the limit", "near 0"),
    Metric("filter/dropped/advantage_and_kl", "share", 'external completions dropped for both (rule "both" only)'),
    Metric("filter/dropped/non_finite", "share", "completions dropped for a log-prob that is not finite", "0"),
    Metric("filter/dropped/rule", "share", "external completions dropped by a rule of the user's own"),
    Metric(
        "weight/mean_before_cap",
        "ratio",
        "mean importance weight pi_old/pi_gen of external tokens that went forward, before the cap",
    ),
    Metric("weight/capped_share", "share", "external tokens whose importance weight was capped", "below 0.5"),
    Metric("weight/effective_sample_size", "share", "(sum w)^2 / (n sum w^2) over external tokens", "above 0.3"),
    Metric(
        "kl_gen_old/token_mean",
        "nats",
        "mean k3 KL(pi_gen || pi_old) per external token that went forward",
        "below 1",
    ),
    Metric("kl_gen_old/sum_p50", "nats", "median over external completions of the KL summed over tokens"),
    Metric("kl_gen_old/sum_p95", "nats", "95th percentile of the same", "below kl_limit_nats"),
    Metric(
        "self_check/logp_gap_mean", "nats", "mean |logp_old - logp_gen| of own tokens: sampler against learner", "0"
    ),
    Metric("self_check/logp_gap_max", "nats", "largest |logp_old - logp_gen| of own tokens", "below 1e-3 in fp32"),
    Metric("self_check/weight_mean", "ratio", "mean importance weight of own tokens", "1"),
    Metric("self_check/non_finite_share", "share", "own completions with a log-prob that is not finite", "0"),
    Metric("loss/value", "loss", "value of the loss; says little about learning"),
    Metric("clip/share", "share", "tokens whose ratio pi_theta/pi_old was clipped", "0 with one step per round"),
    Metric("optim/grad_norm", "norm", "norm of the gradient before it is scaled down", "steady"),
    Metric("optim/learning_rate", "rate", "learning rate of the step"),
    Metric("optim/skipped", "count", "1 if the optimiser did not step: nothing kept, or a non-finite gradient", "0"),
    Metric("admission/rejected", "count", "groups of peers that the gate rejected", "0"),
    Metric("admission/rejected/<reason>", "count", "the same, by reason", "0"),
    Metric("admission/late", "count", "groups of peers that came too late", "0 in lockstep"),
    Metric("admission/reward_mismatches", "count", "claimed rewards of peers that differ from our own scoring", "0"),
    Metric("admission/refused", "count", "messages that the exchange refused before they were opened", "0"),
    Metric("admission/refused/<reason>", "count", "the same, by reason", "0"),
    Metric("admission/strikes", "count", "strikes of all peers for what they sent in the round", "0"),
    Metric("admission/quarantined", "count", "peers in quarantine", "0"),
    Metric(
        "admission/length_ratio",
        "ratio",
        "length of a peer's correct completions by that of own ones, of the group where it is largest; 0: unknown",
        "below 2",
    ),
    Metric("wire/bytes_sent", "bytes", "payload published in the round"),
    Metric("wire/bytes_received", "bytes", "payload collected in the round"),
    Metric("wire/tokens_sent", "tokens", "completion tokens published in the round"),
    Metric(
        "wire/bytes_per_token",
        "bytes",
        "wire/bytes_sent / wire/tokens_sent",
        "below 4.5",
    ),
    Metric("time/generate_s", "s", "until own completions are there: sampling and scoring, or what is left of it"),
    Metric("time/publish_s", "s", "encoding own groups and handing them over"),
    Metric("time/wait_s", "s", "waiting for peers, before and in the round"),
    Metric("time/admit_s", "s", "the gate: decoding and scoring the groups of peers"),
    Metric("time/top_up_s", "s", "sampling more of one's own after the gate (rollout.top_up)"),
    Metric("time/learn_s", "s", "forward and backward passes, filter and optimiser step"),
    Metric("time/evaluate_s", "s", "held-out evaluation, if the round had one"),
    Metric("time/idle_s", "s", "the part of time/wait_s in which the node did not sample either"),
    Metric("time/idle_share", "share", "time/idle_s by the length of the round", "below 0.2"),
)

_NAMES = frozenset(metric.name for metric in METRICS)


def known(name: str) -> bool:
    """True if the table has this metric or its family.

    >>> known("filter/dropped/kl"), known("admission/rejected/bad_token"), known("filter/droped")
    (True, True, False)
    """
    family, _, reason = name.rpartition("/")
    return name in _NAMES or (reason != "" and f"{family}/<reason>" in _NAMES)


def metrics_table_markdown() -> str:
    """The table for the docs."""
    rows = [f"| `{metric.name}` | {metric.unit} | {_cell(metric.meaning)} | {metric.healthy} |" for metric in METRICS]
    return "\n".join(["| Metric | Unit | Meaning | Healthy |", "|---|---|---|---|", *rows]) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
