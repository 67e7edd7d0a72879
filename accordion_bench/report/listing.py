"""What is running, what is missing, what went wrong: one line per run under a results directory."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from pathlib import Path
from typing import Any

from accordion_bench.config.plain_yaml import load_yaml
from accordion_bench.errors import UserError
from accordion_bench.foreign import MEBIBYTE, escape, read_text
from accordion_bench.report.numbers import UNITS
from accordion_bench.report.tables.sheet import DASH
from accordion_bench.runs.lock import is_alive, read_owner
from accordion_bench.runs.records import RunDirectory
from accordion_bench.runs.stored import Problem, failure_message, read_run
from accordion_bench.training.traffic import Traffic

STATES = ("running", "finished", "not started", "interrupted", "diverged", "failed", "damaged")
STYLES = {"running": "cyan", "finished": "green", "not started": "yellow", "interrupted": "yellow"}
HEADINGS = ("run", "seed", "state", "epoch", "metric", "sent/worker", "updated")
ALIGN = ("left", "right", "left", "right", "right", "right", "left")
AGES = ((86400.0, "d"), (3600.0, "h"), (60.0, "min"))


@dataclass(frozen=True)
class ListedRun:
    """One run.

    Attributes:
        name: <slug>-<hash>.
        seed: its seed.
        state: one of STATES.
        epochs: finished ones.
        planned_epochs: from config.yaml; None if it does not say.
        metric: name of the last metric, None before the first epoch.
        value: of the metric after the last epoch.
        floats_per_worker: 32-bit words one worker sent so far; None before the first epoch.
        updated: seconds since the Unix epoch when its records last changed.
        message: who runs it or what went wrong; may be empty.
    """

    name: str
    seed: int
    state: str
    epochs: int = 0
    planned_epochs: int | None = None
    metric: str | None = None
    value: float | None = None
    floats_per_worker: float | None = None
    updated: float = 0.0
    message: str = ""


def list_runs(results: Path) -> list[ListedRun]:
    """Every run under <results>/runs, by name and seed; damaged ones are listed as such. UserError if unreadable."""
    folder = results / "runs"
    try:
        directories = [path for path in folder.glob("*/seed-*") if path.is_dir() and path.name[5:].isdigit()]
    except OSError as error:
        raise UserError(f"{folder} cannot be read ({error.strerror}); make it readable or set results=DIR") from None
    runs = [_listed(RunDirectory(directory)) for directory in directories]
    return sorted(runs, key=lambda run: (run.name, run.seed))


def _listed(run: RunDirectory) -> ListedRun:
    try:
        summary = run.read_json("summary.json")
        if summary is None:
            return _unfinished(run)
        read = read_run(run.path, run.seed)
        if isinstance(read, Problem):
            state = read.state if read.state in STATES else "damaged"
            return ListedRun(run.name, run.seed, state, updated=_updated(run.path), message=read.message)
        return _finished(run, summary)
    except (UserError, OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        message = str(error).replace(f"{run.path}/", "") if str(error) else type(error).__name__
        return ListedRun(run.name, run.seed, "damaged", updated=_updated(run.path), message=message.splitlines()[0])


def _finished(run: RunDirectory, summary: dict[str, Any]) -> ListedRun:
    return ListedRun(
        run.name,
        run.seed,
        "finished",
        epochs=int(summary["epochs"]),
        planned_epochs=_planned_epochs(run.path),
        metric=str(summary["metric"]),
        value=float(summary["final"]),
        floats_per_worker=float(summary["floats_per_worker"]),
        updated=_updated(run.path),
    )


def _unfinished(run: RunDirectory) -> ListedRun:
    epochs = run.read_epochs()
    traffic = reduce(add, (Traffic.from_dict(epoch.traffic) for epoch in epochs), Traffic())
    name, value = _last_metric(epochs[-1].metrics) if epochs else (None, None)
    state, message = _state(run)
    return ListedRun(
        run.name,
        run.seed,
        state,
        epochs=len(epochs),
        planned_epochs=_planned_epochs(run.path),
        metric=name,
        value=value,
        floats_per_worker=traffic.floats_per_worker if epochs else None,
        updated=_updated(run.path),
        message=message,
    )


def _last_metric(metrics: dict[str, float]) -> tuple[str | None, float | None]:
    """The task's metric is the one that is not the loss (summary.json, which names it, does not exist yet)."""
    name = next((name for name in metrics if name != "loss"), None)
    return (name, float(metrics[name])) if name else (None, None)


def _state(run: RunDirectory) -> tuple[str, str]:
    """Of a run without summary: at work, ended badly, or interrupted."""
    lock = run.path / "lock"
    owner = read_owner(lock)
    if owner is not None and is_alive(lock, owner):
        return "running", f"on {owner['host']}, process {owner['pid']}" if "host" in owner and "pid" in owner else ""
    failure = run.read_json("failure.json")
    if failure is None:
        return "interrupted" if run.begun else "not started", ""
    state = "diverged" if failure.get("state") == "diverged" else "failed"
    return state, failure_message(failure)


def _planned_epochs(directory: Path) -> int | None:
    """The key `epochs` of config.yaml; None where that does not exist or does not say."""
    try:
        config = load_yaml(read_text(directory / "config.yaml", MEBIBYTE))
    except (OSError, ValueError):
        return None
    epochs = config.get("epochs") if isinstance(config, dict) else None
    return epochs if isinstance(epochs, int) else None


def _updated(directory: Path) -> float:
    """When a record was last written."""
    names = ("summary.json", "failure.json", "epochs.jsonl", "config.yaml")
    times = [path.stat().st_mtime for path in (directory / name for name in names) if path.exists()]
    return max(times, default=directory.stat().st_mtime)


def render_runs(runs: Sequence[ListedRun], *, now: float | None = None, width: int | None = None) -> str:
    """The list as text: a coloured table of `width` columns for a terminal, or plain columns where width is None.

    Args:
        runs: what list_runs found.
        now: seconds since the Unix epoch that "2 h ago" counts from; the clock by default.
        width: of the terminal, or None for a file or a pipe.
    """
    if not runs:
        return "no runs yet; start one: accordion-bench run dataset=digits model=smallcnn compressor=powersgd"
    moment = time.time() if now is None else now
    lines = [[escape(word) for word in _words(run, moment)] for run in runs]
    counts = ", ".join(f"{count} {state}" for state in STATES if (count := sum(run.state == state for run in runs)))
    grid = _plain(lines) if width is None else _coloured(runs, lines, width)
    return f"{grid}\n{len(runs)} run{'s' * (len(runs) != 1)}: {counts}"


def _plain(lines: Sequence[Sequence[str]]) -> str:
    from tabulate import tabulate

    text = tabulate([HEADINGS, *lines], tablefmt="plain", colalign=ALIGN, disable_numparse=True)
    return "\n".join(line.rstrip() for line in text.splitlines())


def _coloured(runs: Sequence[ListedRun], lines: Sequence[Sequence[str]], width: int) -> str:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for heading, align in zip(HEADINGS, ALIGN, strict=True):
        table.add_column(
            heading,
            justify="right" if align == "right" else "left",
            overflow="fold",
            no_wrap=heading not in ("run", "updated"),
        )
    for run, line in zip(runs, lines, strict=True):
        style = STYLES.get(run.state, "red")
        cells = [
            Text(text, style=style if heading == "state" else "") for heading, text in zip(HEADINGS, line, strict=True)
        ]
        table.add_row(*cells)
    console = Console(width=width, force_terminal=True, highlight=False)
    with console.capture() as capture:
        console.print(table)
    return "\n".join(line.rstrip() for line in capture.get().strip("\n").splitlines())


def _words(run: ListedRun, now: float) -> tuple[str, ...]:
    epoch = f"{run.epochs}/{run.planned_epochs if run.planned_epochs is not None else '?'}"
    updated = "now" if run.state == "running" else age(now - run.updated)
    if run.message:
        updated += f" ({run.message})"
    return (run.name, str(run.seed), run.state, epoch, _metric(run), _floats(run.floats_per_worker), updated)


def _metric(run: ListedRun) -> str:
    if run.value is None:
        return DASH
    return f"{run.value:.1f} %" if run.metric == "accuracy" else f"{run.value:.2f} {run.metric}"


def _floats(value: float | None) -> str:
    if value is None:
        return DASH
    unit, prefix = next(((size, prefix) for size, prefix in UNITS if value >= size), (1.0, ""))
    return f"{value / unit:.2f} {prefix}" if prefix else f"{value:.0f}"


def age(seconds: float) -> str:
    """How long ago, to one unit; a clock that jumped backwards gives "now"."""
    if seconds < 60:
        return "now" if seconds < 5 else f"{seconds:.0f} s ago"
    size, unit = next((size, unit) for size, unit in AGES if seconds >= size)
    return f"{int(seconds // size)} {unit} ago"
