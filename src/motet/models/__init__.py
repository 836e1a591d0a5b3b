"""The model of a node: loading, tokenizer and its fingerprint, LoRA, the tiny models that come with the package.

Knows neither tasks nor peers.
"""

from motet.models.attention import AttentionPlan, AttentionRules, masked_attention
from motet.models.loading import load_policy
from motet.models.policy import Policy
from motet.models.tiny import tiny_path
from motet.models.tokenizer import Tokenizer

__all__ = ["AttentionPlan", "AttentionRules", "Policy", "Tokenizer", "load_policy", "masked_attention", "tiny_path"]
