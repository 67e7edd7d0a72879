"""One-sided tests on seed-paired values, Holm's correction, and the seeds that a decision needs.

A pair is two runs with the same seed: they start from the same weights and see the same batches, so the variance that
counts is that of the difference. All tests are Student's t on one sample of n such numbers; the null hypothesis is the
boundary of the claim, and the opposite one-sided test says whether the claim is contradicted.

Sources: Holm, "A simple sequentially rejective multiple test procedure", Scandinavian J. of Statistics 6 (1979);
non-inferiority with a margin as in Piaggio et al., JAMA 308 (2012), CONSORT extension.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from accordion_bench.report.estimates import mean_and_deviation

LEVEL = 0.05  # of all claims of one table together
POWER = 0.8
MOST_SEEDS = 1000


@dataclass(frozen=True)
class Test:
    """What n paired numbers say about "the mean is above a threshold".

    Attributes:
        count: n.
        mean: of the numbers.
        low: lower end of the mean's two-sided 95 % interval; equal to mean and high where all numbers are equal.
        high: upper end.
        p_for: of the one-sided test whose rejection supports the claim.
        p_against: of the opposite test, whose rejection contradicts it.
        effect: (mean - threshold) / sample deviation; infinite where all numbers are equal and not the threshold.
    """

    count: int
    mean: float
    low: float
    high: float
    p_for: float
    p_against: float
    effect: float


def t_test(values: Sequence[float], threshold: float) -> Test | None:
    """Whether the values' mean is above the threshold; None for fewer than two values or any that is not finite.

    Numbers that are all equal leave nothing to chance: p is 0 or 1, and on the threshold itself 1 both ways.
    """
    count = len(values)
    if count < 2 or not all(map(math.isfinite, values)):
        return None
    if min(values) == max(values):
        mean = values[0]
        exact = (float(not mean > threshold), float(not mean < threshold))
        effect = math.copysign(math.inf, mean - threshold) if mean != threshold else 0.0
        return Test(count, mean, mean, mean, *exact, effect)
    from scipy import stats

    scale = max(map(abs, values))
    mean, deviation = mean_and_deviation([value / scale for value in values], degrees=count - 1)
    half = float(stats.t.ppf(0.975, count - 1)) * deviation / math.sqrt(count)
    effect = (mean - threshold / scale) / deviation
    statistic = effect * math.sqrt(count)
    return Test(
        count=count,
        mean=scale * mean,
        low=scale * (mean - half),
        high=scale * (mean + half),
        p_for=float(stats.t.sf(statistic, count - 1)),
        p_against=float(stats.t.cdf(statistic, count - 1)),
        effect=effect,
    )


def ratio_test(above: Sequence[float], below: Sequence[float], least: float) -> Test | None:
    """Whether above / below is at least `least` on average (geometric mean over the pairs); all in plain ratios.

    Reaching `least` exactly on every seed is enough. None for fewer than two pairs or any that is not > 0 and finite.
    """
    if not all(math.isfinite(value) and value > 0 for value in (*above, *below)):
        return None
    pairs = list(zip(above, below, strict=True))
    if len(pairs) > 1 and all(one == least * other for one, other in pairs):
        return Test(len(pairs), least, least, least, 0.0, 1.0, math.inf)
    found = t_test([math.log(one) - math.log(other) for one, other in pairs], math.log(least))
    if found is None:
        return None
    mean, low, high = (math.exp(min(value, 700.0)) for value in (found.mean, found.low, found.high))
    return Test(found.count, mean, low, high, found.p_for, found.p_against, found.effect)


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjusted p values, in the order given: reject those that are at most the level."""
    order = sorted(range(len(p_values)), key=lambda index: p_values[index])
    adjusted, largest = [1.0] * len(p_values), 0.0
    for rank, index in enumerate(order):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = largest
    return adjusted


def seeds_needed(effect: float, claims: int = 1) -> int | None:
    """The fewest pairs with which a one-sided t-test at LEVEL / claims finds this effect with power POWER.

    Args:
        effect: true mean less threshold, in standard deviations; the sign says which of the two tests.
        claims: by how many the level is divided (Holm's first step, the strictest).

    Returns:
        2 or more; None if MOST_SEEDS are not enough.
    """
    from scipy import stats

    if not math.isfinite(effect):
        return 2
    size, level = abs(effect), LEVEL / claims

    def enough(count: int) -> bool:
        critical = float(stats.t.isf(level, count - 1))
        power = float(stats.nct.sf(critical, count - 1, size * math.sqrt(count)))
        return power >= POWER

    if size == 0 or not enough(MOST_SEEDS):
        return None
    low, high = 2, MOST_SEEDS
    while low < high:  # power grows with the count
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle + 1, high)
    return low
