"""Run a function in N processes joined by gloo.

They are forked from a server process that has imported torch and nothing else has happened in: starting one takes
milliseconds, and no thread or device of the test's own process is inherited.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import tempfile
import time
import traceback
from collections.abc import Callable
from datetime import timedelta
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(
    ["torch.distributed", "torch._dynamo", "accordion_bench.runs.run", "sklearn.datasets", "yaml", "pytest"]
)  # every optimiser loads torch._dynamo, which takes seconds


GRACE_S = 2.0  # after a failure, for the others' messages


class ProcessFailed(Exception):
    """A process ended without a result: killed, or left through os._exit."""


def run_processes(processes: int, function: Callable[..., Any], *arguments: Any, timeout_s: float = 300.0) -> list[Any]:
    """What `function(process, processes, *arguments)` returned in every process, in order.

    Args:
        processes: how many.
        function: importable by name. A default process group (gloo) exists while it runs.
        timeout_s: for all of it.

    Raises:
        The exception of the process that failed first, with its traceback as the cause; ProcessFailed if one ended
        without a word; TimeoutError. In every case no process is left behind.
    """
    job = pickle.dumps((function, arguments))
    with tempfile.TemporaryDirectory() as folder:
        members, connections = [], []
        for process in range(processes):
            ours, theirs = _context.Pipe(duplex=False)
            member = _context.Process(
                target=_member, args=(job, process, processes, f"{folder}/store", timeout_s, theirs), daemon=True
            )
            member.start()
            theirs.close()
            members.append(member)
            connections.append(ours)
        try:
            return _collect(connections, timeout_s)
        finally:
            for member in members:
                member.kill()
                member.join()
            for connection in connections:
                connection.close()


def _collect(connections: list[Connection], timeout_s: float) -> list[Any]:
    """All results, or the first failure; a silent death counts as first, since the others' errors follow from it."""
    end = time.monotonic() + timeout_s
    waiting = dict(enumerate(connections))
    results: dict[int, Any] = {}
    failures: list[tuple[float, BaseException, str]] = []
    while waiting:
        ready = wait(list(waiting.values()), timeout=max(end - time.monotonic(), 0))
        if not ready:
            break
        for process, connection in list(waiting.items()):
            if connection not in ready:
                continue
            del waiting[process]
            try:
                kind, moment, value, text = pickle.loads(connection.recv_bytes())
            except EOFError:
                kind, moment, value, text = "error", 0.0, ProcessFailed(f"process {process} ended without a result"), ""
            if kind == "result":
                results[process] = value
            else:
                failures.append((moment, value, f"in process {process}:\n{text}"))
                end = min(end, time.monotonic() + GRACE_S)
    if failures:
        _, error, text = min(failures, key=lambda failure: failure[0])
        raise error from RuntimeError(text)
    if waiting:
        raise TimeoutError(f"{len(waiting)} of {len(connections)} processes did not answer within {timeout_s:g} s")
    return [results[process] for process in range(len(connections))]


def _member(job: bytes, process: int, processes: int, store: str, timeout_s: float, connection: Connection) -> None:
    try:
        import torch
        import torch.distributed as dist

        if Path("/sys/class/net/lo").exists():
            os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")  # the host's name may not resolve
        torch.set_num_threads(1)
        function, arguments = pickle.loads(job)
        dist.init_process_group(
            "gloo",
            store=dist.FileStore(store, processes),
            rank=process,
            world_size=processes,
            timeout=timedelta(seconds=timeout_s),
        )
        answer = ("result", time.monotonic(), function(process, processes, *arguments), "")
        content = pickle.dumps(answer)
    except BaseException as error:  # whatever it is, the test has to see it
        text = traceback.format_exc()
        try:
            content = pickle.dumps(("error", time.monotonic(), error, text))
            pickle.loads(content)
        except Exception:
            content = pickle.dumps(("error", time.monotonic(), ProcessFailed(repr(error)), text))
    connection.send_bytes(content)
    connection.close()
    os._exit(0)  # no clean-up that waits for the others
