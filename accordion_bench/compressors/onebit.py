"""1-bit SGD: one bit per element, decoded as one of two values.

Seide, Fu, Droppo, Li and Yu, "1-Bit Stochastic Gradient Descent and its Application to Data-Parallel Distributed
Training of Speech DNNs", Interspeech 2014.
"""

from __future__ import annotations

import torch
from torch import Tensor

from accordion_bench.compressors.coded import Coded
from accordion_bench.training.gradients import Slot


class OneBit(Coded):
    """Per layer the mean of the elements >= 0, the mean of those < 0, and which is which: n + 64 bits.

    These two values minimise the squared error at the threshold 0. They are per layer here, as in most later
    implementations; the paper has a pair per column of a weight matrix. There is no ladder.
    """

    def layer_numbers(self, slot: Slot, level: float) -> int:
        """The two values."""
        return 2

    def layer_bits(self, slot: Slot, level: float) -> int:
        """Which of them, for every element."""
        return slot.size

    def encode(self, values_M: Tensor, worker: int) -> tuple[Tensor, Tensor]:
        """Means of both parts (0 for an empty one), layer after layer, and which elements are >= 0."""
        numbers, upper_M, scratch_M = [], values_M >= 0, self.scratch(values_M)
        for slot in self.layout.layers:
            values_n, part_n = values_M[slot.start : slot.stop], scratch_M[slot.start : slot.stop]
            count = torch.count_nonzero(upper_M[slot.start : slot.stop])
            numbers.append(torch.clamp(values_n, min=0, out=part_n).sum() / count.clamp(min=1))
            numbers.append(torch.clamp(values_n, max=0, out=part_n).sum() / (slot.size - count).clamp(min=1))
        return torch.stack(numbers), upper_M

    def decode(self, numbers_S: Tensor, bits_B: Tensor, into_M: Tensor) -> None:
        """The layer's upper or lower value."""
        upper_M = bits_B.bool()
        for slot, upper, lower in zip(self.layout.layers, numbers_S[0::2], numbers_S[1::2], strict=True):
            into_M[slot.start : slot.stop].copy_(lower).masked_fill_(upper_M[slot.start : slot.stop], upper)
