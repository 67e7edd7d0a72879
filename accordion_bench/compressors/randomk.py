"""Random-K sparsification: all workers send the same random elements, so that they can be all-reduced.

Stich, Cordonnier and Jaggi, "Sparsified SGD with Memory", NeurIPS 2018, arXiv 1809.07599.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from accordion_bench.compressors.topk import kept_count
from accordion_bench.training.communicator import Communicator
from accordion_bench.training.compressor import Compressor
from accordion_bench.training.gradients import Slot
from accordion_bench.training.seeds import seed_for


class RandomK(Compressor):
    """Per layer k = max(1, int(fraction n)) elements drawn without replacement from a shared seed: k words.

    One collective for the whole model. With error feedback values are sent as they are; without it they are
    multiplied by n/k, which makes the update unbiased. The levels are kept fractions.
    """

    def layer_words(self, slot: Slot, level: float) -> float:
        """k: the indices follow from the shared seed."""
        return kept_count(level, slot.size)

    @torch.no_grad()
    def reduce(self, grads_HN: Tensor, communicator: Communicator) -> Tensor:
        """Average over all workers -> (N,); leaves in grads_HN what was not sent."""
        kept_K = self._draw().to(grads_HN.device)
        mean = communicator.mean(torch.cat([grads_HN[:, kept_K], grads_HN[:, self.layout.dense]], dim=1))
        update_N = self.update_buffer(grads_HN).zero_()
        update_N[kept_K] = mean[: len(kept_K)]
        update_N[self.layout.dense] = mean[len(kept_K) :]
        if not self.error_feedback:
            for slot, level in zip(self.layout.layers, self.levels_L, strict=True):
                update_N[slot.start : slot.stop] *= slot.size / kept_count(level, slot.size)
        grads_HN[:, kept_K] = 0
        grads_HN[:, self.layout.dense] = 0
        self.updates += 1
        return update_N

    def _draw(self) -> Tensor:
        """Indices (K,) into the flat buffer for this update, the same on every worker."""
        parts = [
            np.random.Generator(np.random.Philox(seed_for(self.seed, "randomk", self.updates, layer))).choice(
                slot.size, kept_count(level, slot.size), replace=False, shuffle=False
            )
            + slot.start
            for layer, (slot, level) in enumerate(zip(self.layout.layers, self.levels_L, strict=True))
        ]
        return torch.from_numpy(np.concatenate(parts)) if parts else torch.empty(0, dtype=torch.int64)
