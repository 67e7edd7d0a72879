"""EF-signSGD: signs, scaled by the mean magnitude, with error feedback.

Karimireddy, Rebjock, Stich and Jaggi, "Error Feedback Fixes SignSGD and other Gradient Compression Schemes", ICML 2019,
arXiv 1901.09847 (Algorithm 1, the scaled sign of its Section 4).
"""

from __future__ import annotations

import torch
from torch import Tensor

from accordion_bench.compressors.coded import Coded, as_signs
from accordion_bench.training.gradients import Slot


class EFSignSGD(Coded):
    """Per layer (||p||_1 / n) sign(p) of p = gradient + memory, sign(0) = +1: n + 32 bits.

    The paper adds the memory to the gradient times the learning rate; here the memory is in the gradient's own scale
    and the optimiser multiplies with the rate afterwards. That is the same until the rate changes. There is no ladder.
    """

    def layer_numbers(self, slot: Slot, level: float) -> int:
        """The scale."""
        return 1

    def layer_bits(self, slot: Slot, level: float) -> int:
        """A sign per element."""
        return slot.size

    def encode(self, values_M: Tensor, worker: int) -> tuple[Tensor, Tensor]:
        """Mean magnitudes and signs."""
        scales = [
            torch.linalg.vector_norm(values_M[slot.start : slot.stop], ord=1) / slot.size for slot in self.layout.layers
        ]
        return torch.stack(scales), values_M >= 0

    def decode(self, numbers_S: Tensor, bits_B: Tensor, into_M: Tensor) -> None:
        """Plus or minus the layer's scale."""
        self.scale_layers(as_signs(bits_B, into_M), numbers_S)
