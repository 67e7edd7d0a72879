"""Accordion (Agarwal et al. 2021, arXiv 2010.16248), Algorithm 1, per layer and on the batch size."""

from __future__ import annotations

from accordion_bench.schedulers.base import Decision, EpochStatistics, Problem, Scheduler, State
from accordion_bench.schedulers.regimes import Check, Detector, Steps, rate_falls
from accordion_bench.schedulers.rungs import asks_low


class Accordion(Scheduler):
    """Least compressed while the gradient norm changes fast and after every fall of the learning rate, else most.

    Every `interval` epochs each layer's norm D of the gradient summed over the epoch is compared with that of the
    previous comparison: |D_prev - D| / D_prev >= eta means critical, and so does D_prev = 0. A fall of the scheduled
    learning rate makes every layer critical until the next comparison. The batch ladder obeys the same test on the
    whole model's norm.

    If the number of updates per epoch has changed in between (another batch multiple), D_prev is rescaled to the
    current number: the sum over an eighth of the updates is not a change of the gradient. Otherwise D is used as it is.

    A level and a batch ladder with several rungs each are both adapted, independently of each other unless `joint`.

    Args:
        eta: detection threshold, > 0.
        interval: epochs between comparisons, >= 1.
        check: when comparisons take place: "paper" (end of epochs 9, 19, ...; the first has nothing to compare with and
            is critical) or "authors_code" (end of epochs 0, 10, 20, ...; epoch 0 is critical).
        steps: on ladders of more than two rungs: "jump" between the ends, or "proportional" to the change (see
            Detector).
        monotone: the batch multiple only ever grows, even after a fall of the learning rate (App. A of the paper).
        joint: let the batch grow only while no layer is critical (not in the paper).

    Raises:
        UserError: on a value out of range.
    """

    def __init__(
        self,
        *,
        eta: float = 0.5,
        interval: int = 10,
        check: Check = "paper",
        steps: Steps = "jump",
        monotone: bool = True,
        joint: bool = False,
    ) -> None:
        self.detector = Detector(eta, interval, check, steps)
        self.monotone = monotone
        self.joint = joint

    def start(self, problem: Problem) -> tuple[State, Decision]:
        levels_L = (problem.low,) * len(problem.layers)
        state: State = {
            "norms_L": None,
            "norm": None,
            "updates": 0,
            "level_index_L": list(levels_L),
            "batch_index": problem.small_batch,
        }
        return state, _decision(problem, levels_L, problem.small_batch)

    def decide(self, state: State, problem: Problem, epoch: EpochStatistics) -> tuple[State, Decision]:
        state = dict(state)
        levels_L, batch = tuple(state["level_index_L"]), state["batch_index"]
        if self.detector.compares(epoch.epoch):
            levels_L, batch = self._compare(state, problem, epoch)
            state.update(norms_L=list(epoch.norms_L), norm=epoch.norm, updates=epoch.updates)
        if rate_falls(epoch):
            levels_L, batch = (problem.low,) * len(problem.layers), problem.small_batch
        if self.joint and problem.rungs > 1 and problem.low in levels_L:
            batch = problem.small_batch
        if self.monotone:
            batch = min(batch, state["batch_index"])
        state.update(level_index_L=list(levels_L), batch_index=batch)
        return state, _decision(problem, levels_L, batch)

    def _compare(self, state: State, problem: Problem, epoch: EpochStatistics) -> tuple[tuple[int, ...], int]:
        """Alg. 1, first condition: a level for every layer, and a batch index."""
        multiples = len(problem.multiples)
        if state["norms_L"] is None:
            return (problem.low,) * len(problem.layers), multiples - 1
        scale = epoch.updates / state["updates"] if epoch.updates and state["updates"] else 1.0
        levels_L = tuple(
            self.detector.rung(before * scale, now, problem.rungs)
            for before, now in zip(state["norms_L"], epoch.norms_L, strict=True)
        )
        return levels_L, self.detector.rung(state["norm"] * scale, epoch.norm, multiples)


def _decision(problem: Problem, levels_L: tuple[int, ...], batch: int) -> Decision:
    return Decision(levels_L, batch, critical=asks_low(problem, levels_L, batch))
