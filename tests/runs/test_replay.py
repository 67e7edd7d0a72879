"""`accordion-bench verify --replay`: no edit of the records survives training again."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import faults
import pytest
from places import REPOSITORY

from accordion_bench.commands.cli import main
from accordion_bench.runs.records import RunDirectory
from accordion_bench.runs.replay import replay
from accordion_bench.runs.stored import FinishedRun, read_run, replay_note
from accordion_bench.runs.verify import problems
from accordion_bench.training.record import EpochRecord


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished Accordion run, where an epoch's levels depend on the norms of those before."""
    folder = tmp_path_factory.mktemp("trained")
    code, said = faults.run(folder, *faults.SMALL, "scheduler=accordion", "scheduler.interval=1")
    assert code == 0, said
    return faults.directory_of(folder)


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    """A copy of one's own, below a results directory."""
    return shutil.copytree(trained, tmp_path / "runs" / trained.parent.name / trained.name)


def edit(directory: Path, change: Callable[[EpochRecord], EpochRecord]) -> None:
    """Change the first epoch, and summary.json with it, so that the files agree with each other."""
    run = RunDirectory(directory)
    epochs = run.read_epochs()
    epochs[0] = change(epochs[0])
    run.write_epochs(epochs)
    summary = run.read_json("summary.json")
    assert summary is not None
    values = [epoch.metrics[summary["metric"]] for epoch in epochs]
    run.write_json("summary.json", summary | {"best": max(values), "final": values[-1], "loss": epochs[-1].loss})


def not_from_this_machine(directory: Path) -> None:
    path = directory / "environment.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"device": "Another 9000"}))


def test_every_epoch_is_equal_bit_for_bit_where_it_was_recorded(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", "--replay", "99", str(run)]) == 0
    epochs = len(RunDirectory(run).read_epochs())
    assert f"{epochs} of {epochs} epochs trained again, equal bit for bit" in capsys.readouterr().out


def test_records_edited_alike_pass_verify_and_fail_the_replay(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    edit(run, lambda epoch: replace(epoch, metrics=epoch.metrics | {"accuracy": 93.0}))
    assert main(["verify", str(run)]) == 0
    assert main(["verify", "--replay", "1", str(run)]) == 1
    assert "epoch 1: test accuracy 93 on record, " in capsys.readouterr().out
    assert not (run / "replay.json").exists()


@pytest.mark.parametrize(
    "change",
    [
        lambda epoch: replace(epoch, loss=epoch.loss * (1 + 1e-9)),
        lambda epoch: replace(epoch, norms_L=(epoch.norms_L[0] * (1 + 1e-9), *epoch.norms_L[1:])),
        lambda epoch: replace(epoch, norm=epoch.norm * (1 + 1e-9)),
        lambda epoch: replace(epoch, metrics=epoch.metrics | {"loss": epoch.metrics["loss"] * (1 + 1e-9)}),
        lambda epoch: replace(epoch, metrics=epoch.metrics | {"invented": 1.0}),
        lambda epoch: replace(epoch, updates=epoch.updates - 1),
        lambda epoch: replace(epoch, critical=not epoch.critical),
        lambda epoch: replace(epoch, extra={"invented": [1.0]}),
    ],
    ids=["loss", "a norm", "the norm", "test loss", "another metric", "updates", "critical", "extra"],
)
def test_the_smallest_edit_is_found(run: Path, change: Callable[[EpochRecord], EpochRecord]) -> None:
    edit(run, change)
    assert len(replay(run, 1).problems) == 1


def test_on_another_machine_small_differences_pass_and_large_ones_do_not(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    not_from_this_machine(run)
    edit(run, lambda epoch: replace(epoch, loss=epoch.loss * 1.01))
    assert main(["verify", "--replay", str(run)]) == 0
    assert "equal to 5% (another machine or versions)" in capsys.readouterr().out
    edit(run, lambda epoch: replace(epoch, loss=epoch.loss * 1.5))
    assert main(["verify", "--replay", str(run)]) == 1


def test_on_another_machine_comparing_ends_where_the_levels_part(run: Path) -> None:
    not_from_this_machine(run)
    epochs = RunDirectory(run).read_epochs()
    other = tuple(1 - index for index in epochs[1].level_index_L)
    epochs[1] = replace(epochs[1], level_index_L=other)
    epochs[0] = replace(epochs[0], loss=epochs[0].loss * 1.0001)  # so that bits differ, as on another machine
    RunDirectory(run).write_epochs(epochs)
    result = replay(run, 99)
    assert (result.epochs, result.exact, result.problems) == (1, False, ())


def test_a_replay_is_noted_for_reports_until_the_records_change(run: Path) -> None:
    assert main(["verify", "--replay", str(run)]) == 0
    found = read_run(run, 1)
    assert isinstance(found, FinishedRun) and found.replayed == 1
    assert replay_note([found]) == "replayed: 1 epoch of 1 of 1 runs trained again and found equal"
    edit(run, lambda epoch: replace(epoch, time=epoch.time + 1))
    found = read_run(run, 1)
    assert isinstance(found, FinishedRun) and found.replayed == 0
    assert replay_note([found]) == ""


@pytest.mark.parametrize("text", ["[", "[]", '{"epochs": "9"}', '{"epochs": true, "records": 1}', '{"epochs": 3}'])
def test_a_note_that_is_none_vouches_for_nothing(run: Path, text: str) -> None:
    (run / "replay.json").write_text(text)
    found = read_run(run, 1)
    assert isinstance(found, FinishedRun) and found.replayed == 0
    assert problems(run) == []


def test_a_run_whose_data_changed_says_so(run: Path) -> None:
    path = run / "environment.json"
    environment = json.loads(path.read_text())
    environment["data"] = dict.fromkeys(environment["data"], "0" * 16)
    path.write_text(json.dumps(environment))
    assert "the data here is not what was trained on" in replay(run, 1).problems[0]


def test_nothing_on_record_is_said_in_a_line(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("epochs.jsonl", "summary.json"):
        (run / name).unlink()
    assert main(["verify", "--replay", str(run)]) == 1
    assert "cannot be replayed: no epoch is on record" in capsys.readouterr().out


@pytest.mark.parametrize("given", ["0", "-1", "two", "1.5"])
def test_a_wrong_count_is_one_line(run: Path, given: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(run), f"--replay={given}"]) == 2
    assert "--replay must be a whole number of epochs >= 1" in capsys.readouterr().err


def test_data_without_replay_is_refused(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(run), "--data", "x"]) == 2
    assert "--data goes with --replay" in capsys.readouterr().err


def test_a_committed_run_is_what_training_gives() -> None:
    """One of results/, trained on digits, which need no download."""
    directory = next(
        iter(sorted((REPOSITORY / "results" / "runs").glob("digits-smallcnn-powersgd-accordion-*/seed-1")))
    )
    result = replay(directory, 2)
    assert result.problems == ()
    assert result.epochs >= 1
    assert asdict(result)["of"] >= 2
