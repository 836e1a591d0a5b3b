"""Completions: the Generator protocol, on a local Hugging Face model and on a vLLM server.

Knows policies and prompt ids; knows neither tasks nor rewards nor peers.
"""

from motet.generation.generator import Completion, Generator
from motet.generation.hf import HFGenerator
from motet.generation.vllm import Agreement, VLLMGenerator

__all__ = ["Agreement", "Completion", "Generator", "HFGenerator", "VLLMGenerator"]
