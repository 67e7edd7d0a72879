"""Mean and interval against closed forms."""

from __future__ import annotations

import math

import pytest

from accordion_bench.errors import UserError
from accordion_bench.report.estimates import estimate


def test_three_seeds_have_4_303_s_over_root_3():
    found = estimate([1.0, 2.0, 3.0])
    assert found.mean == 2.0
    assert found.half_width == pytest.approx(4.302653 * 1.0 / math.sqrt(3), rel=1e-6)
    assert found.count == 3


@pytest.mark.parametrize(
    ("count", "quantile"), [(2, 12.7062), (4, 3.18245), (5, 2.77645), (10, 2.26216), (31, 2.04227)]
)
def test_student_quantiles_are_those_of_the_printed_tables(count: int, quantile: float):
    values = [float(value) for value in range(count)]
    sample_deviation = math.sqrt(sum((value - (count - 1) / 2) ** 2 for value in values) / (count - 1))
    assert estimate(values).half_width == pytest.approx(quantile * sample_deviation / math.sqrt(count), rel=1e-5)


def test_the_authors_interval_has_the_population_deviation():
    found = estimate([1.0, 2.0, 3.0], "normal")
    assert found.half_width == pytest.approx(1.96 * math.sqrt(2 / 3) / math.sqrt(3))


def test_one_value_has_no_interval():
    assert estimate([94.5]).half_width is None
    assert estimate([94.5], "normal").half_width is None
    assert not estimate([94.5]).same


def test_no_value_has_no_estimate():
    assert estimate([]) is None


def test_equal_values_are_known_as_such():
    assert estimate([0.1, 0.1, 0.1]).same
    assert estimate([0.1, 0.1, 0.1]).mean == 0.1
    assert not estimate([0.1, 0.2]).same


def test_an_unknown_interval_is_refused():
    with pytest.raises(UserError, match=r"ci must be one of student, normal, got 'studnet'; did you mean student\?"):
        estimate([1.0], "studnet")
