"""Error feedback around a compressor.

Karimireddy et al., "Error Feedback Fixes SignSGD and other Gradient Compression Schemes", ICML 2019,
arXiv 1901.09847.
"""

from __future__ import annotations

import torch
from torch import Tensor

from accordion_bench.training.communicator import Communicator
from accordion_bench.training.compressor import Compressor


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
        self._spare_HN: Tensor | None = None

    @torch.no_grad()
    def reduce(self, grads_HN: Tensor, communicator: Communicator) -> tuple[Tensor, bool]:
        """The update (N,), valid until the next call, and whether it is finite; grads_HN may be overwritten.

        The memory changes only when the update is finite, so a NaN or Inf in any worker's gradient never enters it.
        """
        total_HN = self._corrected(grads_HN) if self.error_feedback else grads_HN
        self._show_bad_numbers(total_HN)
        self.compressor.memory_HN = self.memory_HN
        with communicator.clock.section("compress"):
            update_N = self.compressor.reduce(total_HN, communicator)
        finite = is_finite(update_N)  # the same on every worker, as the update is
        if finite and self.error_feedback:
            self.memory_HN, self._spare_HN = total_HN, self.memory_HN
        if self.combine == "sum":
            update_N[: self.compressor.layout.dense.start] *= communicator.workers
        return update_N, finite

    def _corrected(self, grads_HN: Tensor) -> Tensor:
        """Gradient plus memory (Alg. 1 there), in a buffer that becomes the next memory when all goes well."""
        if self.memory_HN is None:
            self.memory_HN = torch.zeros_like(grads_HN)
        if self._spare_HN is None:
            self._spare_HN = torch.empty_like(grads_HN)
        return torch.add(grads_HN, self.memory_HN, out=self._spare_HN)

    def _show_bad_numbers(self, grads_HN: Tensor) -> None:
        """Make a non-finite element visible in what is always sent, since Random-K, say, might not send it.

        That is the last 1-D element; in a model without any, the whole of the layer that has the bad one.
        """
        layout = self.compressor.layout
        if layout.dense.stop > layout.dense.start:
            grads_HN[:, -1:] += _zero_or_nan(grads_HN)
            return
        for slot in layout.layers:
            part_HN = grads_HN[:, slot.start : slot.stop]
            part_HN += _zero_or_nan(part_HN)

    def memory(self, hosted: int) -> Tensor | None:
        """One hosted worker's memory (N,), or None before the first update or without error feedback."""
        return None if self.memory_HN is None else self.memory_HN[hosted]

    def load_memory(self, memory_HN: Tensor | None) -> None:
        """Continue with these memories."""
        self.memory_HN = memory_HN


def _zero_or_nan(x_HN: Tensor) -> Tensor:
    """(H, 1): 0 for workers whose elements are all finite, else NaN."""
    # One flat pass per worker: on the CPU ten times faster than an infinity norm or a reduction over a dimension.
    return torch.stack([(0 * torch.stack(torch.aminmax(x_N))).sum() for x_N in x_HN]).unsqueeze(1)


def is_finite(x: Tensor) -> bool:
    """Whether every element is; one pass that allocates nothing."""
    low, high = torch.aminmax(x)
    return bool(low.isfinite() & high.isfinite())
