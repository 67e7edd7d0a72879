"""What the commands share in reading their arguments."""

from __future__ import annotations

import argparse
from typing import NoReturn

from accordion_bench.errors import UserError


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
    """The options that tables and figures have in common."""
    parser.add_argument("names", nargs="*", metavar="TABLE", help="names in conf/table or paths of your own .yaml files; none: every table that has runs")
    parser.add_argument("--metric", default="final", help="final (last epoch, the default), best, or last10 (mean of the last ten epochs)")
    parser.add_argument("--ci", default="student", choices=("student", "normal"), help="95 %% interval: Student t (default) or the published code's 1.96 s / sqrt(n)")
    parser.add_argument("--results", default="results", metavar="DIR", help="where the runs are (default: results)")
    parser.add_argument("--output", default=None, metavar="DIR", help="where to write (default: inside the results directory)")
