"""TernGrad: three values per element, drawn so that the mean is right.

Wen, Xu, Yan, Wu, Wang, Chen and Li, "TernGrad: Ternary Gradients to Reduce Communication in Distributed Deep Learning",
NeurIPS 2017, arXiv 1705.07878, with its layer-wise ternarizing, gradient clipping and scaler sharing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from accordion_bench.compressors.coded import Coded, as_signs, largest_magnitude
from accordion_bench.errors import UserError
from accordion_bench.training.communicator import Communicator
from accordion_bench.training.gradients import Layout, Slot
from accordion_bench.training.traffic import BYTES_PER_FLOAT, Traffic


class TernGrad(Coded):
    """Per layer s sign(g_i) with probability |g_i| / s, else 0; s = max |g_i| over all workers: 2 n + 32 bits.

    Elements are first clipped to `clip` standard deviations of their layer, which bounds s and so the variance;
    unbiased for the clipped gradient. The workers agree on s by one more collective of a word per layer, three in all.
    There is no ladder.

    Args:
        layout: of the flat buffers.
        seed: shared by all workers.
        error_feedback: keep what was not sent; not part of the method.
        clip: in standard deviations, > 0; None does not clip. They are taken about zero: about the mean, as in the
            published code, a layer whose elements are all equal would be clipped to nothing.
    """

    def __init__(self, layout: Layout, seed: int, *, error_feedback: bool = False, clip: float | None = 2.5) -> None:
        super().__init__(layout, seed, error_feedback=error_feedback)
        if clip is not None and not 0 < clip < math.inf:
            raise UserError(f"compressor.clip must be > 0 standard deviations, got {clip:g}; null does not clip")
        self.clip = clip
        self._scale_L: Tensor | None = None  # both of the current call
        self._bound_L: dict[int, Tensor] = {}  # by worker

    def layer_words(self, slot: Slot, level: float) -> float:
        """Two bits per element, and the scale, which travels in a collective of its own."""
        return 1 + super().layer_words(slot, level)

    def layer_numbers(self, slot: Slot, level: float) -> int:
        """None: everybody knows the scale."""
        return 0

    def layer_bits(self, slot: Slot, level: float) -> int:
        """Sent or not, and the sign."""
        return 2 * slot.size

    def cost(self, levels_L: Sequence[float]) -> Traffic:
        """Besides the gather, the scales."""
        traffic = super().cost(levels_L)
        if layers := len(self.layout.layers):
            traffic.mean.add(elements=layers, bytes=BYTES_PER_FLOAT * layers)
        return traffic

    def prepare(self, values_HM: Tensor, communicator: Communicator) -> None:
        """Agree on the scales."""
        largest_HL = torch.stack([self._largest(values_M) for values_M in values_HM])
        self._bound_L = dict(zip(communicator.hosted_workers, largest_HL, strict=True))
        # A maximum may lose a NaN on its way through a network, but not an infinity, and 0 x infinity is NaN.
        self._scale_L = communicator.max(torch.where(largest_HL.isfinite(), largest_HL, math.inf))

    def _largest(self, values_M: Tensor) -> Tensor:
        """(L,): the largest magnitude per layer after clipping."""
        largest, scratch_M = [], self.scratch(values_M)
        for slot in self.layout.layers:
            values_n = values_M[slot.start : slot.stop]
            most = largest_magnitude(values_n)
            if self.clip is not None:
                # Relative to the largest element, so that squares neither vanish nor overflow.
                unit = torch.where(most > 0, most, 1)
                norm = torch.linalg.vector_norm(torch.div(values_n, unit, out=scratch_M[slot.start : slot.stop]))
                most = torch.minimum(most, self.clip / math.sqrt(slot.size) * norm * unit)
            largest.append(most)
        return torch.stack(largest)

    def encode(self, values_M: Tensor, worker: int) -> tuple[Tensor, Tensor]:
        """Which elements are sent, then which are negative."""
        assert self._scale_L is not None
        drawn_M, scratch_M = self.draw("terngrad", worker, values_M), self.scratch(values_M)
        kept = []
        for slot, bound, scale in zip(self.layout.layers, self._bound_L[worker], self._scale_L, strict=True):
            span = slice(slot.start, slot.stop)
            clipped_n = torch.minimum(torch.abs(values_M[span], out=scratch_M[span]), bound, out=scratch_M[span])
            kept.append(drawn_M[span].to(scale.dtype).mul_(scale) < clipped_n)
        return values_M.new_empty(0), torch.cat([*kept, values_M < 0])

    def decode(self, numbers_S: Tensor, bits_B: Tensor, into_M: Tensor) -> None:
        """Plus or minus the scale, or 0."""
        assert self._scale_L is not None
        kept_M, negative_M = bits_B.chunk(2)
        as_signs(negative_M, into_M).neg_().mul_(kept_M)
        self.scale_layers(into_M, self._scale_L)
