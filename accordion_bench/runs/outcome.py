"""How a job ended, as the exception that says so in one line; the traceback goes into failure.json. No torch."""

from __future__ import annotations

import signal
import traceback
from contextlib import suppress
from pathlib import Path

from accordion_bench.config.schema import RunConfig
from accordion_bench.errors import Diverged, Interrupted, RunFailure, UserError
from accordion_bench.runs import members
from accordion_bench.runs.records import RunDirectory

KEPT = "finished epochs are kept, and the traceback is in failure.json"


def failed(config: RunConfig, error: Exception, where: str) -> RunFailure:
    """An exception that nobody expected, raised in this process just now."""
    cause = f"{type(error).__name__}: {error}".splitlines()[0]
    message = f"{config.directory}: failed {where}: {cause}; {KEPT}"
    record_failure(config, message, traceback.format_exc())
    return RunFailure(message)


def reported(
    config: RunConfig, folder: Path, hung: dict[int, str], processes: int, process: int, exit_code: int
) -> BaseException:
    """What the process that was the cause said, as the exception it raised there; or which one fell silent.

    Args:
        folder: the job's, with the reports.
        hung: processes that had to be killed, with their stacks.
        processes: of the job.
        process, exit_code: the first that ended, as the agent saw it.
    """
    first, silent = members.cause(folder, hung, processes)
    if first is not None:
        return _as_raised(config, folder, first, processes)
    if hung:
        who, what = silent, f"did not answer within {config.launch.timeout_s:g} s (launch.timeout_s)"
        trace = "\n".join(hung[number] for number in silent)
    elif process in silent:  # others may have been ended before they could say a word
        how = f"was killed by signal {-exit_code}" if exit_code < 0 else f"ended with exit code {exit_code}"
        who, what, trace = [process], how, ""
    else:
        who, what, trace = silent, "ended without a word, as a killed process does", ""
    names = " and ".join(member_name(config, number, processes) for number in who)
    message = f"{config.directory}: {names} {what}; finished epochs are kept"
    record_failure(config, message, trace)
    return RunFailure(message)


def _as_raised(config: RunConfig, folder: Path, report: members.Report, processes: int) -> BaseException:
    if report.kind == "Interrupted":
        return interrupted(folder, report.signal or signal.SIGTERM)
    if report.place is not None:
        diverged = Diverged(*report.place)
        RunDirectory(config.directory).write_failure(diverged)  # process 0 may have been ended before it could
        return diverged
    if report.kind == "UserError":
        return UserError(report.message)
    if report.kind == "RunFailure":
        return RunFailure(report.message)
    cause = f"{report.kind}: {report.message}".splitlines()[0]
    where = member_name(config, report.process, processes)
    message = f"{config.directory}: failed in {where}: {cause}; {KEPT}"
    record_failure(config, message, report.traceback)
    return RunFailure(message)


def member_name(config: RunConfig, process: int, processes: int) -> str:
    """process 2 (workers 4 to 5)."""
    hosted = config.workers // processes
    first = process * hosted
    workers = f"worker {first}" if hosted == 1 else f"workers {first} to {first + hosted - 1}"
    return f"process {process} ({workers})"


def interrupted(folder: Path, number: int) -> Interrupted:
    """A signal ended the job; where its processes say they have saved."""
    places = [report.message for report in members.reports(folder) if report.kind == "Interrupted"]
    return Interrupted(number, places[0] if places else "before the next checkpoint")


def record_failure(config: RunConfig, message: str, trace: str) -> None:
    """Leave failure.json; where even that cannot be written, the message on the screen has to do."""
    with suppress(OSError):
        RunDirectory(config.directory).write_json(
            "failure.json", {"state": "failed", "message": message, "traceback": trace}
        )
