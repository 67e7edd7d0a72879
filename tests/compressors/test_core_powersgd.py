"""PowerSGD against its paper in NumPy, PyTorch's own hook, the singular value decomposition and any magnitude."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from core_cases import SHAPES, gradients, uniform
from numpy_powersgd import NumpyPowerSGD
from processes import run_processes
from torch import Tensor, nn
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as peer
from torch.nn.parallel import DistributedDataParallel

from accordion_bench.compressors.powersgd import PowerSGD, orthonormalise
from accordion_bench.training.aggregator import Aggregator
from accordion_bench.training.communicator import Communicator
from accordion_bench.training.gradients import Layout


def _matrices(layout: Layout, flat_N: Tensor) -> dict[str, Any]:
    return {slot.name: layout.matrix(flat_N, i).numpy().copy() for i, slot in enumerate(layout.layers)}


@pytest.mark.parametrize("residual", ["averaged", "local"])
@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("ranks", [(1,), (2,), (4,), (1, 4, 2), (4, 1, 4)])
def test_powersgd_equals_a_plain_numpy_version_over_steps_with_error_feedback_and_rank_changes(
    residual: str, workers: int, ranks: tuple[int, ...]
) -> None:
    layout = Layout(SHAPES)
    compressor = PowerSGD(layout, 11, residual=residual)  # type: ignore[arg-type]
    aggregator = Aggregator(compressor)
    grads_SAN = gradients(4 * len(ranks), workers, layout.size)
    peer_ = None
    for step, grads_HN in enumerate(grads_SAN):
        if step % 4 == 0:
            compressor.set_levels(uniform(layout, ranks[step // 4]))
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
            {
                name.replace(".", "_"): nn.Parameter(torch.zeros(shape, dtype=torch.float64))
                for name, shape in shapes.items()
            }
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
        None,
        matrix_approximation_rank=rank,
        start_powerSGD_iter=2,
        min_compression_rate=1,
        orthogonalization_epsilon=1e-12,
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
    compressor.set_levels(uniform(layout, rank))
    compressor.load_state_dict(q)
    aggregator = Aggregator(compressor)
    communicator = Communicator(1, process, processes)
    differences = []
    for step, grads_AN in enumerate(gradients(steps + 2, processes, layout.size)):
        own = dict(zip([slot.name for slot in layout.slots], layout.views(grads_AN[process]), strict=True))
        ddp.zero_grad()
        ddp([own[name] for name in model.weights]).backward()
        if step < 2:
            continue  # the hook averages without compression at first
        update_N, _ = aggregator.reduce(grads_AN[process : process + 1].clone(), communicator)
        views = layout.views(update_N)
        ours = {slot.name: view for slot, view in zip(layout.slots, views, strict=True)}
        differences.append(max(float((p.grad - ours[name]).abs().max()) for name, p in model.weights.items()))  # type: ignore[operator]
    assert float(update_N.abs().max()) > 0.1
    return differences


@pytest.mark.thorough
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
        aggregator.compressor.set_levels(uniform(layout, rank))
        for grads_HN in gradients(4, 2, layout.size):
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
