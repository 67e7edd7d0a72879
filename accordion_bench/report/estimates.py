"""Mean and 95 % confidence interval over seeds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from accordion_bench.errors import UserError
from accordion_bench.plugins import closest

CONFIDENCE = 0.95
KINDS = {"student": "Student t", "normal": "1.96 s / sqrt(n), population s"}


@dataclass(frozen=True)
class Estimate:
    """A mean over n seeds.

    Attributes:
        mean: of the values.
        half_width: of the 95 % confidence interval; None for a single value, which has none.
        count: n.
        same: whether there are several values and all are equal.
    """

    mean: float
    half_width: float | None
    count: int
    same: bool = False


def check_kind(kind: str) -> str:
    """`kind` itself if it is a kind of interval, else UserError."""
    if kind not in KINDS:
        raise UserError(f"ci must be one of {', '.join(KINDS)}, got {kind!r}{closest(kind, tuple(KINDS))}")
    return kind


def estimate(values: Sequence[float], kind: str = "student") -> Estimate | None:
    """Mean and interval of the values; None if there are none.

    Args:
        values: one per seed.
        kind: "student": t(0.975, n-1) s / sqrt(n) with the sample deviation s (division by n-1); "normal", what the
            Accordion authors' evaluation code does: 1.96 s / sqrt(n) with the population deviation (division by n).
    """
    check_kind(kind)
    count = len(values)
    if count == 0:
        return None
    mean = math.fsum(values) / count
    if count == 1:
        return Estimate(mean, None, 1)
    if min(values) == max(values):
        return Estimate(values[0], 0.0, count, same=True)
    squares = math.fsum((value - mean) ** 2 for value in values)
    if kind == "normal":
        return Estimate(mean, 1.96 * math.sqrt(squares / count) / math.sqrt(count), count)
    return Estimate(mean, _quantile(count - 1) * math.sqrt(squares / (count - 1)) / math.sqrt(count), count)


def _quantile(degrees: int) -> float:
    from scipy.special import stdtrit

    return float(stdtrit(degrees, 0.5 + CONFIDENCE / 2))
