"""The other schedulers against closed forms and worked examples."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scheduler_cases import decisions, statistics

from accordion_bench.schedulers.base import Decision, EpochStatistics, Problem

# ResNet-18 on CIFAR-100, floats per update at rank 1 and 2 (ranks as printed by the paper's accounting).
RESNET18_CIFAR100 = (46_115.0, 82_530.0)


def rated(rates: list[float]) -> list[EpochStatistics]:
    return [statistics(e, learning_rate=rates[e], next_learning_rate=rates[e + 1]) for e in range(len(rates) - 1)]


# static and manual


def test_static_stays_where_it_is_told() -> None:
    problem = Problem(("a", "b"), rungs=3, multiples=(8, 1))
    history = [statistics(e, layers=2) for e in range(3)]
    for given_settings, level, batch in [
        ({}, 2, 1),
        ({"index": 0}, 0, 1),
        ({"index": -2}, 1, 1),
        ({"batch_index": 0}, 2, 0),
        ({"index": None, "batch_index": -1}, 2, 1),
    ]:
        for decision in decisions("static", given_settings, problem, history):
            assert decision == Decision((level, level), batch)


def test_low_in_critical_regimes_sends_what_the_papers_schedule_would() -> None:
    """30 of 300 epochs at rank 2, the others at rank 1: 1462.8 M floats, 1.66 x less than rank 2 throughout."""
    ranges = [{"from": 150, "until": 160, "index": -1}, {"from": 0, "until": 20, "index": -1}]
    history = [statistics(e) for e in range(299)]
    answers = decisions("manual", {"ranges": ranges, "index": 0}, Problem(("a",), rungs=2), history)
    floats = sum(98 * RESNET18_CIFAR100[decision.level_index_L[0]] for decision in answers)
    assert round(floats / 1e6, 1) == 1462.8
    assert round(300 * 98 * RESNET18_CIFAR100[1] / floats, 2) == 1.66
    assert {e for e, d in enumerate(answers) if d.critical} == {*range(20), *range(150, 160)}


def test_the_other_two_probes_of_the_paper() -> None:
    """High in critical regimes and uncompressed elsewhere; small batch only in critical regimes."""
    history = [statistics(e) for e in range(5)]
    regimes = [{"from": 0, "until": 2}, {"from": 4, "until": 5}]
    reverse = [{**regime, "index": 0} for regime in regimes]
    answers = decisions("manual", {"ranges": reverse}, Problem(("a",), rungs=2), history)
    assert [d.level_index_L[0] for d in answers] == [0, 0, 1, 1, 0, 1]
    small = [{**regime, "batch_index": -1} for regime in regimes]
    problem = Problem(("a",), rungs=1, multiples=(8, 1))
    answers = decisions("manual", {"ranges": small, "batch_index": 0}, problem, history)
    assert [d.batch_index for d in answers] == [1, 1, 0, 0, 1, 0]


def test_ranges_may_touch_and_need_not_be_critical() -> None:
    ranges = [{"from": 0, "until": 1, "index": 1}, {"from": 1, "until": 2, "index": 0, "critical": False}]
    answers = decisions("manual", {"ranges": ranges}, Problem(("a",), rungs=3), [statistics(0), statistics(1)])
    assert [(d.level_index_L[0], d.critical) for d in answers] == [(1, True), (0, False), (2, False)]


# AdaQS


def test_adaqs_steps_when_the_ratio_has_halved_since_the_last_step() -> None:
    ratios = [1.0, 0.6, 0.5, 0.3, 0.25, 0.9, 0.1, 0.01]  # steps at 0.5, at 0.25 (half of 0.5) and at 0.1; then the top
    history = [statistics(e, means_L=(-2 * ratio,), deviations_L=(2.0,)) for e, ratio in enumerate(ratios)]
    answers = decisions("adaqs", {}, Problem(("a",), rungs=4), history)
    assert [d.level_index_L[0] for d in answers] == [0, 0, 0, 1, 1, 2, 2, 3, 3]
    assert [d.critical for d in answers] == [False] * 7 + [True] * 2


def test_adaqs_passes_over_ratios_that_are_not_defined() -> None:
    moments = [(0.0, 0.0), (1.0, 0.0), (0.0, 1.0), (0.0, 1.0), (1.0, 1.0), (math.nan, 1.0), (0.5, 1.0)]
    history = [statistics(e, means_L=(m,), deviations_L=(d,)) for e, (m, d) in enumerate(moments)]
    answers = decisions("adaqs", {}, Problem(("a",), rungs=3), history)
    assert [d.level_index_L[0] for d in answers] == [0, 0, 0, 0, 0, 0, 0, 1]


@given(
    layers=st.lists(st.lists(st.floats(-5, 5), min_size=1, max_size=6), min_size=1, max_size=4),
)
@settings(max_examples=50, deadline=None)
def test_adaqs_for_the_whole_model_uses_the_moments_of_all_elements(layers: list[list[float]]) -> None:
    """Compared through its behaviour: just above half of the pooled ratio it stays, just below it steps."""
    flat = [x for layer in layers for x in layer]
    mean, deviation = _moments(flat)
    if deviation < 1e-3 or abs(mean) < 1e-3:
        return
    problem = Problem(tuple(map(str, range(len(layers)))), rungs=2, sizes_L=tuple(len(layer) for layer in layers))
    first = statistics(
        0,
        layers=len(layers),
        means_L=tuple(_moments(layer)[0] for layer in layers),
        deviations_L=tuple(_moments(layer)[1] for layer in layers),
    )
    for factor, level in [(0.5001, 0), (0.4999, 1)]:
        target = factor * abs(mean) / deviation
        second = statistics(1, layers=len(layers), means_L=(target,) * len(layers), deviations_L=(1.0,) * len(layers))
        last = decisions("adaqs", {"per": "model"}, problem, [first, second])[-1]
        assert last.level_index_L == (level,) * len(layers)


def _moments(values: list[float]) -> tuple[float, float]:
    mean = math.fsum(values) / len(values)
    return mean, math.sqrt(math.fsum((x - mean) ** 2 for x in values) / len(values))


# Smith and AdaBatch


def effective(answers: list[Decision], problem: Problem, rates: list[float]) -> list[tuple[float, int]]:
    """(rate the optimiser runs at, batch multiple) per epoch."""
    pairs = []
    for decision, rate in zip(answers, rates, strict=True):
        multiple = problem.multiples[decision.batch_index]
        factor = multiple if decision.learning_rate_factor is None else decision.learning_rate_factor
        pairs.append((pytest.approx(rate * factor), multiple))
    return pairs


STEPS = [0.1, 0.25, 0.4, 0.4, 0.04, 0.04, 0.004]


def test_smith_grows_the_batch_and_keeps_the_rate() -> None:
    problem = Problem(("a",), rungs=1, multiples=(100, 10, 1))
    answers = decisions("smith", {}, problem, rated(STEPS))
    assert effective(answers, problem, STEPS) == [
        (0.1, 1),
        (0.25, 1),
        (0.4, 1),
        (0.4, 1),
        (0.4, 10),
        (0.4, 10),
        (0.4, 100),
    ]


def test_smith_decays_what_the_ladder_cannot_give() -> None:
    problem = Problem(("a",), rungs=1, multiples=(10, 1))
    answers = decisions("smith", {}, problem, rated(STEPS))
    assert effective(answers, problem, STEPS)[3:] == [(0.4, 1), (0.4, 10), (0.4, 10), (0.04, 10)]


def test_smith_with_an_increased_initial_rate_starts_with_a_larger_batch() -> None:
    """Rate and batch five times larger at first; batch x 5 where the schedule divides by 5."""
    rates = [0.1, 0.1, 0.02, 0.004]
    problem = Problem(("a",), rungs=1, multiples=(25, 5, 1))
    answers = decisions("smith", {"initial_factor": 5}, problem, rated(rates))
    assert effective(answers, problem, rates) == [(0.5, 5), (0.5, 5), (0.5, 25), (0.1, 25)]


@given(
    rates=st.lists(st.sampled_from([0.4, 0.2, 0.1, 0.04, 0.004]), min_size=2, max_size=8),
    multiples=st.sampled_from([(8, 1), (16, 4, 2, 1), (100, 10, 1)]),
)
@settings(max_examples=60, deadline=None)
def test_smith_never_leaves_the_scheduled_noise_scale(rates: list[float], multiples: tuple[int, ...]) -> None:
    problem = Problem(("a",), rungs=1, multiples=multiples)
    answers = decisions("smith", {}, problem, rated(rates))
    for decision, rate in zip(answers, rates, strict=True):
        assert decision.learning_rate_factor is not None
        assert rate * decision.learning_rate_factor / multiples[decision.batch_index] == pytest.approx(rate)


def test_adabatch_turns_a_decay_by_0375_into_one_by_075() -> None:
    rates = [0.1 * 0.375 ** (e // 20) for e in range(100)]
    problem = Problem(("a",), rungs=1, multiples=(8, 4, 2, 1))
    answers = decisions("adabatch", {}, problem, rated(rates))
    pairs = effective(answers, problem, rates)
    for period in range(4):
        assert pairs[20 * period] == pairs[20 * period + 19] == (0.1 * 0.75**period, 2**period)
    assert pairs[80] == (0.1 * 0.75**3 * 0.375, 8)


# Budget


@pytest.mark.parametrize(
    ("floats", "given_settings", "epochs"),
    [
        (RESNET18_CIFAR100, {"reference_epochs": 300}, 536),  # 536.9 by the paper's Fig. 8
        ((1.0, 2.0), {"reference_epochs": 7}, 14),
        ((0.1, 0.3), {"reference_epochs": 1}, 3),  # 0.3 / 0.1 rounds to below 3
        ((1.0, 2.0, 4.0), {"reference_epochs": 5, "index": 1}, 10),
        ((1.0, 2.0, 4.0), {"reference_epochs": 5, "index": -2, "reference_index": 1}, 5),
        ((3.0, 7.0), {"reference_epochs": 2}, 4),
    ],
)
def test_budget_buys_the_epochs_of_the_closed_form(
    floats: tuple[float, ...], given_settings: dict[str, Any], epochs: int
) -> None:
    problem = Problem(("a",), rungs=len(floats), epochs=epochs, floats_per_step=floats)
    answers = decisions("budget", given_settings, problem, [statistics(e) for e in range(epochs)])
    assert [d.stop for d in answers] == [False] * epochs + [True]
    level = given_settings.get("index", 0) % len(floats)
    reference = given_settings.get("reference_index", -1) % len(floats)
    assert {d.level_index_L for d in answers} == {(level,)}
    budget = given_settings["reference_epochs"] * floats[reference]
    assert epochs * floats[level] <= budget * (1 + 1e-9) < (epochs + 1) * floats[level]
