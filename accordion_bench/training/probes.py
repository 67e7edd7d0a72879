"""Measurements that cost something, made only for schedulers that ask and for figures that need them.

Approximation errors per layer and rung (L-GreCo, Alimohammadi et al. 2022, arXiv 2210.17357), the Hessian's top
eigenvalue by Lanczos on Hessian-vector products (Jastrzebski et al. 2019, arXiv 1807.05031; Fig. 3 of the Accordion
paper), and how far stochastic gradients agree on their largest coordinates (Fig. 4a of the Accordion paper).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from itertools import combinations, islice
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from accordion_bench.training.communicator import Communicator
from accordion_bench.training.compressor import Compressor
from accordion_bench.training.seeds import generator_for, private_randomness, seed_for
from accordion_bench.training.statistics import GradientSum

if TYPE_CHECKING:
    from accordion_bench.training.trainer import Trainer

POWER_STEPS = 3  # passes of a warm-started compressor (PowerSGD) over the same gradient
LANCZOS_VECTORS = 12  # kept at a time: 12 models' worth of memory
EIGENVALUE_TOLERANCE = 1e-3  # relative
TOP_FRACTION = 0.1
OVERLAP_BATCHES = 4  # six pairs


class Probes:
    """Nothing here is counted as gradient traffic; local results are broadcast as control traffic.

    Args:
        make_compressor: a fresh compressor of the run's kind, so that the run's own is not disturbed.
        eigenvalue_every: measure the eigenvalue after every so many epochs even if the scheduler does not ask.
        overlap_every: the same for the overlap of gradients.
    """

    def __init__(
        self,
        make_compressor: Callable[[], Compressor],
        *,
        eigenvalue_every: int | None = None,
        overlap_every: int | None = None,
    ) -> None:
        self._make = make_compressor
        self.eigenvalue_every = eigenvalue_every
        self.overlap_every = overlap_every

    def measure(self, trainer: Trainer, epoch: int) -> dict[str, list[float]]:
        """What is due at the end of this epoch, for the record; empty if nothing is.

        What the scheduler asks for is part of its price and counts as training time; the rest counts as evaluation.
        """
        asked = trainer.scheduler.needs_eigenvalue and trainer.scheduler.probes(epoch)
        measured: dict[str, list[float]] = {}
        if asked or _due(self.eigenvalue_every, epoch):
            with trainer.communicator.clock.section("other" if asked else "evaluate"):
                value, products, seconds = self._from_first(trainer, _curvature, epoch, 3)
            measured |= {
                "eigenvalue": [value],
                "eigenvalue_products": [products],
                "eigenvalue_seconds": [seconds],
            }
        if _due(self.overlap_every, epoch):
            with trainer.communicator.clock.section("evaluate"):
                measured["overlap"] = self._from_first(trainer, _overlap, epoch, 1)
        return measured

    @staticmethod
    def _from_first(
        trainer: Trainer, measure: Callable[[Trainer, int], Sequence[float]], epoch: int, count: int
    ) -> list[float]:
        """Numbers that process 0 measures with worker 0's data; the others wait for them."""
        numbers = torch.zeros(count, device=trainer.grads_HN.device, dtype=torch.float64)
        if trainer.communicator.process == 0:
            numbers += torch.tensor(measure(trainer, epoch), dtype=torch.float64, device=numbers.device)
        return [float(number) for number in trainer.communicator.broadcast(numbers).tolist()]

    @torch.no_grad()
    def approximation_errors(self, statistic: GradientSum, levels: tuple[float, ...]) -> tuple[tuple[float, ...], ...]:
        """||G - C_k(G)||^2 / ||G||^2 of the summed gradient G, per layer and rung: (L, K). 0 where G is 0."""
        layout, alone = statistic.layout, Communicator(1)
        errors_KL = []
        for level in levels:
            compressor = self._make()
            compressor.set_levels([level] * len(layout.layers))
            for _ in range(POWER_STEPS):
                rest_HN = statistic.sum_N.clone().unsqueeze(0)
                compressor.reduce(rest_HN, alone)
                if not compressor.state_dict():  # nothing to warm up
                    break
            pairs = [
                (rest_HN[0, slot.start : slot.stop].norm(), statistic.sum_N[slot.start : slot.stop].norm())
                for slot in layout.layers
            ]
            errors_KL.append(torch.stack([torch.where(norm > 0, rest / norm, 0) ** 2 for rest, norm in pairs]))
        errors_LK = torch.stack(errors_KL, dim=1).float()
        if statistic.local:
            errors_LK = statistic.communicator.broadcast(errors_LK.contiguous())
        return tuple(tuple(row) for row in errors_LK.tolist())


def _due(every: int | None, epoch: int) -> bool:
    return every is not None and (epoch + 1) % every == 0


def _curvature(trainer: Trainer, epoch: int) -> tuple[float, int, float]:
    """(top eigenvalue for worker 0's first batch of the epoch, Hessian-vector products, seconds)."""
    started = time.perf_counter()
    batch = next(iter(trainer.task.batches(epoch, 0)))
    trainer.buffers.use(0)
    training = trainer.model.training
    trainer.model.eval()  # fixed BatchNorm statistics and no dropout: a function of the parameters alone
    with torch.enable_grad(), torch.backends.cudnn.flags(enabled=False):
        loss, _ = trainer.task.loss(trainer.model, batch, trainer.task.first_carry())
        generator = generator_for(trainer.seed, "eigenvalue", epoch)
        value, products = top_eigenvalue(loss, trainer.binding.parameters, generator)
    trainer.model.train(training)
    return value, products, time.perf_counter() - started


def top_eigenvalue(loss: Tensor, parameters: Sequence[Tensor], generator: torch.Generator) -> tuple[float, int]:
    """The largest (algebraic) eigenvalue of the loss's Hessian, to a relative 1e-3, and the products it took.

    ARPACK's restarted Lanczos iteration on the CPU; the Hessian-vector products are made on the parameters' device.

    Args:
        loss: scalar, twice differentiable in the parameters.
        parameters: two elements or more in all.
        generator: of the first vector.

    Returns:
        NaN for the eigenvalue where the Hessian is not finite.
    """
    from scipy.sparse.linalg import ArpackError, LinearOperator, eigsh

    sizes = [parameter.numel() for parameter in parameters]
    gradients = torch.autograd.grad(loss, parameters, create_graph=True, materialize_grads=True)
    varying = [place for place, gradient in enumerate(gradients) if gradient.requires_grad]
    like, count = parameters[0], 0

    def product(vector: object) -> object:
        nonlocal count
        count += 1
        parts = torch.as_tensor(vector, dtype=like.dtype).to(like.device).split(sizes)
        rows = torch.autograd.grad(
            [gradients[place] for place in varying],
            parameters,
            grad_outputs=[parts[place].view_as(parameters[place]) for place in varying],
            retain_graph=True,
            materialize_grads=True,
        )
        return torch.cat([row.flatten() for row in rows]).cpu().numpy()

    start = torch.randn(sum(sizes), generator=generator, dtype=torch.float64).to(like.dtype).numpy()
    hessian = LinearOperator((len(start), len(start)), matvec=product, dtype=start.dtype)
    vectors = min(len(start), LANCZOS_VECTORS)
    try:
        (value,) = eigsh(
            hessian, k=1, which="LA", v0=start, ncv=vectors, tol=EIGENVALUE_TOLERANCE, return_eigenvectors=False
        )
    except ArpackError:
        value = math.nan
    return float(value), count


def _overlap(trainer: Trainer, epoch: int) -> tuple[float]:
    """The mean overlap over the pairs of a few stochastic gradients: of worker 0's first batches of the epoch."""
    batches = list(islice(trainer.task.batches(epoch, 0), OVERLAP_BATCHES))
    trainer.buffers.use(0)
    own = trainer.buffers.state_dict(0)
    saved, training = {name: buffer.clone() for name, buffer in own.items()}, trainer.model.training
    trainer.model.train()  # as in training: BatchNorm on the batch, dropout
    gradients = []
    for place, batch in enumerate(batches):
        with private_randomness(seed_for(trainer.seed, "overlap", epoch, place), trainer.grads_HN.device):
            loss, _ = trainer.task.loss(trainer.model, batch, trainer.task.first_carry())
        parts = torch.autograd.grad(loss, trainer.binding.parameters, materialize_grads=True)
        gradients.append(torch.cat([part.flatten() for part in parts]))
    trainer.buffers.load_state_dict(0, saved)
    trainer.model.train(training)
    return (mean_overlap(gradients),)


def mean_overlap(gradients: Sequence[Tensor], fraction: float = TOP_FRACTION) -> float:
    """How many of the largest |coordinates| two vectors have in common, in percent, averaged over all pairs.

    Args:
        gradients: vectors (N,); NaN is returned for fewer than two.
        fraction: of the coordinates that count as largest; two independent vectors share this fraction of them.
    """
    count = max(1, int(fraction * len(gradients[0]))) if gradients else 1
    chosen = [torch.zeros_like(g, dtype=torch.bool).scatter_(0, g.abs().topk(count).indices, True) for g in gradients]
    shares = [float((one & other).sum()) / count for one, other in combinations(chosen, 2)]
    return 100 * sum(shares) / len(shares) if shares else math.nan
