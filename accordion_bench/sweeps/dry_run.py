"""What the runs of a sweep will send, before any of them starts: `accordion-bench sweep ... --dry-run`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from accordion_bench.config.schema import RunConfig
from accordion_bench.errors import UserError
from accordion_bench.runs.progress import human_count
from accordion_bench.sweeps.jobs import Job, state_of, table_jobs
from accordion_bench.sweeps.plan import OFFICIAL_IMAGES, Plan, make_plan
from accordion_bench.sweeps.plan_text import duration
from accordion_bench.sweeps.table import Table
from accordion_bench.workloads.datasets import is_here

HEADINGS = ("state", "run", "floats per worker", "updates", "communication", "directory")


def listing(jobs: Sequence[Job]) -> str:
    """A line per run with its state and its plan, why some have no plan, and what is still to do.

    Loads torch once and plans each configuration once, whatever the number of seeds; downloads nothing.
    """
    from tabulate import tabulate

    plans: dict[str, Plan | str] = {}
    for job in jobs:
        if job.config.hash not in plans:
            plans[job.config.hash] = _plan_or_reason(job.config)
    states = [state_of(job.config) for job in jobs]
    lines = [
        (state, job.label, *_columns(plans[job.config.hash]), job.config.directory)
        for state, job in zip(states, jobs, strict=True)
    ]
    table = tabulate(lines, headers=HEADINGS, tablefmt="plain", disable_numparse=True)
    reasons = Counter(plan for job in jobs if isinstance(plan := plans[job.config.hash], str))
    without = [f"no plan for {count} run{'s' * (count > 1)}: {reason}" for reason, count in reasons.items()]
    counts = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
    todo = [plans[job.config.hash] for state, job in zip(states, jobs, strict=True) if state != "finished"]
    known = [plan for plan in todo if not isinstance(plan, str)]
    total = f"{len(jobs)} runs: {counts}{_left(known)}"
    return "\n".join([table, "", *without, total])


def planned_floats(table: Table) -> dict[str, float]:
    """Row -> floats that a run of it sends, in the paper's convention; without rows for which that is not known."""
    jobs = table_jobs(table, seeds=table.seeds[:1])
    plans = {row.id: _plan_or_reason(job.config) for row, job in zip(table.rows, jobs, strict=True)}
    workers = {row.id: job.config.workers for row, job in zip(table.rows, jobs, strict=True)}
    return {
        name: plan.calm.paper_floats(workers[name])
        for name, plan in plans.items()
        if not isinstance(plan, str) and plan.exact
    }


def _plan_or_reason(config: RunConfig) -> Plan | str:
    if config.dataset.name not in OFFICIAL_IMAGES and not is_here(config.dataset):
        return f"{config.dataset.name} is not in {config.dataset.root} (accordion-bench data {config.dataset.name})"
    try:
        return make_plan(config)
    except UserError as error:
        return " ".join(str(error).split())


def _columns(plan: Plan | str) -> tuple[str, str, str]:
    """Floats, updates and seconds of communication, each a number or a range."""
    if isinstance(plan, str):
        return ("-", "-", "-")
    courses = (plan.calm, plan.restless)
    about = "about " if plan.estimated else ""
    return (
        about + _between([course.floats_per_worker for course in courses], human_count),
        _between([course.updates for course in courses], "{:,}".format),
        about + _between([course.communication_seconds for course in courses], duration),
    )


def _between(values: Sequence[float], write: Callable[[float], str]) -> str:
    """ "1.49 to 2.42 G": the ends of a range, with their unit once if they share it."""
    low, high = write(min(values)), write(max(values))
    if low == high:
        return low
    number, _, unit = low.rpartition(" ")
    return f"{number} to {high}" if number and high.split(" ")[1:] == [unit] else f"{low} to {high}"


def _left(plans: Sequence[Plan]) -> str:
    """What these runs will send together."""
    if not plans:
        return ""
    ends = [min, max]
    floats = [sum(end(plan.calm.floats_per_worker, plan.restless.floats_per_worker) for plan in plans) for end in ends]
    seconds = [
        sum(end(plan.calm.communication_seconds, plan.restless.communication_seconds) for plan in plans) for end in ends
    ]
    networks = ", ".join(dict.fromkeys(plan.network for plan in plans))
    return (
        f" · to do: {_between(floats, human_count)} floats per worker, "
        f"{_between(seconds, duration)} of communication on network {networks}"
    )
