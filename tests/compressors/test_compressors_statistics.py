"""Bias and variance of the unbiased compressors over many draws; what error feedback does for the others."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from accordion_bench.compressors import build_compressor
from accordion_bench.compressors.atomo import probabilities
from accordion_bench.training.aggregator import Aggregator
from accordion_bench.training.communicator import Communicator
from accordion_bench.training.compressor import Compressor
from accordion_bench.training.gradients import Layout

DRAWS = 500
SHAPE = (8, 12)
GRADIENT = torch.randn(SHAPE, generator=torch.Generator().manual_seed(4)).double()


def build(name: str, level: float, error_feedback: bool, settings: dict[str, Any] | None = None) -> Compressor:
    compressor = build_compressor(name, Layout({"w": SHAPE}), 7, error_feedback=error_feedback, settings=settings or {})
    compressor.set_levels([level])
    return compressor


def draws(compressor: Compressor, count: int = DRAWS) -> Tensor:
    """(count, N): updates of one worker with the same gradient again and again."""
    given_HN = GRADIENT.reshape(1, -1)
    return torch.stack([compressor.reduce(given_HN.clone(), Communicator(1)).clone() for _ in range(count)])


def qsgd_variance(steps: int, bucket: int, norm: float) -> float:
    """Sum of (||v|| / s)^2 p (1 - p), p the chance of rounding up."""
    total = 0.0
    for part in GRADIENT.flatten().split(bucket):
        length = torch.linalg.vector_norm(part, ord=norm)
        scaled = steps * part.abs() / length
        p = scaled - scaled.floor()
        total += float(((length / steps) ** 2 * p * (1 - p)).sum())
    return total


def terngrad_variance() -> float:
    magnitudes = GRADIENT.abs()
    return float((magnitudes * (magnitudes.max() - magnitudes)).sum())


def atomo_variance(budget: int) -> float:
    s = torch.linalg.svdvals(GRADIENT)
    return float((s**2 * (1 / probabilities(s, budget) - 1)).sum())


UNBIASED = [
    ("qsgd", 2, {"bucket": 32}, qsgd_variance(1, 32, 2)),
    ("qsgd", 4, {"bucket": 512}, qsgd_variance(7, 512, 2)),
    ("qsgd", 3, {"norm": "max", "bucket": 40}, qsgd_variance(3, 40, math.inf)),
    ("terngrad", 1, {"clip": None}, terngrad_variance()),
    ("atomo", 1, {}, atomo_variance(1)),
    ("atomo", 3, {}, atomo_variance(3)),
    ("randomk", 0.25, {}, 3 * float((GRADIENT**2).sum())),
]


@pytest.mark.parametrize(
    ("name", "level", "settings", "variance"), UNBIASED, ids=[f"{name}-{level}" for name, level, *_ in UNBIASED]
)
def test_unbiased_with_the_variance_of_the_formula(
    name: str, level: float, settings: dict[str, Any], variance: float
) -> None:
    errors_TN = draws(build(name, level, False, settings)) - GRADIENT.flatten()
    along_T = errors_TN @ GRADIENT.flatten()
    assert abs(float(along_T.mean())) < 5 * float(along_T.std()) / math.sqrt(DRAWS)
    assert float((errors_TN.mean(0) ** 2).sum()) < 3 * variance / DRAWS  # its expectation is variance / DRAWS
    squares_T = (errors_TN**2).sum(1)
    uncertainty = float(squares_T.std()) / math.sqrt(DRAWS)
    assert float(squares_T.mean()) == pytest.approx(variance, abs=5 * uncertainty + 1e-9 * variance)


@pytest.mark.parametrize("level", [2, 4, 6])
def test_qsgd_keeps_the_papers_variance_bound(level: int) -> None:
    steps, size = 2 ** (level - 1) - 1, GRADIENT.numel()
    errors_TN = draws(build("qsgd", level, False), 100) - GRADIENT.flatten()
    bound = min(size / steps**2, math.sqrt(size) / steps) * float((GRADIENT**2).sum())
    assert float((errors_TN**2).sum(1).mean()) <= bound


def test_workers_draw_independently() -> None:
    compressor = build("terngrad", 1, False)
    grads_HN = GRADIENT.reshape(1, -1).repeat(2, 1)
    compressor.reduce(grads_HN, Communicator(2))
    assert not torch.equal(grads_HN[0], grads_HN[1])


def test_efsignsgd_is_the_contraction_of_its_lemma() -> None:
    """||C(p) - p||^2 = (1 - ||p||_1^2 / (n ||p||^2)) ||p||^2 (Lemma 8 of the paper)."""
    rest_HN = GRADIENT.reshape(1, -1).clone()
    build("efsignsgd", 1, True).reduce(rest_HN, Communicator(1))
    squares = float((GRADIENT**2).sum())
    delta = float(GRADIENT.abs().sum()) ** 2 / (GRADIENT.numel() * squares)
    assert float((rest_HN**2).sum()) == pytest.approx((1 - delta) * squares)


def test_onebit_values_are_the_best_for_its_signs() -> None:
    rest_HN = GRADIENT.reshape(1, -1).clone()
    build("onebit", 1, True).reduce(rest_HN, Communicator(1))
    for part in (GRADIENT.flatten() >= 0, GRADIENT.flatten() < 0):
        assert float(rest_HN[0, part].mean()) == pytest.approx(0, abs=1e-12)


BIASED = [("adacomp", 1), ("efsignsgd", 1), ("onebit", 1), ("topk", 0.05), ("randomk", 0.1), ("powersgd", 1)]


@pytest.mark.parametrize(("name", "level"), BIASED)
def test_error_feedback_sends_everything_in_the_end(name: str, level: float) -> None:
    """Sum of updates + mean memory = sum of mean gradients, and the memory stays bounded."""
    aggregator, communicator = Aggregator(build(name, level, True)), Communicator(3)
    generator = torch.Generator().manual_seed(0)
    given_N, updates_N = torch.zeros(GRADIENT.numel()).double(), torch.zeros(GRADIENT.numel()).double()
    sizes = []
    for _ in range(200):
        grads_HN = GRADIENT.flatten() + torch.randn(3, GRADIENT.numel(), generator=generator).double()
        given_N += grads_HN.mean(0)
        updates_N += aggregator.reduce(grads_HN, communicator)[0]
        assert aggregator.memory_HN is not None
        sizes.append(float(aggregator.memory_HN.norm()))
    torch.testing.assert_close(updates_N + aggregator.memory_HN.mean(0), given_N)
    assert max(sizes[100:]) < 2 * max(sizes[50:100])


def distance(name: str, level: float, error_feedback: bool, steps: int = 500, rate: float = 0.5) -> float:
    """From the optimum, relative to the start, after descending a quadratic whose two workers want different things."""
    layout = Layout({"w": SHAPE})
    compressor = build(name, level, error_feedback)
    aggregator, communicator = Aggregator(compressor, error_feedback=error_feedback), Communicator(2)
    apart_N = 3 * torch.randn(layout.size, generator=torch.Generator().manual_seed(1)).double()
    targets_HN = GRADIENT.flatten() + torch.stack([apart_N, -apart_N])
    curvature_N = torch.linspace(0.2, 1, layout.size).double()
    point_N = torch.zeros(layout.size).double()
    for step in range(steps):
        update_N, _ = aggregator.reduce(curvature_N * (point_N - targets_HN), communicator)
        point_N -= rate / (1 + step / 25) * update_N
    return float((point_N - GRADIENT.flatten()).norm() / GRADIENT.norm())


@pytest.mark.parametrize(("name", "level"), BIASED)
def test_error_feedback_reaches_the_optimum_where_workers_disagree(name: str, level: float) -> None:
    assert distance(name, level, True) < 0.15


def test_dgc_reaches_the_optimum_with_a_memory_of_its_own() -> None:
    assert distance("dgc", 0.1, False, rate=0.05) < 0.15


@pytest.mark.parametrize(("name", "level"), [("efsignsgd", 1), ("onebit", 1), ("topk", 0.05), ("adacomp", 1)])
def test_without_memory_they_do_not(name: str, level: float) -> None:
    assert distance(name, level, False, steps=200) > 0.5
