"""The tests behind verdicts, against scipy's own, against NumPy simulations, and at the edges of numbers."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from accordion_bench.report.claims.statistics import LEVEL, POWER, holm, ratio_test, seeds_needed, t_test

NUMBERS = st.one_of(
    st.sampled_from([0.0, 5e-324, 1e308, -1e308, math.inf, -math.inf, math.nan, 1.0]),
    st.floats(-100, 100),
)


@pytest.mark.parametrize("threshold", [-1.0, 0.0, 0.7])
def test_it_is_scipys_one_sample_t_test_both_ways(threshold: float) -> None:
    values = [0.3, -0.2, 1.1, 0.6, 0.9]
    found = t_test(values, threshold)
    assert found is not None
    assert found.p_for == pytest.approx(stats.ttest_1samp(values, threshold, alternative="greater").pvalue)
    assert found.p_against == pytest.approx(stats.ttest_1samp(values, threshold, alternative="less").pvalue)
    interval = stats.ttest_1samp(values, 0).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high))
    assert found.effect == pytest.approx((np.mean(values) - threshold) / np.std(values, ddof=1))


def test_ratios_are_tested_as_logarithms() -> None:
    above, below = [3.0, 2.5, 2.2], [1.0, 1.1, 0.9]
    found = ratio_test(above, below, 1.5)
    assert found is not None
    logs = np.log(above) - np.log(below)
    assert found.mean == pytest.approx(stats.gmean(np.array(above) / below))
    assert found.p_for == pytest.approx(stats.ttest_1samp(logs, math.log(1.5), alternative="greater").pvalue)
    assert found.low < found.mean < found.high


@pytest.mark.parametrize(
    ("values", "threshold", "both"),
    [([1.0, 1.0], 0.5, (0, 1)), ([1.0, 1.0], 1.5, (1, 0)), ([1.0, 1.0], 1.0, (1, 1))],
)
def test_equal_numbers_leave_nothing_to_chance(
    values: list[float], threshold: float, both: tuple[float, float]
) -> None:
    found = t_test(values, threshold)
    assert found is not None
    assert (found.p_for, found.p_against) == both
    assert found.low == found.mean == found.high == 1.0


def test_a_ratio_that_is_exactly_the_least_is_enough() -> None:
    found = ratio_test([3.0, 3.0], [2.0, 2.0], 1.5)
    assert found is not None
    assert (found.p_for, found.p_against) == (0, 1)


@pytest.mark.parametrize("values", [[], [1.0], [1.0, math.nan], [1.0, math.inf]])
def test_nothing_is_said_of_too_few_or_of_numbers_that_are_not(values: list[float]) -> None:
    assert t_test(values, 0.0) is None
    assert ratio_test(values, values, 1.0) is None


def test_nothing_is_said_of_a_row_that_sends_nothing() -> None:
    assert ratio_test([1.0, 1.0], [0.0, 0.0], 1.0) is None


@given(st.lists(NUMBERS, max_size=6), st.floats(-10, 10))
def test_no_numbers_break_it(values: list[float], threshold: float) -> None:
    found = t_test(values, threshold)
    if found is not None:
        assert 0 <= found.p_for <= 1
        assert 0 <= found.p_against <= 1
        assert found.low <= found.mean <= found.high
    ratio_test(values, values, 1.5)


def test_holms_own_steps() -> None:
    # Sorted 0.01, 0.02, 0.03, 0.2 times 4, 3, 2, 1, never falling.
    assert holm([0.03, 0.01, 0.2, 0.02]) == pytest.approx([0.06, 0.04, 0.2, 0.06])
    assert holm([]) == []
    assert holm([0.4]) == [0.4]
    assert holm([0.9, 0.8]) == [1.0, 1.0]


def test_holm_keeps_the_level_of_the_family_in_a_simulation() -> None:
    draws = np.random.default_rng(0).uniform(size=(4000, 6))
    wrong = np.mean([min(holm(list(row))) <= LEVEL for row in draws])
    assert wrong == pytest.approx(LEVEL, abs=0.012)


@pytest.mark.parametrize(("effect", "claims"), [(0.8, 1), (1.5, 1), (-1.0, 6), (0.3, 6)])
def test_the_seeds_needed_have_the_power_and_one_less_has_not(effect: float, claims: int) -> None:
    count = seeds_needed(effect, claims)
    assert count is not None
    draws = np.random.default_rng(1)

    def power(size: int) -> float:
        values = draws.normal(abs(effect), 1.0, size=(20_000, size))
        p = stats.ttest_1samp(values, 0, axis=1, alternative="greater").pvalue
        return float(np.mean(p <= LEVEL / claims))

    assert power(count) >= POWER - 0.01
    assert power(count - 1) < POWER + 0.01


def test_no_effect_is_never_found() -> None:
    assert seeds_needed(0.0) is None
    assert seeds_needed(0.01) is None
    assert seeds_needed(math.inf) == 2
