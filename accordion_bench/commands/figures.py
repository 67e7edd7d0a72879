"""accordion-bench figures: draw curves and levels of finished runs."""

from __future__ import annotations

from pathlib import Path

from accordion_bench.commands.arguments import Parser, add_report_options, chosen_tables

DESCRIPTION = """\
Draws, for every table, the metric against epochs and against what was sent, with bands over seeds and the published curves
where there are any, and the level of every layer over time. PNG and SVG.
"""
EXAMPLES = """\
  accordion-bench figures
  accordion-bench figures demo --output plots
"""


def main(arguments: list[str]) -> int:
    """Run the command; the exit code."""
    parser = Parser("figures", DESCRIPTION, EXAMPLES)
    add_report_options(parser)
    options = parser.parse_args(arguments)

    from accordion_bench.report.figures import make_curves, make_levels

    output = Path(options.output or Path(options.results) / "figures")
    for table, rows in chosen_tables(options.names, options.results):
        paths = [*make_curves(table, rows, output=output), *make_levels(table, rows, output=output)]
        for path in paths:
            print(path)
        if not paths:
            print(f"table {table.name}: no finished run yet; nothing drawn")
    return 0
