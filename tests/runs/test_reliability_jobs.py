"""A worker that raises, hangs, is stopped or killed ends the job, and the cause is named; signals end it in order."""

from __future__ import annotations

import json
import os
import re
import signal
from pathlib import Path
from typing import Any

import faults
import pytest

from accordion_bench.runs import checkpoint

PATIENCE_S = 10  # what four processes may take to start on two busy cores
ENDLESS = (*faults.SMALL, "epochs=5000")
FAULTY = (
    *faults.SMALL,
    "compressor=custom",
    "compressor.name=faulty:Faulty",
    "compressor.levels=[1.0]",
    "compressor.error_feedback=false",
    "scheduler=static",
)


def small_with(fault: str, *overrides: str) -> tuple[str, ...]:
    """The small run with a fault in its second epoch."""
    kept = [override for override in FAULTY if not override.startswith("scheduler.interval")]
    return (*kept, f"+compressor.fault={fault}", *overrides)


def failure_of(folder: Path) -> dict[str, Any]:
    """failure.json of the only run."""
    return json.loads((faults.directory_of(folder) / "failure.json").read_text())


def last_line(said: str) -> str:
    """What the program said last; there must be no traceback."""
    assert "Traceback" not in said
    return said.strip().splitlines()[-1]


@pytest.mark.parametrize(("processes", "where"), [(1, "in the only process"), (2, "process 1 (workers 2 to 3)")])
def test_a_worker_that_raises_is_named_with_its_own_traceback(tmp_path: Path, processes: int, where: str) -> None:
    job = faults.start(tmp_path, *small_with("raise", f"launch.processes={processes}"))
    assert job.wait() == 1
    assert where in last_line(job.said)
    assert "ValueError: no more gradients today" in last_line(job.said)
    failure = failure_of(tmp_path)
    assert failure["state"] == "failed"
    assert "in reduce" in failure["traceback"]
    assert 'raise ValueError("no more gradients today")' in failure["traceback"]
    assert faults.family_of(job) == []
    assert len((faults.directory_of(tmp_path) / "epochs.jsonl").read_text().splitlines()) == 1
    assert not (faults.directory_of(tmp_path) / "lock").exists()


def test_a_worker_that_sleeps_for_ever_ends_the_job_and_leaves_its_stack(tmp_path: Path) -> None:
    job = faults.start(tmp_path, *small_with("sleep", "launch.processes=4", f"launch.timeout_s={PATIENCE_S}"))
    assert job.wait() == 1
    assert f"process 2 (worker 2) did not answer within {PATIENCE_S} s (launch.timeout_s)" in last_line(job.said)
    assert "faulty.py" in failure_of(tmp_path)["traceback"]  # where it slept
    assert faults.family_of(job) == []


@pytest.mark.parametrize(
    ("number", "what"),
    [
        (signal.SIGKILL, "(was killed by signal 9|ended without a word)"),
        (signal.SIGSTOP, f"did not answer within {PATIENCE_S} s"),
    ],
)
def test_a_process_that_is_killed_or_stopped_ends_the_job(tmp_path: Path, number: int, what: str) -> None:
    job = faults.start(tmp_path, *ENDLESS, "launch.processes=4", f"launch.timeout_s={PATIENCE_S}")
    wait_for_epochs(job, tmp_path, 1)
    os.kill(faults.member_pid(tmp_path, 1), number)
    assert job.wait() == 1
    assert re.search(rf"process 1 \(worker 1\) {what}", last_line(job.said))
    assert failure_of(tmp_path)["message"] in job.said
    assert faults.family_of(job) == []


def test_a_member_of_a_torchrun_job_that_raises_is_the_one_on_record(tmp_path: Path) -> None:
    jobs = faults.start_members(tmp_path, 4, *small_with("raise"))
    assert [job.wait() for job in jobs] == [1] * 4
    assert "failed in process 2: ValueError: no more gradients today" in last_line(jobs[2].said)
    assert "lost another process" in last_line(jobs[0].said)
    assert 'raise ValueError("no more gradients today")' in failure_of(tmp_path)["traceback"]


@pytest.mark.parametrize(
    ("processes", "number"),
    [(1, signal.SIGINT), (1, signal.SIGTERM), (1, signal.SIGHUP), (2, signal.SIGTERM), (2, signal.SIGUSR1)],
)
def test_a_signal_saves_and_ends_with_its_code(tmp_path: Path, number: int, processes: int) -> None:
    job = faults.start(tmp_path, *ENDLESS, f"launch.processes={processes}", "checkpoint.minutes=9")
    wait_for_epochs(job, tmp_path, 2)
    job.signal(number)
    assert job.wait() == 128 + number
    assert "the same command continues from there" in last_line(job.said)
    directory = faults.directory_of(tmp_path)
    state = checkpoint.load(directory / "checkpoint.pt")
    records = (directory / "epochs.jsonl").read_text().splitlines(keepends=True)
    assert state["records"] == records  # so nothing will be repeated
    assert faults.family_of(job) == []
    assert not (directory / "lock").exists()


def test_ctrl_c_reaches_every_process_and_still_saves(tmp_path: Path) -> None:
    job = faults.start(tmp_path, *ENDLESS, "launch.processes=2", "checkpoint.minutes=9")
    wait_for_epochs(job, tmp_path, 2)
    os.killpg(job.process.pid, signal.SIGINT)
    assert job.wait() == 128 + signal.SIGINT
    state = checkpoint.load(faults.directory_of(tmp_path) / "checkpoint.pt")
    assert state["records"] == (faults.directory_of(tmp_path) / "epochs.jsonl").read_text().splitlines(keepends=True)


def test_a_second_ctrl_c_does_not_wait_for_the_checkpoint(tmp_path: Path) -> None:
    job = faults.start(tmp_path, *small_with("sleep", "launch.processes=1"))
    wait_for_epochs(job, tmp_path, 1)
    faults.wait_for(lambda: "epoch   1/3" in job.said)
    code = None
    while code is None:  # the first finds it asleep in the middle of an update
        job.signal(signal.SIGINT)
        job.process.join(0.3)
        code = job.process.exitcode
    assert code == 130
    assert "interrupted" in last_line(job.said)


def test_no_process_outlives_a_killed_parent(tmp_path: Path) -> None:
    job = faults.start(tmp_path, *ENDLESS, "launch.processes=2")
    faults.wait_for(lambda: (faults.directory_of(tmp_path) / "checkpoint.pt").exists())
    stopped = faults.member_pid(tmp_path, 1)
    os.kill(stopped, signal.SIGSTOP)
    family = faults.family_of(job)
    assert len(family) >= 3
    job.kill()
    faults.wait_for(lambda: not set(faults.family_of(job)))
    again = faults.start(tmp_path, *ENDLESS, "launch.processes=2")
    faults.wait_for(lambda: "continues " in again.said)
    again.signal(signal.SIGTERM)
    assert again.wait() == 128 + signal.SIGTERM


def wait_for_epochs(job: faults.Job, folder: Path, count: int) -> None:
    """Until the only run has so many epochs on record. AssertionError if its job ends before that."""

    def enough() -> bool:
        assert job.process.is_alive(), f"the job has ended: {job.said}"
        return (faults.directory_of(folder) / "epochs.jsonl").read_text().count("\n") >= count

    faults.wait_for(enough)
