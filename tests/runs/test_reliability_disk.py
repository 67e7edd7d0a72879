"""Full, failing, read-only and vanished disks, wrong clocks, bad numbers: one clear message, and the run can go on."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import faults
import pytest
from test_reliability_jobs import ENDLESS, last_line, small_with, wait_for_epochs

from accordion_bench.report.listing import list_runs
from accordion_bench.runs import checkpoint
from accordion_bench.runs.records import RunDirectory
from accordion_bench.runs.stored import Problem, read_run

ALWAYS = "checkpoint.minutes=0"


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the small run leaves."""
    folder = tmp_path_factory.mktemp("undisturbed")
    code, said = faults.run(folder, *faults.SMALL)
    assert code == 0, said
    return faults.content_of(faults.directory_of(folder))


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of a few hundred KB of our own."""
    path = tmp_path / "disk"
    path.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=200k", "tmpfs", path], capture_output=True, text=True)
    if mounted.returncode:
        pytest.skip(f"cannot mount a small disk here: {mounted.stderr.strip()}")
    yield path
    subprocess.run(["umount", "-l", path], check=True)


def remount(path: Path, options: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{options}", path], check=True)


def assert_whole(directory: Path) -> None:
    """Nothing that lies there is damaged: every file can be read to its end."""
    RunDirectory(directory).read_epochs()
    for path in checkpoint.candidates(directory):
        checkpoint.load(path)
    for path in directory.glob("*.json"):
        json.loads(path.read_text())


@pytest.mark.parametrize("processes", [1, 2])
def test_a_full_disk_is_one_line_and_the_run_continues_when_there_is_room(
    tmp_path: Path, disk: Path, undisturbed: dict[str, Any], processes: int
) -> None:
    (disk / "ballast").write_bytes(bytes(100_000))  # room for one checkpoint, but not for three
    small = (*faults.SMALL, ALWAYS, f"launch.processes={processes}")
    code, said = faults.run(tmp_path, *small, "results=disk")
    assert code == 1, said
    assert "No space left on device" in last_line(said)
    assert "the same command continues" in last_line(said)
    directory = faults.directory_of(tmp_path, "disk")
    assert_whole(directory)
    assert not (directory / "lock").exists()
    remount(disk, "size=4m")
    code, said = faults.run(tmp_path, *small, "results=disk")
    assert code == 0, said
    if processes == 1:
        assert faults.content_of(directory) == undisturbed


@pytest.mark.parametrize("size", [0, 300, 3000])
def test_files_that_cannot_grow_fail_in_one_line_at_any_stage(
    tmp_path: Path, undisturbed: dict[str, Any], size: int
) -> None:
    """As under a quota: at 0 bytes there is no lock, at 300 no configuration, at 3,000 no checkpoint."""
    code, said = faults.run(tmp_path, *faults.SMALL, ALWAYS, before=partial(faults.limit_file_size, size))
    assert code == (2 if size == 0 else 1), said
    assert size == 0 or "File too large" in last_line(said)  # at 0 the message itself has no place
    for directory in tmp_path.glob("results/runs/*/*"):
        assert_whole(directory)
        assert [path.name for path in directory.iterdir() if path.name.startswith((".", "lock"))] == []
    code, said = faults.run(tmp_path, *faults.SMALL, ALWAYS)
    assert code == 0, said
    assert faults.content_of(faults.directory_of(tmp_path)) == undisturbed


def test_a_read_only_disk_is_refused_at_once(tmp_path: Path, disk: Path) -> None:
    remount(disk, "ro")
    code, said = faults.run(tmp_path, *faults.SMALL, "results=disk")
    assert code == 2
    assert "Read-only file system" in last_line(said)
    assert len(said.strip().splitlines()) == 1


def test_a_directory_that_vanishes_ends_the_run_in_one_line(tmp_path: Path) -> None:
    job = faults.start(tmp_path, *ENDLESS)
    wait_for_epochs(job, tmp_path, 1)
    (tmp_path / "results").rename(tmp_path / "gone")
    shutil.rmtree(tmp_path / "gone")
    assert job.wait() == 1
    assert "has vanished" in last_line(job.said)
    assert not (tmp_path / "results").exists()


def test_a_run_that_another_job_has_taken_over_is_left_to_it(tmp_path: Path) -> None:
    job = faults.start(tmp_path, *ENDLESS)
    wait_for_epochs(job, tmp_path, 1)
    lock = faults.directory_of(tmp_path) / "lock"
    other = '{"host": "another", "pid": 7, "time": 1}'
    (tmp_path / "new").write_text(other)
    (tmp_path / "new").rename(lock)
    assert job.wait() == 1
    assert "another job has taken" in last_line(job.said)
    assert lock.read_text() == other


def test_records_that_cannot_be_written_are_named(tmp_path: Path) -> None:
    job = faults.start(tmp_path, *ENDLESS, "checkpoint.enabled=false")
    wait_for_epochs(job, tmp_path, 1)
    path = faults.directory_of(tmp_path) / "epochs.jsonl"
    path.unlink(), path.mkdir()
    assert job.wait() == 1
    assert f"cannot write {path.relative_to(tmp_path)} (Is a directory)" in last_line(job.said)


def test_a_log_that_cannot_be_written_ends_no_run(tmp_path: Path, undisturbed: dict[str, Any]) -> None:
    job = faults.start(tmp_path, *faults.SMALL, log="/dev/full")
    assert job.wait() == 0
    assert faults.content_of(faults.directory_of(tmp_path)) == undisturbed


def test_a_clock_that_runs_backwards_changes_nothing(tmp_path: Path, undisturbed: dict[str, Any]) -> None:
    code, said = faults.run(tmp_path, *faults.SMALL, ALWAYS, before=faults.turn_clock_back)
    assert code == 0, said
    assert "-" not in said.partition("epoch   1")[2].partition("floats")[0]  # no negative speed or time
    assert faults.content_of(faults.directory_of(tmp_path)) == undisturbed
    assert [run.state for run in list_runs(tmp_path / "results")] == ["finished"]


@pytest.mark.parametrize("processes", [1, 4])
def test_a_diverged_run_is_on_record_with_its_place_and_never_a_number(tmp_path: Path, processes: int) -> None:
    job = faults.start(tmp_path, *small_with("spoil", f"launch.processes={processes}"))
    assert job.wait() == 1
    assert "diverged: gradient became non-finite in epoch 1, step 2" in last_line(job.said)
    directory = faults.directory_of(tmp_path)
    failure = json.loads((directory / "failure.json").read_text())
    layer = json.loads((directory / "environment.json").read_text())["model"]["layers"][0]["name"]
    assert {name: failure[name] for name in ("state", "epoch", "step", "layer")} == {
        "state": "diverged",
        "epoch": 1,
        "step": 2,
        "layer": layer,
    }
    assert [run.state for run in list_runs(tmp_path / "results")] == ["diverged"]
    read = read_run(directory, 1)
    assert isinstance(read, Problem)
    assert read.state == "diverged"


def test_updates_left_out_are_on_record_with_step_and_layer_after_an_interruption_too(tmp_path: Path) -> None:
    small = small_with("spoil", "on_nonfinite=skip", ALWAYS)
    code, said = faults.run(tmp_path, *small, before=partial(faults.die_after_saves, 8))  # just after the bad update
    assert code == -9, said
    code, said = faults.run(tmp_path, *small)
    assert code == 0, said
    directory = faults.directory_of(tmp_path)
    layer = json.loads((directory / "environment.json").read_text())["model"]["layers"][0]["name"]
    records = RunDirectory(directory).read_epochs()
    assert [(record.skipped, record.updates) for record in records] == [(0, 5), (1, 4), (0, 5)]
    assert [record.extra.get("skipped") for record in records] == [None, [[2, layer]], None]
    assert json.loads((directory / "summary.json").read_text())["skipped"] == 1
