"""Run what is missing of a sweep: one after another in this process, or several at once in processes of their own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from accordion_bench.errors import Diverged, RunFailure, UserError
from accordion_bench.progress import human_count, human_time
from accordion_bench.records import RunDirectory
from accordion_bench.sweep import Job, state_of

DONE = ("finished", "diverged")  # a diverged run would diverge again


@dataclass
class Timing:
    """How long runs take: seconds by the part of the label that seeds share, from what has been seen so far."""

    seconds: dict[str, list[float]] = field(default_factory=dict)

    def add(self, job: Job, seconds: float) -> None:
        """One run has taken this long."""
        self.seconds.setdefault(_without_seed(job), []).append(seconds)

    def left(self, jobs: Sequence[Job], at_once: int) -> float | None:
        """Seconds for these runs, or None as long as nothing is known. A row never seen counts as the average one."""
        seen = [value for values in self.seconds.values() for value in values]
        if not seen:
            return None
        average = sum(seen) / len(seen)
        rows = {name: sum(values) / len(values) for name, values in self.seconds.items()}
        return sum(rows.get(_without_seed(job), average) for job in jobs) / at_once


def _without_seed(job: Job) -> str:
    return f"{job.config.slug}-{job.config.hash}"


class Sweep:
    """Runs jobs and keeps people informed on standard error.

    Args:
        jobs: all of them, finished ones too.
        at_once: runs at the same time; above 1 each is a process of its own.
    """

    def __init__(self, jobs: Sequence[Job], at_once: int = 1) -> None:
        self.jobs = list(jobs)
        self.at_once = at_once
        self.timing = Timing()
        self.failures: list[Job] = []
        states = {id(job): state_of(job.config) for job in jobs}
        for job in jobs:
            if states[id(job)] == "finished":
                summary = RunDirectory(job.config.directory).read_json("summary.json") or {}
                self.timing.add(job, float(summary.get("training_seconds", 0.0)))
        self.diverged = [job for job in jobs if states[id(job)] == "diverged"]
        self.todo = [job for job in jobs if states[id(job)] not in DONE]
        self.finished = len(self.jobs) - len(self.todo) - len(self.diverged)

    def run(self) -> None:
        """Run what is missing. RunFailure at the end if anything failed or has diverged, before or now."""
        skipped = f", {len(self.diverged)} diverged" if self.diverged else ""
        _say(f"{len(self.jobs)} runs: {self.finished} finished{skipped}, {len(self.todo)} to do{self._time_left(self.todo)}")
        if self.at_once == 1:
            for position, job in enumerate(self.todo):
                self._run_here(job, self.todo[position + 1 :])
        else:
            self._run_processes()
        bad = [*self.diverged, *self.failures]
        if bad:
            names = "; ".join(f"{job.label} ({job.config.directory})" for job in bad)
            raise RunFailure(
                f"{len(bad)} of {len(self.jobs)} runs failed or diverged: {names}. The same command tries failed ones again; "
                "delete a diverged run's directory to repeat it"
            )

    def _run_here(self, job: Job, later: list[Job]) -> None:
        from accordion_bench.launch import launch

        started = time.monotonic()
        if sys.stderr.isatty():
            _say(f"{self._count()} {job.label}")
        try:
            launch(job.config if sys.stderr.isatty() else replace(job.config, quiet=True))
        except (UserError, RunFailure) as error:
            self._failed(job, str(error), isinstance(error, Diverged), later)
        else:
            self._succeeded(job, time.monotonic() - started, later)

    def _run_processes(self) -> None:
        """Each run in a process of its own, at most `at_once` of them, sharing the GPUs evenly."""
        waiting = list(self.todo)
        slots = list(range(self.at_once))
        with _children() as running:
            while waiting or running:
                while waiting and slots:
                    job, slot = waiting.pop(0), slots.pop(0)
                    running[_start(job, slot, self.at_once)] = (job, slot, time.monotonic())
                time.sleep(0.1)
                for child in [child for child in running if child.poll() is not None]:
                    job, slot, started = running.pop(child)
                    slots.append(slot)
                    later = [*waiting, *(other for other, _, _ in running.values())]
                    assert child.stderr is not None
                    said = child.stderr.read().strip().splitlines()
                    if child.returncode == 0:
                        self._succeeded(job, time.monotonic() - started, later)
                    else:
                        last = said[-1].removeprefix("accordion-bench: ") if said else f"exit code {child.returncode}"
                        self._failed(job, last, state_of(job.config) == "diverged", later)

    def _succeeded(self, job: Job, seconds: float, later: list[Job]) -> None:
        self.finished += 1
        self.timing.add(job, seconds)
        summary = RunDirectory(job.config.directory).read_json("summary.json") or {}
        unit = " %" if summary.get("metric") == "accuracy" else ""
        result = f"{summary.get('metric')} {summary.get('final', float('nan')):.4g}{unit}"
        sent = f"{human_count(summary.get('floats_per_worker', 0.0))} floats per worker".replace("  ", " ")
        _say(f"{self._count()} {job.label}: {result}, {sent}, {human_time(seconds)}{self._time_left(later)}")

    def _failed(self, job: Job, why: str, diverged: bool, later: list[Job]) -> None:
        (self.diverged if diverged else self.failures).append(job)
        _say(f"{self._count()} {job.label}: {' '.join(why.split())}{self._time_left(later)}")

    def _count(self) -> str:
        width = len(str(len(self.jobs)))
        return f"[{self.finished:>{width}}/{len(self.jobs)}]"

    def _time_left(self, jobs: list[Job]) -> str:
        seconds = self.timing.left(jobs, self.at_once)
        return f" · about {human_time(seconds)} left" if seconds and jobs else ""


def _start(job: Job, slot: int, at_once: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "accordion_bench", "run", *job.overrides, "quiet=true"]
    return subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=os.environ | _gpus(slot, at_once)
    )


def _gpus(slot: int, at_once: int) -> dict[str, str]:
    """The part of this machine's GPUs that one of several simultaneous runs may see; all of them if there are fewer."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        import torch

        visible = ",".join(map(str, range(torch.cuda.device_count())))
    devices = [device for device in visible.split(",") if device]
    mine = devices[slot::at_once] if len(devices) >= at_once else devices[slot % len(devices) :][:1] if devices else []
    return {"CUDA_VISIBLE_DEVICES": ",".join(mine)} if devices else {}


@contextmanager
def _children() -> Iterator[dict[subprocess.Popen[str], tuple[Job, int, float]]]:
    """A place for child processes; whoever is still in it when the block is left, however that is, is interrupted."""
    running: dict[subprocess.Popen[str], tuple[Job, int, float]] = {}
    try:
        yield running
    finally:
        for child in running:
            child.send_signal(signal.SIGINT)
        deadline = time.monotonic() + 15
        for child in running:
            try:
                child.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                child.kill()


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
