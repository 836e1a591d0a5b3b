"""The stub of a vLLM server, that speaks its protocol."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def vllm_stub():
    """The module with the stub."""
    tests = next(folder for folder in Path(__file__).parents if folder.name == "tests")
    spec = importlib.util.spec_from_file_location("motet_tests_vllm_stub", tests / "support" / "vllm_stub.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
