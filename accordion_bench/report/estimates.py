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
    if count == 1:
        return Estimate(values[0], None, 1)
    if min(values) == max(values):
        return Estimate(values[0], 0.0, count, same=True)
    mean, deviation = mean_and_deviation(values, degrees=count if kind == "normal" else count - 1)
    quantile = 1.96 if kind == "normal" else _quantile(count - 1)
    return Estimate(mean, quantile * deviation / math.sqrt(count), count)


def mean_and_deviation(values: Sequence[float], degrees: int) -> tuple[float, float]:
    """Mean, and the root of the summed squared differences from it over `degrees`.

    Taken relative to the power of two above the largest value, so that no square overflows or vanishes and nothing is
    rounded by it; what the result itself cannot hold is infinite. With a value that is not finite the mean is what IEEE
    arithmetic makes of the sum, the deviation nan.
    """
    if not all(map(math.isfinite, values)):
        return sum(values) / len(values), math.nan
    exponent = math.frexp(max(map(abs, values)))[1]
    parts = [math.ldexp(value, -exponent) for value in values]
    mean = math.fsum(parts) / len(parts)
    deviation = math.sqrt(math.fsum((part - mean) ** 2 for part in parts) / degrees)
    return _times_power_of_two(mean, exponent), _times_power_of_two(deviation, exponent)


def _times_power_of_two(value: float, exponent: int) -> float:
    try:
        return math.ldexp(value, exponent)
    except OverflowError:
        return math.copysign(math.inf, value)


def _quantile(degrees: int) -> float:
    from scipy.special import stdtrit

    return float(stdtrit(degrees, 0.5 + CONFIDENCE / 2))
