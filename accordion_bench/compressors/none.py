"""No compression: synchronous SGD."""

from __future__ import annotations

from torch import Tensor

from accordion_bench.training.communicator import Communicator
from accordion_bench.training.compressor import Compressor
from accordion_bench.training.gradients import Slot


class Uncompressed(Compressor):
    """The plain mean, one collective of N words. Levels are ignored."""

    def reduce(self, grads_HN: Tensor, communicator: Communicator) -> Tensor:
        """Average over all workers -> (N,); leaves zeros in grads_HN."""
        update_N = communicator.mean(grads_HN)
        grads_HN.zero_()
        self.updates += 1
        return update_N

    def layer_words(self, slot: Slot, level: float) -> float:
        """Every element is one word."""
        return slot.size
