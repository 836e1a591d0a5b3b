"""The model of a node: loading, tokenizer and its fingerprint, prompt rendering, adapters, memory, the tiny models that
come with the package.

Knows neither tasks nor peers.
"""

from motet.models.attention import AttentionPlan, AttentionRules, masked_attention
from motet.models.loading import check_dtype, load_policy, model_memory, resolve_device
from motet.models.lora import LoraOptions
from motet.models.memory import MemoryEstimate, Workload
from motet.models.policy import Policy
from motet.models.prompting import PromptStyle
from motet.models.tiny import tiny_path
from motet.models.tokenizer import Tokenizer

__all__ = [
    "AttentionPlan",
    "AttentionRules",
    "LoraOptions",
    "MemoryEstimate",
    "Policy",
    "PromptStyle",
    "Tokenizer",
    "Workload",
    "check_dtype",
    "load_policy",
    "masked_attention",
    "model_memory",
    "resolve_device",
    "tiny_path",
]
