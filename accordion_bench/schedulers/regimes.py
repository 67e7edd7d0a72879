"""The critical-regime test of Alg. 1 (Agarwal et al. 2021), on any quantity that is followed over epochs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from accordion_bench.errors import UserError
from accordion_bench.schedulers.base import EpochStatistics

Check = Literal["paper", "authors_code"]
Steps = Literal["jump", "proportional"]


def relative_change(previous: float | None, now: float) -> float:
    """|previous - now| / |previous|; infinite where there is no previous value, it is 0, or one is not finite."""
    if previous is None or previous == 0:
        return math.inf
    change = abs(previous - now) / abs(previous)
    return math.inf if math.isnan(change) else change


def rate_falls(epoch: EpochStatistics) -> bool:
    """The second condition of Alg. 1: the next epoch's scheduled learning rate is lower."""
    return epoch.next_learning_rate < epoch.learning_rate


@dataclass(frozen=True)
class Detector:
    """When to compare, and which rung follows from how much a quantity has changed.

    Attributes:
        eta: relative change from which on the regime is critical, > 0.
        interval: epochs between two comparisons, >= 1.
        check: "paper": compare at the end of every interval-th epoch (0-based 9, 19, 29, ...), so that the first
            interval and, having no predecessor, the second one are critical; "authors_code": at the end of epochs 0,
            10, 20, ..., so that epochs 0 to 10 are critical.
        steps: "jump": first or last rung, as in the paper; "proportional": of R rungs, a change c below eta gets rung
            floor((R - 1) c / eta), so that a ladder of two is the same under both.

    Raises:
        UserError: on a value outside these ranges.
    """

    eta: float
    interval: int
    check: Check = "paper"
    steps: Steps = "jump"

    def __post_init__(self) -> None:
        if not 0 < self.eta < math.inf:
            raise UserError(f"scheduler.eta must be a number > 0, got {self.eta:g}; the paper uses 0.5")
        if self.interval < 1:
            raise UserError(f"scheduler.interval must be >= 1 epochs, got {self.interval}; the paper uses 10")

    def compares(self, epoch: int) -> bool:
        """Whether a comparison is due at the end of this epoch."""
        return (epoch + 1 if self.check == "paper" else epoch) % self.interval == 0

    def rung(self, previous: float | None, now: float, length: int) -> int:
        """The rung of a ladder of that length; the last one is for critical regimes."""
        change = relative_change(previous, now)
        if not change < self.eta:
            return length - 1
        if self.steps == "jump":
            return 0
        return max(0, min(length - 2, math.floor((length - 1) * change / self.eta)))
