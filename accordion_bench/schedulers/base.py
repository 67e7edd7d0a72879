"""What a scheduler is: settings on the object, evolving state in and out. No torch, no compressor."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

State = dict[str, Any]  # plain JSON values: it goes into checkpoints


@dataclass(frozen=True)
class Problem:
    """What a scheduler may choose from.

    Attributes:
        layers: names of the L layers.
        rungs: length of the level ladder; index 0 is the most compressed (l_high), rungs - 1 the least (l_low).
        multiples: the batch ladder's multiples, index 0 the largest batch, the last one the base batch.
        epochs: length of the run.
        floats_per_step: for every rung, what one update costs one worker if all layers use it (32-bit words).
        words_LK: the same for every layer alone and rung, 1-D tensors left out; () where nobody asked.
        sizes_L: elements per layer; () where nobody asked.
    """

    layers: tuple[str, ...]
    rungs: int
    multiples: tuple[int, ...] = (1,)
    epochs: int = 1
    floats_per_step: tuple[float, ...] = ()
    words_LK: tuple[tuple[float, ...], ...] = ()
    sizes_L: tuple[int, ...] = ()

    @property
    def low(self) -> int:
        """Index of the least compressed level."""
        return self.rungs - 1

    @property
    def high(self) -> int:
        """Index of the most compressed level."""
        return 0

    @property
    def small_batch(self) -> int:
        """Index of the base batch."""
        return len(self.multiples) - 1


@dataclass(frozen=True)
class EpochStatistics:
    """What is known when an epoch has ended.

    Norms, means and deviations are of the gradient *summed over the epoch's updates* (Alg. 1): worker 0's own, or the
    averaged one, as the run's `statistic` says.

    Attributes:
        epoch: the epoch that has ended, counted from 0.
        learning_rate: of that epoch as scheduled, without the batch multiple.
        next_learning_rate: the same for the next epoch.
        norms_L: Euclidean norm per layer.
        means_L: mean element per layer.
        deviations_L: standard deviation of the elements per layer (population).
        norm: Euclidean norm over the whole model, 1-D tensors included.
        loss: mean training loss of the epoch.
        floats_per_worker: gradient words one worker has sent since the start of the run.
        updates: updates in that epoch.
        eigenvalue: top Hessian eigenvalue, where the scheduler asked for it.
        errors_LK: ||G - C_k(G)||^2 / ||G||^2 of the summed gradient G per layer and rung k, where the scheduler asked.
    """

    epoch: int
    learning_rate: float
    next_learning_rate: float
    norms_L: tuple[float, ...]
    means_L: tuple[float, ...]
    deviations_L: tuple[float, ...]
    norm: float
    loss: float = 0.0
    floats_per_worker: float = 0.0
    updates: int = 0
    eigenvalue: float | None = None
    errors_LK: tuple[tuple[float, ...], ...] = ()


@dataclass(frozen=True)
class Decision:
    """What the next epoch uses.

    Attributes:
        level_index_L: index into the level ladder for every layer.
        batch_index: index into the batch ladder.
        learning_rate_factor: what the scheduled rate is multiplied by; None means "by the batch multiple".
        critical: whether the scheduler regards the next epoch as (at least partly) critical.
        stop: end the run before the next epoch (an equal-budget run that has spent its budget).
    """

    level_index_L: tuple[int, ...]
    batch_index: int = 0
    learning_rate_factor: float | None = None
    critical: bool = False
    stop: bool = False


class Scheduler(ABC):
    """Decides at epoch boundaries which level every layer, and which batch multiple, uses next.

    Settings are keyword-only constructor arguments, checked there (UserError). Nothing on the object changes.
    """

    statistic: str = "local"  # "local": worker 0's gradient; "aggregated": the averaged update, needs no broadcast
    needs_eigenvalue: bool = False
    needs_errors: bool = False  # EpochStatistics.errors_LK and Problem.words_LK
    may_stop: bool = False  # a decision may end the run before its last epoch

    def probes(self, epoch: int) -> bool:
        """Whether `decide` reads the costly statistics (eigenvalue, errors_LK) at the end of this epoch.

        They may be left out of the other epochs' statistics.
        """
        return self.needs_eigenvalue or self.needs_errors

    @abstractmethod
    def start(self, problem: Problem) -> tuple[State, Decision]:
        """The state before training and the decision for epoch 0."""

    @abstractmethod
    def decide(self, state: State, problem: Problem, epoch: EpochStatistics) -> tuple[State, Decision]:
        """The new state and the decision for the next epoch. `state` is not changed."""
