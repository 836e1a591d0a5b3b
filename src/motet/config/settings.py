"""Every setting of a run, with its unit, default and bounds. The run file is these sections as TOML tables.

Frozen; an unknown key is an error. `motet.config.load` reads files, `motet.node.assembly` alone turns sections into
objects, and no other layer sees them.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, Self
from zlib import crc32

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from motet.config.contradictions import find_contradictions

PositiveInt = Annotated[int, Field(ge=1)]
PositiveFloat = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Section(BaseModel):
    """A table of the run file: frozen, and strict about its keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True, use_attribute_docstrings=True)


class RunSettings(Section):
    """What is run, and where its results go."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
    """Name of the run: letters, digits, '.', '_', '-'; 64 at most. Its results lie in <dir>/<name>."""
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    """Decides prompts, sampling and initial adapters."""
    rounds: PositiveInt = 200
    """Rounds (one optimiser step each)."""
    dir: str = "runs"
    """Folder that holds run directories; relative to the current folder."""
    checkpoint_every: PositiveInt = 25
    """Rounds between checkpoints; the last round always has one."""
    keep_checkpoints: PositiveInt = 2
    """How many of the latest checkpoints stay on disk."""
    keep_best: bool = False
    """Keep the checkpoint of the best mean accuracy/test too."""
    trackers: tuple[Literal["tensorboard", "trackio", "wandb", "mlflow"], ...] = ()
    """Also send the metrics there (needs the extra "trackers"); the journal stays complete without."""


class TaskSettings(Section):
    """What is learned."""

    name: str = "running_sums"
    """\"running_sums", "gsm8k", "math500", "gym:<name>", an installed task, "file.py:Class", or a JSON-lines file.
    gsm8k and math500 come from the hub, or from a folder: "gsm8k:<folder>"."""
    arguments: dict[str, Any] = Field(default_factory=dict)
    """Arguments of a gym:<name> (those of reasoning-gym; answer = "auto", "tag", "last_number" or "text"; exact = true
    for a reward of 1 or 0 only), or of a task of your own."""
    ood: str | None = None
    """Another task, named as `name` is, whose test prompts are the out-of-distribution ones."""
    ood_arguments: dict[str, Any] = Field(default_factory=dict)
    """Arguments of `ood`."""
    score_timeout_s: PositiveFloat = 10.0
    """Longest time to score one completion, in seconds; one that takes longer is left out and counted."""
    terms: Annotated[tuple[Annotated[int, Field(ge=2, le=20)], ...], Field(min_length=1)] = (3, 4, 5, 6)
    """running_sums: numbers of terms in the training sums, mixed evenly."""
    ood_terms: tuple[Annotated[int, Field(ge=2, le=20)], ...] = (7,)
    """running_sums: numbers of terms in the out-of-distribution sums."""
    test_file: str | None = None
    """JSON lines: file of held-out prompts. Without it every tenth line of `name` is held out."""
    ood_file: str | None = None
    """JSON lines: file of out-of-distribution prompts."""
    prompt_column: str | None = None
    """JSON lines: key of the prompt. Without it: prompt, question or problem, whichever the file has."""
    answer_column: str | None = None
    """JSON lines: key of the answer. Without it: answer, solution or target, whichever the file has."""
    reward: str = "exact"
    """JSON lines: "exact", "numeric", "math", "boxed", or "module:function" / "file.py:function" in TRL's signature."""


class PromptSettings(Section):
    """How a prompt of the task becomes token ids. All nodes must end with the same ids."""

    format: Literal["auto", "chat", "raw"] = "auto"
    """chat: by the chat template; raw: the text alone; auto: chat if the tokenizer has a template."""
    system: str | None = None
    """System message. Without it: the task's, if it has one."""
    template: str | None = None
    """Path of a Jinja chat template to use instead of the tokenizer's."""
    template_arguments: dict[str, Any] = Field(default_factory=dict)
    """Further arguments of the chat template, such as { enable_thinking = false }."""


class RolloutSettings(Section):
    """How completions are sampled."""

    prompts_per_round: PositiveInt = 32
    """Prompts of one round, shared out over the nodes (a lone node takes them all)."""
    group_size: Annotated[int, Field(ge=2, le=1024)] = 8
    """Completions of each prompt (TRL: num_generations)."""
    max_new_tokens: PositiveInt = 24
    """Longest completion, in tokens (TRL: max_completion_length)."""
    temperature: PositiveFloat = 1.0
    """Sampling temperature. Sampling is never truncated (no top-k, no top-p)."""
    truncated: Literal["score", "mask"] = "score"
    """Completions cut at the length limit: scored like any other, or left out of the loss (advantage 0)."""
    top_up: bool = False
    """Where peers' groups are of little use, sample more of one's own: up to prompts_per_round, none of it sent."""
    ahead: Annotated[int, Field(ge=0, le=1)] = 0
    """1: a node samples the next round while it learns from this one, so its own completions are one step old."""


_EMBEDDED_PORTS: Final = range(28_200, 29_200)
_KEPT_ROUNDS: Final = 8
_KEPT_BEYOND_LAG: Final = 3
_USUAL_MESSAGE_BYTES: Final = 1_000_000
_MOST_BYTES_PER_TOKEN: Final = 8
_MESSAGE_OVERHEAD_BYTES: Final = 4_096

MethodName = Literal["on_policy", "nois", "vis", "tis", "f_nois", "f_vis", "f_tis"]
Weights = Literal["none", "vanilla", "truncated"]
Rule = Literal["either", "both", "off"]
OwnFunction = Annotated[str, Field(pattern=r"^.+:[A-Za-z_][A-Za-z0-9_]*$", examples=["file.py:function"])]

PRESETS: Final[dict[MethodName, tuple[Weights, Rule]]] = {
    "on_policy": ("none", "off"),
    "nois": ("none", "off"),
    "vis": ("vanilla", "off"),
    "tis": ("truncated", "off"),
    "f_nois": ("none", "either"),
    "f_vis": ("vanilla", "either"),
    "f_tis": ("truncated", "either"),
}
"""What each method's name stands for: (weights, rule)."""


class MethodSettings(Section):
    """The loss. `name` presets `weights` and `rule`; either can be overridden."""

    name: MethodName = "f_tis"
    """Preset: on_policy (each node alone), nois, vis, tis, f_nois, f_vis, f_tis."""
    weights: Weights | OwnFunction | None = None
    """Importance weights pi_old/pi_gen: none, as they are, capped, or by your function. Without it: the preset's."""
    rule: Rule | OwnFunction | None = None
    """Filter on external samples: dropped if A<=0 or KL>limit; if A<0 and KL>limit; never; or where your function says
    so. Without it: preset's."""
    cap: PositiveFloat = 2.0
    """Largest importance weight under weights = "truncated" (TRL: clip_max, 3 there)."""
    level: Literal["token", "sequence"] = "token"
    """One weight for each token, or one for each completion."""
    epsilon: Annotated[float, Field(gt=0, lt=1)] = 0.2
    """Clip range of the ratio pi_theta/pi_old, below 1 and above."""
    epsilon_high: PositiveFloat | None = None
    """Clip range above 1. Without it: epsilon."""
    kl_limit_nats: PositiveFloat = 50.0
    """Filter limit on KL(pi_gen || pi_old) of a completion, in nats."""
    kl_estimator: Literal["k1", "k2", "k3"] = "k3"
    """Estimator of that KL."""
    kl_reduction: Literal["sum", "mean"] = "sum"
    """KL of a completion: sum or mean over its tokens."""
    scale_rewards: Literal["std", "none"] = "std"
    """Divide a group's centred rewards by their standard deviation, or not."""

    @property
    def resolved_weights(self) -> Weights | OwnFunction:
        """`weights`, or the preset's."""
        return PRESETS[self.name][0] if self.weights is None else self.weights

    @property
    def resolved_rule(self) -> Rule | OwnFunction:
        """`rule`, or the preset's."""
        return PRESETS[self.name][1] if self.rule is None else self.rule


class LearnerSettings(Section):
    """The optimiser step."""

    learning_rate: PositiveFloat = 1e-6
    """Peak rate of AdamW."""
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    """Course of the rate after the warm-up."""
    final_learning_rate: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    """Rate at the last round under "linear" and "cosine"."""
    warmup_rounds: Annotated[int, Field(ge=0)] = 0
    """Rounds over which the rate rises linearly from 0."""
    weight_decay: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    """AdamW's decoupled decay."""
    max_grad_norm: PositiveFloat = 1.0
    """Gradients of a larger norm are scaled down to it."""
    precision: Literal["fp32", "bf16", "fp16"] = "fp32"
    """What forward and backward compute in. Master weights and optimiser are fp32 under both."""
    max_batch_tokens: PositiveInt = 4096
    """Most tokens of one micro-batch; a memory setting that does not change the result."""
    gradient_checkpointing: bool = False
    """Compute activations a second time instead of keeping them: less memory, about a third more time."""


class SwarmSettings(Section):
    """How nodes work together."""

    collaboration: Literal["vertical", "horizontal", "gaps"] = "vertical"
    """vertical: a node generates whole groups of its own prompts. horizontal: a share of every group. gaps: all
    generate whole groups of the same prompts, and learn from a peer's only where none of their own is right."""
    pace: Literal["lockstep", "free"] = "lockstep"
    """lockstep: wait for every live peer's round. free: take what has arrived; wait only when too far ahead."""
    deadline_s: PositiveFloat = 60.0
    """Longest wait for peers in a round, in seconds."""
    max_lag: Annotated[int, Field(ge=0)] = 4
    """free pace: oldest round, counted back from the current one, that is still learned from; in a network a node waits
    when it is further than that ahead of most of the swarm."""
    transport: Literal["memory", "pipes", "zenoh", "nats"] = "memory"
    """memory: all nodes in one process, in turn. pipes: each in a process of its own on this machine, at once.
    zenoh: over the network, without a server. nats: over the network, through a NATS server with JetStream."""
    listen: tuple[str, ...] = ()
    """zenoh: addresses on which a node waits for others, such as "tcp/0.0.0.0:7447". Without listen and connect:
    a port of this machine's own that follows from run.name."""
    connect: tuple[str, ...] = ()
    """Addresses of peers, relays or NATS servers, such as "tls/relay.example.org:7447" or "nats://10.0.0.5:4222"."""
    authority: Annotated[str, Field(pattern=r"^ed25519:[0-9a-f]{64}$")] | None = None
    """Public key of the swarm: only nodes with an invitation signed by it take part (`motet keys`, `motet invite`).
    Without it: the nodes of the run file, each with the key that it shows first or that node.key names."""
    tls: str | None = None
    """Folder with ca.pem, node.pem and node.key for mutual TLS (`motet keys issue` writes one)."""
    max_foreign_groups: PositiveInt | None = None
    """Most groups of others that a node fetches in a round, drawn fairly over the peers. Without it: all are sent to
    all, which suits a few dozen nodes."""
    log_probs: Literal["compact", "exact"] = "compact"
    """Log-probs on the wire: compact: 16 bits at most, off by less than 0.0005 nats. exact: float32."""


class AdmissionSettings(Section):
    """What the gate lets in from peers."""

    max_group_size: PositiveInt = 64
    """Most completions in one group of a peer's."""
    max_payload_bytes: PositiveInt = 4_000_000
    """Largest message that is parsed at all, in bytes."""
    max_bytes_per_round: PositiveInt = 32_000_000
    """Most bytes of one peer for one round; what is beyond is refused unread."""
    quarantine_after: PositiveInt = 3
    """Strikes (hostile or broken groups, weighed by kind) after which a peer is quarantined."""
    quarantine_rounds: PositiveInt = 20
    """Rounds for which nothing is learned from a quarantined peer; doubled each further time."""
    max_influence: Annotated[float, Field(gt=0, le=1)] | Literal["by_gradient"] | None = None
    """Largest share of a step's summed |advantage x weight| that one peer may have; more is scaled down to it.
    by_gradient: as far as its gradient is shown to point where the node's own does. Without it: 0.5 where strangers
    can be invited (swarm.authority), else no limit."""


class EvaluationSettings(Section):
    """Held-out accuracy while training and at the end: pass@1."""

    every: Annotated[int, Field(ge=0)] = 25
    """Rounds between evaluations; 0 means only before the first round and after the last."""
    num_prompts: PositiveInt = 256
    """Prompts of each split during training."""
    final_num_prompts: PositiveInt = 1024
    """Prompts of each split before the first round and after the last."""
    temperature: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    """Of the answers; 0 is greedy. Without it: rollout.temperature."""
    also_greedy: bool = False
    """Before the first round and after the last, ask greedily too: accuracy/test_greedy and accuracy/ood_greedy."""


class LoraSettings(Section):
    """Train an adapter and leave the model's own weights alone."""

    rank: PositiveInt = 8
    """Rank of the update."""
    alpha: PositiveFloat = 16.0
    """Scale of the update (times 1/rank)."""
    target_modules: tuple[str, ...] | Literal["all-linear"] = "all-linear"
    """Names of the layers that get an adapter."""


class GenerationSettings(Section):
    """Where a node's completions are sampled."""

    engine: Literal["hf", "vllm"] = "hf"
    """hf: in this process, from the weights that learn. vllm: by a vLLM server, refreshed after each step."""
    url: str = "http://127.0.0.1:8000"
    """vllm: address of the server."""
    refresh_dir: str | None = None
    """vllm: folder that this process and the server both see; the new weights or adapter pass through it."""
    timeout_s: PositiveFloat = 600.0
    """vllm: longest wait for an answer, in seconds."""


class NodeSettings(Section):
    """One participant: its model, and which of its parameters train."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,31}$")]
    """Name of the node: letters, digits, '.', '_', '-'; 32 at most; unique in the run."""
    model: str
    """\"tiny:small", "tiny:large", "tiny:short", "tiny:long", "tiny:direct", "pypi:<package>", a GGUF file, or the
    folder or hub name of a language model."""
    revision: str | None = None
    """Branch, tag or commit of a hub model. Without it: the main branch; the commit is noted in the run."""
    attention: Literal["auto", "eager", "sdpa", "flash_attention_2"] = "auto"
    """Implementation of attention. auto: motet's own where the model takes it, else the library's choice."""
    precision: Literal["fp32", "bf16", "fp16"] | None = None
    """Of this node, instead of learner.precision."""
    freeze: tuple[str, ...] = ()
    """Parameters that do not train, by name with * and ?, such as "model.embed_tokens.*"."""
    learning_rate: PositiveFloat | None = None
    """Of this node, instead of learner.learning_rate; the rate at the end changes in proportion."""
    lora: LoraSettings | None = None
    """Train a LoRA adapter. Without it: all weights."""
    peft: dict[str, Any] | None = None
    """Train another adapter of PEFT: its peft_type and PEFT's own arguments, such as { peft_type = "IA3" }."""
    generation: GenerationSettings = Field(default_factory=GenerationSettings)
    device: Annotated[str, Field(pattern=r"^(auto|cpu|mps|cuda(:[0-9]+)?)$")] = "auto"
    """\"auto\" (a GPU if there is one), "cpu", "cuda", "cuda:1", "mps"."""
    key: Annotated[str, Field(pattern=r"^ed25519:[0-9a-f]{64}$")] | None = None
    """Public key of the node (`motet keys show`); nobody else is believed under its name."""


class RunFile(Section):
    """A whole run file."""

    run: RunSettings
    task: TaskSettings = Field(default_factory=TaskSettings)
    prompt: PromptSettings = Field(default_factory=PromptSettings)
    rollout: RolloutSettings = Field(default_factory=RolloutSettings)
    method: MethodSettings = Field(default_factory=MethodSettings)
    learner: LearnerSettings = Field(default_factory=LearnerSettings)
    swarm: SwarmSettings = Field(default_factory=SwarmSettings)
    admission: AdmissionSettings = Field(default_factory=AdmissionSettings)
    evaluation: EvaluationSettings = Field(default_factory=EvaluationSettings)
    node: Annotated[tuple[NodeSettings, ...], Field(min_length=1)]

    @property
    def trains_alone(self) -> bool:
        """True if every node is a swarm of its own and generates whole rounds."""
        return self.method.name == "on_policy"

    @property
    def is_networked(self) -> bool:
        """True if groups travel over a network, between machines and owners."""
        return self.swarm.transport in ("zenoh", "nats")

    @property
    def message_bytes(self) -> int:
        """Longest message over a network: a megabyte, which any line and server takes, or what a group may need."""
        largest_group = self.rollout.group_size * self.rollout.max_new_tokens * _MOST_BYTES_PER_TOKEN
        return max(_USUAL_MESSAGE_BYTES, largest_group + _MESSAGE_OVERHEAD_BYTES)

    @property
    def kept_rounds(self) -> int:
        """Rounds of each node that can be fetched over a network; alike for nodes of any pace."""
        return max(_KEPT_ROUNDS, self.swarm.max_lag + _KEPT_BEYOND_LAG)

    @property
    def embedded_port(self) -> int | None:
        """The port of this machine on which nodes meet without any address, which follows from run.name.

        None if there are addresses.
        """
        if self.swarm.listen or self.swarm.connect:
            return None
        return _EMBEDDED_PORTS[crc32(self.run.name.encode()) % len(_EMBEDDED_PORTS)]

    @property
    def resolved_max_influence(self) -> float | Literal["by_gradient"] | None:
        """`admission.max_influence`, or what holds without it."""
        if self.admission.max_influence is not None:
            return self.admission.max_influence
        return None if self.swarm.authority is None else 0.5

    @property
    def shares_groups(self) -> bool:
        """True if nodes learn from one another: more than one node, or a network, and not each alone."""
        return (len(self.node) > 1 or self.is_networked) and not self.trains_alone

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        found = find_contradictions(self)
        if found:
            text = "; ".join(contradiction.message for contradiction in found)
            raise PydanticCustomError("contradiction", "{text}", {"text": text, "found": found})
        return self
