"""RunConfig -> processes: in this process, or one per GPU (or as many as asked) through torchrun's elastic launch.

Torch is imported only when a run really starts. This file and communicator.py alone import torch.distributed.
"""

from __future__ import annotations

import os
import signal
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, fields
from datetime import timedelta
from pathlib import Path
from typing import Any

from accordion_bench.config.parsing import from_yaml
from accordion_bench.config.schema import RunConfig, to_yaml
from accordion_bench.errors import RunFailure, UserError
from accordion_bench.runs import members, outcome
from accordion_bench.runs.admission import finished_summary
from accordion_bench.runs.lock import Lock
from accordion_bench.runs.progress import say
from accordion_bench.runs.records import RunDirectory, Summary


def launch(config: RunConfig) -> Summary:
    """Run to the end, or return at once what a finished run left.

    Raises:
        UserError: the configuration does not fit the machine or the data, or the directory holds another run.
        InProgress: another job is at work on it.
        RunFailure: a worker failed; Diverged if a gradient or the loss stopped being finite.
    """
    directory = RunDirectory(config.directory)
    finished = finished_summary(config)
    if finished is not None:
        return _already(config, finished)
    with Lock(directory.path):
        finished = finished_summary(config)  # by a job that had the lock until now
        if finished is not None:
            return _already(config, finished)
        processes, device = place_workers(config)
        if processes == 1:
            return run_here(config, "cuda:0" if device == "cuda" else "cpu")
        return _run_elastic(config, processes, device)


def _already(config: RunConfig, summary: Summary) -> Summary:
    _say(config, f"already finished: {config.directory} (delete it to run again)")
    return summary


def place_workers(config: RunConfig) -> tuple[int, str]:
    """(processes, "cpu" or "cuda"): a GPU for every worker, or several workers a process; on a CPU one process."""
    import torch

    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    device = config.launch.device
    if device == "auto":
        device = "cuda" if gpus else "cpu"
    if device == "cuda" and not gpus:
        raise UserError("launch.device must be one that exists, got cuda but torch sees no GPU; use launch.device=cpu")
    processes = config.launch.processes
    if processes is None:
        most = min(gpus, config.workers) if device == "cuda" else 1
        processes = max(count for count in range(1, most + 1) if config.workers % count == 0)
    if device == "cuda" and processes > gpus:
        raise UserError(
            f"launch.processes must not exceed the {gpus} GPUs of this machine, got {processes}; NCCL needs one each"
        )
    return processes, device


def run_here(config: RunConfig, device: str) -> Summary:
    """All workers in this process."""
    import torch

    from accordion_bench.runs.run import Place, execute

    if device == "cpu":
        torch.set_num_threads(config.launch.threads)
    try:
        return execute(config, Place(0, 1, device))
    except (UserError, RunFailure, KeyboardInterrupt):
        raise
    except Exception as error:
        raise outcome.failed(config, error, "in the only process") from error


def _run_elastic(config: RunConfig, processes: int, device: str) -> Summary:
    """One machine, several processes, through torch's elastic agent: one dies -> all end."""
    import logging

    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import elastic_launch

    for name in list(logging.root.manager.loggerDict):
        if name.startswith("torch.distributed.elastic"):  # what went wrong is reported once, by us
            logging.getLogger(name).setLevel(logging.CRITICAL)
    os.environ.setdefault("OMP_NUM_THREADS", str(config.launch.threads))
    if device == "cpu" and Path("/sys/class/net/lo").exists():
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")  # the host's name may not resolve
    with tempfile.TemporaryDirectory(prefix="accordion-bench-") as name, members.overseen(Path(name)) as hung:
        folder = Path(name)
        try:
            with _requeue_signal(SignalException):
                results = elastic_launch(_agent(processes), _child)(to_yaml(config), device, name, os.getpid())
        except ChildFailedError as error:
            first, failure = error.get_first_failure()
            raise outcome.reported(config, folder, hung, processes, first, failure.exitcode) from None
        except SignalException as error:  # the children have had it too, and time to save
            raise outcome.interrupted(folder, int(error.sigval)) from None
        return Summary(**results[0])


def _agent(processes: int) -> Any:
    from torch.distributed.launcher.api import LaunchConfig

    options: dict[str, Any] = {}
    if "signals_to_handle" in {field.name for field in fields(LaunchConfig)} and (
        signal.getsignal(signal.SIGHUP) == signal.SIG_IGN  # nohup
    ):
        options["signals_to_handle"] = "SIGTERM,SIGINT,SIGQUIT"
    return LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=processes,
        run_id=uuid.uuid4().hex,
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",  # a free port of its own: jobs never clash
        local_addr="localhost",
        max_restarts=0,
        monitor_interval=0.1,
        start_method="spawn",
        **options,
    )


@contextmanager
def _requeue_signal(exception: type[Exception]) -> Iterator[None]:
    """SIGUSR1, SLURM's warning, which torch's agent does not listen to, ends the job like SIGTERM."""

    def receive(number: int, frame: Any) -> None:
        raise exception("asked to stop", signal.Signals(number))

    try:
        before = signal.signal(signal.SIGUSR1, receive)
    except ValueError:  # not in the main thread
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGUSR1, before)


def _child(config_text: str, device: str, folder: str, parent: int) -> dict[str, Any]:
    """One process of an elastic job. Leaves a failure report for the parent instead of a traceback on the screen."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the agent, which ends everybody
    process = int(os.environ["RANK"])
    members.enter(Path(folder), process, parent)
    try:
        return asdict(run_member(from_yaml(config_text), device))
    except BaseException as error:
        members.leave(Path(folder), process, error)
        os._exit(1)  # no clean-up that waits for others


def join_group(config: RunConfig, device: str) -> str:
    """Meet the other processes of a job whose RANK, WORLD_SIZE, LOCAL_RANK and rendezvous torchrun has set.

    Returns:
        this process's device.
    """
    import torch
    import torch.distributed as dist

    processes = int(os.environ["WORLD_SIZE"])
    if config.workers % processes:
        raise UserError(
            f"workers must be a multiple of the number of processes, got {config.workers} workers "
            f"in {processes} processes; set workers={processes}, or start torchrun with a number that divides it"
        )
    if device == "cuda":
        local = int(os.environ["LOCAL_RANK"])
        torch.cuda.set_device(local)
        device = f"cuda:{local}"
    else:
        torch.set_num_threads(config.launch.threads)
    dist.init_process_group(
        "nccl" if device.startswith("cuda") else "gloo", timeout=timedelta(seconds=config.launch.timeout_s)
    )
    return device


def run_member(config: RunConfig, device: str) -> Summary:
    """This process's part of such a job, from the meeting to the farewell."""
    from accordion_bench.runs.run import Place, execute

    own = join_group(config, device)
    summary = execute(config, Place(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), own))
    leave_group()
    return summary


def leave_group() -> None:
    """The reverse of `join_group`, when all went well; it waits for the others."""
    import torch.distributed as dist

    dist.destroy_process_group()


def _say(config: RunConfig, text: str) -> None:
    if not config.quiet:
        say(text)
