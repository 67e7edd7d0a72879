"""Top-K sparsification: every worker sends its largest elements.

Aji and Heafield, "Sparse Communication for Distributed Gradient Descent", EMNLP 2017, arXiv 1704.05021.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from accordion_bench.training.communicator import Communicator
from accordion_bench.training.compressor import Compressor
from accordion_bench.training.gradients import Slot


class TopK(Compressor):
    """Per layer the k = max(1, int(fraction n)) elements of largest magnitude as (value, index).

    Two collectives for the whole model: one gather of 2k words (an index is one word), one mean of the 1-D tensors.
    The levels are kept fractions.
    """

    gathers = True

    def layer_words(self, slot: Slot, level: float) -> float:
        """2k: a value and an index for every element sent."""
        return 2 * kept_count(level, slot.size)

    @torch.no_grad()
    def reduce(self, grads_HN: Tensor, communicator: Communicator) -> Tensor:
        """Average over all workers -> (N,); leaves in grads_HN what was not sent."""
        update_N = self.update_buffer(grads_HN).zero_()
        if self.layout.layers:
            kept_HK = torch.stack([self._largest(grads_N) for grads_N in grads_HN])
            values_AK, indices_AK = exchange(grads_HN.gather(1, kept_HK), kept_HK, communicator)
            for values_K, indices_K in zip(values_AK, indices_AK, strict=True):  # in worker order: deterministic
                update_N.index_add_(0, indices_K, values_K)
            update_N /= communicator.workers
            grads_HN.scatter_(1, kept_HK, 0)
        self.average_dense(grads_HN, update_N, communicator)
        self.updates += 1
        return update_N

    def _largest(self, grads_N: Tensor) -> Tensor:
        """Indices (K,) into the flat buffer of what one worker sends, all layers together."""
        return torch.cat(
            [
                largest(grads_N[slot.start : slot.stop].abs(), kept_count(level, slot.size)) + slot.start
                for slot, level in zip(self.layout.layers, self.levels_L, strict=True)
            ]
        )


def kept_count(fraction: float, size: int) -> int:
    """k of n elements: max(1, int(fraction n)), as published."""
    return max(1, int(fraction * size))


def largest(magnitudes_n: Tensor, k: int) -> Tensor:
    """Indices (k,) of the k largest, in no particular order; NaN counts as largest."""
    size = magnitudes_n.numel()
    if k == size:
        return torch.arange(size, device=magnitudes_n.device)
    if magnitudes_n.is_cuda:
        if 2 * k <= size:
            return magnitudes_n.topk(k, sorted=False).indices
        keep = torch.ones(size, dtype=torch.bool, device=magnitudes_n.device)
        keep[magnitudes_n.topk(size - k, largest=False, sorted=False).indices] = False
        return keep.nonzero().squeeze(1)
    return torch.from_numpy(_largest_on_cpu(magnitudes_n.numpy(), k))


def _largest_on_cpu(magnitudes_n: np.ndarray, k: int) -> np.ndarray:
    """The same by a threshold: partitioning values is several times faster than torch.topk or partitioning indices, and
    the indices come out sorted, which makes the gathers and scatters that follow faster too."""
    size = len(magnitudes_n)
    threshold = np.partition(magnitudes_n, size - k)[size - k]
    chosen = np.flatnonzero(magnitudes_n >= threshold)
    if len(chosen) == k:
        return chosen
    if len(chosen) < k:  # NaN compares false
        return np.argpartition(magnitudes_n, size - k)[size - k :]
    above = np.flatnonzero(magnitudes_n > threshold)
    ties = np.flatnonzero(magnitudes_n == threshold)[: k - len(above)]
    return np.concatenate([above, ties])


def exchange(values_HK: Tensor, indices_HK: Tensor, communicator: Communicator) -> tuple[Tensor, Tensor]:
    """All workers' (values (A, K), indices (A, K) int64) in one gather of 2K words per worker.

    Indices travel as integers of the values' width in the same message.
    """
    count = values_HK.shape[1]
    integer = torch.int32 if values_HK.dtype == torch.float32 else torch.int64
    message_H = torch.cat([values_HK.view(integer), indices_HK.to(integer)], dim=1)
    received_A = communicator.gather(message_H)
    return received_A[:, :count].view(values_HK.dtype), received_A[:, count:].long()
