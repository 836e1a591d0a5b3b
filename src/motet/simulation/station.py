"""One node at work, whichever process it lives in: the round with its examination, its part of checkpoints, its end."""

from __future__ import annotations

import base64
from collections.abc import Generator as Steps
from pathlib import Path
from time import perf_counter
from typing import Any, Final

import torch

from motet.config import RunFile
from motet.errors import WireError
from motet.learner import load_learner, save_learner
from motet.models import Policy
from motet.node import Member, Stock
from motet.records import WireLimits, decode_group, encode_group
from motet.simulation.checkpoint import Position, damaged
from motet.simulation.crew import Facts, Identity, Kept, Turn
from motet.simulation.schedule import exam_prompts, is_first_or_last
from motet.swarm import Ledger
from motet.tasks import Task, faults_of

EVALUATE: Final = "evaluate"
_IDENTITY_PROMPTS = 64
_PHASES: Final = ("generate", "publish", "wait", "admit", "top_up", "learn", "evaluate")
# A checkpoint is our own file: whatever was sampled must be readable.
_LIMITS = WireLimits(max_payload_bytes=2**32, max_group_size=2**20, max_completion_tokens=2**32, max_name_bytes=2**16)


class Station:
    """What the course of a run asks of one node.

    Args:
        run: the settings.
        member: the node with its model and its examinations.
        task: what it learns.
    """

    def __init__(self, run: RunFile, member: Member, *, task: Task) -> None:
        self._run = run
        self._member = member
        self._task = task
        self._told_fault = False

    def identity(self) -> Identity:
        """What this node learns from."""
        return identity_of(self._member.policy, self._task)

    def play(self, round: int, *, held_since: float | None = None) -> Steps[str, None, Turn]:
        """A round and the examination after it, if one is due; pauses before each phase.

        Args:
            round: its number.
            held_since: from when on, by `perf_counter`, the node waited to begin the round; None: it did not.
        """
        held_s, idle_s = self._held(held_since)
        report = yield from self._member.node.run_round(round)
        metrics = dict(report.metrics)
        metrics["time/wait_s"] += held_s
        metrics["time/idle_s"] += idle_s
        samples: list[dict[str, Any]] = []
        if exam_prompts(self._run, round):
            yield EVALUATE
            examined = self.examine(round)
            metrics |= examined.metrics
            samples = examined.samples
        round_s = sum(metrics.get(f"time/{phase}_s", 0.0) for phase in _PHASES)
        metrics["time/idle_share"] = metrics["time/idle_s"] / round_s
        plain = {name: _plain(value) for name, value in metrics.items()}
        return Turn(round, plain, samples, self._new_fault(), self._member.node.exchange.events())

    def waiting_for(self, round: int) -> list[str]:
        """Peers that the node still lacks in a round."""
        return self._member.node.exchange.waiting_for(round)

    def examine(self, round: int) -> Turn:
        """Held-out accuracy, and the texts of the first completions."""
        start = perf_counter()
        results = self._member.examiner.examine(
            num_prompts=exam_prompts(self._run, round),
            also_greedy=self._run.evaluation.also_greedy and is_first_or_last(self._run, round),
        )
        metrics: dict[str, int | float] = {"time/evaluate_s": perf_counter() - start}
        samples: list[dict[str, Any]] = []
        for split, result in results.items():
            metrics |= {f"accuracy/{split}{suffix}": _plain(value) for suffix, value in result.metrics().items()}
            samples += [
                {
                    "round": round,
                    "split": split,
                    "prompt_id": sample.prompt_id,
                    "prompt": sample.prompt,
                    "completion": sample.completion,
                    "reward": sample.reward,
                }
                for sample in result.samples
            ]
        return Turn(round, metrics, samples)

    def save(self, folder: Path) -> Kept:
        """Write the learner into an existing folder; the rest of the node's part of a checkpoint."""
        node = self._member.node
        save_learner(folder, node.learner)
        node.archive.sync()
        return Kept(
            node.ledger.to_dict(),
            node.gate.to_dict(),
            _stock_to_json(node.production.stock()),
            node.archive.position(),
        )

    def restore(self, position: Position, name: str) -> None:
        """Put the node where the checkpoint left it. Raises RunFailed (E-CHECKPOINT-01) if that cannot be done."""
        node = self._member.node
        load_learner(position.folder / name, node.learner)
        try:
            state = position.nodes[name]
            node.ledger = Ledger.from_dict(state["ledger"])
            node.gate.restore(state["gate"] if "gate" in state else {"seen": state["seen"]})
            node.production.restore(_stock_from_json(state.get("ahead")))
        except (KeyError, TypeError, ValueError, AttributeError, WireError) as error:
            raise damaged(position.folder, error) from error

    def finish(self, model_folder: Path) -> Facts:
        """Write the trained model."""
        policy, node = self._member.policy, self._member.node
        policy.save(model_folder)
        return Facts(
            task=self._task.name,
            parameters=policy.num_parameters,
            trained_parameters=sum(p.numel() for p in policy.trainable().values()),
            optimizer_steps=node.learner.policy_step,
            ledger=node.ledger.to_dict(),
        )

    def close(self) -> None:
        """Sample no more."""
        self._member.node.production.close()

    def _new_fault(self) -> str | None:
        """The first completion that could not be scored, told once."""
        first = None if self._told_fault else faults_of(self._task).first
        self._told_fault |= first is not None
        return first

    def _held(self, since: float | None) -> tuple[float, float]:
        """Seconds for which the round did not begin, and those of them in which nothing was sampled either."""
        if since is None:
            return 0.0, 0.0
        now = perf_counter()
        return now - since, now - since - self._member.node.production.sampling_s(since, now)


def identity_of(policy: Policy, task: Task) -> Identity:
    """What a policy learns from."""
    count = min(_IDENTITY_PROMPTS, task.num_prompts("train"))
    prompts = [task.prompt(f"train/{index}") for index in range(count)]
    return Identity(
        task=task.fingerprint,
        tokenizer=policy.tokenizer.fingerprint,
        prompts=policy.tokenizer.prompts_digest((prompt.text, prompt.messages) for prompt in prompts),
        example=policy.tokenizer.render_prompt(prompts[0].text, prompts[0].messages),
        commit=policy.commit,
    )


def use_threads(run: RunFile, *, num_processes: int) -> int:
    """Let this process compute with its share of torch's threads; returns how many it had before.

    Processes share them out evenly, and so do learning and sampling ahead of it in each: measured on two cores, a node
    that does both at once with one thread each is a quarter faster than with two each that compete.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(max(1, before // (num_processes * (1 + run.rollout.ahead))))
    return before


def _plain(value: float) -> int | float:
    """A number of Python's own, that any encoder takes."""
    return value if type(value) is int else float(value)


def _stock_to_json(stock: Stock | None) -> dict[str, Any] | None:
    """Log-probs are kept exactly: an interrupted run learns from the very numbers."""
    if stock is None:
        return None
    groups = [base64.b64encode(encode_group(group, log_probs="exact")).decode("ascii") for group in stock.groups]
    return {"round": stock.round, "groups": groups}


def _stock_from_json(plain: Any) -> Stock | None:
    if plain is None:
        return None
    payloads = [base64.b64decode(text, validate=True) for text in plain["groups"]]
    return Stock(int(plain["round"]), [decode_group(payload, _LIMITS) for payload in payloads])
