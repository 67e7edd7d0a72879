"""Run what is missing of a sweep: one after another in this process, or several at once in processes of their own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from accordion_bench.errors import Diverged, InProgress, RunFailure, UserError
from accordion_bench.runs.progress import human_count, human_time
from accordion_bench.runs.records import RunDirectory
from accordion_bench.sweeps.jobs import Job, state_of

POLL_SECONDS = 1.0  # how often to look whether another sweep's run has ended
PATIENCE_SECONDS = 20.0  # for an interrupted run to write its checkpoint


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
        self.finished = 0
        self.waiting: list[Job] = []
        self.elsewhere: list[Job] = []  # another sweep is at work on them
        self.running: dict[subprocess.Popen[str], tuple[Job, int, float]] = {}  # job, slot, when it was started
        self.diverged: list[Job] = []
        self.failed: list[Job] = []
        for job in jobs:
            state = state_of(job.config)
            if state == "finished":
                self.finished += 1
                self.timing.add(job, _summary(job).get("training_seconds", 0.0))
            else:
                (self.diverged if state == "diverged" else self.waiting).append(job)  # it would diverge again

    def run(self) -> None:
        """Run what is missing. RunFailure at the end if anything failed or has diverged, before or now."""
        diverged = f", {len(self.diverged)} diverged" if self.diverged else ""
        _say(f"{len(self.jobs)} runs: {self.finished} finished{diverged}, {len(self.waiting)} to do{self._time_left()}")
        if self.at_once == 1:
            while self._wait():
                self._run_here(self.waiting.pop(0))
        else:
            self._run_processes()
        bad = [*self.diverged, *self.failed]
        if bad:
            names = "; ".join(f"{job.label} ({job.config.directory})" for job in bad)
            raise RunFailure(
                f"{len(bad)} of {len(self.jobs)} runs failed or diverged: {names}. "
                "The same command tries failed ones again; delete a diverged run's directory to repeat it"
            )

    def _wait(self) -> bool:
        """Whether there is something to start, now or, as long as another sweep has runs of ours, some time later."""
        if not self.waiting and not self.running and self.elsewhere:
            _say(f"{self._count()} waiting for {len(self.elsewhere)} runs that are in progress elsewhere")
        while self.elsewhere and not self.waiting and not self.running:
            time.sleep(POLL_SECONDS)
            self.waiting = [job for job in self.elsewhere if state_of(job.config) != "running"]
            self.elsewhere = [job for job in self.elsewhere if job not in self.waiting]
        while self.waiting and state_of(self.waiting[0].config) == "diverged":  # in another sweep's hands
            self.diverged.append(self.waiting.pop(0))
        return bool(self.waiting) or (bool(self.elsewhere) and not self.running and self._wait())

    def _run_here(self, job: Job) -> None:
        from accordion_bench.runs.launch import launch

        started = time.monotonic()
        live = sys.stderr.isatty()
        if live:
            _say(f"{self._count()} {job.label}")
        try:
            launch(job.config if live else replace(job.config, quiet=True))
        except InProgress:
            self.elsewhere.append(job)
        except (UserError, RunFailure) as error:
            self._fails(job, str(error), diverged=isinstance(error, Diverged))
        else:
            self._succeeds(job, time.monotonic() - started)

    def _run_processes(self) -> None:
        """Each run in a process of its own, at most `at_once` of them, sharing the GPUs evenly."""
        slots = list(range(self.at_once))
        try:
            while self._wait() or self.running:
                while self.waiting and slots:
                    job, slot = self.waiting.pop(0), slots.pop(0)
                    self.running[_start(job, slot, self.at_once)] = (job, slot, time.monotonic())
                time.sleep(0.1)
                for child in [child for child in self.running if child.poll() is not None]:
                    job, slot, started = self.running.pop(child)
                    slots.append(slot)
                    self._ended(job, child, time.monotonic() - started)
        finally:
            _interrupt(list(self.running))

    def _ended(self, job: Job, child: subprocess.Popen[str], seconds: float) -> None:
        assert child.stderr is not None
        lines = child.stderr.read().strip().splitlines()
        state = state_of(job.config)
        if child.returncode == 0:
            self._succeeds(job, seconds)
        elif state == "running":
            self.elsewhere.append(job)
        else:
            last = lines[-1].removeprefix("accordion-bench: ") if lines else f"exit code {child.returncode}"
            self._fails(job, last, diverged=state == "diverged")

    def _succeeds(self, job: Job, seconds: float) -> None:
        self.finished += 1
        self.timing.add(job, seconds)
        summary = _summary(job)
        unit = " %" if summary.get("metric") == "accuracy" else ""
        result = f"{summary.get('metric')} {summary.get('final', float('nan')):.4g}{unit}"
        sent = " ".join(f"{human_count(summary.get('floats_per_worker', 0.0))} floats per worker".split())
        _say(f"{self._count()} {job.label}: {result}, {sent}, {human_time(seconds)}{self._time_left()}")

    def _fails(self, job: Job, why: str, diverged: bool) -> None:
        (self.diverged if diverged else self.failed).append(job)
        _say(f"{self._count()} {job.label}: {' '.join(why.split())}{self._time_left()}")

    def _count(self) -> str:
        width = len(str(len(self.jobs)))
        return f"[{self.finished:>{width}}/{len(self.jobs)}]"

    def _time_left(self) -> str:
        jobs = [*self.waiting, *self.elsewhere, *(job for job, _, _ in self.running.values())]
        seconds = self.timing.left(jobs, self.at_once)
        return f" · about {human_time(seconds)} left" if seconds and jobs else ""


def _summary(job: Job) -> dict[str, Any]:
    return RunDirectory(job.config.directory).read_json("summary.json") or {}


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


def _interrupt(children: list[subprocess.Popen[str]]) -> None:
    """End these processes as Ctrl-C would, so that they save where they are; kill whoever takes too long."""
    for child in children:
        child.send_signal(signal.SIGINT)
    deadline = time.monotonic() + PATIENCE_SECONDS
    for child in children:
        try:
            child.wait(max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            child.kill()


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
