"""What evaluations share: every unit of work has a number, so the result does not depend on who does it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from accordion_bench.training.communicator import Communicator


@dataclass(frozen=True)
class Share:
    """How a training set is divided.

    Attributes:
        batch_per_worker: B, examples (or streams of text) per worker and batch.
        workers: A.
        seed: the run's seed.
        shuffle: "every_epoch" draws a new order each epoch, "once" keeps that of epoch 0.
        device: where the data lives.
    """

    batch_per_worker: int
    workers: int
    seed: int
    shuffle: str
    device: torch.device


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Evaluation mode without gradients; afterwards every module is in the mode it was in."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module, training in modes:
            module.training = training


def sum_units(
    units: int, measure: Callable[[int], Tensor], columns: int, communicator: Communicator, device: torch.device
) -> list[float]:
    """Sums over numbered units of work that the processes take in turn.

    Each unit's numbers go to its own row of a vector of zeros, which `communicator.total` completes; the rows are then
    added in order. So the sum is bit for bit the same for every number of processes.

    Args:
        units: how many there are.
        measure: unit number -> (columns,) float64 on the device.

    Returns:
        `columns` sums, the same on every process.
    """
    table = torch.zeros(units, columns, dtype=torch.float64, device=device)
    for unit in range(communicator.process, units, communicator.processes):
        table[unit] = measure(unit)
    return [sum(column) for column in communicator.total(table).cpu().T.tolist()]
