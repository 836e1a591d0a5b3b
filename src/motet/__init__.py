"""Collaborative GRPO for language models that differ: each node trains its own model and learns from everybody's
completions. The heart: `motet.core.loss` (what is learned), `motet.records.rollout` (what travels),
`motet.node.node` (how a round goes). Importing the package loads nothing else.
"""

__all__ = ["__version__"]

__version__ = "0.1.0"
