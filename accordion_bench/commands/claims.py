"""accordion-bench claims: what the runs show of the paper's claims."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from accordion_bench.commands.arguments import Parser, add_report_options
from accordion_bench.errors import UserError

if TYPE_CHECKING:
    from accordion_bench.sweeps.table import Table

DESCRIPTION = """\
Tests what the tables claim on the runs that are there: as good as low compression (non-inferior by a margin written
down beforehand), better than high compression, less sent. A verdict is supported, contradicted, undecided (with the
seeds that would decide it) or not run, and names its runs. Then the paper's numbered statements, each with what answers
it. Prints Markdown and writes it to claims.md.
"""
EXAMPLES = """\
  accordion-bench claims
  accordion-bench claims powersgd_small
  accordion-bench claims 1 2 --all
"""


def main(arguments: list[str]) -> int:
    """Run the command; the exit code."""
    parser = Parser("claims", DESCRIPTION, EXAMPLES)
    add_report_options(parser)
    parser.add_argument("--all", action="store_true", help="also list the claims of tables without any run")
    parser.add_argument(
        "--unverified", action="store_true", help="also count runs that verify --quick finds fault with"
    )
    options = parser.parse_args(arguments)

    from accordion_bench.report.claims.design import design_commit
    from accordion_bench.report.claims.numbered import statements
    from accordion_bench.report.claims.text import render, summary
    from accordion_bench.report.claims.verdicts import verdicts
    from accordion_bench.runs.records import write_atomically
    from accordion_bench.runs.verify import problems
    from accordion_bench.sweeps.jobs import resolve

    tables = _tables(options.names)
    check = None if options.unverified else problems
    found = {name: verdicts(table, resolve(table, options.results), check) for name, table in tables.items()}
    text = render(found, tables, statements(found), options.all or bool(options.names))
    path = Path(options.output or options.results) / "claims.md"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, text)
    except OSError as error:
        raise UserError(f"cannot write {path} ({error.strerror}); make it writable or name another --output") from None
    print(text.strip())
    print(f"\n{summary(found, path, {name: design_commit(name) for name in tables})}")
    return 0


def _tables(names: list[str]) -> dict[str, Table]:
    """The named tables; without names, those of the paper and all that list claims."""
    from accordion_bench.report.claims.verdicts import implied_claims
    from accordion_bench.sweeps.table import load_table, table_names

    chosen = [load_table(name) for name in names or table_names()]
    kept = {table.name: table for table in chosen if table.claims or (table.number and implied_claims(table))}
    if lacking := [table.name for table in chosen if table.name not in kept] if names else []:
        raise UserError(f"table {lacking[0]} makes no claims; write them under claims: in its file, or leave it out")
    return kept
