"""What is learned: batches, loss, metrics."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from accordion_bench.training.communicator import Communicator

Batch = Any  # a task's own tuple of tensors
Carry = Any  # what one worker keeps from batch to batch (an LSTM's hidden state), or None


class Task(ABC):
    """One learning problem on one device. Every worker owns an equal share of the training data.

    Attributes:
        metric: the key of `evaluate` that tables show ("accuracy" in percent, "perplexity").
        higher_is_better: its direction.
        facts: what a model must know to be built (see models.build_model): for images
            {"kind": "image", "channels", "size", "classes"}, for text {"kind": "text", "vocabulary"}.
        checksums: of the data, by the name of each part; build_task fills them in.
    """

    checksums: Mapping[str, str] = {}

    metric: str
    higher_is_better: bool
    facts: dict[str, Any]

    @property
    @abstractmethod
    def batches_per_epoch(self) -> int:
        """Batches of the base size that every worker has in an epoch."""

    @abstractmethod
    def batches(self, epoch: int, worker: int) -> Iterator[Batch]:
        """The worker's batches of this epoch, on the device; a function of (seed, epoch, worker) only."""

    @abstractmethod
    def size(self, batch: Batch) -> int:
        """Number of examples (images, tokens) in a batch: its weight when batches are accumulated."""

    @abstractmethod
    def loss(self, model: nn.Module, batch: Batch, carry: Carry) -> tuple[Tensor, Carry]:
        """Mean loss over the batch (scalar, differentiable) and the carry for the worker's next batch."""

    def first_carry(self) -> Carry:
        """The carry at the start of an epoch."""
        return None

    @abstractmethod
    def evaluate(self, model: nn.Module, communicator: Communicator) -> dict[str, float]:
        """Metrics on the test split, the same on every process; work is shared between processes.

        The model is left in the mode it was in. Sums are accumulated per fixed batch in float64 and added in order, so
        that the result does not depend on the number of processes (use communicator.total).
        """

    def state_dict(self) -> dict[str, Tensor]:
        """What must survive besides (seed, epoch)."""
        return {}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """The reverse of `state_dict`."""


class WorkerBuffers:
    """Every hosted worker's own buffers (BatchNorm statistics), swapped into the one model by reference.

    A model may also put another tensor in a buffer's place in its forward; it then belongs to the worker in use.
    """

    def __init__(self, model: nn.Module, hosted: int) -> None:
        self._places = [
            (module, key, f"{prefix}.{key}" if prefix else key)
            for prefix, module in model.named_modules()
            for key in module._buffers
        ]
        self._in_use: int | None = None
        self._buffers_H: list[dict[str, Tensor | None]] = [
            {name: _clone(module._buffers[key]) for module, key, name in self._places} for _ in range(hosted)
        ]

    def use(self, hosted: int) -> None:
        """Make the model read and update this hosted worker's buffers."""
        self._keep()
        self._in_use = hosted
        for module, key, name in self._places:
            module._buffers[key] = self._buffers_H[hosted][name]

    def _keep(self) -> None:
        if self._in_use is not None:
            for module, key, name in self._places:
                buffer = module._buffers.get(key)
                self._buffers_H[self._in_use][name] = None if buffer is None else buffer.detach()

    def state_dict(self, hosted: int) -> dict[str, Tensor]:
        """One hosted worker's buffers by name, as far as they are there."""
        self._keep()
        return {name: buffer for name, buffer in self._buffers_H[hosted].items() if buffer is not None}

    @torch.no_grad()
    def load_state_dict(self, hosted: int, state: dict[str, Tensor]) -> None:
        """The reverse of `state_dict`; copies."""
        self._keep()
        own = self._buffers_H[hosted]
        for name in own:
            before = own[name]
            given = state.get(name) if before is None else state[name]
            if before is not None and given is not None and before.shape == given.shape and before.dtype == given.dtype:
                before.copy_(given)
            else:
                own[name] = _clone(given)
        if self._in_use == hosted:
            self._in_use = None  # what the model holds is what was replaced
            self.use(hosted)


def _clone(buffer: Tensor | None) -> Tensor | None:
    return None if buffer is None else buffer.detach().clone()
