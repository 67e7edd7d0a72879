"""AdaQS (Guo et al. 2020): more fidelity as the gradient's mean sinks in its noise."""

from __future__ import annotations

import math
from typing import Literal

from accordion_bench.errors import UserError
from accordion_bench.schedulers.base import Decision, EpochStatistics, Problem, Scheduler, State
from accordion_bench.schedulers.rungs import place


class AdaQS(Scheduler):
    """Starts at the most compressed level; one rung less compressed whenever the MSDR has fallen by `drop`; never back.

    MSDR = |mean| / standard deviation of the gradient. The reference is the MSDR at the last change, at first that of
    the first epoch looked at. A ratio that is not defined (deviation 0) is passed over. On a ladder of doubling ranks a
    rung is twice the rank, as the Accordion paper compares it. No public code is known: `drop`, `interval` and `per`
    are our reading, hence settings.

    Args:
        drop: fraction of the reference at or below which the MSDR counts as fallen, in (0, 1).
        per: "layer": every layer by itself; "model": one ratio over all layers' elements.
        interval: epochs between looks, >= 1.
        batch_index: place on the batch ladder; None: base batch.

    Raises:
        UserError: on a value out of range.
    """

    def __init__(
        self,
        *,
        drop: float = 0.5,
        per: Literal["layer", "model"] = "layer",
        interval: int = 1,
        batch_index: int | None = None,
    ) -> None:
        if not 0 < drop < 1:
            raise UserError(f"scheduler.drop must be in (0, 1), got {drop:g}; 0.5 acts when the ratio has halved")
        if interval < 1:
            raise UserError(
                f"scheduler.interval must be >= 1 epochs, got {interval}; write 1 to look after every epoch"
            )
        self.drop = drop
        self.per = per
        self.interval = interval
        self.batch_index = batch_index

    def start(self, problem: Problem) -> tuple[State, Decision]:
        if self.per == "model" and len(problem.sizes_L) != len(problem.layers):
            raise UserError(
                "scheduler.per=model needs the number of elements of every layer; write scheduler.per=layer"
            )
        groups = len(problem.layers) if self.per == "layer" else 1
        state: State = {"references": [None] * groups, "indices": [problem.high] * groups}
        return state, self._decision(problem, state)

    def decide(self, state: State, problem: Problem, epoch: EpochStatistics) -> tuple[State, Decision]:
        references, indices = list(state["references"]), list(state["indices"])
        if (epoch.epoch + 1) % self.interval == 0:
            for i, ratio in enumerate(self._ratios(problem, epoch)):
                if not math.isfinite(ratio):
                    continue
                if not references[i]:
                    references[i] = ratio
                elif ratio <= self.drop * references[i]:
                    references[i], indices[i] = ratio, min(indices[i] + 1, problem.low)
        state = {"references": references, "indices": indices}
        return state, self._decision(problem, state)

    def _ratios(self, problem: Problem, epoch: EpochStatistics) -> list[float]:
        moments = list(zip(epoch.means_L, epoch.deviations_L, strict=True))
        if self.per == "layer":
            return [_msdr(mean, deviation) for mean, deviation in moments]
        total = sum(problem.sizes_L) or 1
        mean = sum(n * m for n, (m, _) in zip(problem.sizes_L, moments, strict=True)) / total
        square = sum(n * (m * m + d * d) for n, (m, d) in zip(problem.sizes_L, moments, strict=True)) / total
        return [_msdr(mean, math.sqrt(max(square - mean * mean, 0.0)))]

    def _decision(self, problem: Problem, state: State) -> Decision:
        indices = state["indices"]
        levels_L = tuple(indices) if self.per == "layer" else tuple(indices) * len(problem.layers)
        batch = place(self.batch_index, len(problem.multiples), problem.small_batch, "batch_index")
        return Decision(levels_L, batch, critical=problem.rungs > 1 and problem.low in levels_L)


def _msdr(mean: float, deviation: float) -> float:
    return abs(mean) / deviation if deviation else math.nan
