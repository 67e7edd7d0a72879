"""Epochs for schedulers to look at, and what they answer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from accordion_bench.schedulers import build_scheduler
from accordion_bench.schedulers.base import Decision, EpochStatistics, Problem


def statistics(epoch: int, layers: int = 1, **changes: Any) -> EpochStatistics:
    """An uneventful epoch, except for `changes`."""
    plain = EpochStatistics(
        epoch=epoch,
        learning_rate=0.1,
        next_learning_rate=0.1,
        norms_L=(1.0,) * layers,
        means_L=(1.0,) * layers,
        deviations_L=(1.0,) * layers,
        norm=1.0,
        updates=98,
    )
    return replace(plain, **changes)


def decisions(name: str, settings: dict[str, Any], problem: Problem, history: list[EpochStatistics]) -> list[Decision]:
    """What every epoch uses: epoch 0, then the answer after each epoch of the history."""
    scheduler = build_scheduler(name, settings)
    state, decision = scheduler.start(problem)
    answers = [decision]
    for item in history:
        state, decision = scheduler.decide(state, problem, item)
        answers.append(decision)
    return answers
