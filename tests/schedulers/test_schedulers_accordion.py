"""Accordion against Algorithm 1 written once more from the history, worked examples and the paper's own numbers."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scheduler_cases import decisions, statistics

from accordion_bench.config.schema import LRScheduleConfig
from accordion_bench.schedulers.base import Decision, Problem
from accordion_bench.schedulers.regimes import Detector, relative_change
from accordion_bench.training.lr_schedule import LRSchedule


def algorithm_1(
    norms_EL: list[tuple[float, ...]], rates: list[float], epoch: int, eta: float, interval: int, first: int
) -> list[int]:
    """Levels of one epoch straight from the text: 1 is l_low, 0 is l_high.

    `first` is the epoch at whose end norms are looked at for the first time; then every `interval` epochs.
    """
    looks = list(range(first, epoch, interval))
    falls = [e for e in range(1, epoch + 1) if rates[e] < rates[e - 1]]
    layers = len(norms_EL[0])
    if len(looks) < 2 or (falls and falls[-1] > looks[-1]):
        return [1] * layers
    previous, current = norms_EL[looks[-2]], norms_EL[looks[-1]]
    return [
        1 if D_prev == 0 or abs(D_prev - D) >= eta * D_prev else 0 for D_prev, D in zip(previous, current, strict=True)
    ]


@pytest.mark.parametrize("check", ["paper", "authors_code"])
@given(
    norms_EL=st.lists(st.tuples(*[st.integers(0, 8).map(float)] * 3), min_size=30, max_size=30),
    rates=st.lists(st.sampled_from([0.4, 0.4, 0.4, 0.4, 0.4, 0.04]), min_size=31, max_size=31),
    eta=st.sampled_from([0.25, 0.5, 1.0]),
    interval=st.integers(1, 7),
)
@settings(max_examples=60, deadline=None)
def test_accordion_is_algorithm_1(
    check: str, norms_EL: list[tuple[float, ...]], rates: list[float], eta: float, interval: int
) -> None:
    """Powers of two for eta and small whole norms, so that neither side rounds at the threshold."""
    given_settings = {"eta": eta, "interval": interval, "check": check}
    problem = Problem(("a", "b", "c"), rungs=2)
    history = [
        statistics(e, norms_L=norms, learning_rate=rates[e], next_learning_rate=rates[e + 1])
        for e, norms in enumerate(norms_EL)
    ]
    first = interval - 1 if check == "paper" else 0
    for epoch, decision in enumerate(decisions("accordion", given_settings, problem, history)):
        assert list(decision.level_index_L) == algorithm_1(norms_EL, rates, epoch, eta, interval, first), epoch
        assert decision.critical == (1 in decision.level_index_L)


def test_worked_example_with_the_papers_threshold() -> None:
    """A look after every second epoch: 8 -> 4 is a change of exactly 0.5 and critical, 4 -> 2.5 is 0.375, then 0.6."""
    norms = [99, 8, 99, 4, 99, 2.5, 99, 4, 99, 4]
    history = [statistics(e, norms_L=(n,)) for e, n in enumerate(norms)]
    answers = decisions("accordion", {"interval": 2}, Problem(("a",), rungs=2), history)
    assert [d.level_index_L[0] for d in answers] == [1, 1, 1, 1, 1, 1, 0, 0, 1, 1, 0]


def test_layers_are_judged_one_by_one() -> None:
    history = [statistics(0, norms_L=(8.0, 8.0, 0.0)), statistics(1, norms_L=(7.0, 1.0, 5.0))]
    last = decisions("accordion", {"interval": 1}, Problem(("a", "b", "c"), rungs=2), history)[-1]
    assert last.level_index_L == (0, 1, 1)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_norm_that_is_not_finite_counts_as_critical(bad: float) -> None:
    history = [
        statistics(0, norms_L=(1.0,)),
        statistics(1, norms_L=(bad,)),
        statistics(2, norms_L=(1.0,)),
        statistics(3, norms_L=(1.0,)),
    ]
    answers = decisions("accordion", {"interval": 1}, Problem(("a",), rungs=2), history)
    assert [d.level_index_L[0] for d in answers] == [1, 1, 1, 1, 0]


def calm_run(check: str, milestones: tuple[int, int], delay: int, problem: Problem) -> list[Decision]:
    """300 epochs of the paper's learning rate with norms that never change: only start and decay are critical."""
    lr_schedule = LRSchedule(
        LRScheduleConfig(
            base=0.1, scale_with_workers=True, warmup_epochs=5, warmup_delay=delay, milestones=milestones, factor=0.1
        ),
        workers=4,
    )
    history = [
        statistics(e, norms_L=(1.0,), learning_rate=lr_schedule.rate(e), next_learning_rate=lr_schedule.rate(e + 1))
        for e in range(299)
    ]
    return decisions("accordion", {"check": check}, problem, history)


def test_the_text_is_critical_for_20_epochs_and_for_10_after_each_decay() -> None:
    answers = calm_run("paper", (150, 250), 0, Problem(("a",), rungs=2))
    low = {e for e, decision in enumerate(answers) if decision.level_index_L == (1,)}
    assert low == {*range(20), *range(150, 160), *range(250, 260)}


def test_the_published_code_is_critical_up_to_epoch_10_and_from_152_to_160() -> None:
    answers = calm_run("authors_code", (152, 252), 1, Problem(("a",), rungs=2))
    low = {e for e, decision in enumerate(answers) if decision.level_index_L == (1,)}
    assert low == {*range(11), *range(152, 161), *range(252, 261)}


def test_batch_size_run_has_the_updates_that_the_paper_prints() -> None:
    """Table 5, ResNet-18: 59.22 billion floats are 5,300 updates of 11,173,962 words: 20 epochs at 512, then 4096."""
    answers = calm_run("paper", (150, 250), 0, Problem(("a",), rungs=1, multiples=(8, 1)))
    updates = sum(97 // [8, 1][decision.batch_index] for decision in answers)
    assert updates == 5300
    assert round(updates * 11_173_962 / 1e9, 2) == 59.22
    assert all(decision.learning_rate_factor is None for decision in answers)


def test_without_monotone_the_batch_is_small_again_after_a_decay() -> None:
    problem = Problem(("a",), rungs=1, multiples=(8, 1))
    history = [
        statistics(0, norms_L=(1.0,)),
        statistics(1, norms_L=(1.0,)),
        statistics(2, norms_L=(1.0,), learning_rate=0.1, next_learning_rate=0.01),
        statistics(3, norms_L=(1.0,)),
    ]
    free = decisions("accordion", {"interval": 1, "monotone": False}, problem, history)
    grown = decisions("accordion", {"interval": 1}, problem, history)
    assert [d.batch_index for d in free] == [1, 1, 0, 1, 0]
    assert [d.batch_index for d in grown] == [1, 1, 0, 0, 0]


def test_fewer_updates_are_not_a_change_of_the_gradient() -> None:
    """98 updates of norm 98 and 12 of norm 12 are the same gradient; without rescaling that is a change of 0.88."""
    problem = Problem(("a",), rungs=2, multiples=(8, 1))
    history = [
        statistics(0, norms_L=(98.0,), norm=98.0, updates=98),
        statistics(1, norms_L=(98.0,), norm=98.0, updates=98),
        statistics(2, norms_L=(12.0,), norm=12.0, updates=12),
    ]
    answers = decisions("accordion", {"interval": 1, "monotone": False}, problem, history)
    assert [(d.level_index_L[0], d.batch_index) for d in answers] == [(1, 1), (1, 1), (0, 0), (0, 0)]


def test_both_ladders_are_adapted_and_joint_holds_the_batch_back() -> None:
    """Layer a changes, the whole model does not."""
    problem = Problem(("a", "b"), rungs=2, multiples=(8, 1))
    history = [statistics(0, norms_L=(1.0, 1.0)), statistics(1, norms_L=(9.0, 1.0)), statistics(2, norms_L=(9.0, 1.0))]
    apart = decisions("accordion", {"interval": 1}, problem, history)
    joint = decisions("accordion", {"interval": 1, "joint": True}, problem, history)
    assert [d.level_index_L for d in apart] == [d.level_index_L for d in joint] == [(1, 1), (1, 1), (1, 0), (0, 0)]
    assert [d.batch_index for d in apart] == [1, 1, 0, 0]
    assert [d.batch_index for d in joint] == [1, 1, 1, 0]


@pytest.mark.parametrize(
    ("now", "rung"),
    [(4.0, 0), (3.6, 0), (3.0, 1), (2.8, 1), (2.4, 2), (2.1, 2), (2.0, 3), (1.0, 3), (6.5, 3), (4.8, 1)],
)
def test_proportional_steps_divide_eta_evenly(now: float, rung: int) -> None:
    """Four rungs, D_prev = 4, eta = 0.5: a third of eta is a change by 2/3."""
    assert Detector(0.5, 10, steps="proportional").rung(4.0, now, 4) == rung
    assert Detector(0.5, 10).rung(4.0, now, 4) == (3 if rung == 3 else 0)


@given(previous=st.floats(0, 1e9), now=st.floats(0, 1e9), eta=st.floats(1e-3, 10))
@settings(max_examples=200, deadline=None)
def test_on_two_rungs_both_kinds_of_steps_are_the_papers(previous: float, now: float, eta: float) -> None:
    critical = not relative_change(previous, now) < eta
    for steps in ("jump", "proportional"):
        assert Detector(eta, 10, steps=steps).rung(previous, now, 2) == int(critical)  # type: ignore[arg-type]


@given(changes=st.lists(st.floats(0, 2), min_size=2, max_size=2).map(sorted), rungs=st.integers(1, 6))
@settings(max_examples=200, deadline=None)
def test_a_larger_change_never_compresses_more(changes: list[float], rungs: int) -> None:
    detector = Detector(0.5, 10, steps="proportional")
    smaller, larger = (detector.rung(1.0, 1.0 + change, rungs) for change in changes)
    assert 0 <= smaller <= larger < rungs


def test_hessian_applies_the_same_test_to_the_eigenvalue() -> None:
    eigenvalues = [8.0, 7.0, -1.0, -1.2, 0.0, 3.0, 3.0, 3.0]
    history = [statistics(e, norms_L=(1.0, 1.0), eigenvalue=value) for e, value in enumerate(eigenvalues)]
    history[-1] = replace(history[-1], next_learning_rate=0.01)
    problem = Problem(("a", "b"), rungs=2, multiples=(8, 1))
    answers = decisions("hessian", {"interval": 1, "monotone": False}, problem, history)
    expected = [1, 1, 0, 1, 0, 1, 1, 0, 1]  # 8->7 calm, 7->-1, -1->-1.2 calm, ->0, 0->3, 3->3 calm, rate falls
    assert [d.level_index_L for d in answers] == [(level, level) for level in expected]
    assert [d.batch_index for d in answers] == expected
    assert [d.critical for d in answers] == [bool(level) for level in expected]
