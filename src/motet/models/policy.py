"""A policy: a causal language model with its tokenizer, seen as hidden states and an output layer.

Hidden states and output layer are apart so that logits are computed only where a completion token is predicted,
in chunks; see `motet.core.logprobs`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import torch

from motet.errors import EnvironmentFault, UsageError
from motet.models.attention import AttentionPlan, no_mask, try_plans
from motet.models.lean import make_lean
from motet.models.quiet import quiet_libraries
from motet.models.tokenizer import Tokenizer

if TYPE_CHECKING:
    from transformers import Cache, PreTrainedModel


class Policy:
    """One node's model.

    Args:
        label: name for people, such as "tiny:small".
        model: the model that is trained and saved (a PEFT model if an adapter is trained).
        causal: the Hugging Face causal language model inside it (the same object without an adapter).
        tokenizer: its tokenizer.
        device: where its weights lie.
        commit: the hub's commit that it was loaded from, if it was.
        own_attention: let the model take motet's attention if it can; False: it keeps the one it has.

    Attributes:
        takes_plans: True if this architecture computes attention as an `AttentionPlan` says: then rows can be packed
            and prompts shared. Without, rows are padded.

    Raises:
        UsageError: E-MODEL-18 if tokens see later ones.
        EnvironmentFault: E-MODEL-03 if the logits are more than output layer times hidden states (times a known
            soft cap): motet would score such a model wrongly.
    """

    def __init__(
        self,
        label: str,
        *,
        model: torch.nn.Module,
        causal: PreTrainedModel,
        tokenizer: Tokenizer,
        device: torch.device,
        commit: str | None = None,
        own_attention: bool = True,
    ) -> None:
        self.label = label
        self.commit = commit
        self.model = model.eval()  # dropout stays off in generation, scoring and the gradient pass alike
        self.tokenizer = tokenizer
        self.device = device
        self._decoder = causal.get_decoder()
        self.head: torch.nn.Module = causal.get_output_embeddings()
        text_config = causal.config.get_text_config()
        self.softcap: float | None = getattr(text_config, "final_logit_softcapping", None)
        self.config = text_config
        self._check_head(causal)
        with quiet_libraries(), torch.no_grad():
            make_lean(causal)
            self.takes_plans = own_attention and try_plans(
                causal,
                lambda token_ids, positions, plan: self.hidden_states(token_ids, positions, plan=plan),
                text_config,
                device=device,
            )

    @property
    def vocab_size(self) -> int:
        """Width of the output layer; ids are below it."""
        return int(self.config.vocab_size)

    @property
    def num_parameters(self) -> int:
        """All parameters of the model, trained or frozen."""
        return sum(p.numel() for p in self.model.parameters())

    def trainable(self) -> dict[str, torch.nn.Parameter]:
        """The parameters that training moves, by name."""
        return {name: p for name, p in self.model.named_parameters() if p.requires_grad}

    def hidden_states(
        self,
        token_ids_BT: torch.Tensor,
        position_ids_BT: torch.Tensor,
        *,
        attention_mask_BT: torch.Tensor | None = None,
        cache: Cache | None = None,
        plan: AttentionPlan | None = None,
    ) -> torch.Tensor:
        """Last hidden states, (B, T, D).

        Args:
            token_ids_BT: ids; with a cache, only the new ones.
            position_ids_BT: their positions, explicit, from 0.
            attention_mask_BT: 1 where a token (cached ones included) may be attended to. None where padding stands
                only on the right: causal attention never looks there.
            cache: keys and values of earlier tokens; extended in place.
            plan: decides what attends to what, instead of mask and cache. Only if the policy `takes_plans`.
        """
        planned = {} if plan is None else {"plan": plan}
        output = self._decoder(
            input_ids=token_ids_BT,
            position_ids=position_ids_BT,
            attention_mask=attention_mask_BT if plan is None else no_mask(token_ids_BT.device),
            cache=cache,
            use_cache=cache is not None,
            **planned,
        )
        hidden: torch.Tensor = output.last_hidden_state
        return hidden

    def logits(self, hidden_ND: torch.Tensor) -> torch.Tensor:
        """Logits in fp32 before any temperature, (N, V)."""
        logits: torch.Tensor = self.head(hidden_ND).float()
        if self.softcap is not None:
            logits = torch.tanh(logits / self.softcap) * self.softcap
        return logits

    @torch.no_grad()
    def cast(self, dtype: torch.dtype) -> None:
        """Change what the weights compute in. Buffers stay: rotary frequencies lose positions in bf16."""
        for parameter in self.model.parameters():
            parameter.data = parameter.data.to(dtype)

    def save(self, folder: Path) -> None:
        """Write an ordinary Hugging Face folder (of the adapter, where one is trained) with the tokenizer."""
        save_pretrained = self.model.save_pretrained
        assert callable(save_pretrained)
        # Adapters never change the embedding here; peft would look for the base's own folder to find that out.
        options = {"save_embedding_layers": False} if hasattr(self.model, "peft_config") else {}
        with quiet_libraries():
            save_pretrained(str(folder), **options)
        self.tokenizer.save(str(folder))

    @torch.no_grad()
    def _check_head(self, causal: PreTrainedModel) -> None:
        token_ids = torch.arange(min(8, self.vocab_size), device=self.device)[None]
        expected = causal(input_ids=token_ids, use_cache=False).logits.float()
        positions = torch.arange(token_ids.shape[1], device=self.device)[None]
        hidden = self.hidden_states(token_ids, positions)
        ours = self.logits(hidden)
        tolerance = 1e-4 if self.head.weight.dtype == torch.float32 else 5e-2
        changed = torch.cat([token_ids[:, :-1], token_ids[:, :1]], dim=1)
        without_last = self.hidden_states(changed, positions)[:, :-1]
        if not torch.allclose(hidden[:, :-1], without_last, rtol=tolerance, atol=tolerance):
            raise UsageError(
                f"node.model {self.label!r}: its tokens see later ones, so it is no causal language model; motet "
                "trains those only",
                code="E-MODEL-18",
            )
        if not torch.allclose(ours, expected, rtol=tolerance, atol=tolerance):
            raise EnvironmentFault(
                f"{self.label}: its logits are not its output layer applied to its last hidden states "
                f"(difference {float((ours - expected).abs().max()):.3g}); motet cannot score this architecture",
                code="E-MODEL-03",
            )
