"""How numbers are written: units, digits, plus-minus, ratios."""

from __future__ import annotations

import math
from collections.abc import Iterable

from accordion_bench.report.estimates import Estimate
from accordion_bench.report.tables.sheet import DASH

UNITS = ((1e9, "G"), (1e6, "M"), (1e3, "k"))
MOST_DECIMALS = 4
HUGE = 1e12  # from here on, as in the perplexity of a diverged language model, digits say nothing: 8e+163


def unit_for(values: Iterable[float]) -> tuple[float, str]:
    """(divisor, prefix) that leaves the largest value with two digits or more before the point."""
    largest = max(filter(math.isfinite, values), default=0.0)
    return next(((size, prefix) for size, prefix in UNITS if largest >= 10 * size), (1.0, ""))


def decimals_for(estimates: Iterable[Estimate | None], *, digits: int, least: int = 0, unit: float = 1.0) -> int:
    """Decimals for a whole column.

    Args:
        estimates: the column.
        digits: significant digits of its largest mean.
        least: never fewer decimals than this.
        unit: what the values are divided by.

    Returns:
        Enough for `digits`, and for the smallest interval that is not zero to show a digit; MOST_DECIMALS at most.
        Values that are HUGE or not finite have no say.
    """
    there = [value for value in estimates if value is not None and abs(value.mean) / unit < HUGE]
    largest = max((abs(value.mean) / unit for value in there), default=0.0)
    before_point = math.floor(math.log10(largest)) + 1 if largest >= 1 else 1
    shown = 10**-MOST_DECIMALS
    widths = [value.half_width / unit for value in there if value.half_width and value.half_width / unit >= shown]
    for_width = math.ceil(-math.log10(min(widths))) if widths else 0
    return min(max(digits - before_point, least, for_width, 0), MOST_DECIMALS)


def with_interval(value: Estimate | None, decimals: int, unit: float = 1.0, exact: bool = False) -> str:
    """Such as 94.5 ± 0.3, or 94.5 ± - for a single seed; no ± if `exact` and equal on all seeds; a dash for nothing."""
    if value is None:
        return DASH
    mean = number(value.mean / unit, decimals)
    if exact and value.same:
        return mean
    return f"{mean} ± {DASH if value.half_width is None else number(value.half_width / unit, decimals)}"


def number(value: float, decimals: int) -> str:
    """Fixed decimals, and a thousands separator from 10,000 on; what is HUGE in scientific form."""
    if abs(value) >= HUGE:
        return f"{value:.3g}"
    return f"{value:,.{decimals}f}" if abs(value) >= 10_000 else f"{value:.{decimals}f}"


def signed(value: float, decimals: int) -> str:
    """With its sign; zero has none; what is HUGE in scientific form."""
    if abs(value) >= HUGE:
        return f"{value:+.3g}"
    text = f"{value:+.{decimals}f}"
    return text[1:] if float(text) == 0 else text


def ratio(value: float | None, baseline: bool = False) -> str:
    """ "1.79x": times less than the baseline, which itself is "1x"."""
    if value is None:
        return DASH
    if baseline:
        return "1x"
    if value >= HUGE or 0 < value < 0.0001:
        return f"{value:.3g}x"
    decimals = next((count for limit, count in ((0.1, 4), (10, 2), (100, 1)) if value < limit), 0)
    return f"{value:.{decimals}f}x"


def plain(value: float | None) -> str:
    """For machines: up to ten significant digits, empty for nothing."""
    return "" if value is None else f"{value:.10g}"
