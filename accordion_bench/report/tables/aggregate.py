"""Rows of a table with their numbers: mean and interval over seeds, ratios to the baseline, published values.

Only finished, consistent runs enter a number. Everything else is in `RowResult.problems`, by seed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from accordion_bench.report import published
from accordion_bench.report.estimates import Estimate, check_kind, estimate
from accordion_bench.runs.stored import FinishedRun, Problem, check_metric
from accordion_bench.sweeps.row_records import RowRecords, read_row
from accordion_bench.sweeps.table import Row, RowRuns, Table
from accordion_bench.training.network import Network

if TYPE_CHECKING:
    import pandas as pd

Check = Callable[[Path], list[str]]

PAPER_SCALE = "paper"
QUANTITIES = (
    "metric",
    "paper_floats",
    "floats_per_worker",
    "bytes_per_worker",
    "bits_per_update",
    "collectives",
    "training_seconds",
    "compress_seconds_per_update",
    "modelled_seconds",
)
RATIOS = ("paper_floats", "floats_per_worker", "training_seconds", "modelled_seconds")


@dataclass(frozen=True)
class RowResult:
    """What a row of a table says.

    Attributes:
        row: the declared row.
        planned: number of seeds it should have.
        runs: the finished runs that its numbers come from.
        problems: the other seeds, each with its reason.
        estimates: quantity (one of QUANTITIES) -> mean and interval; a quantity without any value is absent.
        ratios: quantity (one of RATIOS) -> the baseline's mean over this row's ("times less"); absent without either.
        published: the published result, or None if the row names none.
        short: seeds whose run has too few epochs for the metric (last<k>).
        plan: for a row without finished runs, the floats that a run would send (the paper's convention), if asked for
            and known.
    """

    row: Row
    planned: int
    runs: tuple[FinishedRun, ...]
    problems: tuple[Problem, ...]
    estimates: Mapping[str, Estimate]
    ratios: Mapping[str, float]
    published: published.PublishedRow | None
    short: tuple[int, ...] = ()
    plan: float | None = None

    @property
    def skipped(self) -> dict[int, tuple[int, int]]:
        """Seed -> (updates left out because of non-finite numbers, updates made), where any were left out."""
        totals = {run.seed: (run.summary.skipped, run.summary.updates) for run in self.runs}
        return {seed: both for seed, both in totals.items() if both[0]}

    def count(self, state: str) -> int:
        """How many seeds have this problem."""
        return sum(problem.state == state for problem in self.problems)


def aggregate(
    table: Table,
    rows: list[RowRuns],
    *,
    metric: str = "final",
    ci: str = "student",
    network: Network,
    check: Check | None = None,
) -> list[RowResult]:
    """Every row with its numbers, in the order given.

    Args:
        table: says the scale.
        rows: the rows to show (all of the table's or some), each with its run directories.
        metric: "final", "best" or "last<k>", of the task's metric.
        ci: "student" or "normal".
        network: on which the modelled time is computed.
        check: what is wrong with a run's directory (verify.problems); runs with problems enter no number.

    Raises:
        UserError: if metric or ci is none of these, or published keys match nothing; never for what a run holds.
    """
    check_metric(metric)
    check_kind(ci)
    records = read_rows(table, rows, check)
    frame = run_frame(records, metric=metric, network=network)
    estimates_of = [_estimates(frame[frame["row"] == record.row_runs.row.id], ci) for record in records]
    baselines = {
        record.row_runs.row.group: estimates
        for record, estimates in zip(records, estimates_of, strict=True)
        if record.row_runs.row.role == "low"
    }
    return [
        RowResult(
            row=record.row_runs.row,
            planned=len(record.row_runs.directories),
            runs=record.runs,
            problems=record.problems,
            estimates=estimates,
            ratios=_ratios(baselines.get(record.row_runs.row.group, {}), estimates),
            published=published_of(record.row_runs.row),
            short=tuple(run.seed for run in record.runs if run.metric(metric) is None),
        )
        for record, estimates in zip(records, estimates_of, strict=True)
    ]


def run_frame(records: list[RowRecords], *, metric: str, network: Network) -> pd.DataFrame:
    """One line per finished run: row, seed and QUANTITIES; metric is NaN where the run is too short for last<k>."""
    import pandas as pd

    lines = [_line(record.row_runs.row, run, metric, network) for record in records for run in record.runs]
    return pd.DataFrame(lines, columns=["row", "seed", *QUANTITIES])


def _line(row: Row, run: FinishedRun, metric: str, network: Network) -> dict[str, Any]:
    summary = run.summary
    value = run.metric(metric)
    updates = summary.updates or math.nan
    return {
        "row": row.id,
        "seed": run.seed,
        "metric": float("nan") if value is None else value,
        "paper_floats": summary.paper_floats,
        "floats_per_worker": summary.floats_per_worker,
        "bytes_per_worker": summary.bytes_per_worker,
        "bits_per_update": 8 * summary.bytes_per_worker / updates,
        "collectives": summary.collectives,
        "training_seconds": summary.training_seconds,
        "compress_seconds_per_update": run.seconds_in("compress") / updates,
        "modelled_seconds": run.modelled_seconds(network),
    }


def _estimates(mine: pd.DataFrame, ci: str) -> dict[str, Estimate]:
    found = {name: estimate([float(value) for value in mine[name].dropna()], ci) for name in QUANTITIES}
    return {name: value for name, value in found.items() if value is not None}


def _ratios(baseline: Mapping[str, Estimate], own: Mapping[str, Estimate]) -> dict[str, float]:
    """Ratios of means; nothing is compared with a baseline or a row that sends or takes nothing."""
    both = [name for name in RATIOS if name in baseline and name in own]
    return {
        name: baseline[name].mean / own[name].mean for name in both if own[name].mean > 0 and baseline[name].mean > 0
    }


def read_rows(table: Table, rows: list[RowRuns], check: Check | None = None) -> list[RowRecords]:
    """The rows' runs, with those at another scale than their table or baseline turned into problems.

    Rows whose role is "other" may differ from the baseline in length (an equal budget), but not in data. UserError if a
    row's published keys match nothing.
    """
    records = [_checked(read_row(row), check) for row in rows]
    scales = {
        record.row_runs.row.group: _scale(record.runs[0])
        for record in records
        if record.row_runs.row.role == "low" and record.runs
    }
    return [_keep(record, table.scale == PAPER_SCALE, scales.get(record.row_runs.row.group)) for record in records]


def _checked(record: RowRecords, check: Check | None) -> RowRecords:
    """Finished runs that fail the check turned into problems."""
    if check is None:
        return record
    found = {run.seed: check(record.row_runs.directories[run.seed]) for run in record.runs}
    failed = [Problem(seed, "damaged", f"not verified: {lines[0]}") for seed, lines in found.items() if lines]
    runs = tuple(run for run in record.runs if not found[run.seed])
    return RowRecords(record.row_runs, runs, (*record.problems, *failed))


def published_of(row: Row) -> published.PublishedRow | None:
    """The published result that a row names, or None; UserError if it names one that is not there."""
    return published.row(row.published) if row.published else None


def _keep(record: RowRecords, paper: bool, baseline: dict[str, Any] | None) -> RowRecords:
    role = record.row_runs.row.role
    result = published_of(record.row_runs.row)
    runs: list[FinishedRun] = []
    problems = list(record.problems)
    for run in record.runs:
        own = _scale(run)
        wanted = dict(baseline or own)
        if paper:
            wanted |= {"dataset.limit_train": None, "dataset.limit_test": None}
        if paper and result:
            wanted["epochs"] = result.epochs
        if role == "other":
            wanted["epochs"] = own["epochs"]
        differences = [f"{key} {own[key]}, not {wanted[key]}" for key in own if own[key] != wanted[key]]
        if differences:
            problems.append(Problem(run.seed, "incomparable", "another scale: " + ", ".join(differences)))
        else:
            runs.append(run)
    return RowRecords(record.row_runs, tuple(runs), tuple(sorted(problems, key=lambda problem: problem.seed)))


def _scale(run: FinishedRun) -> dict[str, Any]:
    """What must agree between runs that are compared."""
    dataset = run.config["dataset"]
    return {
        "dataset.name": dataset["name"],
        "dataset.limit_train": dataset.get("limit_train"),
        "dataset.limit_test": dataset.get("limit_test"),
        "epochs": run.summary.epochs,
    }
