"""Completions: the Generator protocol and its implementation on a local Hugging Face model.

Knows policies and prompt ids; knows neither tasks nor rewards nor peers.
"""

from motet.generation.generator import Completion, Generator
from motet.generation.hf import HFGenerator

__all__ = ["Completion", "Generator", "HFGenerator"]
