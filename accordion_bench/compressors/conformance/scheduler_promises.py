"""What every scheduler promises (schedulers/base.py), as checks that run on any of them; see conformance/__init__.py.

No torch.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from accordion_bench.compressors.conformance.promise import require
from accordion_bench.errors import UserError
from accordion_bench.schedulers import build_scheduler
from accordion_bench.schedulers.base import Decision, EpochStatistics, Problem, Scheduler, State

EPOCHS = 40
DROP = 20  # the scheduled learning rate falls after this epoch


@dataclass(frozen=True)
class Subject:
    """A scheduler and the runs that it accepts."""

    scheduler: Scheduler
    problems: dict[str, Problem]


def subject(name: str, settings: dict[str, Any]) -> Subject:
    """What is to be checked; UserError if it cannot be built or accepts no run at all."""
    scheduler = build_scheduler(name, settings)
    offered = {
        "two rungs": _problem(3, 2, (1,)),
        "one rung": _problem(2, 1, (1,)),
        "five rungs, three batch sizes": _problem(4, 5, (8, 2, 1)),
        "two batch sizes": _problem(1, 1, (10, 1)),
        "no layer": _problem(0, 2, (4, 1)),
    }
    accepted = {}
    refusal: UserError | None = None
    for title, problem in offered.items():
        try:
            scheduler.start(problem)
        except UserError as error:  # a rule for batch sizes, say, needs several
            refusal = error
        else:
            accepted[title] = problem
    if not accepted:
        raise UserError(f"scheduler {name} accepts none of the runs it is tried on; the last refusal: {refusal}")
    return Subject(scheduler, accepted)


def _problem(layers: int, rungs: int, multiples: tuple[int, ...]) -> Problem:
    words_K = tuple(float(rung + 1) for rung in range(rungs))
    return Problem(
        layers=tuple(f"layer{i}" for i in range(layers)),
        rungs=rungs,
        multiples=multiples,
        epochs=EPOCHS,
        floats_per_step=tuple(layers * words + 1 for words in words_K),
        words_LK=(words_K,) * layers,
        sizes_L=(100,) * layers,
    )


def _statistics(scheduler: Scheduler, problem: Problem, epoch: int, decision: Decision) -> EpochStatistics:
    """Gradients that shrink fast, then slowly, with an epoch of zeros and a huge one; what is costly where asked."""
    layers = range(len(problem.layers))
    size = 1e30 if epoch == 11 else 0.0 if epoch == 7 else 10 / (1 + epoch) + 1
    norms_L = tuple(size * (1 + layer) for layer in layers)
    probed = scheduler.probes(epoch)
    errors_K = tuple(1 / (1 + rung) for rung in range(problem.rungs))
    return EpochStatistics(
        epoch=epoch,
        learning_rate=0.1 if epoch <= DROP else 0.01,
        next_learning_rate=0.1 if epoch < DROP else 0.01,
        norms_L=norms_L,
        means_L=tuple(norm / 100 / (1 + epoch) for norm in norms_L),
        deviations_L=tuple(norm / 10 for norm in norms_L),
        norm=sum(norms_L),
        loss=1 / (1 + epoch),
        floats_per_worker=float(1000 * (epoch + 1)),
        updates=64 // problem.multiples[decision.batch_index],
        eigenvalue=10 / (1 + epoch) if probed and scheduler.needs_eigenvalue else None,
        errors_LK=(errors_K,) * len(problem.layers) if probed and scheduler.needs_errors else (),
    )


def _course(
    scheduler: Scheduler, problem: Problem, between: Callable[[State], State] = lambda state: state
) -> list[tuple[State, Decision]]:
    """(state, decision) before every epoch, the state passed through `between` each time."""
    course = [scheduler.start(problem)]
    while len(course) < problem.epochs and not course[-1][1].stop:
        state, decision = course[-1]
        statistics = _statistics(scheduler, problem, len(course) - 1, decision)
        course.append(scheduler.decide(between(state), problem, statistics))
    return course


def _stays_on_ladders(subject: Subject) -> None:
    for title, problem in subject.problems.items():
        for epoch, (_, decision) in enumerate(_course(subject.scheduler, problem)):
            where = f"{title}, epoch {epoch}"
            levels_L = decision.level_index_L
            require(
                len(levels_L) == len(problem.layers),
                f"{where}: {len(levels_L)} levels for {len(problem.layers)} layers",
            )
            whole = all(type(index) is int for index in (*levels_L, decision.batch_index))
            require(whole, f"{where}: indices must be whole numbers, got {levels_L} and {decision.batch_index!r}")
            require(
                all(0 <= i < problem.rungs for i in levels_L), f"{where}: {levels_L} on a ladder of {problem.rungs}"
            )
            fits = 0 <= decision.batch_index < len(problem.multiples)
            require(fits, f"{where}: batch index {decision.batch_index} on a ladder of {len(problem.multiples)}")
            factor = decision.learning_rate_factor
            require(factor is None or 0 < factor < float("inf"), f"{where}: learning-rate factor {factor}")


def _leaves_state_alone(subject: Subject) -> None:
    for title, problem in subject.problems.items():
        for epoch, (state, decision) in enumerate(_course(subject.scheduler, problem)[:-1]):
            before = copy.deepcopy(state)
            subject.scheduler.decide(state, problem, _statistics(subject.scheduler, problem, epoch, decision))
            require(state == before, f"{title}, epoch {epoch}: decide changed the state it was given; return a new one")


def _keeps_nothing(subject: Subject) -> None:
    for title, problem in subject.problems.items():
        before = _contents(subject.scheduler)
        first, second = (_decisions(_course(subject.scheduler, problem)) for _ in range(2))
        require(_contents(subject.scheduler) == before, f"{title}: attributes changed; put what evolves into the state")
        require(first == second, f"{title}: the same statistics led to other decisions the second time")


def _survives_checkpoints(subject: Subject) -> None:
    for title, problem in subject.problems.items():
        plain = _decisions(_course(subject.scheduler, problem))
        stored = _decisions(_course(subject.scheduler, problem, lambda state: json.loads(json.dumps(state))))
        require(plain == stored, f"{title}: decisions differ when the state is written as JSON and read again")


def _contents(value: object) -> object:
    """A copy that compares by content, objects inside objects too."""
    if hasattr(value, "__dict__"):
        return {name: _contents(inner) for name, inner in vars(value).items()}
    return copy.deepcopy(value)


def _decisions(course: list[tuple[State, Decision]]) -> list[Decision]:
    return [decision for _, decision in course]


CLAIMS: dict[str, Callable[[Subject], None]] = {
    "decisions are on the ladders, one level per layer": _stays_on_ladders,
    "decide leaves the state it is given alone": _leaves_state_alone,
    "nothing on the object changes, and equal statistics give equal decisions": _keeps_nothing,
    "the state is plain JSON and enough to continue": _survives_checkpoints,
}
