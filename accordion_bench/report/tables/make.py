"""Stored runs -> table files. Nothing here depends on the time, the machine or the order in which runs finished."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from accordion_bench.errors import UserError
from accordion_bench.plugins import closest
from accordion_bench.report.tables.aggregate import Check, RowResult, aggregate
from accordion_bench.report.tables.layout import build_sheet
from accordion_bench.report.tables.page import page
from accordion_bench.report.tables.render import csv_text, latex, markdown
from accordion_bench.report.tables.sheet import Sheet
from accordion_bench.runs.records import write_atomically
from accordion_bench.sweeps.table import RowRuns, Table
from accordion_bench.training.network import find_network

Plans = Callable[[Table], Mapping[str, float]]  # a table -> floats by row

FORMATS: dict[str, Callable[[Sheet], str]] = {"md": markdown, "csv": csv_text, "tex": latex, "html": page}


@dataclass(frozen=True)
class TableText:
    """A table that was written.

    Attributes:
        name: of the table.
        text: the Markdown, for the terminal.
        paths: the files, in the order of the formats.
        finished: runs that entered its numbers.
        planned: runs that it should have.
    """

    name: str
    text: str
    paths: tuple[Path, ...]
    finished: int
    planned: int


def make_tables(
    tables: Sequence[tuple[Table, list[RowRuns]]],
    *,
    output: Path,
    metric: str = "final",
    ci: str = "student",
    network: str = "paper",
    formats: Sequence[str] = tuple(FORMATS),
    check: Check | None = None,
    plans: Plans | None = None,
) -> list[TableText]:
    """Write <output>/<name>.md, .csv, .tex and .html for every table, and return what the terminal should show.

    Args:
        tables: each with its rows' run directories.
        output: made if it does not exist.
        metric: "final", "best" or "last<k>".
        ci: "student" or "normal".
        network: a name in NETWORKS, for the modelled time.
        formats: any of FORMATS.
        check: what is wrong with a run's directory (verify.problems); runs with problems are named, not counted.
        plans: what a run of each row would send (sweep_plan.planned_floats), to stand where nothing was run.

    Raises:
        UserError: if an argument is none of these, published keys match nothing, or output cannot be written. A
            damaged, unfinished or diverged run is no error: the table names it.
    """
    for name in formats:
        if name not in FORMATS:
            raise UserError(
                f"no table format {name!r}{closest(name, tuple(FORMATS)) or ';'} there are: {', '.join(FORMATS)}"
            )
    on = find_network(network)
    written = []
    for table, rows in tables:
        results = aggregate(table, rows, metric=metric, ci=ci, network=on, check=check)
        if plans is not None and not all(result.runs for result in results):
            floats = plans(table)
            results = [result if result.runs else replace(result, plan=floats.get(result.row.id)) for result in results]
        sheet = build_sheet(table, results, metric=metric, ci=ci, network=on)
        written.append(_written(sheet, results, output, formats))
    return written


def _written(sheet: Sheet, results: list[RowResult], output: Path, formats: Sequence[str]) -> TableText:
    paths = tuple(output / f"{sheet.name}.{name}" for name in formats)
    try:
        output.mkdir(parents=True, exist_ok=True)
        for path, name in zip(paths, formats, strict=True):
            write_atomically(path, FORMATS[name](sheet))
    except OSError as error:
        raise UserError(
            f"cannot write tables to {output} ({error.strerror}); make it writable or name another directory"
        ) from None
    finished = sum(len(result.runs) for result in results)
    planned = sum(result.planned for result in results)
    return TableText(sheet.name, markdown(sheet), paths, finished, planned)
