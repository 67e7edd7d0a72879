"""What the commands share in reading their arguments."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from accordion_bench.errors import UserError

if TYPE_CHECKING:
    from accordion_bench.sweeps.table import RowRuns, Table


class Parser(argparse.ArgumentParser):
    """An ArgumentParser whose errors are one line, like every other error of this program."""

    def __init__(self, command: str, description: str, examples: str) -> None:
        super().__init__(
            prog=f"accordion-bench {command}",
            description=description,
            epilog=f"examples:\n{examples}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )

    def error(self, message: str) -> NoReturn:
        """Raise UserError instead of printing the usage and leaving."""
        raise UserError(f"{message}; see {self.prog} --help")


def add_report_options(parser: Parser) -> None:
    """What tables and figures have in common."""
    parser.add_argument(
        "names",
        nargs="*",
        metavar="TABLE",
        help="names in conf/table, or paths of your own .yaml files; without any: every table that has runs",
    )
    parser.add_argument("--results", default="results", metavar="DIR", help="where the runs are (default: results)")
    parser.add_argument("--output", metavar="DIR", help="where to write (default: inside the results directory)")


def chosen_tables(names: list[str], results: str) -> list[tuple[Table, list[RowRuns]]]:
    """The named tables with their run directories; without names, all with rows of their own and at least one run.

    Raises:
        UserError: if a name is unknown, or there is no run at all.
    """
    from accordion_bench.sweeps.jobs import resolve
    from accordion_bench.sweeps.table import load_table, table_names

    if names:
        return [(table, resolve(table, results)) for table in map(load_table, dict.fromkeys(names))]
    tables = list(map(load_table, table_names()))
    return tables_with_runs([table for table in tables if not table.rows_of], results)


def tables_with_runs(tables: list[Table], results: str) -> list[tuple[Table, list[RowRuns]]]:
    """Those of the tables that have a run in `results`; UserError if none has."""
    from accordion_bench.sweeps.jobs import resolve
    from accordion_bench.sweeps.row_records import any_run

    slugs = [path.name for path in (Path(results) / "runs").glob("*")]
    possible = [(table, resolve(table, results)) for table in tables if _may_have_runs(table, slugs)]
    found = [(table, rows) for table, rows in possible if any_run(rows)]
    if not found:
        known = ", ".join(table.name for table in tables)
        raise UserError(
            f"no table has a run in {results!r}; run one: accordion-bench sweep table=NAME, with NAME one of {known}"
        )
    return found


def _may_have_runs(table: Table, slugs: list[str]) -> bool:
    """False where no run of a row's data set and network is there; to find out more takes a tenth of a second a row."""
    for row in table.rows:
        choices = dict(item.split("=", 1) for item in (*table.base, *row.overrides) if "=" in item)
        given = [choices.get(group, "custom") for group in ("dataset", "model")]
        pattern = "-".join("[^-]+" if choice == "custom" else re.escape(choice) for choice in given)
        if any(re.match(f"{pattern}-", slug) for slug in slugs):
            return True
    return False
