"""Rebuild the tiny models that come with the package.

    python scripts/pretrain_tiny.py                       # all, two side by side, into src/motet/models/tiny_weights
    python scripts/pretrain_tiny.py --only small --out /tmp/weights

Supervised learning of running sums: first on right solutions, then on solutions with wrong steps, so that the models
know how to add and yet sample wrong answers. Each has strengths and habits of its own:

    small   wrong more often the longer the sum, off by one
    large   loses less with the length of the sum, off by one or by ten
    short   good at 3 and 4 terms, bad at 5 and 6; off by up to three
    long    of the size of `short`: bad at 3 and 4 terms, good at 5 and 6; off by about ten
    direct  writes the sum without partial sums; has only ever seen guesses at sums of 6 and 7 terms

Sums of 7 terms are rare here and, by default, absent from the training with rewards. Held-out sums (`RunningSums`) are
never used.

Prints the accuracy of sampled completions on held-out sums, by number of terms.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from torch.nn.functional import cross_entropy
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from transformers.utils import logging

from motet.tasks.running_sums import RunningSums

OUT = Path(__file__).resolve().parents[1] / "src" / "motet" / "models" / "tiny_weights"
VOCABULARY = ("<pad>", ";", *"0123456789", "+", "=", ".")
TERMS = (3, 4, 5, 6, 7)
RARE_EVERY = 12  # steps between batches of 7 terms; all others mix 3 to 6
IGNORED = -100
SIDE_BY_SIDE = 2


def partial_sums(digits: Sequence[int], recipe: Recipe, wrong_share: float, rng: random.Random) -> str:
    """Partial sums, each wrong with a probability; a later step goes on from the wrong one: "08.17;"."""
    total, steps = digits[0], []
    for digit in digits[1:]:
        total = maybe_wrong(total + digit, recipe, wrong_share, rng)
        steps.append(f"{total:02d}")
    return ".".join(steps) + ";"


def sum_only(digits: Sequence[int], recipe: Recipe, wrong_share: float, rng: random.Random) -> str:
    """Nothing but the sum, wrong with a probability: "17;"."""
    return f"{maybe_wrong(sum(digits), recipe, wrong_share, rng):02d};"


def maybe_wrong(total: int, recipe: Recipe, wrong_share: float, rng: random.Random) -> int:
    """The total, or with a probability another number of two digits."""
    if rng.random() >= wrong_share:
        return total
    by = rng.choice(recipe.wrong_by)
    return total + by if 0 <= total + by <= 99 else total - by


@dataclass(frozen=True, slots=True)
class Recipe:
    """One model: its shape, how it is trained, and how it is shown solutions.

    `wrong_share` is by number of terms, 0 for the first `right_first` of all steps.
    """

    hidden_size: int
    intermediate_size: int
    num_heads: int
    batch_size: int
    num_steps: int
    learning_rate: float
    seed: int
    wrong_share: dict[int, float]
    wrong_by: tuple[int, ...]
    num_layers: int = 2
    right_first: float = 0.6
    write: Callable[[Sequence[int], Recipe, float, random.Random], str] = partial_sums


RECIPES = {
    "small": Recipe(
        hidden_size=64,
        intermediate_size=104,
        num_heads=4,
        batch_size=48,
        num_steps=2200,
        learning_rate=1e-2,
        seed=1,
        wrong_share={3: 0.32, 4: 0.46, 5: 0.58, 6: 0.66, 7: 0.66},
        wrong_by=(-1, 1),
    ),
    "large": Recipe(
        hidden_size=160,
        intermediate_size=256,
        num_heads=5,
        batch_size=32,
        num_steps=1900,
        learning_rate=2.5e-3,
        seed=1,
        wrong_share={3: 0.50, 4: 0.42, 5: 0.28, 6: 0.22, 7: 0.22},
        wrong_by=(-10, -1, 1, 10),
    ),
    "short": Recipe(
        hidden_size=96,
        intermediate_size=160,
        num_heads=4,
        batch_size=40,
        num_steps=2400,
        learning_rate=5e-3,
        seed=2,
        wrong_share={3: 0.10, 4: 0.06, 5: 0.44, 6: 0.42, 7: 0.42},
        wrong_by=(-3, -2, -1, 1, 2, 3),
    ),
    "long": Recipe(
        hidden_size=96,
        intermediate_size=160,
        num_heads=4,
        batch_size=40,
        num_steps=2000,
        learning_rate=5e-3,
        seed=3,
        wrong_share={3: 0.66, 4: 0.49, 5: 0.15, 6: 0.12, 7: 0.12},
        wrong_by=(-11, -10, -9, 9, 10, 11),
    ),
    "direct": Recipe(
        hidden_size=72,
        intermediate_size=120,
        num_heads=4,
        batch_size=48,
        num_steps=1400,
        learning_rate=5e-3,
        seed=4,
        wrong_share={3: 0.38, 4: 0.42, 5: 0.65, 6: 0.92, 7: 0.92},
        wrong_by=(-6, -5, -4, -3, -2, -1, 1, 2, 3, 4, 5, 6),
        right_first=0.0,
        write=sum_only,
    ),
}


def build_tokenizer() -> PreTrainedTokenizerFast:
    """A character is a token; decoding gives back the text."""
    inner = Tokenizer(models.WordLevel({character: id_ for id_, character in enumerate(VOCABULARY)}))
    inner.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    inner.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(tokenizer_object=inner, pad_token="<pad>", eos_token=";", model_max_length=64)


def build_model(recipe: Recipe) -> LlamaForCausalLM:
    """A Llama decoder with random weights; the embedding is also the output layer."""
    torch.manual_seed(recipe.seed)
    config = LlamaConfig(
        vocab_size=16,
        hidden_size=recipe.hidden_size,
        intermediate_size=recipe.intermediate_size,
        num_hidden_layers=recipe.num_layers,
        num_attention_heads=recipe.num_heads,
        max_position_embeddings=64,
        initializer_range=0.05,
        tie_word_embeddings=True,
        pad_token_id=VOCABULARY.index("<pad>"),
        eos_token_id=VOCABULARY.index(";"),
        bos_token_id=None,
    )
    return LlamaForCausalLM(config)


def batch(
    task: RunningSums, recipe: Recipe, tokenizer: PreTrainedTokenizerFast, step: int, rng: random.Random
) -> tuple[torch.Tensor, torch.Tensor]:
    """Ids of prompts with solutions, padded on the right, and the same ids with all but the solutions ignored."""
    rows, targets = [], []
    for _ in range(recipe.batch_size):
        offset = len(TERMS) - 1 if step % RARE_EVERY == 0 else rng.randrange(len(TERMS) - 1)
        index = rng.randrange(task.num_prompts("train") // len(TERMS)) * len(TERMS) + offset
        prompt = task.prompt(f"train/{index}").text
        digits = [int(digit) for digit in prompt[:-1].split("+")]
        wrong_share = 0.0 if step < recipe.right_first * recipe.num_steps else recipe.wrong_share[len(digits)]
        solution = tokenizer.encode(recipe.write(digits, recipe, wrong_share, rng))
        rows.append(tokenizer.encode(prompt) + solution)
        targets.append([IGNORED] * len(prompt) + solution)
    width = max(map(len, rows))
    ids_BT = torch.tensor([row + [tokenizer.pad_token_id] * (width - len(row)) for row in rows])
    return ids_BT, torch.tensor([target + [IGNORED] * (width - len(target)) for target in targets])


def pretrain(name: str, out: Path) -> None:
    """Train one model and write its folder."""
    torch.set_num_threads(1)
    logging.disable_progress_bar()
    recipe, tokenizer, started = RECIPES[name], build_tokenizer(), time.monotonic()
    model, rng = build_model(recipe), random.Random(recipe.seed)
    task = RunningSums(terms=TERMS, ood_terms=(8,))
    optimizer = torch.optim.AdamW(model.parameters(), lr=recipe.learning_rate, betas=(0.9, 0.98), weight_decay=0.01)
    for step in range(recipe.num_steps):
        rate = recipe.learning_rate * min(1.0, (step + 1) / 100) * max(0.02, 1 - step / recipe.num_steps)
        optimizer.param_groups[0]["lr"] = rate
        ids_BT, target_BT = batch(task, recipe, tokenizer, step, rng)
        logits = model(input_ids=ids_BT[:, :-1], use_cache=False).logits
        loss = cross_entropy(logits.flatten(0, 1), target_BT[:, 1:].flatten(), ignore_index=IGNORED)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if (step + 1) % 200 == 0:
            seconds = time.monotonic() - started
            print(f"{name}: step {step + 1} of {recipe.num_steps}, loss {loss.item():.3f}, {seconds:.0f} s", flush=True)
    model.eval().save_pretrained(out / name)
    tokenizer.save_pretrained(out / name)
    for file in (out / name).iterdir():
        file.chmod(0o644)
    report(name, model, tokenizer)


@torch.no_grad()
def report(name: str, model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, num_prompts: int = 1024) -> None:
    """Accuracy of sampled completions on held-out sums, by number of terms."""
    torch.manual_seed(0)
    accuracy = {}
    for terms in TERMS:
        task = RunningSums(terms=(terms,), ood_terms=())
        prompts = [task.prompt(f"test/{index}") for index in range(num_prompts)]
        ids = torch.tensor([tokenizer.encode(prompt.text) for prompt in prompts])
        rows = model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=True, top_k=0, max_new_tokens=24)
        texts = tokenizer.batch_decode(rows[:, ids.shape[1] :])
        scores = [
            task.score(prompt, [text.replace("<pad>", "")])[0] for prompt, text in zip(prompts, texts, strict=True)
        ]
        accuracy[terms] = sum(score.value for score in scores if score) / num_prompts
    mix = sum(accuracy[terms] for terms in (3, 4, 5, 6)) / 4
    parameters = sum(parameter.numel() for parameter in model.parameters())
    by_terms = "  ".join(f"{terms}: {value:.3f}" for terms, value in accuracy.items())
    print(
        f"{name}: {parameters} parameters; held-out accuracy by terms  {by_terms}; 3 to 6 mixed {mix:.3f}", flush=True
    )


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=OUT, help="folder that gets one folder per model")
    parser.add_argument("--only", choices=RECIPES, help="build one of them")
    args = parser.parse_args()
    names = [args.only] if args.only else list(RECIPES)
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(SIDE_BY_SIDE, len(names)), mp_context=context) as workers:
        list(workers.map(pretrain, names, [args.out] * len(names)))


if __name__ == "__main__":
    main()
