"""accordion-bench verify: are the runs in a results directory what they say they are?"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from accordion_bench.commands.arguments import Parser
from accordion_bench.errors import UserError
from accordion_bench.plugins import names_only, refused

DESCRIPTION = """\
Checks runs without training: records are whole and add up to the summary, the directory's name is the configuration's
hash, learning rates, levels and traffic are those that the configuration makes, the data is the one that was trained
on (where it is on this machine), and checkpoints are whole. One line per problem; exit code 1 if there is any. Runs
that are unfinished are no problem as long as what they have recorded is in order. Methods of somebody's own that a run
names are not imported without --import: results may have been downloaded.

A hand that edits every file of a run alike goes unnoticed by that. --replay trains the first epochs again and compares:
bit for bit on the versions and processor of the recording, elsewhere losses, metrics and norms to 5 %. It imports the
components that a run names; use it on runs that you would run. What was replayed is noted in the run's replay.json, and
tables and claims say so.
"""
EXAMPLES = """\
  accordion-bench verify
  accordion-bench verify --replay
  accordion-bench verify --replay 3 results/runs/digits-smallcnn-none-static-*/seed-1
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
    parser.add_argument(
        "--replay", nargs="?", const="1", metavar="K", help="train the first K epochs (1) again and compare"
    )
    parser.add_argument(
        "--import",
        action="store_true",
        dest="imports",
        help="import the own methods that runs name",
    )
    parser.add_argument("--data", metavar="DIR", help="where --replay finds the data, if not where the run found it")
    options = parser.parse_args(arguments)
    epochs = _replayed_epochs(options)
    places = [Path(place) for place in options.places or ["results"]]
    directories = dict.fromkeys(directory for place in places for directory in run_directories(place))
    bad = 0
    refused.clear()
    with names_only(not options.imports and not epochs):
        for directory in directories:
            wrong = _report(directory, options.quick, not options.no_data)
            if epochs and not wrong:
                wrong = _replay(directory, epochs, options.data)
            bad += wrong
    if refused and not options.quick:
        print(f"not imported, so checked only in part: {', '.join(sorted(refused))} (--import does)")
    count = f"{len(directories)} run{'s' * (len(directories) != 1)}"
    print(f"{count} checked: {bad} with problems" if bad else f"{count} checked: nothing wrong")
    return 1 if bad else 0


def _replayed_epochs(options: argparse.Namespace) -> int:
    """K of --replay, 0 without it; a place that follows --replay is a place."""
    given = options.replay
    if given is None:
        if options.data is not None:
            raise UserError("--data goes with --replay; add it, or leave --data out")
        return 0
    if not given.isdecimal() and Path(given).exists():
        options.places.insert(0, given)
        return 1
    if not given.isdecimal() or int(given) < 1:
        raise UserError(f"--replay must be a whole number of epochs >= 1, got {given!r}; e.g. --replay 2")
    return int(given)


def _replay(directory: Path, epochs: int, root: str | None) -> bool:
    """Train again and print what came out; whether it differs."""
    from accordion_bench.runs.replay import TOLERANCE, remember, replay

    try:
        result = replay(directory, epochs, root)
    except UserError as error:
        print(f"{directory}: cannot be replayed: {' '.join(str(error).split())}", flush=True)
        return True
    for line in result.problems:
        print(f"{directory}: {line}", flush=True)
    if result.problems:
        return True
    how = "equal bit for bit" if result.exact else f"equal to {TOLERANCE:.0%} (another machine or versions)"
    print(f"{directory}: {result.epochs} of {result.of} epochs trained again, {how}", flush=True)
    try:
        remember(directory, result)
    except OSError as error:
        print(f"accordion-bench: warning: {directory}: cannot note the replay ({error})", file=sys.stderr)
    return False


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
    from accordion_bench.runs.records import RunDirectory
    from accordion_bench.runs.verify import problems

    found = problems(directory)
    if not found and not quick and RunDirectory(directory).begun:
        from accordion_bench.runs.verify_plan import plan_problems

        found = plan_problems(directory, data)
    for line in found:
        print(f"{directory}: {line}")
    return bool(found)
