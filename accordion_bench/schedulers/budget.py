"""High compression for as long as the floats of a low-compression run last (Agarwal et al. 2021, Figs. 8 and 9)."""

from __future__ import annotations

import math

from accordion_bench.errors import UserError
from accordion_bench.schedulers.base import Decision, EpochStatistics, Problem, Scheduler, State
from accordion_bench.schedulers.rungs import ROUNDING, place, uniform


class Budget(Scheduler):
    """One level until it has sent what `reference_epochs` epochs at another level would have sent, then stop.

    With f the floats of one update, that is floor(reference_epochs x f(reference) / f(index)) epochs: 536 epochs of
    rank 1 for 300 of rank 2 (ResNet-18, CIFAR-100). The run's `epochs` is only an upper bound and must be at least that
    number. The learning-rate schedule is not stretched; set its milestones for the longer run where that is wanted.

    Args:
        reference_epochs: length of the run whose floats are the budget, >= 1.
        index: place on the level ladder; None: most compressed.
        reference_index: that of the reference run; None: least compressed.

    Raises:
        UserError: on a value out of range; from `start` if the run is too short to spend the budget, or the budget too
            small for one epoch.
    """

    may_stop = True

    def __init__(self, *, reference_epochs: int, index: int | None = None, reference_index: int | None = None) -> None:
        if reference_epochs < 1:
            raise UserError(
                f"scheduler.reference_epochs must be >= 1, got {reference_epochs}; the paper's runs have 300"
            )
        self.reference_epochs = reference_epochs
        self.index = index
        self.reference_index = reference_index

    def start(self, problem: Problem) -> tuple[State, Decision]:
        affordable = self._affordable(problem)
        if affordable < 1:
            raise UserError(
                f"scheduler.reference_epochs must buy one epoch or more, got {self.reference_epochs}; "
                "raise it, or lower scheduler.index"
            )
        if problem.epochs < affordable:
            raise UserError(
                f"epochs must be >= {affordable} to spend the floats of {self.reference_epochs} reference epochs, "
                f"got {problem.epochs}; write epochs={affordable}"
            )
        return {}, self._decision(problem)

    def decide(self, state: State, problem: Problem, epoch: EpochStatistics) -> tuple[State, Decision]:
        return {}, self._decision(problem, stop=epoch.epoch + 1 >= self._affordable(problem))

    def _affordable(self, problem: Problem) -> int:
        if not problem.floats_per_step:
            raise UserError(
                "scheduler budget needs the floats per update of every level; use a compressor that reports them"
            )
        floats = problem.floats_per_step[self._level(problem)]
        reference = place(self.reference_index, problem.rungs, problem.low, "reference_index")
        budget = self.reference_epochs * problem.floats_per_step[reference]
        return math.floor(budget / floats * (1 + ROUNDING))

    def _level(self, problem: Problem) -> int:
        return place(self.index, problem.rungs, problem.high, "index")

    def _decision(self, problem: Problem, stop: bool = False) -> Decision:
        everywhere = uniform(problem, self._level(problem))
        return Decision(everywhere.level_index_L, everywhere.batch_index, stop=stop)
