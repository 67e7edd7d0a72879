"""accordion-bench run: one run, or several with -m, by Hydra."""

from __future__ import annotations

import argparse
import logging
import os
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn

from accordion_bench.config.compose import (
    CONFIG_NAME,
    VERSION_BASE,
    as_values,
    compose_all,
    compose_tree,
    conf_directory,
    expand,
    explained,
    groups,
    once,
)
from accordion_bench.config.parsing import parse
from accordion_bench.config.schema import RunConfig
from accordion_bench.errors import RunFailure, UserError
from accordion_bench.runs.records import RunDirectory

if TYPE_CHECKING:
    from omegaconf import DictConfig

HELP_WIDTH = 120
HELP = """\
usage: accordion-bench run [GROUP=CHOICE ...] [SETTING=VALUE ...] [options]

Trains one configuration, or continues it where it was interrupted; a finished run is not repeated.
Without arguments this is the paper's setting: ResNet-18 on CIFAR-10, PowerSGD between rank 1 and 2, Accordion, 4
workers, 300 epochs. Results go to results/runs/.

choices (files in conf/, * the default):
{groups}

settings: any value below a choice, e.g. epochs=100 workers=2 compressor.levels='[1, 4]' scheduler.eta=0.3
  --cfg job prints all of them as they stand, with everything given on the command line applied.

options:
  -m, --multirun      sweep over comma-separated values: run -m seed=1,2,3 compressor=powersgd,topk
  --cfg job           print the configuration and stop
  --info TOPIC        how the configuration was composed (defaults-tree, searchpath, ...)
  -cd, --config-dir DIR   a folder with your own conf/ files
  -q, --quiet         print nothing while running
  --hydra-help        Hydra's own options

examples:
  accordion-bench run dataset=digits model=smallcnn
  accordion-bench run model=vgg19bn compressor.levels='[1, 4]' seed=2
  accordion-bench run compressor=none batch=accordion
  accordion-bench run protocol=authors_code compressor=topk dataset=cifar100 model=googlenet
  accordion-bench run -m seed=1,2,3 dataset=digits model=smallcnn compressor=powersgd,topk
  torchrun --nproc-per-node 4 -m accordion_bench.worker model=resnet18     (your own launcher, the same settings)
"""


failures: list[Exception] = []  # of the jobs that Hydra called in this process; it would print more than a line


def main(arguments: list[str]) -> int:
    """Run the command; the exit code."""
    if any(argument in ("-h", "--help") for argument in arguments):
        print(help_text(), end="")
        return 0
    arguments = ["quiet=true" if argument in ("-q", "--quiet") else argument for argument in arguments]
    options = _options(arguments)
    given = options.overrides
    if options.multirun:
        options.overrides = once(options.overrides)
    configs = _check(options)
    flags = _flags(arguments, given)
    failures.clear()
    if not options.multirun:
        _hydra([*flags, *options.overrides], options.overrides)
        for failure in failures:
            raise failure
        return 0
    with tempfile.TemporaryDirectory(prefix="accordion-bench-") as folder:  # Hydra wants one for every sweep
        _hydra([*flags, f"hydra.sweep.dir='{folder}'", *options.overrides], options.overrides)
    failed = [str(config.directory) for config in configs if not RunDirectory(config.directory).finished]
    if failed or failures:
        names = f": {', '.join(failed)}" if failed else ""
        raise RunFailure(
            f"{max(len(failed), len(failures))} runs did not finish{names}; the same command tries them again"
        )
    return 0


def help_text() -> str:
    """What `run --help` prints: every group with its choices, in the files' own words."""
    defaults = _defaults()
    wide = max(len(choice) for choices in groups().values() for choice in choices)
    lines = []
    for group, choices in groups().items():
        for choice in choices:
            mark = "*" if defaults.get(group) == choice else " "
            head = f"  {group if choice == choices[0] else '':<11}{mark}{choice:<{wide}}  "
            text = head + _first_comment(group, choice)
            lines += textwrap.wrap(text, HELP_WIDTH, subsequent_indent=" " * len(head), break_on_hyphens=False)
    return HELP.format(groups="\n".join(lines))


def _defaults() -> dict[str, str]:
    """group -> its default choice."""
    import yaml

    entries = yaml.safe_load((conf_directory() / f"{CONFIG_NAME}.yaml").read_text(encoding="utf-8"))["defaults"]
    return {group: choice for entry in entries if isinstance(entry, dict) for group, choice in entry.items()}


def _first_comment(group: str, choice: str) -> str:
    """The first line of a file that explains it."""
    text = (conf_directory() / group / f"{choice}.yaml").read_text(encoding="utf-8")
    comments = (
        line.removeprefix("# ") for line in text.splitlines() if line.startswith("# ") and "@package" not in line
    )
    return next(comments, "")


def _options(arguments: list[str]) -> argparse.Namespace:
    """The arguments as Hydra will read them; UserError where it would print its usage."""
    from hydra._internal.utils import get_args_parser

    parser = get_args_parser()

    def refuse(message: str) -> NoReturn:
        raise UserError(f"{message}; see accordion-bench run --help")

    parser.error = refuse  # type: ignore[method-assign]
    return parser.parse_intermixed_args(arguments)


def _flags(arguments: list[str], overrides: list[str]) -> list[str]:
    """The arguments without the overrides, which Hydra wants together."""
    left, flags = list(overrides), []
    for argument in arguments:
        if argument in left:
            left.remove(argument)
        else:
            flags.append(argument)
    return flags


def _check(options: argparse.Namespace) -> list[RunConfig]:
    """Compose and check every job before the first one starts; the jobs, as far as they are known beforehand."""
    overrides = list(options.overrides)
    if options.config_path or options.config_name or options.hydra_help or options.shell_completion:
        return []
    if any(override.startswith("hydra/sweeper=") and override != "hydra/sweeper=basic" for override in overrides):
        return []
    if options.config_dir:
        overrides.append(f"hydra.searchpath=['file://{os.path.abspath(options.config_dir)}']")
    if options.cfg or options.info:
        with explained(overrides):
            compose_tree(overrides)
        return []
    return compose_all(expand(overrides) if options.multirun else [overrides])


def _hydra(arguments: list[str], overrides: list[str]) -> None:
    """Let Hydra read the arguments and call `job`, with its exceptions passed on."""
    import hydra
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    application = hydra.main(version_base=VERSION_BASE, config_path=str(conf_directory()), config_name=CONFIG_NAME)(job)
    with _environment(arguments), explained(overrides, (HydraException, OmegaConfBaseException)):
        application()


def job(config: DictConfig) -> float:
    """One run; what Hydra and its launchers call. The final metric, or NaN where the run failed (see `failures`)."""
    from hydra.core.hydra_config import HydraConfig
    from hydra.types import RunMode

    from accordion_bench.runs.launch import launch

    os.chdir(HydraConfig.get().runtime.cwd)  # hydra.job.chdir=true: paths mean what they meant where it was typed
    run = parse(as_values(config))
    try:
        return launch(run).final
    except (UserError, RunFailure) as error:
        failures.append(error)
        if HydraConfig.get().mode == RunMode.MULTIRUN:  # say it now, and go on with the next one
            print(f"accordion-bench: {run.directory}: {error}", file=sys.stderr, flush=True)
        return float("nan")


@contextmanager
def _environment(arguments: list[str]) -> Iterator[None]:
    """Hydra reads sys.argv, and leaves exceptions alone only when asked to in the environment."""
    argv, before = sys.argv, os.environ.get("HYDRA_FULL_ERROR")
    logging.raiseExceptions = False  # --info into a pipe that closes
    sys.argv = ["accordion-bench run", *arguments]
    os.environ["HYDRA_FULL_ERROR"] = "1"
    try:
        yield
    finally:
        sys.argv = argv
        if before is None:
            del os.environ["HYDRA_FULL_ERROR"]
        else:
            os.environ["HYDRA_FULL_ERROR"] = before
