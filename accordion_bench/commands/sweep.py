"""accordion-bench sweep: run what is missing of a table or of a grid of settings."""

from __future__ import annotations

from accordion_bench.commands.arguments import Parser
from accordion_bench.errors import UserError

OPTIONS = ("table", "seeds", "rows", "jobs")
DESCRIPTION = """\
Trains what is missing, in order, and skips what is finished; an interrupted run continues where it was. A run that
fails is reported and the next one started. Off a terminal it prints one line a run.

  table=NAME          the runs of a table in conf/table, or of your own .yaml file, with
    seeds=1,2,3         instead of the table's seeds
    rows=TEXT           only rows with this in their name or overrides
    SETTING=VALUE       anything that changes no result: results, dataset.root, launch.processes, ...
  SETTING=A,B,...     without a table: every combination of these values, as run -m has it
  jobs=N              runs at the same time, sharing the machine's GPUs (default 1)
"""
EXAMPLES = """\
  accordion-bench sweep table=demo
  accordion-bench sweep table=1 rows=vgg19bn --dry-run
  accordion-bench sweep table=3 seeds=4,5 jobs=2 launch.device=cuda
  accordion-bench sweep dataset=digits model=smallcnn compressor=powersgd,topk seed=1,2,3
"""


def main(arguments: list[str]) -> int:
    """Run the command; the exit code."""
    parser = Parser("sweep", DESCRIPTION, EXAMPLES)
    parser.add_argument("settings", nargs="*", metavar="SETTING", help="as above")
    parser.add_argument("--dry-run", action="store_true", help="list the runs and what they will send; train nothing")
    options = parser.parse_intermixed_args(arguments)
    given = options.settings
    chosen = dict(item.split("=", 1) for item in given if item.partition("=")[0] in OPTIONS and "=" in item)
    settings = [item for item in given if item.partition("=")[0] not in OPTIONS or "=" not in item]
    return sweep(chosen, settings, options.dry_run)


def sweep(chosen: dict[str, str], settings: list[str], dry_run: bool) -> int:
    """List or run the jobs that the options and settings describe."""
    from accordion_bench.sweeps.jobs import grid_jobs, table_jobs
    from accordion_bench.sweeps.runner import Sweep
    from accordion_bench.sweeps.table import load_table

    at_once = _number(chosen.get("jobs", "1"), "jobs", 1)
    if "table" in chosen:
        seeds = (
            [_number(seed, "seeds", 0) for seed in chosen["seeds"].strip("[]").split(",")] if "seeds" in chosen else []
        )
        jobs = table_jobs(load_table(chosen["table"]), seeds, chosen.get("rows", ""), settings)
    else:
        for name in ("seeds", "rows"):
            if name in chosen:
                raise UserError(
                    f"{name} needs a table, got {name}={chosen[name]} without one; add table=NAME, or write seed=1,2,3"
                )
        if not settings:
            raise UserError("sweep needs a table or settings; write e.g. accordion-bench sweep table=demo (see --help)")
        jobs = grid_jobs(settings)
    if dry_run:
        from accordion_bench.sweeps.dry_run import listing

        print(listing(jobs))
        return 0
    Sweep(jobs, at_once).run()
    return 0


def _number(text: str, name: str, least: int) -> int:
    from accordion_bench.config.plain_yaml import INTEGER

    if not INTEGER.fullmatch(text.strip()) or int(text) < least:
        raise UserError(
            f"{name} must be whole numbers >= {least}, got {text!r}; write e.g. {name}={'1,2,3' if least == 0 else 2}"
        )
    return int(text)
