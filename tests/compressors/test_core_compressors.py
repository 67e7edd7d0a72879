"""Top-K and Random-K against brute force, and the traffic of all core compressors in closed form."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from core_cases import SHAPES, gradients, uniform
from processes import run_processes

from accordion_bench.compressors import build_compressor
from accordion_bench.training.aggregator import Aggregator
from accordion_bench.training.communicator import Communicator
from accordion_bench.training.gradients import Layout
from accordion_bench.training.traffic import Traffic


@pytest.mark.parametrize("fraction", [0.004, 0.1, 0.5, 0.7, 0.99, 1.0])
def test_topk_equals_sorting_every_worker_and_layer(fraction: float) -> None:
    layout = Layout(SHAPES)
    compressor = build_compressor("topk", layout, 0, error_feedback=True, settings={})
    compressor.set_levels(uniform(layout, fraction))
    grads_HN = gradients(1, 3, layout.size)[0]
    sent_AN = np.zeros_like(grads_HN.numpy())
    for w, grads_N in enumerate(grads_HN.numpy()):
        for slot in layout.layers:
            part = grads_N[slot.start : slot.stop]
            k = max(1, int(fraction * slot.size))
            for i in sorted(range(slot.size), key=lambda i: -abs(part[i]))[:k]:
                sent_AN[w, slot.start + i] = part[i]
        sent_AN[w, layout.dense] = grads_N[layout.dense]
    rest_HN = grads_HN.clone()
    update_N = compressor.reduce(rest_HN, Communicator(3))
    np.testing.assert_allclose(update_N.numpy(), sent_AN.mean(0), rtol=0, atol=1e-14)
    expected_HN = grads_HN.numpy() - sent_AN
    expected_HN[:, layout.dense] = 0
    np.testing.assert_array_equal(rest_HN.numpy(), expected_HN)


def test_randomk_sends_k_distinct_elements_the_same_for_all_workers_and_others_every_update() -> None:
    layout = Layout(SHAPES)
    compressor = build_compressor("randomk", layout, 5, error_feedback=True, settings={})
    compressor.set_levels(uniform(layout, 0.25))
    seen = []
    for _ in range(3):
        grads_HN = gradients(1, 2, layout.size)[0]
        before_HN = grads_HN.clone()
        update_N = compressor.reduce(grads_HN, Communicator(2))
        sent_HN = grads_HN == 0
        assert torch.equal(sent_HN[0], sent_HN[1])
        torch.testing.assert_close(update_N, torch.where(sent_HN[0], before_HN.mean(0), 0), rtol=0, atol=1e-14)
        assert torch.equal(grads_HN[~sent_HN], before_HN[~sent_HN])
        for slot in layout.layers:
            assert int(sent_HN[0, slot.start : slot.stop].sum()) == max(1, int(0.25 * slot.size)), slot.name
        seen.append(tuple(sent_HN[0].tolist()))
    assert len(set(seen)) == 3


def test_randomk_without_error_feedback_is_unbiased() -> None:
    layout = Layout({"w": (10, 6), "v": (3, 5)})
    compressor = build_compressor("randomk", layout, 5, error_feedback=False, settings={})
    compressor.set_levels([0.3, 0.2])
    gradient_N = gradients(1, 1, layout.size)[0, 0]
    draws = 4000
    total_N = sum(compressor.reduce(gradient_N.repeat(1, 1), Communicator(1)) for _ in range(draws))
    # Each element is n/k g with probability k/n: the mean deviates by |g| sqrt((n/k - 1) / draws); allow 5 times it.
    allowed_N = 5 * gradient_N.abs() * (1 / 0.2 - 1) ** 0.5 / draws**0.5
    assert bool(((total_N / draws - gradient_N).abs() <= allowed_N).all())


def _resnet18() -> dict[str, tuple[int, ...]]:
    """The parameters of ResNet-18 for 32 x 32 images and ten classes (He et al. 2015; the CIFAR stem is one 3 x 3)."""
    shapes: dict[str, tuple[int, ...]] = {}

    def convolution(name: str, out: int, inside: int, kernel: int) -> None:
        shapes[name] = (out, inside, kernel, kernel)
        shapes[f"{name}.norm.weight"] = shapes[f"{name}.norm.bias"] = (out,)

    convolution("stem", 64, 3, 3)
    inside = 64
    for stage, out in enumerate((64, 128, 256, 512)):
        for block in range(2):
            convolution(f"{stage}.{block}.first", out, inside, 3)
            convolution(f"{stage}.{block}.second", out, out, 3)
            if inside != out:
                convolution(f"{stage}.{block}.shortcut", out, inside, 1)
            inside = out
    shapes |= {"head.weight": (10, 512), "head.bias": (10,)}
    return shapes


CASES = [("none", 1.0), ("powersgd", 1), ("powersgd", 2), ("topk", 0.01), ("randomk", 0.01)]


def _resnet18_traffic(process: int, processes: int) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """(what the meter counted, what `cost` said) of one step of every case, one worker in each process."""
    layout = Layout(_resnet18())
    gradient = torch.arange(float(layout.size)).sin_().mul_(1 + process).unsqueeze(0)
    result = []
    for name, level in CASES:
        compressor = build_compressor(name, layout, 0, error_feedback=True, settings={})
        compressor.set_levels(uniform(layout, level))
        communicator = Communicator(1, process, processes)
        Aggregator(compressor, error_feedback=name != "none").reduce(gradient.clone(), communicator)
        cost = compressor.cost(uniform(layout, level))
        result.append((communicator.traffic.as_dict(), cost.as_dict()))
    return result


def test_four_processes_send_the_closed_form_for_resnet18() -> None:
    shapes = list(_resnet18().values())
    matrices = [(shape[0], int(np.prod(shape[1:]))) for shape in shapes if len(shape) > 1]
    vectors = sum(shape[0] for shape in shapes if len(shape) == 1)
    parameters = vectors + sum(n * m for n, m in matrices)
    assert parameters == 11_173_962

    def powersgd(r: int) -> tuple[int, int]:
        return sum(r * (n + m) if r * (n + m) < n * m else n * m for n, m in matrices) + vectors, 2

    def kept(fraction: float) -> int:
        return sum(max(1, int(fraction * n * m)) for n, m in matrices)

    expected = {
        ("none", 1.0): ((parameters, 1), (0, 0)),
        ("powersgd", 1): (powersgd(1), (0, 0)),
        ("powersgd", 2): (powersgd(2), (0, 0)),
        ("topk", 0.01): ((vectors, 1), (2 * kept(0.01), 1)),
        ("randomk", 0.01): ((kept(0.01) + vectors, 1), (0, 0)),
    }
    assert powersgd(1)[0] == 45_935
    assert powersgd(2)[0] == 82_260
    for measured in run_processes(4, _resnet18_traffic):
        for case, (counted, cost) in zip(CASES, measured, strict=True):
            assert counted == cost, case
            traffic = Traffic.from_dict(counted)
            (mean, mean_calls), (gather, gather_calls) = expected[case]
            assert (traffic.mean.elements, traffic.mean.calls) == (mean, mean_calls), case
            assert (traffic.gather.elements, traffic.gather.calls) == (gather, gather_calls), case
            assert traffic.bytes_per_worker == 4 * (mean + gather), case
            assert traffic.floats_per_worker == mean + gather, case
            assert traffic.paper_floats(4) == mean + 4 * gather, case
            assert traffic.control.calls == 0, case
