"""accordion-bench verify: are the runs in a results directory what they say they are?"""

from __future__ import annotations

from pathlib import Path

from accordion_bench.commands.arguments import Parser
from accordion_bench.errors import UserError

DESCRIPTION = """\
Checks runs without training: records are whole and add up to the summary, the directory's name is the configuration's
hash, learning rates, levels and traffic are those that the configuration makes, the data is the one that was trained
on (where it is on this machine), and checkpoints are whole. One line per problem; exit code 1 if there is any. Runs
that are unfinished are no problem as long as what they have recorded is in order.
"""
EXAMPLES = """\
  accordion-bench verify
  accordion-bench verify /archive/results --no-data
  accordion-bench verify results/runs/cifar10-resnet18-powersgd-accordion-1f3a9c/seed-1
"""


def main(arguments: list[str]) -> int:
    """Run the command; the exit code."""
    parser = Parser("verify", DESCRIPTION, EXAMPLES)
    parser.add_argument(
        "places", nargs="*", metavar="RUN|DIR", help="run directories, or results directories (default: results)"
    )
    parser.add_argument("--no-data", action="store_true", help="do not load the data to compare its checksums")
    parser.add_argument("--quick", action="store_true", help="check the files only, as tables does; takes no seconds")
    options = parser.parse_args(arguments)
    places = [Path(place) for place in options.places or ["results"]]
    directories = dict.fromkeys(directory for place in places for directory in run_directories(place))
    bad = sum(_report(directory, options.quick, not options.no_data) for directory in directories)
    count = f"{len(directories)} run{'s' * (len(directories) != 1)}"
    print(f"{count} checked: {bad} with problems" if bad else f"{count} checked: nothing wrong")
    return 1 if bad else 0


def run_directories(place: Path) -> list[Path]:
    """The runs at a place: itself, or those below it; UserError if there is none."""
    for candidates in ([place], place.glob("seed-*"), place.glob("*/seed-*"), place.glob("runs/*/seed-*")):
        found = sorted(path for path in candidates if _is_run(path))
        if found:
            return found
    raise UserError(f"no run in {str(place)!r}; name a results directory, or a run: results/runs/<name>/seed-<n>")


def _is_run(path: Path) -> bool:
    name = path.absolute().name
    return path.is_dir() and name.startswith("seed-") and name[5:].isdigit()


def _report(directory: Path, quick: bool, data: bool) -> bool:
    """Print a run's problems; whether it has any."""
    from accordion_bench.runs.verify import problems

    found = problems(directory)
    if not found and not quick:
        from accordion_bench.runs.verify_plan import plan_problems

        found = plan_problems(directory, data)
    for line in found:
        print(f"{directory}: {line}")
    return bool(found)
