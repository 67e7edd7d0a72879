"""What schedulers are told about an epoch: statistics of the gradient summed over its updates."""

from __future__ import annotations

import torch
from torch import Tensor

from accordion_bench.training.aggregator import is_finite
from accordion_bench.training.communicator import Communicator
from accordion_bench.training.gradients import Layout


class GradientSum:
    """Sums a gradient over an epoch: worker 0's own ("local") or the averaged update ("aggregated").

    Args:
        layout: of the buffers.
        local: sum worker 0's gradient before compression and without error memory; only process 0 can.
        communicator: for the broadcast of worker 0's numbers.
        like: a tensor (N,) of the buffers' device and type.
        guarded: leave out a gradient that is not finite, so that a skipped update does not spoil the epoch.
    """

    def __init__(
        self, layout: Layout, local: bool, communicator: Communicator, like: Tensor, guarded: bool = False
    ) -> None:
        self.layout = layout
        self.local = local
        self.communicator = communicator
        self.guarded = guarded
        self.sum_N = torch.zeros_like(like)

    def reset(self) -> None:
        """Start an epoch."""
        self.sum_N.zero_()

    def add_local(self, grads_HN: Tensor) -> None:
        """Before compression, on every process."""
        if self.local and self.communicator.process == 0:
            if self.guarded and not is_finite(grads_HN[0]):
                return
            self.sum_N += grads_HN[0]

    def add_update(self, update_N: Tensor) -> None:
        """After aggregation."""
        if not self.local:
            self.sum_N += update_N

    @torch.no_grad()
    def read(self) -> tuple[tuple[float, ...], tuple[float, ...], tuple[float, ...], float]:
        """(norms_L, means_L, deviations_L, whole-model norm), the same on every process.

        The local statistic costs 3 L + 1 control words for worker 0, once per epoch.
        """
        sums = self.sum_N.double()
        rows = []
        for slot in self.layout.layers:
            part = sums[slot.start : slot.stop]
            rows.append(torch.stack([part.norm(), part.mean(), part.std(correction=0)]))
        numbers = torch.cat([*rows, sums.norm().reshape(1)]).float()
        if self.local:
            numbers = self.communicator.broadcast(numbers)
        values = numbers.tolist()
        norm = values.pop()
        return tuple(values[0::3]), tuple(values[1::3]), tuple(values[2::3]), norm
