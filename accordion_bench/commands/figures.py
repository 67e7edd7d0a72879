"""accordion-bench figures: draw the figures of the paper, and of any table, from finished runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from accordion_bench.commands.arguments import Parser, tables_with_runs

if TYPE_CHECKING:
    from accordion_bench.sweeps.table import RowRuns, Table

DESCRIPTION = """\
Draws finished runs, as PNG and SVG: the metric against epochs and against what was sent, with bands over seeds and the
published curves where there are any; the level of every layer over time; and what else a figure of the paper shows. A
number is a figure of the paper, whose runs `sweep table=fig<number>` makes; "lasso" is the model of Appendix B, which
needs no runs.
"""
EXAMPLES = """\
  accordion-bench figures 6
  accordion-bench figures demo fig3_digits --output plots
  accordion-bench figures lasso
  accordion-bench figures --dry-run
"""
LASSO = "lasso"


def main(arguments: list[str]) -> int:
    """Run the command; the exit code."""
    parser = Parser("figures", DESCRIPTION, EXAMPLES)
    parser.add_argument(
        "names",
        nargs="*",
        metavar="FIGURE",
        help="a number, a name in conf/table, a path of your own .yaml file, or lasso; without any: all that have runs",
    )
    parser.add_argument("--results", default="results", metavar="DIR", help="where the runs are (default: results)")
    parser.add_argument("--output", metavar="DIR", help="where to write (default: inside the results directory)")
    parser.add_argument("--dry-run", action="store_true", help="say which runs are there and which are missing")
    options = parser.parse_args(arguments)
    output = Path(options.output or Path(options.results) / "figures")
    names = [name for name in options.names if name != LASSO]
    if LASSO in options.names and not options.dry_run:
        from accordion_bench.report.figures.lasso import make_lasso

        _print(make_lasso(output=output))
    if names or not options.names:
        for table, rows in _chosen(names, options.results, every=options.dry_run):
            if options.dry_run:
                _list(table, rows)
            else:
                _draw(table, rows, output)
    return 0


def _chosen(names: list[str], results: str, every: bool) -> list[tuple[Table, list[RowRuns]]]:
    """The named figures, or all that have runs (with `every`, all); a table that a figure shows is not drawn twice."""
    from accordion_bench.report.figures.paper import figure_names
    from accordion_bench.sweeps.jobs import resolve
    from accordion_bench.sweeps.table import load_table, table_names

    known = table_names()
    if names:
        wanted = [name for given in names for name in figure_names(given, known)]
        return [(table, resolve(table, results)) for table in map(load_table, dict.fromkeys(wanted))]
    tables = list(map(load_table, known))
    shown = {source for table in tables for source in table.rows_of}
    tables = [table for table in tables if table.name not in shown]
    return [(table, resolve(table, results)) for table in tables] if every else tables_with_runs(tables, results)


def _draw(table: Table, rows: list[RowRuns], output: Path) -> None:
    from accordion_bench.report.figures.paper import draw

    rows = [_verified(row) for row in rows]
    paths = draw(table, rows, output=output)
    _print(paths)
    if missing := _missing(rows):
        nothing = "" if paths else "nothing drawn, "
        print(
            f"{table.name}: {nothing}{missing}; run the others: accordion-bench sweep table={table.given or table.name}"
        )


def _list(table: Table, rows: list[RowRuns]) -> None:
    head = f"Figure {table.figure}. " if table.figure else ""
    print(f"{table.name}: {head}{table.title} ({_missing(rows) or 'all runs are finished'})")


def _verified(row: RowRuns) -> RowRuns:
    """The row without finished runs that tables would refuse; each is named."""
    from accordion_bench.runs.records import RunDirectory
    from accordion_bench.runs.verify import problems
    from accordion_bench.sweeps.table import RowRuns

    kept = {}
    for seed, directory in row.directories.items():
        found = problems(directory) if RunDirectory(directory).finished else []
        if found:
            print(f"{directory}: not drawn: {found[0]}")
        else:
            kept[seed] = directory
    return RowRuns(row.row, kept)


def _missing(rows: list[RowRuns]) -> str:
    """How many runs are finished, where not all are."""
    from accordion_bench.runs.records import RunDirectory

    runs = {path: RunDirectory(path).finished for row in rows for path in row.directories.values()}
    return "" if all(runs.values()) else f"{sum(runs.values())} of {len(runs)} runs are finished"


def _print(paths: list[Path]) -> None:
    for path in paths:
        print(path)
