"""The model of a node: loading, tokenizer and its fingerprint, LoRA, the tiny models that come with the package.

Knows neither tasks nor peers.
"""

from motet.models.loading import load_policy
from motet.models.policy import Policy
from motet.models.tiny import tiny_path
from motet.models.tokenizer import Tokenizer

__all__ = ["Policy", "Tokenizer", "load_policy", "tiny_path"]
