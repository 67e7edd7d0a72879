"""What the commands share in reading their arguments."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, NoReturn

from accordion_bench.errors import UserError

if TYPE_CHECKING:
    from accordion_bench.tablespec import RowRuns, Table


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
    """The named tables with their run directories; without names, all that have at least one run.

    Raises:
        UserError: if a name is unknown, or there is no run at all.
    """
    from accordion_bench.report.runs import any_run
    from accordion_bench.sweep import resolve
    from accordion_bench.tablespec import load_table, table_names

    tables = [load_table(name) for name in dict.fromkeys(names or table_names())]
    resolved = [(table, resolve(table, results)) for table in tables]
    if not names:
        resolved = [(table, rows) for table, rows in resolved if any_run(rows)]
    if not resolved:
        known = ", ".join(table.name for table in tables)
        raise UserError(f"no table has a run in {results!r}; run one: accordion-bench sweep table=NAME, with NAME one of {known}")
    return resolved
