"""What must hold for every registered scheduler, and how schedulers are found and refused."""

from __future__ import annotations

import copy
import json
import pickle
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accordion_bench.schedulers import SCHEDULERS, build_scheduler
from accordion_bench.schedulers.base import Decision, EpochStatistics, Problem

REQUIRED: dict[str, dict[str, Any]] = {
    "budget": {"reference_epochs": 3},
    "manual": {"ranges": [{"from": 1, "until": 3, "index": 0}, {"from": 4, "until": 5, "batch_index": 0}]},
}
VARIANTS: list[tuple[str, dict[str, Any]]] = [
    *((name, REQUIRED.get(name, {})) for name in SCHEDULERS),
    ("accordion", {"interval": 2, "check": "authors_code", "steps": "proportional", "monotone": False, "joint": True}),
    ("accordion", {"interval": 1, "steps": "proportional"}),
    ("adaqs", {"per": "model", "interval": 2}),
    ("auto_ladder", {"interval": 1, "probe_epochs": 2, "check": "authors_code"}),
    ("hessian", {"interval": 1, "steps": "proportional", "monotone": False}),
    ("lgreco", {"alpha": 0.5, "interval": 2}),
    ("adabatch", {"interval": 1}),
]
IDS = [f"{name}{'-' + '-'.join(given) if given else ''}" for name, given in VARIANTS]

magnitudes = st.one_of(st.just(0.0), st.floats(1e-12, 1e12), st.sampled_from([1e-300, 1.0, 1e300]))


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    layers = draw(st.integers(0, 4))
    rungs = draw(st.integers(1, 4))
    multiples = draw(st.sampled_from([(8, 1), (4, 2, 1), (100, 10, 1)]))
    words_LK = tuple(tuple(float((k + 1) * (7 + layer)) for k in range(rungs)) for layer in range(layers))
    return Problem(
        layers=tuple(f"layer{i}" for i in range(layers)),
        rungs=rungs,
        multiples=multiples,
        epochs=1000,
        floats_per_step=tuple(sum(words_K[k] for words_K in words_LK) + 5.0 for k in range(rungs)),
        words_LK=words_LK,
        sizes_L=tuple(range(1, layers + 1)),
    )


@st.composite
def histories(draw: st.DrawFn) -> tuple[Problem, list[EpochStatistics]]:
    """A problem and the statistics of a few epochs: norms, rates and errors jump about, updates vary."""
    problem = draw(problems())
    rates = draw(st.lists(st.sampled_from([0.4, 0.1, 0.04, 0.01]), min_size=7, max_size=7))
    epochs = []
    for number in range(6):
        per_layer = st.tuples(*[magnitudes] * len(problem.layers))
        errors_K = st.lists(st.floats(0, 1), min_size=problem.rungs, max_size=problem.rungs)
        errors_LK = tuple(tuple(sorted(draw(errors_K), reverse=True)) for _ in problem.layers)
        epochs.append(
            EpochStatistics(
                epoch=number,
                learning_rate=rates[number],
                next_learning_rate=rates[number + 1],
                norms_L=draw(per_layer),
                means_L=draw(per_layer),
                deviations_L=draw(per_layer),
                norm=draw(magnitudes),
                updates=draw(st.sampled_from([0, 12, 98])),
                eigenvalue=draw(st.one_of(magnitudes, magnitudes.map(lambda x: -x))),
                errors_LK=errors_LK,
            )
        )
    return problem, epochs


def check_decision(decision: Decision, problem: Problem) -> None:
    assert len(decision.level_index_L) == len(problem.layers)
    assert all(type(index) is int and 0 <= index < problem.rungs for index in decision.level_index_L)
    assert type(decision.batch_index) is int
    assert 0 <= decision.batch_index < len(problem.multiples)
    assert decision.learning_rate_factor is None or decision.learning_rate_factor > 0


@pytest.mark.parametrize(("name", "given_settings"), VARIANTS, ids=IDS)
@given(history=histories())
@settings(max_examples=12, deadline=None)
def test_every_scheduler_keeps_the_contract(
    name: str, given_settings: dict[str, Any], history: tuple[Problem, list[EpochStatistics]]
) -> None:
    """Decisions are in range; state is JSON and never changed; the object is stateless; restored runs decide alike."""
    problem, epochs = history
    scheduler = build_scheduler(name, given_settings)
    before = pickle.dumps(scheduler)
    state, decision = scheduler.start(problem)
    check_decision(decision, problem)
    assert not decision.stop
    restored = state
    for statistics in epochs:
        kept = copy.deepcopy(state)
        new_state, decision = scheduler.decide(state, problem, statistics)
        assert state == kept, "decide changed the state it was given"
        check_decision(decision, problem)
        # A fresh object that continues from the checkpointed state is the same scheduler.
        restored = json.loads(json.dumps(restored, allow_nan=False))
        restored, again = build_scheduler(name, given_settings).decide(restored, problem, statistics)
        assert again == decision
        assert json.loads(json.dumps(restored)) == restored == new_state
        state = new_state
    assert pickle.dumps(scheduler) == before, "deciding changed the object"


@pytest.mark.parametrize("name", list(SCHEDULERS))
def test_costly_statistics_are_only_asked_for_by_those_that_say_so(name: str) -> None:
    scheduler = build_scheduler(name, REQUIRED.get(name, {}))
    wanted = any(scheduler.probes(epoch) for epoch in range(30))
    assert wanted == (scheduler.needs_eigenvalue or scheduler.needs_errors)


@pytest.mark.parametrize("name", list(SCHEDULERS))
def test_statistics_that_are_not_asked_for_may_be_left_out(name: str) -> None:
    problem = Problem(
        layers=("a", "b"),
        rungs=2,
        multiples=(8, 1),
        epochs=50,
        floats_per_step=(10.0, 20.0),
        words_LK=((1.0, 2.0), (3.0, 6.0)),
    )
    scheduler = build_scheduler(name, REQUIRED.get(name, {}))
    state, _ = scheduler.start(problem)
    for number in range(25):
        probed = scheduler.probes(number)
        statistics = EpochStatistics(
            epoch=number,
            learning_rate=0.1,
            next_learning_rate=0.1,
            norms_L=(1.0, 2.0),
            means_L=(0.1, 0.1),
            deviations_L=(1.0, 1.0),
            norm=3.0,
            updates=98,
            eigenvalue=5.0 if probed and scheduler.needs_eigenvalue else None,
            errors_LK=((0.9, 0.2), (0.4, 0.1)) if probed and scheduler.needs_errors else (),
        )
        state, decision = scheduler.decide(state, problem, statistics)
        check_decision(decision, problem)


def test_schedulers_need_no_torch() -> None:
    code = (
        "import sys\n"
        "from accordion_bench.schedulers import SCHEDULERS, find_scheduler\n"
        "import accordion_bench.training.lr_schedule\n"
        "[find_scheduler(name) for name in SCHEDULERS]\n"
        "sys.exit('torch' in sys.modules)\n"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_statistic_is_kept_on_the_scheduler() -> None:
    assert build_scheduler("accordion", {}).statistic == "local"
    assert build_scheduler("accordion", {}, "aggregated").statistic == "aggregated"
    assert build_scheduler("accordion", {}).statistic == "local"
