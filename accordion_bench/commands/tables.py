"""accordion-bench tables: print and write tables of finished runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from accordion_bench.commands.arguments import Parser, add_report_options, chosen_tables

if TYPE_CHECKING:
    from accordion_bench.sweeps.table import Table

DESCRIPTION = """\
Prints tables of finished runs, mean and 95 % interval over seeds, ratios to the low-compression row, and the paper's
value beside ours; writes them as Markdown, CSV, LaTeX and HTML. What is missing is a dash and named below the table.
"""
EXAMPLES = """\
  accordion-bench tables
  accordion-bench tables 1 2 --metric last10 --ci normal
  accordion-bench tables demo --network ethernet_1g
"""


def main(arguments: list[str]) -> int:
    """Run the command; the exit code."""
    parser = Parser("tables", DESCRIPTION, EXAMPLES)
    add_report_options(parser)
    parser.add_argument(
        "--metric",
        default="final",
        metavar="WHICH",
        help="final (last epoch, the default), best, or last10 (mean of the last ten)",
    )
    parser.add_argument(
        "--ci",
        default="student",
        metavar="KIND",
        help="student (default) or normal (the published code's 1.96 s / sqrt(n))",
    )
    parser.add_argument("--network", default="paper", metavar="NAME", help="for the modelled time (default: paper)")
    parser.add_argument(
        "--unverified",
        action="store_true",
        help="also count runs that verify --quick finds fault with",
    )
    parser.add_argument(
        "--plan",
        action="store_true",
        help="where nothing was run, show the data that a run would send, marked as planned (loads torch)",
    )
    options = parser.parse_args(arguments)

    from accordion_bench.report.tables.make import make_tables
    from accordion_bench.runs.verify import problems

    output = Path(options.output or Path(options.results) / "tables")
    tables = chosen_tables(options.names, options.results)
    written = make_tables(
        tables,
        output=output,
        metric=options.metric,
        ci=options.ci,
        network=options.network,
        check=None if options.unverified else problems,
        plans=_plans if options.plan else None,
    )
    print("\n\n".join(table.text.strip() for table in written))
    print(f"\nwritten to {output}: " + ", ".join(path.name for table in written for path in table.paths))
    return 0


def _plans(table: Table) -> dict[str, float]:
    from accordion_bench.sweeps.dry_run import planned_floats

    return planned_floats(table)
