"""Of any number of jobs exactly one has the run, and a dead owner keeps nobody away."""

from __future__ import annotations

import json
import multiprocessing
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from accordion_bench.errors import InProgress, UserError
from accordion_bench.runs import lock as locks
from accordion_bench.runs.lock import STALE_SECONDS, Lock, is_alive, read_owner

RACERS = 8


def _dead_pid() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def _start_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]


def _leave_lock(directory: Path, **owner: Any) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / "lock"
    path.write_text(json.dumps({"host": socket.gethostname(), "time": 0.0} | owner))
    return path


def test_the_owner_is_named_and_the_directory_vanishes_if_left_empty(tmp_path: Path) -> None:
    directory = tmp_path / "runs" / "name-hash" / "seed-1"
    with Lock(directory):
        owner = read_owner(directory / "lock")
        assert owner is not None
        assert (owner["host"], owner["pid"]) == (socket.gethostname(), os.getpid())
        assert is_alive(directory / "lock", owner)
    assert os.listdir(tmp_path / "runs") == []
    with Lock(directory):
        (directory / "config.yaml").touch()
    assert os.listdir(directory) == ["config.yaml"]


def test_a_second_job_is_refused_in_one_line_that_names_host_and_process(tmp_path: Path) -> None:
    with Lock(tmp_path):
        text = (tmp_path / "lock").read_text()
        for _ in range(2):
            with pytest.raises(InProgress) as caught, Lock(tmp_path):
                pass
            message = str(caught.value)
            assert "\n" not in message
            assert f"in progress on {socket.gethostname()} (process {os.getpid()}, lock {tmp_path / 'lock'})" in message
            assert caught.value.exit_code == 2
            assert (tmp_path / "lock").read_text() == text  # the owner's, untouched


def test_a_lock_of_a_dead_process_is_taken_over(tmp_path: Path) -> None:
    path = _leave_lock(tmp_path, pid=_dead_pid(), start="1")
    with Lock(tmp_path):
        assert read_owner(path)["pid"] == os.getpid()  # type: ignore[index]
    assert not path.exists()


def test_a_process_number_in_use_again_is_told_from_the_owner(tmp_path: Path) -> None:
    sleeper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"])
    try:
        _leave_lock(tmp_path, pid=sleeper.pid, start=_start_of(sleeper.pid))
        with pytest.raises(InProgress, match=f"process {sleeper.pid}"), Lock(tmp_path):
            pass
        _leave_lock(tmp_path, pid=sleeper.pid, start="1")  # a process that began when the machine did
        with Lock(tmp_path):
            pass
    finally:
        sleeper.kill()
        sleeper.wait()


@pytest.mark.parametrize("content", ["", "{", '{"host"', "[]", "null", '"x"'])
def test_a_lock_that_says_nothing_is_taken_over_when_it_is_too_old_to_be_just_being_written(
    tmp_path: Path, content: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locks, "SETTLE_SECONDS", 0.0)
    path = tmp_path / "lock"
    path.write_text(content)
    os.utime(path, (time.time() - 60,) * 2)
    with Lock(tmp_path):
        assert read_owner(path)["pid"] == os.getpid()  # type: ignore[index]


def test_a_lock_of_another_machine_holds_while_it_is_touched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "SETTLE_SECONDS", 0.0)
    path = _leave_lock(tmp_path, host="elsewhere", pid=1)
    with pytest.raises(InProgress, match=r"in progress on elsewhere \(process 1,"), Lock(tmp_path):
        pass
    os.utime(path, (time.time() - STALE_SECONDS - 5,) * 2)
    with Lock(tmp_path):
        assert read_owner(path)["pid"] == os.getpid()  # type: ignore[index]


def test_an_owner_that_was_taken_over_does_not_remove_the_new_ones_lock(tmp_path: Path) -> None:
    with Lock(tmp_path):
        _leave_lock(tmp_path, host="elsewhere", pid=1)
    assert read_owner(tmp_path / "lock")["host"] == "elsewhere"  # type: ignore[index]


def test_a_directory_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for directory, why in ((tmp_path / "file" / "run", "Not a directory"), (tmp_path / "file", "Not a directory")):
        with pytest.raises(UserError) as caught, Lock(directory):
            pass
        assert str(caught.value).startswith(f"cannot write to {directory} ({why}); make it writable")
        assert not isinstance(caught.value, InProgress)


def _race(directories: list[Path], barrier: Any, results: Any) -> None:
    quick = locks.is_alive

    def slow(path: Path, owner: dict[str, object]) -> bool:
        alive = quick(path, owner)
        time.sleep(0.03)  # whoever found a dead owner acts on it only when all others have found it too
        return alive

    for attempt, directory in enumerate(directories):
        locks.is_alive = slow if attempt % 2 else quick
        barrier.wait(300)
        try:
            with Lock(directory):
                results.put((directory, "owner", os.getpid(), read_owner(directory / "lock")))
                barrier.wait(300)  # until everybody has tried
        except InProgress as error:
            results.put((directory, "refused", os.getpid(), str(error)))
            barrier.wait(300)
        barrier.wait(300)


def _nothing(directory: Path) -> None:
    pass


def _stale(directory: Path) -> None:
    _leave_lock(directory, pid=_dead_pid(), start="1")


def _empty(directory: Path) -> None:
    directory.mkdir(parents=True)
    (directory / "lock").touch()
    os.utime(directory / "lock", (0, 0))


@pytest.mark.thorough
def test_of_eight_processes_at_once_exactly_one_gets_the_lock_whatever_lies_there(tmp_path: Path) -> None:
    directories = [tmp_path / f"{before.__name__}-{attempt}" for attempt in range(8) for before in BEFORE]
    for directory, before in zip(directories, BEFORE * 8, strict=True):
        before(directory)
    context = multiprocessing.get_context("forkserver")
    barrier, results = context.Barrier(RACERS), context.Queue()
    racers = [context.Process(target=_race, args=(directories, barrier, results), daemon=True) for _ in range(RACERS)]
    for racer in racers:
        racer.start()
    answers = [results.get(timeout=300) for _ in range(RACERS * len(directories))]
    for racer in racers:
        racer.join(300)
        assert racer.exitcode == 0
    for directory in directories:
        here = [answer for answer in answers if answer[0] == directory]
        owners = [answer for answer in here if answer[1] == "owner"]
        assert len(owners) == 1, here
        _, _, pid, written = owners[0]
        assert written["pid"] == pid
        for _, kind, _, message in here:
            assert kind == "owner" or f"(process {pid}," in message, message
        assert not directory.exists()


BEFORE = [_nothing, _stale, _empty]


def _hand_over(directory: Path, rounds: int, inside: Any, results: Any) -> None:
    """Take and leave the lock again and again; count how often somebody else was inside too."""
    clashes = entered = 0
    for _ in range(rounds):  # anything but InProgress ends this process, and the test
        try:
            with Lock(directory):
                with inside.get_lock():
                    inside.value += 1
                    clashes += inside.value != 1
                time.sleep(0.0005)
                with inside.get_lock():
                    inside.value -= 1
                entered += 1
        except InProgress:
            time.sleep(0.0005)
    results.put((clashes, entered))


def test_a_lock_that_changes_hands_all_the_time_never_has_two_owners(tmp_path: Path) -> None:
    context = multiprocessing.get_context("forkserver")
    inside, results = context.Value("i", 0), context.Queue()
    jobs = [
        context.Process(target=_hand_over, args=(tmp_path / "name" / "seed-1", 60, inside, results)) for _ in range(4)
    ]
    for job in jobs:
        job.start()
    answers = [results.get(timeout=300) for _ in jobs]
    for job in jobs:
        job.join(300)
        assert job.exitcode == 0
    assert [clashes for clashes, _ in answers] == [0] * 4
    assert sum(entered for _, entered in answers) >= 4
    assert os.listdir(tmp_path) == []


def test_the_owner_shows_that_it_is_alive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "HEARTBEAT_SECONDS", 0.02)
    with Lock(tmp_path):
        path = tmp_path / "lock"
        os.utime(path, (0, 0))
        touched = threading.Event()

        def watch() -> None:
            while path.stat().st_mtime == 0:
                time.sleep(0.01)
            touched.set()

        threading.Thread(target=watch, daemon=True).start()
        assert touched.wait(30)
