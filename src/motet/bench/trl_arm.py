"""TRL's GRPOTrainer as an arm: its own training loop on the batch of this bench. The one file that imports TRL.

Only sampling and scoring are taken out: the trainer is handed prepared completions and advantages where it would have
sampled some. What a step then does is TRL's: shuffle and split, forward, log-probs through its fused head with the
entropy that it reports, loss "grpo" without a reference model, backward, gradient clip, fused AdamW. TRL has no filter;
it gets the filter's advantages (0 where dropped) and no second forward pass, which an F-TIS step in TRL would need.
"""

from __future__ import annotations

import dataclasses
import os
import queue
import tempfile
import threading
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from motet.bench.batch import BenchBatch, advantages_kept
from motet.bench.learner_setup import LEARNING_RATE, LearnerSetup, TrlMode, TrlSettings, divisor
from motet.bench.machine import peak_bytes, version_of
from motet.bench.models import build_causal, wrap


class TrlArm:
    """A trainer whose loop runs in a thread and pauses before each step.

    Args:
        setup: model and batch; its `trl` are the settings.
        num_rows: learn from the first rows only, for a trial; all by default.
    """

    def __init__(self, setup: LearnerSetup, *, num_rows: int | None = None) -> None:
        assert setup.trl is not None
        self._settings = setup.trl
        self._turns = _Turns()
        self._trainer = _make_trainer(setup, self._settings, self._turns, num_rows)
        self._thread = threading.Thread(target=self._turns.run, args=(self._trainer,), daemon=True)
        self._thread.start()
        self._turns.wait()
        self.settings = {
            "trl": version_of("trl"),
            **dataclasses.asdict(self._settings),
            "gradient_accumulation_steps": self._trainer.args.gradient_accumulation_steps,
            "loss_type": "grpo",
            "beta": 0.0,
            "optim": str(getattr(self._trainer.args.optim, "value", self._trainer.args.optim)),
            "padded_tokens": self._trainer.num_padded_tokens,
        }

    def step(self) -> dict[str, float]:
        """One step of the trainer's loop; seconds of its forward and backward passes as TRL itself counts them."""
        self._turns.go()
        self._turns.wait()
        return {"forward_backward_s": float(self._trainer._metrics["train"]["step_time"][-1])}

    def figures(self) -> dict[str, Any]:
        """TRL's own metrics of the first step."""
        metrics = self._trainer._metrics["train"]
        return {"entropy": metrics["entropy"][0], "clip_ratio": metrics["clip_ratio/region_mean"][0]}

    def close(self) -> None:
        """End the loop before its next step."""
        self._turns.stop()
        self._thread.join()


def search(argument: tuple[LearnerSetup, dict[str, float], int | None]) -> dict[str, Any]:
    """TRL's fastest settings for this machine, by trial of one micro-batch each (a first one warms up).

    Tried: fp32, and both ways to bf16, where the machine's rate for them is at least half of the other's; checkpointing
    off and on; then micro-batches twice and half as large as long as that is faster and fits into memory.
    """
    setup, rates, memory = argument
    on_gpu = torch.cuda.is_available()
    if on_gpu:
        memory = torch.cuda.mem_get_info()[0]
    peak = torch.cuda.max_memory_allocated if on_gpu else peak_bytes
    total = len(advantages_kept(setup.batch)[1])
    trials: dict[TrlSettings, float] = {}

    def try_out(settings: TrlSettings, *, again: bool = False) -> float:
        if again or settings not in trials:
            num_rows = min(total, max(settings.rows, 2))
            arm = TrlArm(dataclasses.replace(setup, trl=settings), num_rows=num_rows)
            if not trials:
                arm.step()
            seconds = arm.step()["forward_backward_s"] / num_rows
            trials[settings] = min(seconds, trials.get(settings, seconds))
            arm.close()
        return trials[settings]

    start = divisor(total, 8)
    modes = _modes(rates)
    best = min((TrlSettings(mode, start, checkpointing=False, chosen="tried") for mode in modes), key=try_out)
    rows_before, peak_before = start, peak()
    for factor in (2, 0.5):
        rows = best.rows
        while 1 <= rows * factor <= total and total % int(rows * factor) == 0:
            rows = int(rows * factor)
            if memory is not None and peak_before * max(1.0, rows / rows_before) > 0.8 * memory:
                break
            candidate = dataclasses.replace(best, rows=rows)
            if try_out(candidate) > 0.98 * try_out(best):
                break
            best, rows_before, peak_before = candidate, max(rows, rows_before), peak()
    finalists = (best, dataclasses.replace(best, checkpointing=True))
    for settings in finalists:
        try_out(settings)
    best = min(finalists, key=lambda settings: try_out(settings, again=True))  # the better of two trials each
    told = [{**dataclasses.asdict(settings), "seconds_per_row": seconds} for settings, seconds in trials.items()]
    return {"settings": best, "trials": told}


class _Stop(Exception):
    """The loop is not needed any more."""


class _Turns:
    """Lets the trainer's loop pause before each step until it is told to go on."""

    def __init__(self) -> None:
        self._orders: queue.Queue[bool] = queue.Queue()
        self._news: queue.Queue[BaseException | None] = queue.Queue()

    def go(self) -> None:
        self._orders.put(True)

    def stop(self) -> None:
        self._orders.put(False)

    def wait(self) -> None:
        """Until the loop stands before a step; raises what ended it."""
        news = self._news.get()
        if news is not None:
            raise news

    def pause(self) -> None:
        """Called by the loop: say that we are here, and wait for the order."""
        self._news.put(None)
        if not self._orders.get():
            raise _Stop

    def run(self, trainer: Any) -> None:
        """The thread: all faults belong to whoever waits."""
        try:
            trainer.train()
        except _Stop:
            return
        except BaseException as error:  # noqa: BLE001 - carried over to the thread that waits, which raises it
            self._news.put(error)


def _make_trainer(setup: LearnerSetup, settings: TrlSettings, turns: _Turns, num_rows: int | None) -> Any:
    warnings.simplefilter("ignore")  # TRL's and its libraries', which nobody here can mend
    from datasets import Dataset
    from transformers import TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    class Prepared(GRPOTrainer):  # type: ignore[misc]  # TRL comes without types
        """Hands out prepared completions where TRL would sample them."""

        prepared: dict[str, torch.Tensor]
        num_padded_tokens: int

        def _generate_and_score_completions(self, inputs: object) -> dict[str, torch.Tensor]:
            del inputs
            return dict(self.prepared)

    class Pause(TrainerCallback):
        """Before each step."""

        def on_step_begin(self, args: object, state: object, control: object, **kwargs: object) -> None:
            del args, state, control, kwargs
            turns.pause()

    causal, tokenizer = build_causal(setup.model)
    if settings.mode == "bf16-weights":
        causal = causal.bfloat16()
    device = next(causal.parameters()).device
    prepared = _tensors(setup.batch, device, num_rows)
    total = len(prepared["completion_ids"])
    rows = divisor(total, settings.rows)
    config = GRPOConfig(
        output_dir=str(Path(tempfile.gettempdir()) / f"motet_bench_trl_{os.getuid()}"),  # nothing is saved there
        per_device_train_batch_size=rows,
        gradient_accumulation_steps=total // rows,
        num_generations=next(number for number in range(2, total + 1) if total % number == 0),
        max_completion_length=prepared["completion_ids"].shape[1],
        loss_type="grpo",
        beta=0.0,
        learning_rate=LEARNING_RATE,
        lr_scheduler_type="constant",
        max_grad_norm=1.0,
        bf16=settings.mode == "bf16-autocast",
        gradient_checkpointing=settings.checkpointing,
        optim="adamw_torch_fused",
        use_cpu=device.type == "cpu",
        dataloader_pin_memory=False,
        max_steps=10**6,
        logging_strategy="no",
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
    )
    trainer = Prepared(
        model=wrap(causal, setup.model),
        reward_funcs=lambda completions, **_: [0.0] * len(completions),
        args=config,
        train_dataset=Dataset.from_dict({"prompt": ["1"] * total}),
        processing_class=tokenizer,
        callbacks=[Pause()],
    )
    trainer.prepared = prepared
    trainer.num_padded_tokens = prepared["prompt_ids"].numel() + prepared["completion_ids"].numel()
    return trainer


def _tensors(batch: BenchBatch, device: torch.device, num_rows: int | None) -> dict[str, torch.Tensor]:
    """The batch as TRL pads it: prompts on the left, completions on the right."""
    prompts = [batch.prompts[group.prompt_id] for group in batch.groups for _ in group.rollouts]
    completions = [rollout.token_ids.tolist() for group in batch.groups for rollout in group.rollouts]
    advantages, _ = advantages_kept(batch)
    prompt_ids, prompt_mask = _padded(prompts, left=True)
    completion_ids, completion_mask = _padded(completions, left=False)
    tensors = {
        "prompt_ids": prompt_ids,
        "prompt_mask": prompt_mask,
        "completion_ids": completion_ids,
        "completion_mask": completion_mask,
        "advantages": torch.from_numpy(advantages),
    }
    chosen = {name: tensor[:num_rows].to(device) for name, tensor in tensors.items()}
    return {**chosen, "num_items_in_batch": chosen["completion_mask"].sum()}


def _padded(rows: Sequence[Sequence[int]], *, left: bool) -> tuple[torch.Tensor, torch.Tensor]:
    width = max(len(row) for row in rows)
    ids = torch.zeros(len(rows), width, dtype=torch.long)
    mask = torch.zeros(len(rows), width, dtype=torch.long)
    for number, row in enumerate(rows):
        where = slice(width - len(row), width) if left else slice(0, len(row))
        ids[number, where] = torch.tensor(list(row))
        mask[number, where] = 1
    return ids, mask


def _modes(rates: dict[str, float]) -> list[TrlMode]:
    modes: list[TrlMode] = []
    if rates["fp32"] >= 0.5 * rates["bf16"]:
        modes.append("fp32")
    if rates["bf16"] >= 0.5 * rates["fp32"]:
        modes += ["bf16-weights", "bf16-autocast"]
    return modes
