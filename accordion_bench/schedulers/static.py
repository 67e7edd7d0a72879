"""One level and one batch size for the whole run."""

from __future__ import annotations

from accordion_bench.schedulers.base import Decision, EpochStatistics, Problem, Scheduler, State
from accordion_bench.schedulers.rungs import uniform


class Static(Scheduler):
    """The baselines of every table.

    Args:
        index: place on the level ladder, 0 the most compressed, negative from the end; None: least compressed.
        batch_index: place on the batch ladder, 0 the largest; None: base batch.

    `start` raises UserError if a place is not on its ladder.
    """

    def __init__(self, *, index: int | None = None, batch_index: int | None = None) -> None:
        self.index = index
        self.batch_index = batch_index

    def start(self, problem: Problem) -> tuple[State, Decision]:
        return {}, uniform(problem, self.index, self.batch_index)

    def decide(self, state: State, problem: Problem, epoch: EpochStatistics) -> tuple[State, Decision]:
        return {}, uniform(problem, self.index, self.batch_index)
