"""L-GreCo (Alimohammadi et al. 2022, arXiv 2210.17357): layer-wise levels by dynamic programming.

Shape suffixes: L layers, K rungs, B error bins.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from accordion_bench.errors import RunFailure, UserError
from accordion_bench.schedulers.base import Decision, EpochStatistics, Problem, Scheduler, State
from accordion_bench.schedulers.rungs import place

BINS = 10_000  # as in the published code


def fewest_words(
    words_LK: Sequence[Sequence[float]], errors_LK: Sequence[Sequence[float]], allowed_error: float, bins: int = BINS
) -> tuple[int, ...] | None:
    """The rung per layer that sends fewest words while the errors sum to at most `allowed_error`; None if none does.

    Exact dynamic programming over errors in units of allowed_error / bins, rounded up: the constraint always holds, and
    the words are no more than the optimum's for an allowed error smaller by L / bins of itself. Non-finite errors are
    not allowed. Costs O(L K bins). Of equally good choices a layer gets the more compressed one.
    """
    import numpy as np

    errors = np.asarray(errors_LK, dtype=np.float64)
    unit = allowed_error / bins
    if unit > 0:
        with np.errstate(over="ignore"):
            # Without the slack, an error of exactly j units could round up to j + 1.
            units_LK = np.ceil(errors / unit * (1 - 1e-12))
    else:
        units_LK = np.where(errors == 0, 0.0, np.inf)
    best_B = np.zeros(bins + 1)
    choice_LB = np.full((len(errors), bins + 1), -1)
    for choice_B, words_K, units_K in zip(choice_LB, words_LK, units_LK, strict=True):
        before_B, best_B = best_B, np.full(bins + 1, np.inf)
        for rung, (words, units) in enumerate(zip(words_K, units_K, strict=True)):
            if not units <= bins:
                continue
            shift = int(units)
            total_B = np.full(bins + 1, np.inf)
            total_B[shift:] = before_B[: bins + 1 - shift] + words
            better_B = total_B < best_B
            best_B[better_B] = total_B[better_B]
            choice_B[better_B] = rung
    if not np.isfinite(best_B[-1]):
        return None
    left, rungs = bins, []
    for layer in reversed(range(len(errors))):
        rung = int(choice_LB[layer, left])
        rungs.append(rung)
        left -= int(units_LK[layer, rung])
    return tuple(reversed(rungs))


class LGreCo(Scheduler):
    """Fewest words under the constraint that the summed error stays within alpha of that of one uniform rung.

    A layer's error at rung k is ||G - C_k(G)||, not squared, of the gradient G summed over the epoch, as in the
    published code. The paper searches ranks from R / 2 to 2 R around the uniform rank R: write such a ladder, e.g.
    levels [2, 4, 8] with `reference` 1. Until the first errors are in, every layer is on the reference rung; it is also
    the choice whenever rounding leaves the search with nothing better.

    Args:
        alpha: allowed error relative to the uniform reference, > 0; 1 in the paper.
        interval: epochs between searches, >= 1; the published CIFAR runs search after every epoch.
        reference: place of the uniform rung on the level ladder; None: the middle one, the lower of two.
        batch_index: place on the batch ladder; None: base batch.

    Raises:
        UserError: on a value out of range; from `start` if the words per layer are not known. `decide` raises
            RunFailure where errors are due and were not measured.
    """

    needs_errors = True

    def __init__(
        self, *, alpha: float = 1.0, interval: int = 1, reference: int | None = None, batch_index: int | None = None
    ) -> None:
        if not 0 < alpha < math.inf:
            raise UserError(
                f"scheduler.alpha must be a number > 0, got {alpha:g}; 1 allows the error of the uniform level"
            )
        if interval < 1:
            raise UserError(
                f"scheduler.interval must be >= 1 epochs, got {interval}; write 1 to search after every epoch"
            )
        self.alpha = alpha
        self.interval = interval
        self.reference = reference
        self.batch_index = batch_index

    def probes(self, epoch: int) -> bool:
        """At searches only."""
        return (epoch + 1) % self.interval == 0

    def start(self, problem: Problem) -> tuple[State, Decision]:
        if len(problem.words_LK) != len(problem.layers):
            raise UserError(
                "scheduler lgreco needs the words of every layer and level; use a compressor that reports them"
            )
        levels_L = (self._reference(problem),) * len(problem.layers)
        return {"level_index_L": list(levels_L)}, self._decision(problem, levels_L)

    def decide(self, state: State, problem: Problem, epoch: EpochStatistics) -> tuple[State, Decision]:
        levels_L = tuple(state["level_index_L"])
        if self.probes(epoch.epoch):
            levels_L = self._search(problem, epoch)
        return {"level_index_L": list(levels_L)}, self._decision(problem, levels_L)

    def _search(self, problem: Problem, epoch: EpochStatistics) -> tuple[int, ...]:
        if len(epoch.errors_LK) != len(problem.layers):
            raise RunFailure(f"scheduler lgreco got no approximation errors for epoch {epoch.epoch}")
        errors_LK = [
            [math.sqrt(error) * norm for error in errors_K]
            for errors_K, norm in zip(epoch.errors_LK, epoch.norms_L, strict=True)
        ]
        reference = self._reference(problem)
        uniform_L = (reference,) * len(problem.layers)
        uniform_error = sum(errors_K[reference] for errors_K in errors_LK)
        if not math.isfinite(uniform_error):
            return uniform_L
        found_L = fewest_words(problem.words_LK, errors_LK, self.alpha * uniform_error)
        if self.alpha < 1:
            return (problem.low,) * len(problem.layers) if found_L is None else found_L
        if found_L is None or _words(problem, found_L) > _words(problem, uniform_L):
            return uniform_L
        return found_L

    def _reference(self, problem: Problem) -> int:
        return place(self.reference, problem.rungs, problem.low // 2, "reference")

    def _decision(self, problem: Problem, levels_L: tuple[int, ...]) -> Decision:
        batch = place(self.batch_index, len(problem.multiples), problem.small_batch, "batch_index")
        return Decision(levels_L, batch)


def _words(problem: Problem, levels_L: tuple[int, ...]) -> float:
    return sum(words_K[level] for words_K, level in zip(problem.words_LK, levels_L, strict=True))
