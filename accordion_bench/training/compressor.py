"""What a compressor is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor

from accordion_bench.training.communicator import Communicator
from accordion_bench.training.gradients import Layout, Slot
from accordion_bench.training.traffic import BYTES_PER_FLOAT, Traffic


class Compressor(ABC):
    """Turns the workers' gradients into one averaged update and sends as little as it can.

    A subclass takes keyword-only settings after `layout` and `seed`, is final, and keeps no error memory
    (Aggregator does). Randomness is drawn from `generator_for(seed, purpose, self.updates, worker)`.
    1-D tensors (`layout.dense`) are averaged uncompressed, in the same collective as something else where possible.
    A NaN or Inf in any worker's gradient must make the update non-finite on every worker.

    Attributes:
        layout: of the flat buffers.
        seed: the run's seed, shared by all workers.
        error_feedback: whether what is not sent will be sent later; an unbiased variant may depend on it.
        levels_L: current level of every layer.
        updates: number of calls of `reduce` so far; it and `state_dict` are all that a checkpoint needs.
    """

    conserves: bool = True  # what `reduce` promises for one worker; False where the algorithm keeps a memory of its own
    data_dependent: bool = False  # the size of a message depends on the gradient, and `cost` is an upper bound
    own_buffers: int = 0  # of the flat gradient's size that it keeps for every hosted worker, for plans of memory
    memory_HN: Tensor | None = None  # what Aggregator has added to the gradients of this call, to be read only

    def __init__(self, layout: Layout, seed: int, *, error_feedback: bool = True) -> None:
        self.layout = layout
        self.seed = seed
        self.error_feedback = error_feedback
        self.levels_L: tuple[float, ...] = ()
        self.updates = 0
        self._update_N: Tensor | None = None

    def set_levels(self, levels_L: Sequence[float]) -> None:
        """Use these levels, one per layer, from the next `reduce` on. Rare: epoch boundaries."""
        self.levels_L = tuple(levels_L)

    @abstractmethod
    def reduce(self, grads_HN: Tensor, communicator: Communicator) -> Tensor:
        """Average over all workers -> (N,); leaves in grads_HN what was not sent.

        With one worker, update + residual equals the input (unless `conserves` is False).
        """

    @abstractmethod
    def layer_words(self, slot: Slot, level: float) -> float:
        """32-bit words that one worker sends per update for one layer at one level (float32 gradients)."""

    gathers: bool = False  # layers travel in one gather and 1-D tensors in one mean; else all in one mean

    def cost(self, levels_L: Sequence[float]) -> Traffic:
        """What the meter will count for one update at these levels, before anything is sent."""
        words = sum(self.layer_words(slot, level) for slot, level in zip(self.layout.layers, levels_L, strict=True))
        dense = self.layout.dense.stop - self.layout.dense.start
        traffic = Traffic()
        if self.gathers:
            if self.layout.layers:
                traffic.gather.add(elements=round(words), bytes=round(BYTES_PER_FLOAT * words))
            if dense:
                traffic.mean.add(elements=dense, bytes=BYTES_PER_FLOAT * dense)
        else:
            traffic.mean.add(elements=round(words) + dense, bytes=round(BYTES_PER_FLOAT * (words + dense)))
        return traffic

    def update_buffer(self, grads_HN: Tensor) -> Tensor:
        """(N,) to be filled: always the same memory, since fresh memory costs more than a PowerSGD step."""
        if self._update_N is None or self._update_N.dtype != grads_HN.dtype or self._update_N.device != grads_HN.device:
            self._update_N = torch.empty_like(grads_HN[0])
        return self._update_N

    def average_dense(self, grads_HN: Tensor, update_N: Tensor, communicator: Communicator) -> None:
        """Average the 1-D tensors into update_N and leave zeros in grads_HN; one collective, or none without any."""
        dense = self.layout.dense
        if dense.stop > dense.start:
            update_N[dense] = communicator.mean(grads_HN[:, dense])
            grads_HN[:, dense] = 0

    def state_dict(self) -> dict[str, Tensor]:
        """What must survive besides `updates`, keyed by parameter name."""
        return {}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """The reverse of `state_dict`; called after `set_levels`."""

    def worker_state_dict(self, h: int) -> dict[str, Tensor]:
        """What the compressor keeps for one hosted worker (momentum of its own, say), keyed by parameter name."""
        return {}

    def load_worker_state_dicts(self, states_H: list[dict[str, Tensor]]) -> None:
        """The reverse of `worker_state_dict`, for all hosted workers at once."""

    def report(self) -> dict[str, list[float]]:
        """What it wants on record for the epoch that ends: name -> one number per layer, say. Starts afresh."""
        return {}
