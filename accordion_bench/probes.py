"""Measurements that cost something, made only for schedulers that ask.

Approximation errors per layer and rung (L-GreCo, Alimohammadi et al. 2022, arXiv 2210.17357), and the Hessian's top
eigenvalue by power iteration on Hessian-vector products (Jastrzebski et al. 2019, arXiv 1807.05031).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch

from accordion_bench.communicator import Communicator
from accordion_bench.compressors.base import Compressor
from accordion_bench.seeds import generator_for
from accordion_bench.statistics import GradientSum

if TYPE_CHECKING:
    from accordion_bench.trainer import Trainer

POWER_STEPS = 3  # passes of a warm-started compressor (PowerSGD) over the same gradient
EIGENVALUE_STEPS = 20


class Probes:
    """Nothing here is counted as gradient traffic; local results are broadcast as control traffic.

    Args:
        make_compressor: a fresh compressor of the run's kind, so that the run's own is not disturbed.
    """

    def __init__(self, make_compressor: Callable[[], Compressor]) -> None:
        self._make = make_compressor

    @torch.no_grad()
    def approximation_errors(
        self, statistic: GradientSum, levels: tuple[float, ...]
    ) -> tuple[tuple[float, ...], ...]:
        """||G - C_k(G)||^2 / ||G||^2 of the summed gradient G, per layer and rung: (L, K). 0 where G is 0."""
        layout, alone = statistic.layout, Communicator(1)
        errors_KL = []
        for level in levels:
            compressor = self._make()
            compressor.set_levels([level] * len(layout.layers))
            for _ in range(POWER_STEPS):
                rest_HN = statistic.sum_N.clone().unsqueeze(0)
                compressor.reduce(rest_HN, alone)
            pairs = [
                (rest_HN[0, slot.start : slot.stop].norm(), statistic.sum_N[slot.start : slot.stop].norm())
                for slot in layout.layers
            ]
            errors_KL.append(torch.stack([torch.where(norm > 0, rest / norm, 0) ** 2 for rest, norm in pairs]))
        errors_LK = torch.stack(errors_KL, dim=1).float()
        if statistic.local:
            errors_LK = statistic.communicator.broadcast(errors_LK.contiguous())
        return tuple(tuple(row) for row in errors_LK.tolist())

    def top_eigenvalue(self, trainer: Trainer, epoch: int) -> float:
        """The Hessian's eigenvalue of largest magnitude for worker 0's first batch of the epoch (Rayleigh quotient).

        Costs about 2 EIGENVALUE_STEPS backward passes on process 0; the others wait.
        """
        device = trainer.grads_HN.device
        value = torch.zeros(1, device=device)
        if trainer.communicator.process == 0:
            value[0] = self._power_iteration(trainer, epoch)
        return float(trainer.communicator.broadcast(value))

    def _power_iteration(self, trainer: Trainer, epoch: int) -> float:
        parameters = trainer.binding.parameters
        batch = next(trainer.task.batches(epoch, 0))
        trainer.buffers.use(0)
        trainer.model.eval()  # fixed BatchNorm statistics and no dropout: a function of the parameters alone
        with torch.enable_grad(), torch.backends.cudnn.flags(enabled=False):
            loss, _ = trainer.task.loss(trainer.model, batch, trainer.task.first_carry())
            gradients = torch.autograd.grad(loss, parameters, create_graph=True)
        generator = generator_for(trainer.seed, "eigenvalue", epoch)
        vector = [torch.randn(p.shape, generator=generator).to(p) for p in parameters]
        eigenvalue = 0.0
        for _ in range(EIGENVALUE_STEPS):
            norm = torch.sqrt(sum((v * v).sum() for v in vector))  # type: ignore[arg-type]
            vector = [v / norm for v in vector]
            product = torch.autograd.grad(gradients, parameters, grad_outputs=vector, retain_graph=True)
            eigenvalue = float(sum((v * w).sum() for v, w in zip(vector, product, strict=True)))
            vector = [w.detach() for w in product]
        return eigenvalue
