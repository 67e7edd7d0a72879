"""A run that was killed, however often and wherever, ends exactly as one that was left alone."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import faults
import pytest
from places import REPOSITORY

ALWAYS = "checkpoint.minutes=0"  # after every update
LONG = pytest.mark.skipif(not os.environ.get("ACCORDION_BENCH_LONG"), reason="takes minutes: ACCORDION_BENCH_LONG=1")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the small run leaves in one process."""
    folder = tmp_path_factory.mktemp("undisturbed")
    code, said = faults.run(folder, *faults.SMALL)
    assert code == 0, said
    return faults.content_of(faults.directory_of(folder))


@pytest.fixture(scope="module")
def undisturbed_in_four(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What it leaves in four gloo processes."""
    folder = tmp_path_factory.mktemp("undisturbed4")
    assert [job.wait() for job in faults.start_members(folder, 4, *faults.SMALL)] == [0] * 4
    return faults.content_of(faults.directory_of(folder))


def touches(folder: Path) -> int:
    """How often an undisturbed run touches the disk."""
    report = folder / "touches"
    count = partial(faults.count_touches, str(report))
    code, said = faults.run(folder, *faults.SMALL, ALWAYS, "results=count", before=count)
    assert code == 0, said
    return int(report.read_text())


def chain_of_kills(folder: Path, kills: int, seed: int) -> int:
    """Kill the run again and again at random touches of the disk, then let it finish; how often it was killed."""
    draw = random.Random(seed)
    killed = 0
    for _ in range(kills):
        code, said = faults.run(folder, *faults.SMALL, ALWAYS, before=partial(faults.die_at, draw.randint(1, 22)))
        assert code in (0, -9), said
        killed += code == -9
        if code == 0:
            break
    code, said = faults.run(folder, *faults.SMALL, ALWAYS)
    assert code == 0, said
    return killed


def test_killed_while_writing_checkpoints_and_records(tmp_path: Path, undisturbed: dict[str, Any]) -> None:
    assert chain_of_kills(tmp_path, 16, seed=1) >= 12
    assert faults.content_of(faults.directory_of(tmp_path)) == undisturbed


def test_killed_processes_of_a_job_of_four(tmp_path: Path, undisturbed_in_four: dict[str, Any]) -> None:
    kill_members(tmp_path, 4, seed=1)
    assert faults.content_of(faults.directory_of(tmp_path)) == undisturbed_in_four


def kill_members(folder: Path, kills: int, seed: int) -> None:
    """Kill a random process of a job of four in the middle, and end the others as torchrun does. Then finish."""
    draw = random.Random(seed)
    for _ in range(kills):
        jobs = faults.start_members(folder, 4, *faults.SMALL, ALWAYS)
        saves = draw.randint(1, 4)
        wait_for_saves(folder, saves, jobs)
        jobs[draw.randrange(4)].kill()
        for job in jobs:
            job.terminate()  # as torchrun does
        for job in jobs:
            assert job.wait() in (0, 1, 143, -9, -15), job.said
    codes = [job.wait() for job in faults.start_members(folder, 4, *faults.SMALL, ALWAYS)]
    assert codes == [0] * 4


def wait_for_saves(folder: Path, count: int, jobs: list[faults.Job]) -> None:
    """Until the job has written so many checkpoints, or has ended."""
    seen = set()

    def enough() -> bool:
        for path in (folder / "results" / "runs").glob("*/seed-*/checkpoint.pt"):
            seen.add(path.stat().st_ino)
        return len(seen) >= count or any(job.process.exitcode is not None for job in jobs)

    faults.wait_for(enough)


@LONG
def test_killed_at_every_single_touch_of_the_disk(tmp_path: Path, undisturbed: dict[str, Any]) -> None:
    for number in range(1, touches(tmp_path) + 1):
        code, said = faults.run(tmp_path, *faults.SMALL, ALWAYS, before=partial(faults.die_at, number))
        assert code == -9, said
        code, said = faults.run(tmp_path, *faults.SMALL, ALWAYS)
        assert code == 0, said
        assert faults.content_of(faults.directory_of(tmp_path)) == undisturbed, f"killed at touch {number}"
        shutil.rmtree(tmp_path / "results")


@LONG
@pytest.mark.parametrize("seed", range(5))
def test_many_chains_of_kills(tmp_path: Path, undisturbed: dict[str, Any], seed: int) -> None:
    chain_of_kills(tmp_path, 25, seed)
    assert faults.content_of(faults.directory_of(tmp_path)) == undisturbed


@LONG
@pytest.mark.parametrize("seed", range(3))
def test_many_kills_of_four(tmp_path: Path, undisturbed_in_four: dict[str, Any], seed: int) -> None:
    kill_members(tmp_path, 12, seed)
    assert faults.content_of(faults.directory_of(tmp_path)) == undisturbed_in_four


@LONG
def test_the_command_itself_whose_processes_are_spawned(tmp_path: Path, undisturbed_in_four: dict[str, Any]) -> None:
    command = [sys.executable, "-m", "accordion_bench", "run", *faults.SMALL, ALWAYS, "launch.processes=4"]
    environment = os.environ | {"TMPDIR": str(tmp_path), "PYTHONPATH": str(REPOSITORY)}
    for victim in ("parent", "member"):
        job = subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE)
        wait_for_new_save(tmp_path)
        os.kill(job.pid if victim == "parent" else faults.member_pid(tmp_path, 2), signal.SIGKILL)
        said = job.communicate(timeout=100)[1].decode()
        assert job.returncode == (-9 if victim == "parent" else 1), said
        faults.wait_for(lambda: not list(faults.processes_in(tmp_path)))
        for left in tmp_path.glob("accordion-bench-*"):
            shutil.rmtree(left)
    assert subprocess.run(command, cwd=tmp_path, env=environment).returncode == 0
    assert faults.content_of(faults.directory_of(tmp_path)) == undisturbed_in_four


def wait_for_new_save(folder: Path) -> None:
    """Until the job has replaced its checkpoint."""
    paths = folder / "results" / "runs"
    before = {path.stat().st_ino for path in paths.glob("*/seed-*/checkpoint.pt")}
    faults.wait_for(lambda: {path.stat().st_ino for path in paths.glob("*/seed-*/checkpoint.pt")} - before, 300)
