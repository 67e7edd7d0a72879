"""Real runs in processes of their own that are killed, stopped, starved of disk or continued, and what they leave.

A job is `accordion-bench run ...` (or one process of a torchrun job) forked from a server in which torch is loaded:
that takes milliseconds instead of seconds, so that many can be killed. Faults are injected in the job's process by
wrapping the operating system's calls (`before`), never by a switch in the program.
"""

from __future__ import annotations

import contextlib
import functools
import json
import multiprocessing
import os
import pickle
import resource
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import processes as first_choice  # noqa: F401 - what the server loads is said there and, later, here
from report_records import results, table_of

from accordion_bench.runs.records import RunDirectory
from accordion_bench.sweeps.table import Row

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(
    [
        "torch._dynamo",
        "torch.distributed.launcher.api",
        "accordion_bench.runs.run",
        "accordion_bench.commands.run",
        "hydra.main",
        "sklearn.datasets",
        "pytest",
    ]
)

SMALL = (
    "dataset=digits",
    "model=smallcnn",
    "epochs=3",
    "dataset.limit_train=320",
    "dataset.limit_test=60",
    "batch.per_worker=16",
    "scheduler.interval=1",
    "checkpoint.keep=true",
)
TIMES = ("seconds", "time", "training_seconds")


@dataclass
class Job:
    """A job on its way.

    Attributes:
        process: its process.
        folder: where it runs; `stderr` lies there.
        log: of its standard error.
    """

    process: Any
    folder: Path
    log: Path

    def wait(self, timeout_s: float = 100.0) -> int:
        """Its exit code, negative after a signal; TimeoutError, and it is killed, if that takes too long."""
        self.process.join(timeout_s)
        if self.process.exitcode is None:
            self.kill()
            raise TimeoutError(f"the job did not end within {timeout_s:g} s; it said: {self.said}")
        return int(self.process.exitcode)

    def kill(self) -> None:
        """SIGKILL, and wait."""
        self.process.kill()
        self.process.join()

    def signal(self, number: int) -> None:
        """Send it a signal, if it is still there."""
        if self.process.exitcode is None:
            os.kill(self.process.pid, number)

    def terminate(self) -> None:
        """SIGTERM, without waiting."""
        self.signal(signal.SIGTERM)

    @property
    def said(self) -> str:
        """What it wrote to standard error so far."""
        return self.log.read_text()


def start(
    folder: Path,
    *overrides: str,
    command: str = "run",
    before: Callable[[], None] | None = None,
    environment: dict[str, str] | None = None,
    log: str = "stderr",
) -> Job:
    """Begin `accordion-bench COMMAND overrides` in a folder.

    The overrides of a run are composed here, once, since that takes longer than the run itself.

    Args:
        before: called in the job first (importable by name, or a partial of such).
        environment: added to the job's; RANK makes it one process of a torchrun job.
        log: name of the file for standard error, or an absolute path.
    """
    folder.mkdir(exist_ok=True)
    path = folder / log
    composed = _composed(overrides) if command == "run" else ""
    content = pickle.dumps((command, overrides, composed, before, environment or {}))
    process = _context.Process(target=_job, args=(content, str(folder), str(path)))
    process.start()
    return Job(process, folder, path)


def run(folder: Path, *overrides: str, **options: Any) -> tuple[int, str]:
    """`start` and wait: exit code and what was said on standard error."""
    job = start(folder, *overrides, **options)
    return job.wait(), job.said


def _job(content: bytes, folder: str, log: str) -> None:
    os.setsid()
    os.chdir(folder)
    with open(log, "w", buffering=1) as file:
        os.dup2(file.fileno(), 2)
    sys.stderr = open(2, "w", buffering=1, closefd=False)  # noqa: SIM115 - until the process ends
    command, overrides, composed, before, environment = pickle.loads(content)
    os.environ.update(environment)
    tempfile.tempdir = folder
    sys.path.insert(0, folder)  # a test's own components
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if before is not None:
        before()
    os._exit(_main(command, list(overrides), composed, member="RANK" in environment))


def _main(command: str, overrides: list[str], composed: str, member: bool) -> int:
    from accordion_bench import worker
    from accordion_bench.commands import cli
    from accordion_bench.config import compose
    from accordion_bench.config.parsing import from_yaml
    from accordion_bench.runs import launch

    agent = launch._agent
    launch._agent = lambda processes: _forking(agent(processes))
    if member:
        compose.compose = lambda given: from_yaml(composed)
        return worker.main(overrides)

    def launch_composed(arguments: list[str]) -> int:
        launch.launch(from_yaml(composed))
        return 0

    if command == "run":
        cli._dispatch = launch_composed
    return cli.main([command, *overrides])


@functools.cache
def _composed(overrides: tuple[str, ...]) -> str:
    from accordion_bench.config.compose import compose_values
    from accordion_bench.config.parsing import from_mapping
    from accordion_bench.config.schema import to_yaml

    return to_yaml(from_mapping(compose_values(overrides)))


def _forking(config: Any) -> Any:
    """Elastic jobs of a test fork their members, which have torch loaded then; everything else is as it is."""
    config.start_method = "fork"
    return config


def start_members(folder: Path, count: int, *overrides: str, **options: Any) -> list[Job]:
    """A torchrun job of `count` gloo processes, with the test in torchrun's place."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    shared = {
        "WORLD_SIZE": str(count),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "GLOO_SOCKET_IFNAME": "lo",
    }
    return [
        start(
            folder,
            *overrides,
            environment={"RANK": str(rank), "LOCAL_RANK": str(rank), **shared},
            log=f"stderr-{rank}",
            **options,
        )
        for rank in range(count)
    ]


def _before_touching(action: Callable[[str, tuple[Any, ...]], None]) -> None:
    """Call the action before every flush, link, rename, deletion and read-back: the steps of atomic writing."""

    def wrap(name: str) -> None:
        original = getattr(os, name)

        def wrapped(*arguments: Any, **options: Any) -> Any:
            action(name, arguments)
            return original(*arguments, **options)

        setattr(os, name, wrapped)

    for name in ("fsync", "link", "replace", "unlink", "posix_fadvise"):
        wrap(name)


def die_at(count: int) -> None:
    """Kill this process, as a crash would, just before the `count`-th time (from 1) it touches the disk.

    A file that was about to be flushed loses its last bytes.
    """
    left = [count]

    def action(name: str, arguments: tuple[Any, ...]) -> None:
        left[0] -= 1
        if left[0] == 0:
            if name == "fsync":
                _tear(arguments[0])
            os.kill(os.getpid(), signal.SIGKILL)

    _before_touching(action)


def _tear(descriptor: int) -> None:
    path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
    if path.is_file():
        size = path.stat().st_size
        os.truncate(path, max(size - 1 - size % 97, 0))


def count_touches(report: str) -> None:
    """Count what `die_at` counts, in a file."""
    total = [0]

    def action(name: str, arguments: tuple[Any, ...]) -> None:
        total[0] += 1
        Path(report).write_text(str(total[0]))

    _before_touching(action)


def die_after_saves(count: int) -> None:
    """Kill this process as soon as it has put so many checkpoints in place."""
    left = [count]
    original = os.replace

    def replace(source: Any, target: Any, **options: Any) -> None:
        original(source, target, **options)
        left[0] -= Path(target).name == "checkpoint.pt"
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    os.replace = replace


def limit_file_size(size: int) -> None:
    """No file may grow beyond so many bytes; writing more fails as on a full disk."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


def turn_clock_back() -> None:
    """Every look at the clock finds it a day earlier than the look before."""
    now = [time.time()]

    def backwards() -> float:
        now[0] -= 86400
        return now[0]

    time.time = backwards


def log_runs(path: str) -> None:
    """Add a line to a file for every run that is really trained."""
    from accordion_bench.runs import run

    original = run.execute

    def execute(config: Any, place: Any) -> Any:
        with open(path, "a") as file:
            file.write(f"{config.directory}\n")
        return original(config, place)

    run.execute = execute


def directory_of(folder: Path, results: str = "results") -> Path:
    """The only run directory in a folder's results. Raises FileNotFoundError while there is none."""
    found = list((folder / results / "runs").glob("*/seed-*"))
    if not found:
        raise FileNotFoundError(folder / results)
    (directory,) = found
    return directory


def content_of(directory: Path) -> dict[str, Any]:
    """What must be the same however often a run was killed: all files without times, every bit of the state."""
    from accordion_bench.config.parsing import from_yaml
    from accordion_bench.runs import checkpoint

    def timeless(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: timeless(inner) for key, inner in value.items() if key not in TIMES}
        return [timeless(inner) for inner in value] if isinstance(value, list) else value

    state = checkpoint.load(directory / "checkpoint.pt")
    state["records"] = [timeless(json.loads(line)) for line in state["records"]]
    return {
        "files": sorted({path.name for path in directory.iterdir()} - {"checkpoint.previous.pt", "lock"}),
        "config": from_yaml((directory / "config.yaml").read_text()).identity,
        "epochs": [timeless(json.loads(line)) for line in (directory / "epochs.jsonl").read_text().splitlines()],
        "summary": timeless(json.loads((directory / "summary.json").read_text())),
        "table": _table(directory),
        "state": _hashable(state),
    }


def _table(directory: Path) -> dict[str, Any]:
    """What a table says of the run, without times."""
    row = Row("small", "a run", "other", ())
    (result,) = results(*table_of([(row, {RunDirectory(directory).seed: directory})]))
    assert not result.problems
    return {name: estimate for name, estimate in result.estimates.items() if "seconds" not in name}


def _hashable(value: Any) -> Any:
    """Tensors as type, shape and bytes, so that == means bit for bit."""
    import torch

    if isinstance(value, torch.Tensor):
        return str(value.dtype), tuple(value.shape), value.numpy().tobytes()
    if isinstance(value, dict):
        return {key: _hashable(inner) for key, inner in value.items()}
    return [_hashable(inner) for inner in value] if isinstance(value, (list, tuple)) else value


def wait_for(condition: Callable[[], Any], timeout_s: float = 60.0) -> Any:
    """The condition's value as soon as it is true."""
    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        with contextlib.suppress(OSError):
            if value := condition():
                return value
        time.sleep(0.01)
    raise TimeoutError(f"nothing after {timeout_s:g} s")


def member_pid(folder: Path, process: int) -> int:
    """The process id of one process of the elastic job in a folder, once it is there."""
    return int(wait_for(lambda: next(folder.glob(f"accordion-bench-*/pid-{process}"), None)).read_text())


def family_of(job: Job) -> list[int]:
    """Process ids in the job's session that are not zombies: itself, and whoever it has started."""
    return [pid for pid, session in _sessions() if session == job.process.pid]


def _sessions() -> Iterator[tuple[int, int]]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                words = (entry / "stat").read_text().rpartition(")")[2].split()
                if words[0] not in ("Z", "X"):
                    yield int(entry.name), int(words[3])


def processes_in(folder: Path) -> Iterator[int]:
    """Processes that work in a folder."""
    for pid, _session in _sessions():
        with contextlib.suppress(OSError):
            if Path(os.readlink(f"/proc/{pid}/cwd")) == folder.resolve():
                yield pid
