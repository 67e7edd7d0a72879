"""How schedulers are found, and what is refused with one line that helps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from accordion_bench.errors import UserError
from accordion_bench.schedulers import build_scheduler
from accordion_bench.schedulers.base import Problem, Scheduler


def refusal(call: Any) -> str:
    """The one-line message of the UserError that the call must raise."""
    with pytest.raises(UserError) as caught:
        call()
    message = str(caught.value)
    assert "\n" not in message
    assert message.strip() == message != ""
    return message


def test_a_users_own_scheduler_is_built_and_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_schedulers.py").write_text(
        "from accordion_bench.schedulers.base import Decision, Scheduler\n"
        "class Alternate(Scheduler):\n"
        "    def __init__(self, *, period: int = 2):\n"
        "        self.period = period\n"
        "    def start(self, problem):\n"
        "        return {}, Decision((0,) * len(problem.layers), problem.small_batch)\n"
        "    def decide(self, state, problem, epoch):\n"
        "        index = problem.low if (epoch.epoch + 1) % self.period == 0 else problem.high\n"
        "        return {}, Decision((index,) * len(problem.layers), problem.small_batch)\n"
        "class Plain: pass\n"
        "class Half(Scheduler):\n"
        "    def start(self, problem): ...\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    scheduler = build_scheduler("my_schedulers:Alternate", {"period": 3})
    assert isinstance(scheduler, Scheduler)
    assert scheduler.start(Problem(layers=("a",), rungs=2))[1].level_index_L == (0,)
    for name, given_settings, expected in [
        ("my_schedulers:Alternate", {"length": 3}, "period"),
        ("my_schedulers:Alternate", {"period": "3"}, "scheduler.period must be a whole number"),
        ("my_schedulers:Plain", {}, "must be a class derived from"),
        ("my_schedulers:Half", {}, "start and decide"),
        ("my_schedulers:Missing", {}, "my_schedulers:Missing"),
        ("no_such_module_here:Missing", {}, "no_such_module_here"),
    ]:
        message = refusal(lambda: build_scheduler(name, given_settings))  # noqa: B023
        assert expected in message


RANGE = {"from": 0, "until": 5}
REFUSED_SETTINGS: list[tuple[str, Any, tuple[str, ...]]] = [
    ("accordian", {}, ("accordian", "did you mean accordion", "static")),
    ("zzz", {}, ("zzz", "accordion, adabatch")),
    ("accordion", {"etta": 0.5}, ("etta", "eta", "interval")),
    ("accordion", {"eta": "half"}, ("scheduler.eta", "half")),
    ("accordion", {"eta": True}, ("scheduler.eta", "True")),
    ("accordion", {"eta": None}, ("scheduler.eta", "None")),
    ("accordion", {"eta": 0}, ("scheduler.eta", "> 0", "got 0", "0.5")),
    ("accordion", {"eta": -0.5}, ("scheduler.eta", "-0.5")),
    ("accordion", {"eta": float("nan")}, ("scheduler.eta", "nan")),
    ("accordion", {"eta": float("inf")}, ("scheduler.eta", "inf")),
    ("accordion", {"interval": 0}, ("scheduler.interval", ">= 1", "got 0")),
    ("accordion", {"interval": 2.5}, ("scheduler.interval", "a whole number", "2.5")),
    ("accordion", {"interval": [10]}, ("scheduler.interval",)),
    ("accordion", {"check": "code"}, ("scheduler.check", "paper", "authors_code", "code")),
    ("accordion", {"steps": "leap"}, ("scheduler.steps", "jump", "proportional")),
    ("accordion", {"monotone": 1}, ("scheduler.monotone", "true or false")),
    ("accordion", {"joint": "yes"}, ("scheduler.joint", "true or false")),
    ("static", {"index": 0.5}, ("scheduler.index", "0.5")),
    ("static", {"index": "low"}, ("scheduler.index", "low")),
    ("static", {"index": True}, ("scheduler.index", "True")),
    ("static", {"level": 2}, ("level", "index, batch_index")),
    ("manual", {}, ("manual", "ranges")),
    ("manual", {"ranges": 5}, ("scheduler.ranges", "5", "from: 0")),
    ("manual", {"ranges": "0-20"}, ("scheduler.ranges", "0-20")),
    ("manual", {"ranges": RANGE}, ("scheduler.ranges", "list")),
    ("manual", {"ranges": [[0, 20]]}, ("scheduler.ranges", "[0, 20]")),
    ("manual", {"ranges": [{"from": 0}]}, ("scheduler.ranges", "until")),
    ("manual", {"ranges": [{**RANGE, "to": 3}]}, ("scheduler.ranges", "batch_index", "'to'")),
    ("manual", {"ranges": [{"from": 5, "until": 5}]}, ("from < until", "from 5 until 5")),
    ("manual", {"ranges": [{"from": -1, "until": 5}]}, ("0 <= from", "from -1")),
    ("manual", {"ranges": [{"from": 0, "until": 5.0}]}, ("until must be a whole number", "5.0")),
    ("manual", {"ranges": [{"from": False, "until": 5}]}, ("from must be a whole number", "False")),
    ("manual", {"ranges": [{**RANGE, "index": "low"}]}, ("index must be a whole number", "low")),
    ("manual", {"ranges": [{**RANGE, "critical": 1}]}, ("critical must be true or false", "1")),
    ("manual", {"ranges": [RANGE, {"from": 4, "until": 9}]}, ("overlap", "[0, 5)", "[4, 9)")),
    ("manual", {"ranges": [{"from": 4, "until": 9}, RANGE]}, ("overlap", "end the first at 4")),
    ("adaqs", {"drop": 0}, ("scheduler.drop", "(0, 1)", "got 0")),
    ("adaqs", {"drop": 1.0}, ("scheduler.drop", "got 1")),
    ("adaqs", {"per": "tensor"}, ("scheduler.per", "layer", "model")),
    ("adaqs", {"interval": -1}, ("scheduler.interval", "-1")),
    ("smith", {"initial_factor": 1.5}, ("scheduler.initial_factor", "a whole number")),
    ("smith", {"max_multiple": 8}, ("max_multiple", "initial_factor, index")),
    ("adabatch", {"interval": 0}, ("scheduler.interval", "got 0")),
    ("budget", {}, ("budget", "reference_epochs", "scheduler.reference_epochs=")),
    ("budget", {"reference_epochs": 0}, ("scheduler.reference_epochs", ">= 1", "got 0")),
    ("budget", {"reference_epochs": None}, ("scheduler.reference_epochs", "None")),
    ("hessian", {"eta": 0}, ("scheduler.eta", "> 0")),
    ("hessian", {"joint": True}, ("joint", "monotone")),
    ("lgreco", {"alpha": 0}, ("scheduler.alpha", "> 0")),
    ("lgreco", {"alpha": float("inf")}, ("scheduler.alpha", "inf")),
    ("lgreco", {"interval": 0}, ("scheduler.interval", ">= 1")),
    ("auto_ladder", {"high_error": 0.2, "low_error": 0.5}, ("low_error <= high_error", "0.5 and 0.2")),
    ("auto_ladder", {"low_error": 0}, ("0 < low_error", "got 0 and 0.8")),
    ("auto_ladder", {"high_error": 1.5}, ("<= 1", "1.5")),
    ("auto_ladder", {"probe_epochs": 0}, ("scheduler.probe_epochs", "got 0")),
    ("auto_ladder", {"eta": 0}, ("scheduler.eta",)),
]


@pytest.mark.parametrize(("name", "given_settings", "expected"), REFUSED_SETTINGS)
def test_bad_settings_end_in_one_line_that_helps(name: str, given_settings: dict[str, Any], expected: Any) -> None:
    message = refusal(lambda: build_scheduler(name, given_settings))
    for part in expected:
        assert part in message


def test_an_unknown_statistic_is_refused() -> None:
    assert "local or aggregated" in refusal(lambda: build_scheduler("static", {}, "global"))


TWO = Problem(layers=("a", "b"), rungs=2, multiples=(8, 1), epochs=10, floats_per_step=(10.0, 20.0))
PLAIN = Problem(layers=("a", "b"), rungs=2, epochs=10)
REFUSED_PROBLEMS: list[tuple[str, dict[str, Any], Problem, tuple[str, ...]]] = [
    ("static", {"index": 2}, TWO, ("scheduler.index must be in -2..1", "2 rungs", "got 2")),
    ("static", {"index": -3}, TWO, ("-2..1", "got -3")),
    ("static", {"batch_index": 1}, PLAIN, ("scheduler.batch_index must be in -1..0", "1 rung,")),
    ("manual", {"ranges": [{**RANGE, "index": 7}]}, TWO, ("scheduler.ranges[0].index", "got 7")),
    ("manual", {"ranges": [{**RANGE, "batch_index": 7}]}, TWO, ("scheduler.ranges[0].batch_index", "got 7")),
    ("manual", {"ranges": [], "index": 9}, TWO, ("scheduler.index", "got 9")),
    ("adaqs", {"per": "model"}, TWO, ("scheduler.per=model", "layer")),
    ("adaqs", {"batch_index": 5}, TWO, ("scheduler.batch_index", "got 5")),
    ("smith", {}, PLAIN, ("smith", "batch.multipliers", "[1]", "[10, 1]")),
    ("smith", {"initial_factor": 5}, TWO, ("scheduler.initial_factor", "[8, 1]", "got 5")),
    ("smith", {"index": 4}, TWO, ("scheduler.index", "got 4")),
    ("adabatch", {}, PLAIN, ("adabatch", "batch.multipliers")),
    ("budget", {"reference_epochs": 300}, TWO, ("epochs must be >= 600", "got 10", "epochs=600")),
    ("budget", {"reference_epochs": 1, "index": 1, "reference_index": 0}, TWO, ("one epoch", "got 1")),
    ("budget", {"reference_epochs": 1, "reference_index": 3}, TWO, ("scheduler.reference_index", "got 3")),
    ("budget", {"reference_epochs": 1}, PLAIN, ("floats per update",)),
    ("lgreco", {}, TWO, ("words of every layer",)),
    ("lgreco", {"reference": 2}, Problem(("a",), 2, words_LK=((1.0, 2.0),)), ("scheduler.reference", "got 2")),
]


@pytest.mark.parametrize(("name", "given_settings", "problem", "expected"), REFUSED_PROBLEMS)
def test_settings_that_do_not_fit_the_ladders_are_refused_before_training(
    name: str, given_settings: dict[str, Any], problem: Problem, expected: Any
) -> None:
    scheduler = build_scheduler(name, given_settings)
    message = refusal(lambda: scheduler.start(problem))
    for part in expected:
        assert part in message
