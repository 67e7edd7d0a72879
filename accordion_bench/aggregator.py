"""Error feedback around a compressor.

Karimireddy et al., "Error Feedback Fixes SignSGD and other Gradient Compression Schemes", ICML 2019,
arXiv 1901.09847.
"""

from __future__ import annotations

import torch
from torch import Tensor

from accordion_bench.communicator import Communicator
from accordion_bench.compressors.base import Compressor


class Aggregator:
    """Adds each worker's error memory, lets the compressor reduce, keeps the remainder as the new memory.

    Args:
        compressor: what reduces.
        error_feedback: keep a memory.
        combine: "mean" over workers, or "sum" for the layers (1-D tensors stay averaged), as the published Top-K does.
    """

    def __init__(self, compressor: Compressor, *, error_feedback: bool = True, combine: str = "mean") -> None:
        self.compressor = compressor
        self.error_feedback = error_feedback
        self.combine = combine
        self.memory_HN: Tensor | None = None

    @torch.no_grad()
    def reduce(self, grads_HN: Tensor, communicator: Communicator) -> tuple[Tensor, bool]:
        """The update (N,) and whether it is finite; overwrites grads_HN.

        The memory changes only when the update is finite, so a NaN or Inf in any worker's gradient never enters it.
        """
        self._show_bad_numbers(grads_HN)
        if self.error_feedback:
            if self.memory_HN is None:
                self.memory_HN = torch.zeros_like(grads_HN)
            grads_HN += self.memory_HN  # correct before compressing (Alg. 1 there)
        self.compressor.memory_HN = self.memory_HN
        with communicator.clock.section("compress"):
            update_N = self.compressor.reduce(grads_HN, communicator)
        finite = bool(update_N.isfinite().all())  # the same on every worker, as the update is
        if finite and self.memory_HN is not None:
            self.memory_HN.copy_(grads_HN)
        if self.combine == "sum":
            update_N[: self.compressor.layout.dense.start] *= communicator.workers
        return update_N, finite

    def _show_bad_numbers(self, grads_HN: Tensor) -> None:
        """Make a non-finite gradient visible in what is always sent: one bad element spoils all 1-D tensors.

        A model without 1-D tensors has its whole gradient spoiled, since Random-K, say, might not send the bad element.
        """
        dense = self.compressor.layout.dense
        shown = dense if dense.stop > dense.start else slice(None)
        grads_HN[:, shown] += 0 * torch.linalg.vector_norm(grads_HN, ord=torch.inf, dim=1, keepdim=True)

    def memory(self, hosted: int) -> Tensor | None:
        """One hosted worker's memory (N,), or None before the first update or without error feedback."""
        return None if self.memory_HN is None else self.memory_HN[hosted]

    def load_memory(self, memory_HN: Tensor | None) -> None:
        """Continue with these memories."""
        self.memory_HN = memory_HN
