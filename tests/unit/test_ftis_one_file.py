"""The one-file example: its own maths by hand, against `motet.core` on random cases, and one whole run."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from motet.core import ftis_loss, group_advantages
from motet.models.tiny import tiny_path
from motet.tasks.running_sums import RunningSums

FILE = Path(__file__).resolve().parents[2] / "examples" / "ftis_one_file.py"


def load_example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("ftis_one_file", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


EXAMPLE = load_example()


def test_it_imports_nothing_of_motet() -> None:
    code = f"""if True:
        import runpy, sys
        runpy.run_path({str(FILE)!r})
        assert not [name for name in sys.modules if name.split(".")[0] == "motet"]
    """
    subprocess.run([sys.executable, "-c", code], check=True)


def test_it_fits_a_sitting() -> None:
    assert len(FILE.read_text().splitlines()) <= 270


def test_advantages_by_hand() -> None:
    rewards = torch.tensor([1.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0])  # mean 1/4, std 1/2; then no variance
    expected = torch.tensor([0.75, -0.25, -0.25, -0.25, 0.0, 0.0, 0.0, 0.0]) / (0.5 + 1e-4)
    torch.testing.assert_close(EXAMPLE.group_advantages(rewards, 4), expected)


def random_case(seed: int, spread: float) -> dict[str, torch.Tensor]:
    rng = torch.Generator().manual_seed(seed)
    num_samples, longest = 6, 7
    theta = -torch.rand(num_samples, longest, generator=rng, dtype=torch.float64) * 4
    old = theta + torch.randn(num_samples, longest, generator=rng, dtype=torch.float64) * 0.3
    gen = old + torch.randn(num_samples, longest, generator=rng, dtype=torch.float64) * spread
    lengths = torch.randint(1, longest + 1, (num_samples,), generator=rng)
    return {
        "logp_theta_BT": theta.requires_grad_(),
        "logp_old_BT": old.detach(),
        "logp_gen_BT": gen.detach(),
        "mask_BT": torch.arange(longest) < lengths[:, None],
        "advantage_B": torch.randn(num_samples, generator=rng, dtype=torch.float64).round(decimals=1),
        "is_external_B": torch.rand(num_samples, generator=rng) < 0.6,
    }


@settings(deadline=None, max_examples=60)
@given(
    seed=st.integers(0, 10_000),
    spread=st.sampled_from([0.1, 1.0, 4.0]),
    weights=st.sampled_from(["none", "vanilla", "truncated"]),
    rule=st.sampled_from(["either", "both", "off"]),
    cap=st.sampled_from([1.0, 2.0]),
    limit=st.sampled_from([0.5, 5.0, 50.0]),
)
def test_loss_and_gradient_equal_the_package(
    seed: int, spread: float, weights: str, rule: str, cap: float, limit: float
) -> None:
    options = {"weights": weights, "rule": rule, "cap": cap, "kl_limit_nats": limit}
    here, there = random_case(seed, spread), random_case(seed, spread)
    loss = EXAMPLE.ftis_loss(**here, **options)
    expected = ftis_loss(**there, **options).loss
    loss.backward()
    expected.backward()
    torch.testing.assert_close(loss, expected, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(here["logp_theta_BT"].grad, there["logp_theta_BT"].grad, rtol=1e-9, atol=1e-12)


@settings(deadline=None, max_examples=30)
@given(st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=8, max_size=8))
def test_advantages_equal_the_package(rewards: list[float]) -> None:
    labels = torch.tensor([0, 0, 0, 0, 1, 1, 1, 1])
    reward_B = torch.tensor(rewards)
    torch.testing.assert_close(EXAMPLE.group_advantages(reward_B, 4), group_advantages(reward_B, labels))


def test_sampled_log_probs_equal_the_learners() -> None:
    node = EXAMPLE.Node("small", tiny_path("tiny:small"), 1e-4)
    torch.manual_seed(0)
    samples = EXAMPLE.sample(node.model, node.tokenizer, ["3+5+9="] * 4 + ["1+2+3+4+5+6="] * 4)
    logp_BT, mask_BT = node.log_probs(samples.prompts, samples.completions)
    logp_gen_BT = EXAMPLE.pad(samples.logp_gen, mask_BT.shape[1])
    torch.testing.assert_close(logp_BT[mask_BT], logp_gen_BT[mask_BT], rtol=0, atol=1e-5)


def test_its_held_out_sums_are_those_of_the_task() -> None:
    task = RunningSums()
    assert not any(EXAMPLE.is_held_out(task.prompt(f"train/{index}").text) for index in range(300))
    assert all(EXAMPLE.is_held_out(task.prompt(f"test/{index}").text) for index in range(300))


@pytest.mark.parametrize("method", ["f_tis", "on_policy"])
def test_a_short_run_reports_what_it_reached(method: str, capsys: pytest.CaptureFixture[str]) -> None:
    EXAMPLE.main(["--rounds", "2", "--prompts", "4", "--test-prompts", "32", "--method", method])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["round", "round", "small:", "large:"]
    assert all("before" in line and "after" in line for line in lines[2:])


def test_an_optimizer_does_not_step_when_everything_is_dropped() -> None:
    node = EXAMPLE.Node("small", tiny_path("tiny:small"), 1e-2)
    before = [parameter.clone() for parameter in node.model.parameters()]
    ids = node.tokenizer.encode("08.17;")
    samples = EXAMPLE.Samples(["3+5+9="] * 4, [ids] * 4, [[-0.1] * 6] * 4, torch.tensor([1.0, 1.0, 1.0, 1.0]))
    node.learn({"small": samples, "large": samples}, 4, "f_tis", 50.0)
    assert all(torch.equal(old, new) for old, new in zip(before, node.model.parameters(), strict=True))


@pytest.mark.parametrize("writer", ["small", "large"])
def test_what_was_better_than_its_group_becomes_likelier(writer: str) -> None:
    """Own samples: the right one gains on the wrong one. A peer's: only the right one is learned from."""
    node = EXAMPLE.Node("small", tiny_path("tiny:small"), 1e-4)
    node.optimizer = torch.optim.SGD(
        node.model.parameters(), lr=1e-3
    )  # follows the gradient, unlike a first AdamW step
    right, wrong = node.tokenizer.encode("08.17;"), node.tokenizer.encode("08.18;")

    def log_probs() -> tuple[float, float]:
        logp_BT, _ = node.log_probs(["3+5+9="] * 2, [right, wrong])
        return logp_BT[0].sum().item(), logp_BT[1].sum().item()

    right_before, wrong_before = log_probs()
    samples = EXAMPLE.Samples(["3+5+9="] * 2, [right, wrong], [[-0.5] * 6] * 2, torch.tensor([1.0, 0.0]))
    node.learn({writer: samples}, 2, "f_tis", 50.0)
    right_after, wrong_after = log_probs()
    if writer == "small":
        assert right_after - wrong_after > right_before - wrong_before
    else:
        assert right_after > right_before
