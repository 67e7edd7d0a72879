"""The processes of a job on one machine: what each says when it fails, and that none outlives the others. No torch.

Every member leaves its process id in a folder of the job, and a report when it fails. From these the parent tells which
one was the cause: a process that raised, one that was killed, or one that stopped answering.
"""

from __future__ import annotations

import ctypes
import faulthandler
import json
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from accordion_bench.errors import Diverged, Interrupted

GRACE_SECONDS = 5.0  # between the first failure and the end of those who do not answer
STACK_SIGNAL = signal.SIGUSR2  # asks a member for its stack
PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class Report:
    """Why a member ended.

    Attributes:
        process: its index.
        kind: name of the exception's class.
        message: of the exception; where training stopped if it was interrupted.
        time: seconds since the Unix epoch.
        signal: that interrupted it, or None.
        place: (epoch, step, layer, what) of a divergence, or None.
        collective: raised inside torch.distributed, so probably because another process has gone.
        traceback: text.
    """

    process: int
    kind: str
    message: str
    time: float
    signal: int | None
    place: tuple[int, int, str, str] | None
    collective: bool
    traceback: str


def enter(folder: Path, process: int, parent: int) -> None:
    """In a member, first of all: end when the parent does, and be ready to say where it hangs."""
    _end_with(parent)
    stack = open(folder / f"stack-{process}", "w")  # noqa: SIM115 - stays open as long as the process lives
    with suppress(AttributeError):  # Windows has no such signal
        faulthandler.register(STACK_SIGNAL, file=stack, all_threads=True)
    _write(folder, f"pid-{process}", str(os.getpid()))


def leave(folder: Path, process: int, error: BaseException) -> None:
    """In a member that fails, last of all: the report for the parent."""
    report = Report(
        process=process,
        kind=type(error).__name__,
        message=error.where if isinstance(error, Interrupted) else str(error),
        time=time.time(),
        signal=error.signal_number if isinstance(error, Interrupted) else None,
        place=(error.epoch, error.step, error.layer, error.what) if isinstance(error, Diverged) else None,
        collective=in_collective(error),
        traceback="".join(traceback.format_exception(error)),
    )
    with suppress(OSError, ValueError):  # a full disk must not keep it from ending
        _write(folder, f"report-{process}", json.dumps(asdict(report)))
        sys.stdout.flush()
        sys.stderr.flush()


def in_collective(error: BaseException) -> bool:
    """Whether torch.distributed raised it: what a process sees when another one has gone."""
    frames = [frame.filename.replace("\\", "/") for frame in traceback.extract_tb(error.__traceback__)]
    return bool(frames) and "torch/distributed/" in frames[-1]


def reports(folder: Path) -> list[Report]:
    """What failing members left, earliest first."""
    found = [Report(**json.loads(path.read_text())) for path in folder.glob("report-*")]
    return sorted(found, key=lambda report: report.time)


@contextmanager
def overseen(folder: Path) -> Iterator[dict[int, str]]:
    """In the parent, around the job: after a failure kill whoever has not ended within GRACE_SECONDS.

    Yields:
        process -> its stack (may be empty), of those that had to be killed; filled while the job runs.
    """
    hung: dict[int, str] = {}
    over = threading.Event()
    thread = threading.Thread(target=_oversee, args=(folder, hung, over), daemon=True)
    thread.start()
    try:
        yield hung
    finally:
        over.set()
        thread.join()


def _oversee(folder: Path, hung: dict[int, str], over: threading.Event) -> None:
    while not over.wait(0.2):
        if any(report.kind != "Interrupted" for report in reports(folder)):
            break
    if over.wait(GRACE_SECONDS):
        return
    reported = {report.process for report in reports(folder)}
    pids = {int(path.name.rpartition("-")[2]): int(path.read_text()) for path in folder.glob("pid-*")}
    left = {process: pid for process, pid in pids.items() if process not in reported and _is_child(pid)}
    for pid in left.values():
        _signal(pid, STACK_SIGNAL)
    if left:
        time.sleep(0.5)
    for process, pid in left.items():
        hung[process] = (folder / f"stack-{process}").read_text(errors="replace")
        _signal(pid, signal.SIGKILL)


def cause(folder: Path, hung: dict[int, str], processes: int) -> tuple[Report | None, list[int]]:
    """(the report of the process that failed first by itself, or None; the processes that ended without a word)."""
    found = reports(folder)
    own = [report for report in found if not report.collective and report.kind != "Interrupted"]
    asked = [report for report in found if report.kind == "Interrupted"]
    silent = sorted(set(range(processes)) - {report.process for report in found})
    first = next(iter(own + asked), None)
    if first is None and not silent:
        first = found[0]
    return first, [process for process in silent if process in hung] or silent


def _is_child(pid: int) -> bool:
    """Whether this is a living child of this process: its number may belong to somebody else by now."""
    try:
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (OSError, IndexError):
        return not Path("/proc/self/stat").exists()
    return words[0] not in ("Z", "X") and int(words[1]) == os.getpid()


def _signal(pid: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def _write(folder: Path, name: str, text: str) -> None:
    """A file that readers see whole or not at all."""
    temporary = folder / f".{name}"
    temporary.write_text(text)
    temporary.rename(folder / name)


def _end_with(parent: int) -> None:
    """End this process when the one that started it is gone, however it went: by the kernel, or else by looking."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        os._exit(1)

    with suppress(OSError, AttributeError):  # Linux: also for a stopped process, and before it can write once more
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    threading.Thread(target=watch, daemon=True).start()
