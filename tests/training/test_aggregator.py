"""Error feedback loses nothing, survives changes of level, and never remembers a NaN."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from small_trainer import setting_of
from torch import Tensor

from accordion_bench.compressors import COMPRESSORS, build_compressor
from accordion_bench.training.aggregator import Aggregator
from accordion_bench.training.communicator import Communicator
from accordion_bench.training.gradients import Layout

SHAPES = {"conv": (6, 2, 3, 3), "conv2": (6, 2, 3, 3), "bias": (6,), "linear": (20, 7), "scale": (), "bias2": (5,)}
NO_VECTORS = {"conv": (6, 2, 3, 3), "conv2": (6, 2, 3, 3), "linear": (20, 7)}
# name, settings, levels; every one of these sends in the mean over workers exactly what it takes out of the memories
LINEAR: list[tuple[str, dict[str, Any], tuple[float, float]]] = [
    ("powersgd", {"residual": "averaged"}, (1, 2)),
    ("powersgd", {"residual": "local"}, (1, 4)),
    ("topk", {}, (0.05, 0.8)),
    ("randomk", {}, (0.1, 0.5)),
]


def _gradients(steps: int, workers: int, size: int) -> Tensor:
    return torch.randn(steps, workers, size, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def _aggregator(layout: Layout, name: str, settings: dict[str, Any], level: float, feedback: bool = True) -> Aggregator:
    compressor = build_compressor(name, layout, 3, error_feedback=feedback, settings=settings)
    compressor.set_levels([level] * len(layout.layers))
    return Aggregator(compressor, error_feedback=feedback)


def _memory(aggregator: Aggregator, workers: int) -> Tensor:
    memories = [aggregator.memory(h) for h in range(workers)]
    assert all(memory is not None for memory in memories)
    return torch.stack(memories).clone()  # type: ignore[arg-type]


@pytest.mark.parametrize("workers", [1, 4])
@pytest.mark.parametrize(("name", "settings", "levels"), LINEAR)
def test_what_was_sent_and_what_is_remembered_add_up_to_all_gradients(
    name: str, settings: dict[str, Any], levels: tuple[float, float], workers: int
) -> None:
    layout = Layout(SHAPES)
    aggregator = _aggregator(layout, name, settings, levels[0])
    sent_N = before_N = torch.zeros(layout.size, dtype=torch.float64)
    grads_SHN = _gradients(40, workers, layout.size)
    for step, grads_HN in enumerate(grads_SHN):
        if step % 10 == 0:
            mixed = [levels[(step // 10 + layer) % 2] for layer in range(len(layout.layers))]
            aggregator.compressor.set_levels(mixed)
        update_N, finite = aggregator.reduce(grads_HN.clone(), Communicator(workers))
        assert finite
        memory_N = _memory(aggregator, workers).mean(0)
        torch.testing.assert_close(update_N + memory_N - before_N, grads_HN.mean(0), rtol=0, atol=1e-12)
        sent_N, before_N = sent_N + update_N, memory_N
    torch.testing.assert_close(sent_N + before_N, grads_SHN.mean(1).sum(0), rtol=0, atol=1e-11)
    assert float(before_N.norm()) > 0
    assert not before_N[layout.dense].any()  # 1-D tensors are sent whole


@pytest.mark.parametrize(("name", "settings", "levels"), LINEAR)
def test_a_change_of_level_leaves_the_memory_as_it_is(
    name: str, settings: dict[str, Any], levels: tuple[float, float]
) -> None:
    layout = Layout(SHAPES)
    aggregator = _aggregator(layout, name, settings, levels[0])
    grads_SHN = _gradients(6, 2, layout.size)
    for grads_HN in grads_SHN[:5]:
        aggregator.reduce(grads_HN.clone(), Communicator(2))
    before_HN = _memory(aggregator, 2)
    assert before_HN[:, : layout.dense.start].any(1).all()
    for level in (levels[1], levels[0], levels[1]):
        aggregator.compressor.set_levels([level] * len(layout.layers))
        assert torch.equal(_memory(aggregator, 2), before_HN)
    corrected_HN = before_HN + grads_SHN[5]
    update_N, _ = aggregator.reduce(grads_SHN[5].clone(), Communicator(2))
    torch.testing.assert_close(update_N + _memory(aggregator, 2).mean(0), corrected_HN.mean(0), rtol=0, atol=1e-12)


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("shapes", [SHAPES, NO_VECTORS], ids=["with vectors", "without"])
@pytest.mark.parametrize("name", COMPRESSORS)
def test_one_bad_element_of_one_worker_refuses_the_update_and_leaves_no_trace(
    name: str, shapes: dict[str, tuple[int, ...]], bad: float
) -> None:
    layout = Layout(shapes)
    own = setting_of(name)
    aggregator = _aggregator(layout, name, own.compressor_settings, own.levels[0], own.error_feedback)
    grads_SHN = _gradients(12, 3, layout.size)
    for grads_HN in grads_SHN[:2]:
        aggregator.reduce(grads_HN.clone(), Communicator(3))
    for step, slot in enumerate(layout.slots):
        memory_HN = None if aggregator.memory_HN is None else aggregator.memory_HN.clone()
        poisoned_HN = grads_SHN[2 + step].clone()
        poisoned_HN[1, slot.stop - 1] = bad
        _, finite = aggregator.reduce(poisoned_HN, Communicator(3))
        assert not finite, slot.name
        assert memory_HN is None or torch.equal(aggregator.memory_HN, memory_HN), slot.name  # type: ignore[arg-type]
        own_states = [aggregator.compressor.worker_state_dict(h) for h in range(3)]
        for state in (aggregator.compressor.state_dict(), *own_states):
            assert all(bool(value.isfinite().all()) for value in state.values()), slot.name
    update_N, finite = aggregator.reduce(grads_SHN[11].clone(), Communicator(3))
    assert finite
    assert bool(update_N.any())


@pytest.mark.parametrize("name", COMPRESSORS)
def test_a_sum_that_overflows_is_refused_before_it_enters_the_memory(name: str) -> None:
    layout = Layout(SHAPES)
    own = setting_of(name)
    aggregator = _aggregator(layout, name, own.compressor_settings, own.levels[0], own.error_feedback)
    for _ in range(6):
        grads_HN = torch.zeros(2, layout.size)
        grads_HN[1, layout.layers[-1].start + 77] = 2e38  # finite, but not twice
        aggregator.reduce(grads_HN, Communicator(2))
        assert aggregator.memory_HN is None or bool(aggregator.memory_HN.isfinite().all())


def test_large_finite_gradients_are_not_refused() -> None:
    layout = Layout(SHAPES)
    aggregator = _aggregator(layout, "none", {}, 1.0, feedback=False)
    update_N, finite = aggregator.reduce(torch.full((1, layout.size), 3e38), Communicator(1))
    assert finite
    assert bool((update_N == 3e38).all())


def test_without_error_feedback_nothing_is_remembered() -> None:
    layout = Layout(SHAPES)
    aggregator = _aggregator(layout, "topk", {}, 0.1, feedback=False)
    first, second = (aggregator.reduce(_gradients(1, 2, layout.size)[0], Communicator(2))[0].clone() for _ in range(2))
    assert torch.equal(first, second)
    assert aggregator.memory(0) is None


def test_the_published_topk_sums_layers_over_workers_and_averages_vectors() -> None:
    layout = Layout(SHAPES)
    mean = _aggregator(layout, "topk", {}, 0.1, feedback=False)
    total = Aggregator(mean.compressor, error_feedback=False, combine="sum")
    grads_HN = _gradients(1, 3, layout.size)[0]
    averaged_N = mean.reduce(grads_HN.clone(), Communicator(3))[0].clone()
    summed_N, _ = total.reduce(grads_HN.clone(), Communicator(3))
    layers = slice(0, layout.dense.start)
    torch.testing.assert_close(summed_N[layers], 3 * averaged_N[layers])
    assert torch.equal(summed_N[layout.dense], averaged_N[layout.dense])
