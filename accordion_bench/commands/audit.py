"""accordion-bench audit: explain the paper's own columns."""

from __future__ import annotations

from accordion_bench.commands.arguments import Parser

DESCRIPTION = """\
Recomputes the Data Sent and Time columns of Tables 1 to 6 from shapes, compressor, steps and epochs, and says which
cells agree, which agree only under an assumption, and which do not. Trains nothing.
"""
EXAMPLES = """\
  accordion-bench audit
  accordion-bench audit --json > audit.json
"""


def main(arguments: list[str]) -> int:
    """Run the command; the exit code."""
    parser = Parser("audit", DESCRIPTION, EXAMPLES)
    parser.add_argument("--json", action="store_true", help="for programs")
    options = parser.parse_args(arguments)

    from accordion_bench.report.audit.report import audit
    from accordion_bench.report.audit.text import render

    report = audit()
    print(report.to_json() if options.json else render(report).rstrip())
    return 0
