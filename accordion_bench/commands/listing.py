"""accordion-bench list: every run with its state, progress and last metric."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from accordion_bench.commands.arguments import Parser
from accordion_bench.commands.streams import styled

EXAMPLES = """\
  accordion-bench list
  accordion-bench list --results /scratch/results
"""


def main(arguments: list[str]) -> int:
    """Run the command; the exit code."""
    parser = Parser("list", "Shows every run: finished, running, interrupted, diverged or failed.", EXAMPLES)
    parser.add_argument("--results", default="results", metavar="DIR", help="where the runs are (default: results)")
    options = parser.parse_args(arguments)

    from accordion_bench.report.listing import list_runs, render_runs

    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    styled(render_runs(list_runs(Path(options.results)), width=width))
    return 0
