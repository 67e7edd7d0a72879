"""Increase the batch size instead of decaying the learning rate (Smith et al. 2017, arXiv 1711.00489)."""

from __future__ import annotations

from accordion_bench.errors import UserError
from accordion_bench.schedulers.base import Decision, EpochStatistics, Problem, Scheduler, State
from accordion_bench.schedulers.rungs import largest_multiple, place, require_batch_ladder


class Smith(Scheduler):
    """Where the schedule would divide the learning rate by f, the batch is multiplied by f instead.

    The noise scale of SGD goes with rate / batch, and this keeps it on the schedule exactly: with m the largest
    multiple of the ladder not above initial_factor x (highest rate so far) / (next scheduled rate), the optimiser runs
    at m times the scheduled rate. As long as the ladder has the multiple wanted, m cancels the decay and the rate stays
    where it was; what the ladder cannot give (its first entry is the largest multiple) is decayed as scheduled. Warm-up
    is not a decay.

    Args:
        initial_factor: the "increased initial learning rate" variant: begin with a rate and a batch that are both this
            many times larger; one of the batch ladder's multiples. 1 is the plain method.
        index: place on the level ladder for the whole run; None: least compressed.

    `start` raises UserError without a batch ladder, if initial_factor is not on it, or if index is not on the level
    ladder.
    """

    def __init__(self, *, initial_factor: int = 1, index: int | None = None) -> None:
        self.initial_factor = initial_factor
        self.index = index

    def start(self, problem: Problem) -> tuple[State, Decision]:
        require_batch_ladder(problem, "smith")
        if self.initial_factor not in problem.multiples:
            raise UserError(
                f"scheduler.initial_factor must be one of batch.multipliers {list(problem.multiples)}, "
                f"got {self.initial_factor}; add it there or write 1"
            )
        return {"highest_rate": 0.0}, self._decision(problem, self.initial_factor)

    def decide(self, state: State, problem: Problem, epoch: EpochStatistics) -> tuple[State, Decision]:
        highest_rate = max(state["highest_rate"], epoch.learning_rate, epoch.next_learning_rate)
        decayed_by = highest_rate / epoch.next_learning_rate if epoch.next_learning_rate else 1.0
        return {"highest_rate": highest_rate}, self._decision(problem, self.initial_factor * decayed_by)

    def _decision(self, problem: Problem, wanted: float) -> Decision:
        level = place(self.index, problem.rungs, problem.low, "index")
        batch = largest_multiple(problem, wanted)
        return Decision((level,) * len(problem.layers), batch, learning_rate_factor=float(problem.multiples[batch]))
