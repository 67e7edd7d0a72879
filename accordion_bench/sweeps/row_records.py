"""The stored runs of a table's row."""

from __future__ import annotations

from dataclasses import dataclass

from accordion_bench.runs.stored import FinishedRun, Problem, read_run
from accordion_bench.sweeps.table import RowRuns


@dataclass(frozen=True)
class RowRecords:
    """A row's finished runs in the order of seeds, and what is wrong with the others."""

    row_runs: RowRuns
    runs: tuple[FinishedRun, ...]
    problems: tuple[Problem, ...]


def any_run(rows: list[RowRuns]) -> bool:
    """Whether at least one of the rows' run directories exists."""
    return any(directory.exists() for row in rows for directory in row.directories.values())


def read_row(row_runs: RowRuns) -> RowRecords:
    """Read all seeds of a row. Never raises for what lies in a run's directory."""
    found = [read_run(directory, seed) for seed, directory in sorted(row_runs.directories.items())]
    runs = tuple(run for run in found if isinstance(run, FinishedRun))
    return RowRecords(row_runs, runs, tuple(problem for problem in found if isinstance(problem, Problem)))
