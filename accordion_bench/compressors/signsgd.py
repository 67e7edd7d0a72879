"""signSGD with majority vote.

Bernstein, Wang, Azizzadenesheli and Anandkumar, "signSGD: Compressed Optimisation for Non-Convex Problems", ICML 2018,
arXiv 1802.04434.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from accordion_bench.compressors.coded import Coded, as_signs, largest_magnitude
from accordion_bench.errors import UserError
from accordion_bench.training.gradients import Layout, Slot


class SignSGD(Coded):
    """Every worker votes with its signs, sign(0) = +1; the update is the sign of the sum, 0 at a tie: n bits.

    The update has no scale, so it needs a learning rate of its own: the paper starts at 1e-4 where SGD starts at 0.1.
    `step` is that ratio, which leaves the run's rate to the 1-D tensors, sent as they are. A vote cannot say that a
    gradient was not finite, so one more bit per message does. There is no ladder.

    Args:
        layout: of the flat buffers.
        seed: unused.
        error_feedback: keep gradient - step x sign(gradient); not part of the method.
        step: magnitude of the update's elements, > 0.
    """

    extra_bits = 1

    def __init__(self, layout: Layout, seed: int, *, error_feedback: bool = False, step: float = 1.0) -> None:
        super().__init__(layout, seed, error_feedback=error_feedback)
        if not 0 < step < math.inf:
            raise UserError(f"compressor.step must be a number > 0, got {step:g}; 0.001 suits a learning rate for SGD")
        self.step = step

    def layer_numbers(self, slot: Slot, level: float) -> int:
        """None."""
        return 0

    def layer_bits(self, slot: Slot, level: float) -> int:
        """A sign per element."""
        return slot.size

    def encode(self, values_M: Tensor, worker: int) -> tuple[Tensor, Tensor]:
        """Signs, and whether something is not finite."""
        broken = largest_magnitude(values_M).isfinite().logical_not()
        return values_M.new_empty(0), torch.cat([values_M >= 0, broken.reshape(1)])

    def decode(self, numbers_S: Tensor, bits_B: Tensor, into_M: Tensor) -> None:
        """One worker's votes, in the size of the update; NaN from a worker whose gradient is broken."""
        as_signs(bits_B[:-1], into_M).mul_(self.step).add_(torch.where(bits_B[-1] == 1, math.nan, 0.0))

    def combine(self, total_M: Tensor, workers: int) -> None:
        """The majority's sign."""
        total_M.div_(self.step).round_().clamp_(-1, 1).mul_(self.step)  # torch.sign would turn NaN into 0
