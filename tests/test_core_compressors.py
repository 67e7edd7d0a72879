"""The core compressors against their papers, PyTorch's own PowerSGD, brute force and closed-form traffic."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from numpy_powersgd import NumpyPowerSGD
from processes import run_processes
from torch import Tensor, nn
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as peer
from torch.nn.parallel import DistributedDataParallel

from accordion_bench.aggregator import Aggregator
from accordion_bench.communicator import Communicator
from accordion_bench.compressors import build_compressor
from accordion_bench.compressors.powersgd import PowerSGD, orthonormalise
from accordion_bench.gradients import Layout
from accordion_bench.traffic import Traffic

SHAPES = {
    "stem.weight": (8, 3, 3, 3),
    "stem.bias": (8,),
    "a.weight": (8, 8, 3, 3),
    "norm.weight": (8,),
    "b.weight": (8, 8, 3, 3),  # the shape of a: they share a block
    "tiny.weight": (2, 3),  # rank 2 would send more than the matrix
    "wide.weight": (5, 64),
    "scale": (),
    "head.weight": (32, 7),
}


def _gradients(steps: int, workers: int, size: int, seed: int = 0) -> Tensor:
    """(steps, A, N) float64: what workers share plus what they do not, slowly turning."""
    generator = torch.Generator().manual_seed(seed)
    shared_N = torch.randn(size, generator=generator, dtype=torch.float64)
    noise_SAN = torch.randn(steps, workers, size, generator=generator, dtype=torch.float64)
    return shared_N + noise_SAN


def _matrices(layout: Layout, flat_N: Tensor) -> dict[str, Any]:
    return {slot.name: layout.matrix(flat_N, i).numpy().copy() for i, slot in enumerate(layout.layers)}


def _levels(layout: Layout, rank: float) -> list[float]:
    return [rank] * len(layout.layers)


@pytest.mark.parametrize("residual", ["averaged", "local"])
@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("ranks", [(1,), (2,), (4,), (1, 4, 2), (4, 1, 4)])
def test_powersgd_equals_a_plain_numpy_version_over_steps_with_error_feedback_and_rank_changes(
    residual: str, workers: int, ranks: tuple[int, ...]
) -> None:
    layout = Layout(SHAPES)
    compressor = PowerSGD(layout, 11, residual=residual)  # type: ignore[arg-type]
    aggregator = Aggregator(compressor)
    grads_SAN = _gradients(4 * len(ranks), workers, layout.size)
    peer_ = None
    for step, grads_HN in enumerate(grads_SAN):
        if step % 4 == 0:
            compressor.set_levels(_levels(layout, ranks[step // 4]))
            if peer_ is None:
                compressor.load_state_dict(_random_q(layout, ranks[0]))
                peer_ = NumpyPowerSGD({}, residual == "local")
            _take_new_columns(peer_, compressor)
        expected = peer_.step([_matrices(layout, grads_N) for grads_N in grads_HN])
        update_N, finite = aggregator.reduce(grads_HN.clone(), Communicator(workers))
        assert finite
        for name, matrix in _matrices(layout, update_N).items():
            np.testing.assert_allclose(matrix, expected[name], rtol=0, atol=1e-9, err_msg=f"{name}, step {step}")
        for w in range(workers):
            for name, memory in _matrices(layout, aggregator.memory(w)).items():
                error = peer_.errors.get((name, w), np.zeros_like(memory))
                np.testing.assert_allclose(memory, error, rtol=0, atol=1e-9, err_msg=f"{name}, step {step}")
        np.testing.assert_allclose(update_N[layout.dense], grads_HN[:, layout.dense].mean(0), rtol=0, atol=1e-12)


def _random_q(layout: Layout, rank: int) -> dict[str, Tensor]:
    """A first Q of our own, for every layer that rank compresses."""
    generator = torch.Generator().manual_seed(5)
    return {
        slot.name: torch.randn(slot.columns, min(rank, slot.rows), generator=generator, dtype=torch.float64)
        for slot in layout.layers
        if rank * (slot.rows + slot.columns) < slot.size
    }


def _take_new_columns(plain: NumpyPowerSGD, compressor: PowerSGD) -> None:
    """At a change of rank: the shared columns must be the old ones (up to length and sign), new ones are taken over."""
    q = {name: value.numpy() for name, value in compressor.state_dict().items()}
    for name in list(plain.q):
        if name not in q:  # goes dense now
            del plain.q[name]
    for name, columns in q.items():
        old = plain.q.get(name)
        if old is not None:
            kept = min(old.shape[1], columns.shape[1])
            ours, theirs = columns[:, :kept], old[:, :kept]
            cosines = (ours * theirs).sum(0) / np.linalg.norm(ours, axis=0) / np.linalg.norm(theirs, axis=0)
            np.testing.assert_allclose(np.abs(cosines), 1, rtol=0, atol=1e-9, err_msg=name)
            columns = np.concatenate([theirs, columns[:, kept:]], axis=1)
        plain.q[name] = columns


class Linear(nn.Module):
    """A loss whose gradient is whatever it is told."""

    def __init__(self, shapes: dict[str, tuple[int, ...]]) -> None:
        super().__init__()
        self.weights = nn.ParameterDict(
            {name.replace(".", "_"): nn.Parameter(torch.zeros(shape, dtype=torch.float64)) for name, shape in shapes.items()}
        )

    def forward(self, gradients: list[Tensor]) -> Tensor:
        return torch.stack([(w * g).sum() for w, g in zip(self.weights.values(), gradients, strict=True)]).sum()


def _with_pytorch(process: int, processes: int, ranks: tuple[int, ...], steps: int) -> dict[int, list[float]]:
    return {rank: _differences_from_pytorch(process, processes, rank, steps) for rank in ranks}


def _differences_from_pytorch(process: int, processes: int, rank: int, steps: int) -> list[float]:
    """Per step: the largest difference between the update of PyTorch's hook and ours."""
    shapes = {name: shape for name, shape in SHAPES.items() if shape}  # the hook cannot do scalars
    model = Linear(shapes)
    layout = Layout({name.replace(".", "_"): shape for name, shape in shapes.items()})
    q = _random_q(layout, rank)
    state = peer.PowerSGDState(
        None, matrix_approximation_rank=rank, start_powerSGD_iter=2, min_compression_rate=1, orthogonalization_epsilon=1e-12
    )
    ddp = DistributedDataParallel(model, bucket_cap_mb=100)
    names = {parameter: name for name, parameter in model.weights.items()}

    def hook(state, bucket):  # type: ignore[no-untyped-def]  # DDP refuses annotations that are strings
        if state.iter == 2 and not state.q_memory_dict:  # start from our Q instead of drawing one
            used = [q[names[p]] for p in bucket.parameters() if names[p] in q]
            by_shape = sorted(used, key=lambda a: [tuple(b.shape) for b in used].index(tuple(a.shape)))
            size = sum(model.weights[name].shape[0] * value.shape[1] for name, value in q.items())
            state.p_memory_dict[0] = torch.empty(size, dtype=torch.float64)
            state.q_memory_dict[0] = torch.cat([value.flatten() for value in by_shape])
        return peer.powerSGD_hook(state, bucket)

    ddp.register_comm_hook(state, hook)
    compressor = PowerSGD(layout, 0)
    compressor.set_levels(_levels(layout, rank))
    compressor.load_state_dict(q)
    aggregator = Aggregator(compressor)
    communicator = Communicator(1, process, processes)
    differences = []
    for step, grads_AN in enumerate(_gradients(steps + 2, processes, layout.size)):
        gradients = dict(zip([slot.name for slot in layout.slots], layout.views(grads_AN[process]), strict=True))
        ddp.zero_grad()
        ddp([gradients[name] for name in model.weights]).backward()
        if step < 2:
            continue  # the hook averages without compression at first
        update_N, _ = aggregator.reduce(grads_AN[process : process + 1].clone(), communicator)
        views = layout.views(update_N)
        ours = {slot.name: view for slot, view in zip(layout.slots, views, strict=True)}
        differences.append(max(float((p.grad - ours[name]).abs().max()) for name, p in model.weights.items()))  # type: ignore[operator]
    assert float(update_N.abs().max()) > 0.1
    return differences


def test_powersgd_equals_pytorchs_ddp_hook_from_the_same_q_in_two_processes() -> None:
    for differences in run_processes(2, _with_pytorch, (1, 2, 4), 8):
        for rank, by_step in differences.items():
            assert max(by_step) < 1e-9, f"rank {rank}: {by_step}"


@pytest.mark.parametrize("scale", [1e-30, 1e-22, 1e-12, 1e12, 1e30])
@pytest.mark.parametrize("rank", [1, 2])
def test_powersgd_approximates_float32_gradients_of_any_magnitude_equally_well(scale: float, rank: int) -> None:
    layout = Layout(SHAPES)
    updates = []
    for factor in (1.0, scale):
        aggregator = Aggregator(PowerSGD(layout, 3))
        aggregator.compressor.set_levels(_levels(layout, rank))
        for grads_HN in _gradients(4, 2, layout.size):
            update_N, finite = aggregator.reduce((grads_HN * factor).float(), Communicator(2))
            assert finite
        updates.append(update_N.double() / factor)
    torch.testing.assert_close(updates[1], updates[0], rtol=0, atol=1e-4)


def test_powersgd_reproduces_a_matrix_of_its_own_rank_at_once() -> None:
    generator = torch.Generator().manual_seed(0)
    layout = Layout({"w": (30, 40)})
    matrix = torch.randn(30, 2, generator=generator).double() @ torch.randn(2, 40, generator=generator).double()
    for rank in (2, 3, 5):
        compressor = PowerSGD(layout, 1)
        compressor.set_levels([rank])
        grads_HN = matrix.flatten().repeat(1, 1)
        update_N = compressor.reduce(grads_HN, Communicator(1))
        torch.testing.assert_close(update_N.view(30, 40), matrix, rtol=0, atol=1e-12)
        torch.testing.assert_close(grads_HN, torch.zeros_like(grads_HN), rtol=0, atol=1e-12)


def test_warm_started_powersgd_converges_to_the_truncated_svd_of_a_constant_gradient() -> None:
    layout = Layout({"w": (20, 30)})
    matrix = torch.randn(20, 30, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    compressor = PowerSGD(layout, 0)
    compressor.set_levels([3])
    for _ in range(300):
        update_N = compressor.reduce(matrix.flatten().repeat(1, 1), Communicator(1))
    u, s, v = torch.linalg.svd(matrix)
    torch.testing.assert_close(update_N.view(20, 30), u[:, :3] * s[:3] @ v[:3], rtol=0, atol=1e-6)


@pytest.mark.parametrize("rank", [1, 2, 4])
def test_orthonormal_columns_come_out_of_zero_and_dependent_ones(rank: int) -> None:
    column = torch.arange(1.0, 7.0).double().view(1, 6, 1)
    for p in (torch.zeros(1, 6, rank).double(), column.repeat(1, 1, rank), torch.full((1, 6, rank), 1e-200).double()):
        orthonormalise(p)
        torch.testing.assert_close(p.mT @ p, torch.eye(rank).double().unsqueeze(0), rtol=0, atol=1e-12)


@pytest.mark.parametrize("fraction", [0.004, 0.1, 0.5, 0.7, 0.99, 1.0])
def test_topk_equals_sorting_every_worker_and_layer(fraction: float) -> None:
    layout = Layout(SHAPES)
    compressor = build_compressor("topk", layout, 0, error_feedback=True, settings={})
    compressor.set_levels(_levels(layout, fraction))
    grads_HN = _gradients(1, 3, layout.size)[0]
    sent_AN = np.zeros_like(grads_HN.numpy())
    for w, grads_N in enumerate(grads_HN.numpy()):
        for slot in layout.layers:
            part = grads_N[slot.start : slot.stop]
            k = max(1, int(fraction * slot.size))
            for i in sorted(range(slot.size), key=lambda i: -abs(part[i]))[:k]:  # noqa: B023
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
    compressor.set_levels(_levels(layout, 0.25))
    seen = []
    for _ in range(3):
        grads_HN = _gradients(1, 2, layout.size)[0]
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
    gradient_N = _gradients(1, 1, layout.size)[0, 0]
    draws = 4000
    total_N = sum(compressor.reduce(gradient_N.repeat(1, 1), Communicator(1)) for _ in range(draws))
    # Each element is n/k g with probability k/n: its mean deviates by |g| sqrt((n/k - 1) / draws), five times that at most.
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
        compressor.set_levels(_levels(layout, level))
        communicator = Communicator(1, process, processes)
        Aggregator(compressor, error_feedback=name != "none").reduce(gradient.clone(), communicator)
        cost = compressor.cost(_levels(layout, level))
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
