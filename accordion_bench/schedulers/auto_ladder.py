"""Accordion that chooses l_low and l_high per layer by itself, from a short probe. An extension, not in the paper."""

from __future__ import annotations

from dataclasses import replace

from accordion_bench.errors import RunFailure, UserError
from accordion_bench.schedulers.accordion import Accordion
from accordion_bench.schedulers.base import Decision, EpochStatistics, Problem, Scheduler, State
from accordion_bench.schedulers.regimes import Check


class AutoLadder(Scheduler):
    """Accordion between two rungs that are chosen per layer, from how well each rung approximates the gradient.

    The paper leaves l_low and l_high to the user, and names a network (VGG-19 on CIFAR-100) that needs rank 2, not 1,
    as l_high. Here the run starts least compressed; at the end of the last of `probe_epochs` epochs, with e_k the
    relative squared error ||G - C_k(G)||^2 / ||G||^2 of rung k on the gradient summed over that epoch,

        l_high = the most compressed rung with e_k <= high_error,
        l_low  = the most compressed rung with e_k <= low_error,

    the least compressed one where no rung is good enough. Accordion (the same settings) then moves each layer between
    its two.

    Args:
        high_error: largest relative squared error accepted outside critical regimes.
        low_error: the same inside; 0 < low_error <= high_error <= 1. The defaults are a starting point, not tuned.
        probe_epochs: length of the probe, >= 1.
        eta, interval, check, monotone, joint: Accordion's.

    Raises:
        UserError: on a value out of range. `decide` raises RunFailure where errors are due and were not measured.
    """

    needs_errors = True

    def __init__(
        self,
        *,
        high_error: float = 0.8,
        low_error: float = 0.5,
        probe_epochs: int = 1,
        eta: float = 0.5,
        interval: int = 10,
        check: Check = "paper",
        monotone: bool = True,
        joint: bool = False,
    ) -> None:
        if not 0 < low_error <= high_error <= 1:
            raise UserError(
                "scheduler.low_error and high_error must satisfy 0 < low_error <= high_error <= 1, "
                f"got {low_error:g} and {high_error:g}; write e.g. 0.5 and 0.8"
            )
        if probe_epochs < 1:
            raise UserError(f"scheduler.probe_epochs must be >= 1, got {probe_epochs}; one epoch is enough")
        self.accordion = Accordion(eta=eta, interval=interval, check=check, monotone=monotone, joint=joint)
        self.high_error = high_error
        self.low_error = low_error
        self.probe_epochs = probe_epochs

    def probes(self, epoch: int) -> bool:
        """Once."""
        return epoch == self.probe_epochs - 1

    def start(self, problem: Problem) -> tuple[State, Decision]:
        inner, decision = self.accordion.start(_two_rungs(problem))
        lowest = [problem.low] * len(problem.layers)
        state: State = {"accordion": inner, "high_L": lowest, "low_L": lowest}
        return state, _mapped(state, decision)

    def decide(self, state: State, problem: Problem, epoch: EpochStatistics) -> tuple[State, Decision]:
        inner, decision = self.accordion.decide(state["accordion"], _two_rungs(problem), epoch)
        state = {**state, "accordion": inner}
        if self.probes(epoch.epoch):
            if len(epoch.errors_LK) != len(problem.layers):
                raise RunFailure(f"scheduler auto_ladder got no approximation errors for epoch {epoch.epoch}")
            state["high_L"] = [_first_within(self.high_error, errors_K) for errors_K in epoch.errors_LK]
            state["low_L"] = [_first_within(self.low_error, errors_K) for errors_K in epoch.errors_LK]
        return state, _mapped(state, decision)


def _two_rungs(problem: Problem) -> Problem:
    return replace(problem, rungs=2)


def _first_within(largest: float, errors_K: tuple[float, ...]) -> int:
    return next((rung for rung, error in enumerate(errors_K) if error <= largest), len(errors_K) - 1)


def _mapped(state: State, decision: Decision) -> Decision:
    """Accordion's 0 and 1 turned into each layer's own l_high and l_low."""
    levels_L = tuple(
        low if index else high
        for index, high, low in zip(decision.level_index_L, state["high_L"], state["low_L"], strict=True)
    )
    return replace(decision, level_index_L=levels_L)
