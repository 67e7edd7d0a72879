"""Critical regimes from curvature (Jastrzebski et al. 2019, 2020), in Accordion's place of the gradient norm."""

from __future__ import annotations

from accordion_bench.errors import RunFailure
from accordion_bench.schedulers.base import Decision, EpochStatistics, Problem, Scheduler, State
from accordion_bench.schedulers.regimes import Check, Detector, Steps, rate_falls
from accordion_bench.schedulers.rungs import asks_low


class HessianDetector(Scheduler):
    """Accordion's test on the top eigenvalue of the Hessian: critical while |l_prev - l| / |l_prev| >= eta.

    One number for the whole model, so all layers, and the batch, move together. Falls of the learning rate count as in
    Accordion. Fig. 3 of the Accordion paper sets this detector beside the gradient norm.

    Args:
        eta, interval, check, steps, monotone: as in Accordion.

    Raises:
        UserError: on a value out of range. `decide` raises RunFailure where an eigenvalue is due and was not measured.
    """

    needs_eigenvalue = True

    def __init__(
        self,
        *,
        eta: float = 0.5,
        interval: int = 10,
        check: Check = "paper",
        steps: Steps = "jump",
        monotone: bool = True,
    ) -> None:
        self.detector = Detector(eta, interval, check, steps)
        self.monotone = monotone

    def probes(self, epoch: int) -> bool:
        """At comparisons only: an eigenvalue costs many Hessian-vector products."""
        return self.detector.compares(epoch)

    def start(self, problem: Problem) -> tuple[State, Decision]:
        state: State = {"eigenvalue": None, "level_index": problem.low, "batch_index": problem.small_batch}
        return state, _decision(problem, state)

    def decide(self, state: State, problem: Problem, epoch: EpochStatistics) -> tuple[State, Decision]:
        eigenvalue, level, batch = state["eigenvalue"], state["level_index"], state["batch_index"]
        if self.detector.compares(epoch.epoch):
            if epoch.eigenvalue is None:
                raise RunFailure(f"scheduler hessian got no eigenvalue for epoch {epoch.epoch}")
            level = self.detector.rung(eigenvalue, epoch.eigenvalue, problem.rungs)
            batch = self.detector.rung(eigenvalue, epoch.eigenvalue, len(problem.multiples))
            eigenvalue = epoch.eigenvalue
        if rate_falls(epoch):
            level, batch = problem.low, problem.small_batch
        if self.monotone:
            batch = min(batch, state["batch_index"])
        state = {"eigenvalue": eigenvalue, "level_index": level, "batch_index": batch}
        return state, _decision(problem, state)


def _decision(problem: Problem, state: State) -> Decision:
    levels_L = (state["level_index"],) * len(problem.layers)
    return Decision(levels_L, state["batch_index"], critical=asks_low(problem, levels_L, state["batch_index"]))
