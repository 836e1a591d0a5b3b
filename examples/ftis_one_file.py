"""F-TIS in one file: two language models that differ learn from each other's completions.

    python examples/ftis_one_file.py --rounds 20

Needs torch and transformers, nothing else. Read from top to bottom: the task, sampling, the loss, one round, the run.

Method: "F-TIS: Harnessing Diverse Models in Collaborative GRPO", arXiv 2605.22537. Two nodes each own a model and
never show its weights. In a round each samples G completions for half of the prompts and hands over what it wrote:
token ids and their log-probs. Then each takes one optimiser step on everything. What a peer wrote is off-policy, so

  - each token's gradient is weighted by pi_old/pi_gen, capped at 2 (truncated importance sampling: TIS);
  - a peer's sample is dropped if it was no better than its group, or too far from the own policy (filter: F).

Three policies, three log-probs of the same token:

  logp_gen    of the model that sampled it, at that time; travels with the completion
  logp_old    of the model that learns, before this round's step
  logp_theta  of the model that learns, now: the only one with a gradient
              (at one step a round equal in value to logp_old)

Shapes: B samples (prompts x G), T tokens of the longest completion, so logp_old_BT is (B, T). P, one prompt's width.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer, DynamicCache, PreTrainedModel, PreTrainedTokenizerBase

MODELS = Path(__file__).resolve().parents[1] / "src" / "motet" / "models" / "tiny_weights"
METHODS = {  # name: (weights, rule)
    "on_policy": ("none", "off"),  # each alone, with all the prompts
    "nois": ("none", "off"),
    "vis": ("vanilla", "off"),
    "tis": ("truncated", "off"),
    "f_nois": ("none", "either"),
    "f_vis": ("vanilla", "either"),
    "f_tis": ("truncated", "either"),
}


# --- The task: "3+5+9=" -> "08.17;", every partial sum; right if the last number is ------------------------------


def is_held_out(prompt: str) -> bool:
    """A fixed fifth of all sums, by a hash: never trained on, not in pre-training either."""
    digest = blake2b(prompt.encode(), digest_size=8, key=b"motet running_sums held out").digest()
    return int.from_bytes(digest, "big") % 5 == 0


def draw_sum(rng: random.Random, terms: int, *, held_out: bool) -> str:
    while True:
        prompt = "+".join(str(rng.randint(1, 9)) for _ in range(terms)) + "="
        if is_held_out(prompt) == held_out:
            return prompt


def reward(prompt: str, text: str) -> float:
    total = sum(int(digit) for digit in prompt[:-1].split("+"))
    return float(text.removesuffix(";").split(".")[-1] == f"{total:02d}")


# --- Sampling: left padding, one pass over the prompts, then a token a pass with the cache -----------------------


@dataclass
class Samples:
    """Everything that leaves a node."""

    prompts: list[str]  # B, each prompt G times in a row
    completions: list[list[int]]  # B lists of token ids
    logp_gen: list[list[float]]  # B lists of log-probs
    reward_B: Tensor


@torch.no_grad()
def sample(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, prompts: list[str], *, max_new_tokens: int = 24
) -> Samples:
    ids_B = [tokenizer.encode(prompt) for prompt in prompts]
    width = max(map(len, ids_B))
    ids_BP = torch.tensor([[tokenizer.pad_token_id] * (width - len(ids)) + ids for ids in ids_B])
    real_BP = torch.tensor([[0] * (width - len(ids)) + [1] * len(ids) for ids in ids_B])
    position_BP = (real_BP.cumsum(1) - 1).clamp(min=0)
    cache = DynamicCache(config=model.config)
    token_BT, logp_BT, running_B = [], [], torch.ones(len(prompts), dtype=torch.bool)
    for _ in range(max_new_tokens):
        logits_BV = model(
            input_ids=ids_BP, attention_mask=real_BP, position_ids=position_BP, cache=cache, logits_to_keep=1
        ).logits[:, -1]
        logp_BV = torch.log_softmax(logits_BV.float(), dim=-1)  # temperature 1, no top-k, no top-p
        ids_BP = torch.multinomial(logp_BV.exp(), 1)
        token_BT.append(ids_BP)
        logp_BT.append(logp_BV.gather(1, ids_BP))
        running_B &= ids_BP[:, 0] != tokenizer.eos_token_id
        if not running_B.any():
            break
        real_BP = torch.cat([real_BP, torch.ones_like(ids_BP)], dim=1)
        position_BP = position_BP[:, -1:] + 1
    tokens, logps = torch.cat(token_BT, dim=1).tolist(), torch.cat(logp_BT, dim=1).tolist()
    end = tokenizer.eos_token_id
    length_B = [row.index(end) + 1 if end in row else len(row) for row in tokens]
    completions = [row[:length] for row, length in zip(tokens, length_B, strict=True)]
    texts = tokenizer.batch_decode(completions)
    rewards = torch.tensor([reward(prompt, text) for prompt, text in zip(prompts, texts, strict=True)])
    return Samples(prompts, completions, [row[:length] for row, length in zip(logps, length_B, strict=True)], rewards)


# --- The method --------------------------------------------------------------------------------------------------


def group_advantages(reward_B: Tensor, group_size: int) -> Tensor:
    """A_i = (r_i - mean) / (std + 1e-4) over the group; 0 where all rewards of the group are equal."""
    reward_NG = reward_B.view(-1, group_size)
    centred_NG = reward_NG - reward_NG.mean(dim=1, keepdim=True)
    advantage_NG = centred_NG / (reward_NG.std(dim=1, keepdim=True) + 1e-4)
    return torch.where(reward_NG.amax(1, keepdim=True) > reward_NG.amin(1, keepdim=True), advantage_NG, 0.0).view(-1)


def ftis_loss(  # noqa: PLR0913 - the settings of the method
    logp_theta_BT: Tensor,
    logp_old_BT: Tensor,
    logp_gen_BT: Tensor,
    mask_BT: Tensor,  # true on completion tokens
    advantage_B: Tensor,
    is_external_B: Tensor,
    *,
    epsilon: float = 0.2,
    weights: str = "truncated",
    cap: float = 2.0,
    rule: str = "either",
    kl_limit_nats: float = 50.0,
    num_samples: int | None = None,  # B of the whole round, if samples without a gradient were left out
) -> Tensor:
    """-(1/B) sum_i (1/|a_i|) sum_t w_it min(R_it A'_i, clip(R_it) A'_i), a scalar."""
    d_BT = torch.where(mask_BT, logp_old_BT - logp_gen_BT, 0.0).clamp(-20, 20).detach()
    weight_BT = {"none": torch.ones_like(d_BT), "vanilla": d_BT.exp(), "truncated": d_BT.exp().clamp(max=cap)}[weights]

    kl_B = (d_BT.exp() - 1 - d_BT).sum(dim=1)  # k3 of KL(pi_gen || pi_old), never negative, unlike the sum of d
    bad_B, far_B = advantage_B <= 0, kl_B > kl_limit_nats
    dropped_B = {"either": bad_B | far_B, "both": bad_B & far_B, "off": torch.zeros_like(far_B)}[rule] & is_external_B

    ratio_BT = torch.where(mask_BT, logp_theta_BT - logp_old_BT.detach(), 0.0).clamp(-20, 20).exp()
    kept_B1 = torch.where(dropped_B, 0.0, advantage_B)[:, None]
    token_BT = weight_BT * torch.minimum(ratio_BT * kept_B1, ratio_BT.clamp(1 - epsilon, 1 + epsilon) * kept_B1)
    sample_B = torch.where(mask_BT, token_BT, 0.0).sum(dim=1) / mask_BT.sum(dim=1).clamp(min=1)
    return -sample_B.sum() / (num_samples or len(advantage_B))


# --- One node ----------------------------------------------------------------------------------------------------


class Node:
    def __init__(self, name: str, folder: Path, learning_rate: float) -> None:
        self.name = name
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=learning_rate, weight_decay=0.0)

    def log_probs(self, prompts: list[str], completions: list[list[int]]) -> tuple[Tensor, Tensor]:
        """Log-probs of the completions' tokens under this node's model, and their mask, both (B, T)."""
        starts = [self.tokenizer.encode(prompt) for prompt in prompts]
        rows = [start + completion for start, completion in zip(starts, completions, strict=True)]
        width, longest = max(map(len, rows)), max(map(len, completions))
        logits = self.model(input_ids=torch.tensor([[*row, *[0] * (width - len(row))] for row in rows])).logits
        token_BT, mask_BT = pad(completions, longest), length_mask(completions, longest)
        before_BT = torch.tensor([len(start) - 1 for start in starts])[:, None] + torch.arange(longest)
        before_BT = before_BT.clamp(max=width - 1)  # the logits of a token stand one place before it
        logp_BTV = torch.log_softmax(logits[torch.arange(len(rows))[:, None], before_BT].float(), dim=-1)
        return logp_BTV.gather(2, token_BT[:, :, None])[:, :, 0], mask_BT

    def learn(self, shared: dict[str, Samples], group_size: int, method: str, kl_limit_nats: float) -> None:
        """One step on the samples of all nodes, by name of the node that wrote them."""
        weights, rule = METHODS[method]
        prompts = [prompt for samples in shared.values() for prompt in samples.prompts]
        completions = [completion for samples in shared.values() for completion in samples.completions]
        logp_gen = [logp for samples in shared.values() for logp in samples.logp_gen]
        advantage_B = torch.cat([group_advantages(samples.reward_B, group_size) for samples in shared.values()])
        external_B = torch.tensor([name != self.name for name, samples in shared.items() for _ in samples.prompts])

        matters_B = advantage_B != 0 if rule == "off" else (advantage_B > 0) | (~external_B & (advantage_B < 0))
        if not matters_B.any():  # AdamW would move even on a gradient of zero
            return
        index = matters_B.nonzero()[:, 0].tolist()
        logp_theta_BT, mask_BT = self.log_probs([prompts[i] for i in index], [completions[i] for i in index])
        loss = ftis_loss(
            logp_theta_BT,
            logp_theta_BT.detach(),  # one step a round: old is the same policy
            pad([logp_gen[i] for i in index], mask_BT.shape[1]),
            mask_BT,
            advantage_B[index],
            external_B[index],
            weights=weights,
            rule=rule,
            kl_limit_nats=kl_limit_nats,
            num_samples=len(prompts),
        )
        self.optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()

    def accuracy(self, prompts: list[str]) -> float:
        return sample(self.model, self.tokenizer, prompts).reward_B.mean().item()


def pad(rows: Sequence[Sequence[float]], width: int) -> Tensor:
    return torch.tensor([[*row, *[0] * (width - len(row))] for row in rows])


def length_mask(rows: Sequence[Sequence[float]], width: int) -> Tensor:
    return torch.arange(width) < torch.tensor([len(row) for row in rows])[:, None]


# --- The run -----------------------------------------------------------------------------------------------------


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Two models learn running sums from each other (F-TIS).")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--method", choices=METHODS, default="f_tis")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--small", type=Path, default=MODELS / "small", help="Hugging Face folder of the first model")
    parser.add_argument("--large", type=Path, default=MODELS / "large", help="... and of the second, same tokenizer")
    parser.add_argument("--prompts", type=int, default=32, help="prompts a round, shared out over the two nodes")
    parser.add_argument("--group-size", type=int, default=8, help="G, completions of a prompt")
    parser.add_argument("--learning-rate", type=float, default=5e-4, help="of the first round; falls to 0")
    parser.add_argument("--kl-limit", type=float, default=50.0, help="of the filter, in nats")
    parser.add_argument("--test-prompts", type=int, default=1024)
    args = parser.parse_args(argv)

    torch.manual_seed(args.seed)
    rng, test_rng = random.Random(args.seed), random.Random("held out")
    nodes = [Node("small", args.small, args.learning_rate), Node("large", args.large, args.learning_rate)]
    test = [draw_sum(test_rng, 3 + i % 4, held_out=True) for i in range(args.test_prompts)]
    before = [node.accuracy(test) for node in nodes]

    for round_number in range(args.rounds):
        shared: dict[str, Samples] = {}  # the memory exchange
        share = args.prompts if args.method == "on_policy" else args.prompts // len(nodes)
        for node in nodes:
            prompts = [draw_sum(rng, rng.randint(3, 6), held_out=False) for _ in range(share)]
            repeated = [prompt for prompt in prompts for _ in range(args.group_size)]
            shared[node.name] = sample(node.model, node.tokenizer, repeated)
        for node in nodes:
            node.optimizer.param_groups[0]["lr"] = args.learning_rate * (1 - round_number / args.rounds)
            mine = {node.name: shared[node.name]} if args.method == "on_policy" else shared
            node.learn(mine, args.group_size, args.method, args.kl_limit)
        rewards = "  ".join(f"{name} {samples.reward_B.mean():.3f}" for name, samples in shared.items())
        print(f"round {round_number + 1:3d}  mean reward  {rewards}", flush=True)

    for node, accuracy in zip(nodes, before, strict=True):
        print(f"{node.name}: held-out accuracy {accuracy:.3f} before, {node.accuracy(test):.3f} after")


if __name__ == "__main__":
    main()
