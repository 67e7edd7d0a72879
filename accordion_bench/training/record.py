"""What is known of an epoch once it is over. No torch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class EpochRecord:
    """One line of epochs.jsonl.

    Attributes:
        epoch: counted from 0.
        updates: optimiser steps in this epoch.
        skipped: updates left out because a gradient was not finite.
        learning_rate: the rate the optimiser used (batch multiple included).
        batch_multiple: backward passes per update and worker.
        loss: mean training loss over all workers.
        metrics: of the test split after this epoch, e.g. {"loss": 1.2, "accuracy": 55.1} (accuracy in percent).
        traffic: of one worker in this epoch, Traffic.as_dict().
        seconds: this epoch's training time by section (data, compute, compress, communicate, other) and "evaluate".
        level_index_L: index into the level ladder per layer used in this epoch.
        norms_L: Euclidean norm per layer of the gradient summed over this epoch.
        norm: the same over the whole model.
        critical: whether the scheduler regarded this epoch as critical.
        extra: anything a compressor or scheduler wants on record (rates it chose, eigenvalues); under "skipped" the
            [step, layer] of updates left out.
        time: seconds since the Unix epoch when the line was written.
    """

    epoch: int
    updates: int
    learning_rate: float
    batch_multiple: int
    loss: float
    metrics: dict[str, float]
    traffic: dict[str, dict[str, int]]
    seconds: dict[str, float]
    level_index_L: tuple[int, ...]
    norms_L: tuple[float, ...]
    norm: float
    critical: bool = False
    skipped: int = 0
    extra: dict[str, Any] = field(default_factory=dict)
    time: float = 0.0
