"""Every registered compressor and scheduler keeps the promises of its base class; the suite notices who does not."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from accordion_bench.compressors import COMPRESSORS
from accordion_bench.compressors.conformance import check_compressor, check_scheduler, failures
from accordion_bench.compressors.ladders import FRACTIONS, NOMINAL
from accordion_bench.errors import UserError
from accordion_bench.schedulers import SCHEDULERS
from accordion_bench.schedulers.base import Decision, EpochStatistics, Problem, Scheduler, State
from accordion_bench.training.communicator import Communicator
from accordion_bench.training.compressor import Compressor
from accordion_bench.training.gradients import Slot

NEEDED: dict[str, dict[str, Any]] = {
    "budget": {"reference_epochs": 2},
    "manual": {"ranges": [{"from": 3, "until": 8, "index": 0}]},
}


@pytest.mark.parametrize("name", COMPRESSORS)
def test_registered_compressors_keep_their_promises(name: str) -> None:
    assert not failures(check_compressor(name))


@pytest.mark.parametrize("name", SCHEDULERS)
def test_registered_schedulers_keep_their_promises(name: str) -> None:
    assert not failures(check_scheduler(name, settings=NEEDED.get(name)))


SHAPES = st.lists(st.lists(st.integers(1, 9), min_size=0, max_size=4).map(tuple), min_size=1, max_size=4)


@pytest.mark.parametrize("name", COMPRESSORS)
@settings(max_examples=3, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(shapes=SHAPES, seed=st.integers(0, 2**31))
def test_promises_hold_on_any_model(name: str, shapes: list[tuple[int, ...]], seed: int) -> None:
    model = {f"p{place}": shape for place, shape in enumerate(shapes)}
    assert not failures(check_compressor(name, shapes=model, seed=seed))


class Honest(Compressor):
    """Sends everything; the base of those that break one promise each."""

    ladder = NOMINAL

    def reduce(self, grads_HN: Tensor, communicator: Communicator) -> Tensor:
        update_N = communicator.mean(grads_HN)
        grads_HN.zero_()
        self.updates += 1
        return update_N

    def layer_words(self, slot: Slot, level: float) -> float:
        return slot.size


class Loses(Honest):
    def reduce(self, grads_HN: Tensor, communicator: Communicator) -> Tensor:
        return super().reduce(grads_HN, communicator) * 0.99


class HidesNaN(Honest):
    def reduce(self, grads_HN: Tensor, communicator: Communicator) -> Tensor:
        return super().reduce(grads_HN, communicator).nan_to_num(0, 0, 0)


class Overflows(Honest):
    def reduce(self, grads_HN: Tensor, communicator: Communicator) -> Tensor:
        norm = grads_HN.norm()
        return super().reduce(grads_HN, communicator) / norm * norm  # 0 / 0


class Understates(Honest):
    def layer_words(self, slot: Slot, level: float) -> float:
        return slot.size - 1


class DrawsFreely(Honest):
    def reduce(self, grads_HN: Tensor, communicator: Communicator) -> Tensor:
        sent_HN = grads_HN * (1 + 1e-7 * torch.randint(1, 1000, ()))
        update_N = communicator.mean(sent_HN)
        grads_HN -= sent_HN
        return update_N


class Forgets(Honest):
    """Sends half of what it holds back, outside Aggregator's memory and in no state."""

    conserves = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.held: Tensor | float = 0.0

    def reduce(self, grads_HN: Tensor, communicator: Communicator) -> Tensor:
        mean_N = super().reduce(grads_HN, communicator)
        layers = slice(0, self.layout.dense.start)
        total = mean_N[layers] + self.held
        mean_N[layers] = total / 2
        self.held = torch.where(total.isfinite().all(), total / 2, self.held)
        return mean_N


FAULTS = {
    Loses: "with one worker, update + residual equals the gradient",
    HidesNaN: "a NaN or Inf of any worker shows in the update and leaves no trace",
    Overflows: "gradients that are zero, equal, tiny or huge give finite updates",
    Understates: "the meter counts what cost() says",
    DrawsFreely: "equal seeds give equal updates",
    Forgets: "state_dict is enough to continue identically",
}


def test_an_honest_user_class_passes() -> None:
    findings = check_compressor(f"{__name__}:Honest")
    assert not failures(findings)
    assert len(findings) == 9


@pytest.mark.parametrize("kind", FAULTS)
def test_a_broken_promise_is_found(kind: type[Compressor]) -> None:
    broken = {finding.claim for finding in failures(check_compressor(f"{__name__}:{kind.__name__}"))}
    assert FAULTS[kind] in broken


def test_a_fault_in_the_class_is_a_finding_and_not_a_crash() -> None:
    broken = failures(check_compressor(f"{__name__}:Crashes"))
    assert broken
    assert all("ZeroDivisionError" in finding.detail and "\n" not in str(finding) for finding in broken)


class Crashes(Honest):
    def reduce(self, grads_HN: Tensor, communicator: Communicator) -> Tensor:
        raise ZeroDivisionError("division by zero\nsomewhere")


@pytest.mark.parametrize("levels", [(2,), (0.5, 0.1)])
def test_wrong_levels_are_refused(levels: tuple[float, ...]) -> None:
    with pytest.raises(UserError, match=r"compressor\.levels must"):
        check_compressor("topk", levels=levels)


def test_a_class_without_a_ladder_is_refused() -> None:
    with pytest.raises(UserError, match="class attribute `ladder`"):
        check_compressor(f"{__name__}:Slot")


class Steady(Scheduler):
    """The most compressed level for ever; the base of those that break one promise each."""

    def start(self, problem: Problem) -> tuple[State, Decision]:
        return {"epochs": 0}, Decision((0,) * len(problem.layers))

    def decide(self, state: State, problem: Problem, epoch: EpochStatistics) -> tuple[State, Decision]:
        return {"epochs": state["epochs"] + 1}, Decision((0,) * len(problem.layers))


class LeavesTheLadder(Steady):
    def decide(self, state: State, problem: Problem, epoch: EpochStatistics) -> tuple[State, Decision]:
        return state, Decision((epoch.epoch % 3,) * len(problem.layers))


class Mutates(Steady):
    def decide(self, state: State, problem: Problem, epoch: EpochStatistics) -> tuple[State, Decision]:
        state["epochs"] += 1
        return state, Decision((0,) * len(problem.layers))


class Remembers(Steady):
    calls = 0

    def decide(self, state: State, problem: Problem, epoch: EpochStatistics) -> tuple[State, Decision]:
        self.calls += 1
        return state, Decision((min(self.calls // 30, problem.low),) * len(problem.layers))


class NotJSON(Steady):
    def start(self, problem: Problem) -> tuple[State, Decision]:
        return {"epochs": 0, "seen": {1, 2}}, Decision((0,) * len(problem.layers))

    def decide(self, state: State, problem: Problem, epoch: EpochStatistics) -> tuple[State, Decision]:
        return dict(state), Decision((0,) * len(problem.layers))


SCHEDULER_FAULTS = {
    LeavesTheLadder: "decisions are on the ladders, one level per layer",
    Mutates: "decide leaves the state it is given alone",
    Remembers: "nothing on the object changes, and equal statistics give equal decisions",
    NotJSON: "the state is plain JSON and enough to continue",
}


def test_a_user_scheduler_that_keeps_its_promises_passes() -> None:
    assert not failures(check_scheduler(f"{__name__}:Steady"))


@pytest.mark.parametrize("kind", SCHEDULER_FAULTS)
def test_a_broken_scheduler_is_found(kind: type[Scheduler]) -> None:
    broken = {finding.claim for finding in failures(check_scheduler(f"{__name__}:{kind.__name__}"))}
    assert SCHEDULER_FAULTS[kind] in broken


def test_ladders_name_their_levels() -> None:
    assert FRACTIONS.label(0.015) == "1.5 %"
    with pytest.raises(UserError, match=r"must be \[1\], as this compressor has no ladder, got 2; write \[1\]"):
        NOMINAL.check([2])
