"""Schedulers that read approximation errors, against exhaustive search and worked examples."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scheduler_cases import decisions, statistics

from accordion_bench.errors import RunFailure
from accordion_bench.schedulers.base import Problem
from accordion_bench.schedulers.lgreco import fewest_words


def exhaustive(words_LK: list[list[float]], errors_LK: list[list[float]], allowed: float) -> float | None:
    """Fewest words among all combinations within the allowed error."""
    layers = range(len(words_LK))
    within = [
        sum(words_LK[i][rungs[i]] for i in layers)
        for rungs in itertools.product(range(len(words_LK[0])), repeat=len(words_LK))
        if sum(errors_LK[i][rungs[i]] for i in layers) <= allowed
    ]
    return min(within, default=None)


@st.composite
def searches(draw: st.DrawFn, number: st.SearchStrategy[float]) -> tuple[list[list[float]], list[list[float]]]:
    layers, rungs = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    table = st.lists(st.lists(number, min_size=rungs, max_size=rungs), min_size=layers, max_size=layers)
    return draw(table), draw(table)


@given(search=searches(st.integers(0, 12).map(float)), allowed=st.integers(0, 40))
@settings(max_examples=150, deadline=None)
def test_dynamic_programming_is_exhaustive_search_on_whole_errors(
    search: tuple[list[list[float]], list[list[float]]], allowed: int
) -> None:
    words_LK, errors_LK = search
    found_L = fewest_words(words_LK, errors_LK, float(allowed), bins=max(allowed, 1))
    best = exhaustive(words_LK, errors_LK, allowed)
    if best is None:
        assert found_L is None
        return
    assert found_L is not None
    assert sum(words_K[k] for words_K, k in zip(words_LK, found_L, strict=True)) == best
    assert sum(errors_K[k] for errors_K, k in zip(errors_LK, found_L, strict=True)) <= allowed


@given(search=searches(st.floats(0.01, 100)), allowed=st.floats(0.1, 300))
@settings(max_examples=60, deadline=None)
def test_on_real_errors_the_constraint_holds_and_the_loss_is_bounded(
    search: tuple[list[list[float]], list[list[float]]], allowed: float
) -> None:
    words_LK, errors_LK = search
    bins = 1000
    found_L = fewest_words(words_LK, errors_LK, allowed, bins)
    bound = exhaustive(words_LK, errors_LK, allowed * (1 - len(words_LK) / bins))
    if found_L is None:
        assert bound is None
        return
    assert sum(errors_K[k] for errors_K, k in zip(errors_LK, found_L, strict=True)) <= allowed * (1 + 1e-9)
    words = sum(words_K[k] for words_K, k in zip(words_LK, found_L, strict=True))
    assert bound is None or words <= bound + 1e-9


def test_errors_that_are_not_finite_are_never_chosen() -> None:
    assert fewest_words([[1.0, 2.0, 3.0]], [[math.nan, math.inf, 0.5]], 1.0) == (2,)
    assert fewest_words([[1.0, 2.0]], [[math.nan, math.inf]], 1.0) is None
    assert fewest_words([], [], 1.0) == ()


LGRECO = Problem(("small", "large"), rungs=3, multiples=(8, 1), words_LK=((1.0, 2.0, 4.0), (100.0, 200.0, 400.0)))


def test_lgreco_gives_the_small_layer_precision_and_the_large_one_compression() -> None:
    """Uniform rung 1 has error 2 + 2 = 4 and 202 words; (2, 0) has 0 + 3 and 104."""
    errors_LK = (
        (0.64, 0.16, 0.0),
        (0.09, 0.04, 0.0),
    )  # relative and squared; times norms 5 and 10: 4, 2, 0 and 3, 2, 0
    history = [statistics(0, layers=2, norms_L=(5.0, 10.0), errors_LK=errors_LK)]
    answers = decisions("lgreco", {"reference": 1}, LGRECO, history)
    assert [d.level_index_L for d in answers] == [(1, 1), (2, 0)]
    assert {d.batch_index for d in answers} == {1}
    loose = decisions("lgreco", {"reference": 1, "alpha": 2.0}, LGRECO, history)
    assert loose[-1].level_index_L == (0, 0)  # error 7 <= 8
    strict = decisions("lgreco", {"reference": 1, "alpha": 0.4}, LGRECO, history)
    assert strict[-1].level_index_L == (2, 2)  # nothing but 0 fits into 1.6


@given(
    errors_LK=st.lists(st.lists(st.floats(0, 1), min_size=3, max_size=3), min_size=2, max_size=2),
    norms_L=st.tuples(st.floats(0, 1e6), st.floats(0, 1e6)),
    reference=st.integers(0, 2),
)
@settings(max_examples=80, deadline=None)
def test_lgreco_never_sends_more_nor_errs_more_than_the_uniform_rung(
    errors_LK: list[list[float]], norms_L: tuple[float, float], reference: int
) -> None:
    history = [statistics(0, layers=2, norms_L=norms_L, errors_LK=tuple(map(tuple, errors_LK)))]
    levels_L = decisions("lgreco", {"reference": reference}, LGRECO, history)[-1].level_index_L

    def totals(rungs: tuple[int, ...]) -> tuple[float, float]:
        words = sum(LGRECO.words_LK[i][k] for i, k in enumerate(rungs))
        return words, sum(math.sqrt(errors_LK[i][k]) * norms_L[i] for i, k in enumerate(rungs))

    uniform_words, uniform_error = totals((reference, reference))
    words, error = totals(levels_L)
    assert words <= uniform_words
    assert error <= uniform_error * (1 + 1e-9)


def test_lgreco_keeps_the_uniform_rung_when_nothing_is_known() -> None:
    unknown = ((math.nan,) * 3, (0.5, 0.2, 0.1))
    answers = decisions("lgreco", {"interval": 2}, LGRECO, [statistics(0, 2), statistics(1, 2, errors_LK=unknown)])
    assert [d.level_index_L for d in answers] == [(1, 1)] * 3


# auto_ladder


def test_auto_ladder_moves_each_layer_between_its_own_two_rungs() -> None:
    """e_k <= 0.8 picks l_high, e_k <= 0.5 picks l_low; the last rung where none is good enough."""
    problem = Problem(("easy", "middle", "hard"), rungs=3)
    errors_LK = ((0.4, 0.2, 0.1), (0.9, 0.7, 0.3), (1.0, 0.95, 0.9))
    calm, changed = (1.0, 1.0, 1.0), (9.0, 9.0, 9.0)
    history = [
        statistics(0, 3, norms_L=calm, errors_LK=errors_LK),
        statistics(1, 3, norms_L=calm),
        statistics(2, 3, norms_L=changed),
    ]
    answers = decisions("auto_ladder", {"interval": 1}, problem, history)
    assert [d.level_index_L for d in answers] == [(2, 2, 2), (0, 2, 2), (0, 1, 2), (0, 2, 2)]
    assert [d.critical for d in answers] == [True, True, False, True]


# A statistic that was promised and did not come


@pytest.mark.parametrize("name", ["hessian", "lgreco", "auto_ladder"])
def test_a_missing_statistic_is_a_failure_and_not_a_guess(name: str) -> None:
    with pytest.raises(RunFailure, match=f"scheduler {name} got no .* for epoch 0"):
        decisions(name, {"interval": 1}, LGRECO, [statistics(0, layers=2)])
