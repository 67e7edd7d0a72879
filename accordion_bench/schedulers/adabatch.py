"""AdaBatch (Devarakonda et al. 2017, arXiv 1712.02029): double the batch at fixed intervals."""

from __future__ import annotations

from accordion_bench.errors import UserError
from accordion_bench.schedulers.base import Decision, EpochStatistics, Problem, Scheduler, State
from accordion_bench.schedulers.rungs import largest_multiple, place, require_batch_ladder


class AdaBatch(Scheduler):
    """Doubles the batch every `interval` epochs, up to the ladder's largest multiple.

    The learning-rate schedule stays the one of the base batch; multiplying it by the batch multiple turns a decay by d
    into one by 2d where the batch doubles (the paper's 0.375 becomes 0.75), so that rate / batch is that of the base
    run.

    Args:
        interval: epochs between doublings, >= 1; 20 in the paper's CIFAR runs.
        index: place on the level ladder for the whole run; None: least compressed.

    Raises:
        UserError: on a value out of range; from `start` without a batch ladder or if index is not on the level ladder.
    """

    def __init__(self, *, interval: int = 20, index: int | None = None) -> None:
        if interval < 1:
            raise UserError(f"scheduler.interval must be >= 1 epochs, got {interval}; the paper doubles every 20")
        self.interval = interval
        self.index = index

    def start(self, problem: Problem) -> tuple[State, Decision]:
        require_batch_ladder(problem, "adabatch")
        return {}, self._at(problem, 0)

    def decide(self, state: State, problem: Problem, epoch: EpochStatistics) -> tuple[State, Decision]:
        return {}, self._at(problem, epoch.epoch + 1)

    def _at(self, problem: Problem, epoch: int) -> Decision:
        level = place(self.index, problem.rungs, problem.low, "index")
        return Decision((level,) * len(problem.layers), largest_multiple(problem, 2 ** (epoch // self.interval)))
