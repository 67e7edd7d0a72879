"""RunConfig -> processes: in this process, or one per GPU (or as many as asked) through torchrun's elastic launch.

Torch is imported only when a run really starts. This file and communicator.py alone import torch.distributed.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import threading
import time
import traceback
import uuid
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import Any

from accordion_bench.config import RunConfig, from_yaml, to_yaml
from accordion_bench.errors import Diverged, Interrupted, RunFailure, UserError
from accordion_bench.lock import Lock
from accordion_bench.records import RunDirectory, Summary

def launch(config: RunConfig) -> Summary:
    """Run to the end, or return at once what a finished run left.

    Raises:
        UserError: the configuration does not fit the machine or the data, or the run is in progress elsewhere.
        RunFailure: a worker failed; Diverged if a gradient or the loss stopped being finite.
    """
    directory = RunDirectory(config.directory)
    finished = finished_summary(config)
    if finished is not None:
        _say(config, f"already finished: {directory.path} (delete it to run again)")
        return finished
    with Lock(directory.path):
        processes, device = place_workers(config)
        backend = "" if processes == 1 else f" ({'nccl' if device == 'cuda' else 'gloo'})"
        where = f"{processes} process{'es' if processes > 1 else ''}{backend} on {device}"
        _say(config, f"{config.title} in {where} · seed {config.seed}")
        if processes == 1:
            return run_here(config, "cuda:0" if device == "cuda" else "cpu")
        return _run_elastic(config, processes, device)


def finished_summary(config: RunConfig) -> Summary | None:
    """The summary of this very run if it has finished."""
    values = RunDirectory(config.directory).read_json("summary.json")
    if values is None:
        return None
    try:
        return Summary(**values)
    except TypeError as error:
        raise UserError(f"{config.directory}/summary.json has another format ({error}); delete the run to repeat it") from None


def place_workers(config: RunConfig) -> tuple[int, str]:
    """(processes, "cpu" or "cuda"): enough GPUs -> one worker each; fewer -> several per process; CPU -> one process."""
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
        raise UserError(f"launch.processes must not exceed the {gpus} GPUs of this machine, got {processes}; NCCL needs one each")
    return processes, device


def run_here(config: RunConfig, device: str) -> Summary:
    """All workers in this process."""
    import torch

    from accordion_bench.run import Place, execute

    if device == "cpu":
        torch.set_num_threads(config.launch.threads)
    try:
        return execute(config, Place(0, 1, device))
    except (UserError, RunFailure, KeyboardInterrupt):
        raise
    except Exception as error:
        raise _failure(config, error, "in the only process") from error


def _failure(config: RunConfig, error: Exception, where: str) -> RunFailure:
    """One line that names the run and the cause; the traceback goes into failure.json."""
    cause = f"{type(error).__name__}: {error}".splitlines()[0]
    message = f"{config.directory}: failed {where}: {cause}"
    _record_failure(config, message, traceback.format_exc())
    return RunFailure(message)


def _run_elastic(config: RunConfig, processes: int, device: str) -> Summary:
    """One machine, several processes, through torch's elastic agent: one dies -> all end."""
    import logging

    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    for name in list(logging.root.manager.loggerDict):
        if name.startswith("torch.distributed.elastic"):  # what went wrong is reported once, by us
            logging.getLogger(name).setLevel(logging.CRITICAL)
    with tempfile.TemporaryDirectory(prefix="accordion-bench-") as folder:
        agent = LaunchConfig(
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
        )
        os.environ.setdefault("OMP_NUM_THREADS", str(config.launch.threads))
        if device == "cpu" and Path("/sys/class/net/lo").exists():
            os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")  # the host's name may not resolve
        try:
            results = elastic_launch(agent, _child)(to_yaml(config), device, folder, os.getpid())
        except ChildFailedError as error:
            raise _reported(config, Path(folder), error) from None
        except SignalException as error:  # the children have had it too, and time to save
            raise _interrupted(Path(folder), int(error.sigval)) from None
        return Summary(**results[0])


def _child(config_text: str, device: str, folder: str, parent: int) -> dict[str, Any]:
    """One process of an elastic job. Leaves a failure report for the parent instead of a traceback on the screen."""
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the agent, which ends everybody
    _end_with(parent)
    process = int(os.environ["RANK"])
    config = from_yaml(config_text)
    try:
        return asdict(run_member(config, device))
    except (Exception, Interrupted) as error:
        report = {
            "time": time.time(),
            "process": process,
            "kind": type(error).__name__,
            "message": error.where if isinstance(error, Interrupted) else str(error),
            "signal": getattr(error, "signal_number", None),
            "place": [error.epoch, error.step, error.layer, error.what] if isinstance(error, Diverged) else None,
            "traceback": traceback.format_exc(),
        }
        temporary = Path(folder) / f".{process}"
        temporary.write_text(json.dumps(report))
        temporary.rename(Path(folder) / f"process-{process}.json")
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(1)  # no clean-up that waits for others


def run_member(config: RunConfig, device: str) -> Summary:
    """This process's part of a job whose RANK, WORLD_SIZE, LOCAL_RANK and rendezvous torchrun has set."""
    import torch
    import torch.distributed as dist

    from accordion_bench.run import Place, execute

    process, processes = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if config.workers % processes:
        raise UserError(f"workers must be a multiple of the number of processes, got {config.workers} workers in {processes} processes")
    if device == "cuda":
        local = int(os.environ["LOCAL_RANK"])
        torch.cuda.set_device(local)
        device = f"cuda:{local}"
    else:
        torch.set_num_threads(config.launch.threads)
    dist.init_process_group(
        "nccl" if device.startswith("cuda") else "gloo", timeout=timedelta(seconds=config.launch.timeout_s)
    )
    try:
        return execute(config, Place(process, processes, device))
    finally:
        if sys.exc_info()[0] is None:
            dist.destroy_process_group()


def _reported(config: RunConfig, folder: Path, error: Any) -> Exception:
    """What the first failing process said, as the exception it raised there."""
    reports = _reports(folder)
    if not reports:
        process, failure = error.get_first_failure()
        reason = f"ended with exit code {failure.exitcode}" if failure.exitcode >= 0 else f"was killed by signal {-failure.exitcode}"
        message = f"{config.directory}: process {process} {reason}; finished epochs are kept"
        _record_failure(config, message, "")
        return RunFailure(message)
    first = reports[0]
    if first["kind"] == "Interrupted":
        return _interrupted(folder, first["signal"])
    if first["kind"] == "UserError":
        return UserError(first["message"])
    if first["place"]:
        return Diverged(*first["place"])
    cause = f"{first['kind']}: {first['message']}".splitlines()[0]
    message = f"{config.directory}: failed in process {first['process']}: {cause}; finished epochs are kept"
    _record_failure(config, message, first["traceback"])
    return RunFailure(message)


def _reports(folder: Path) -> list[dict[str, Any]]:
    """What failing processes left, earliest first."""
    return sorted((json.loads(path.read_text()) for path in folder.glob("process-*.json")), key=lambda r: r["time"])


def _interrupted(folder: Path, number: int) -> Interrupted:
    places = [report["message"] for report in _reports(folder) if report["kind"] == "Interrupted"]
    return Interrupted(number, places[0] if places else "before the next checkpoint")


def _record_failure(config: RunConfig, message: str, trace: str) -> None:
    try:
        RunDirectory(config.directory).write_json(
            "failure.json", {"state": "failed", "message": message, "traceback": trace}
        )
    except OSError:
        pass


def _end_with(parent: int) -> None:
    """End this process when the one that started it is gone, however it went."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _say(config: RunConfig, text: str) -> None:
    if not config.quiet:
        print(text, file=sys.stderr, flush=True)

