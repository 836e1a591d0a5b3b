"""Floating-point operations that a step cannot do without: the numerator of the model FLOP utilisation (MFU).

Counted are the products with weights, the products of attention, and the output layer where a token is scored; a
multiply and an add are two. Not counted: norms, activations, softmax, the optimiser, padding, anything done twice.
Sliding windows and experts are counted as if every token met all of them.

    forward of one token     2 * W  +  4 * H*d * L * (keys it sees)        W: weights of the L decoder layers' matrices
    output layer, one token  2 * D * V
    backward                 twice the forward; with an adapter, frozen matrices give a gradient to their input only:
                             once their forward, twice the forward of attention and of the adapter
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from motet.bench.batch import BenchBatch, advantages_kept


@dataclass(frozen=True, slots=True)
class ModelSize:
    """What decides the count.

    Attributes:
        matrix_weights: weights in the linear layers of the decoder, W; without adapter and output layer.
        adapter_weights: weights of a LoRA adapter; 0 where all weights train.
        layers: decoder layers, L.
        heads_width: query heads times their width, H*d.
        hidden: width of the hidden states, D.
        vocab: width of the output layer, V.
    """

    matrix_weights: int
    layers: int
    heads_width: int
    hidden: int
    vocab: int
    adapter_weights: int = 0


@dataclass(frozen=True, slots=True)
class Work:
    """Tokens that go through the decoder, keys that they see in sum, and tokens that are scored."""

    tokens: int = 0
    keys: int = 0
    scored: int = 0

    def __add__(self, other: Work) -> Work:
        """Both."""
        return Work(self.tokens + other.tokens, self.keys + other.keys, self.scored + other.scored)

    def forward(self, size: ModelSize) -> int:
        """FLOPs of the forward pass."""
        matrices, attention, head, adapter = self._forward(size)
        return matrices + attention + head + adapter

    def backward(self, size: ModelSize) -> int:
        """FLOPs of the backward pass."""
        matrices, attention, head, adapter = self._forward(size)
        frozen = 1 if size.adapter_weights else 2
        return frozen * (matrices + head) + 2 * (attention + adapter)

    def _forward(self, size: ModelSize) -> tuple[int, int, int, int]:
        return (
            2 * size.matrix_weights * self.tokens,
            4 * size.heads_width * size.layers * self.keys,
            2 * size.hidden * size.vocab * self.scored,
            2 * size.adapter_weights * self.tokens,
        )


def work_of_group(prompt: int, completions: Iterable[int], *, shared: bool) -> Work:
    """Work on the completions of one prompt. The last token of a completion predicts nothing and is not computed.

    Args:
        prompt: length of the prompt.
        completions: lengths of the completions, each 1 or more.
        shared: the prompt is computed once for all of them, not once for each.

    >>> work_of_group(3, [2, 1], shared=True)    # 3 of the prompt, 1 of the first completion, which sees 4 keys
    Work(tokens=4, keys=10, scored=3)
    >>> work_of_group(3, [2, 1], shared=False)
    Work(tokens=7, keys=16, scored=3)
    """
    lengths = list(completions)
    if not lengths:
        return Work()
    prompts = Work(prompt, prompt * (prompt + 1) // 2)
    work = prompts if shared else Work()
    for length in lengths:
        fed = length - 1
        work += Work(fed, fed * prompt + fed * (fed + 1) // 2, length)
        if not shared:
            work += prompts
    return work


def count_step(batch: BenchBatch, size: ModelSize) -> dict[str, int]:
    """FLOPs of one optimiser step on the batch, by three definitions.

    needed    each group's prompt once; forward of completions that are learned from or must be judged by their
              KL; backward of those that are learned from; what judging and learning share is counted once
    repeated  the same completions, each with its prompt
    all       forward and backward of every completion, each with its prompt
    """
    _, fates = advantages_kept(batch)
    needed = repeated = everything = 0
    start = 0
    for group in batch.groups:
        prompt = len(batch.prompts[group.prompt_id])
        lengths = [len(rollout.token_ids) for rollout in group.rollouts]
        own_fates = fates[start : start + len(lengths)]
        start += len(lengths)
        judged = _those(lengths, own_fates, ("learned", "far"))
        learned = _those(lengths, own_fates, ("learned",))
        needed += work_of_group(prompt, judged, shared=True).forward(size)
        needed += work_of_group(prompt, learned, shared=True).backward(size)
        repeated += work_of_group(prompt, judged, shared=False).forward(size)
        repeated += work_of_group(prompt, learned, shared=False).backward(size)
        work = work_of_group(prompt, lengths, shared=False)
        everything += work.forward(size) + work.backward(size)
    return {"needed": needed, "repeated": repeated, "all": everything}


def _those(lengths: Sequence[int], fates: Sequence[str], wanted: tuple[str, ...]) -> list[int]:
    return [length for length, fate in zip(lengths, fates, strict=True) if fate in wanted]
