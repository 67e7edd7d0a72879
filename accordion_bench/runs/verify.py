"""A run's directory checked against itself: do its files say one thing, and is it what the name says? No torch.

verify_plan.py checks the rest: traffic and levels against what the configuration makes of them, and the data.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from accordion_bench.config.parsing import from_yaml
from accordion_bench.config.schema import RunConfig
from accordion_bench.errors import UserError
from accordion_bench.foreign import MEBIBYTE, read_text
from accordion_bench.plugins import NotImported
from accordion_bench.runs.records import RunDirectory
from accordion_bench.runs.stored import FinishedRun, Problem, read_run
from accordion_bench.schedulers import SCHEDULERS, build_scheduler
from accordion_bench.training.lr_schedule import LRSchedule
from accordion_bench.training.record import EpochRecord

SOUND = ("diverged", "failed", "unfinished")  # states of a run that is not finished, but whose files may be in order


def problems(directory: Path) -> list[str]:
    """What is wrong with a run's files, one line each without the run's name; empty if nothing is.

    A run that is unfinished, failed or diverged is in order if what it has recorded is.
    """
    run = RunDirectory(directory)
    if not run.begun:
        return []
    try:
        config = _configuration(run)
    except UserError as error:
        return [_line(error, directory)]
    found = _name(config, run)
    read = read_run(directory, run.seed)
    if isinstance(read, Problem) and read.state not in SOUND:
        return [*found, f"{read.state}: {read.message}"]
    try:
        environment = run.read_json("environment.json")
        epochs = run.read_epochs()
        return [
            *found,
            *_length(config, epochs, finished=isinstance(read, FinishedRun)),
            *_totals(config, environment, read),
            *(line for epoch in epochs for line in _epoch(config, environment, epoch)),
        ]
    except (UserError, OSError) as error:
        return [*found, _line(error, directory)]
    except (TypeError, KeyError, AttributeError, ValueError) as error:
        return [*found, f"environment.json or a record is not one ({type(error).__name__}: {error})"]


def _configuration(run: RunDirectory) -> RunConfig:
    try:
        return from_yaml(read_text(run.path / "config.yaml", MEBIBYTE))
    except FileNotFoundError:
        raise UserError("config.yaml is missing") from None
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise UserError(f"config.yaml cannot be read ({why})") from None


def _line(error: Exception, directory: Path) -> str:
    return " ".join(str(error).replace(f"{directory}/", "").split())


def _name(config: RunConfig, run: RunDirectory) -> list[str]:
    """The directory's name is made of the configuration in it."""
    found = []
    if run.name != f"{config.slug}-{config.hash}":
        found.append(f"config.yaml makes {config.slug}-{config.hash}, not {run.name}")
    if run.seed != config.seed:
        found.append(f"config.yaml has seed {config.seed}, not {run.seed}")
    return found


def _length(config: RunConfig, epochs: list[EpochRecord], finished: bool) -> list[str]:
    """A finished run has all its epochs, except where its scheduler may end it."""
    if len(epochs) > config.epochs:
        return [f"epochs.jsonl has {len(epochs)} epochs, config.yaml {config.epochs}"]
    if finished and len(epochs) < config.epochs and not _may_stop(config):
        return [f"finished, but epochs.jsonl has {len(epochs)} of {config.epochs} epochs"]
    return []


def _may_stop(config: RunConfig) -> bool:
    try:
        return build_scheduler(config.scheduler.name, config.scheduler.settings, config.statistic).may_stop
    except NotImported:
        return True


def _totals(config: RunConfig, environment: dict[str, Any] | None, read: FinishedRun | Problem) -> list[str]:
    if environment is None:
        return ["environment.json is missing: nobody knows what made these numbers"]
    if isinstance(read, Problem):
        return []
    expected = {"workers": config.workers, "parameters": environment["model"]["parameters"]}
    return [
        f"summary.json says {name} {getattr(read.summary, name)}, not {value}"
        for name, value in expected.items()
        if getattr(read.summary, name) != value
    ]


def _epoch(config: RunConfig, environment: dict[str, Any] | None, epoch: EpochRecord) -> list[str]:
    """One epoch against the ladders, the number of batches and the learning-rate schedule."""
    place = f"epoch {epoch.epoch + 1}"
    if epoch.batch_multiple not in config.batch.multipliers:
        return [f"{place}: batch multiple {epoch.batch_multiple} is none of {list(config.batch.multipliers)}"]
    found = []
    rungs = len(config.compressor.levels)
    if any(not 0 <= index < rungs for index in epoch.level_index_L):
        found.append(f"{place}: a level that the ladder of {rungs} has not")
    if environment is not None:
        layers = len(environment["model"]["layers"])
        if not len(epoch.level_index_L) == len(epoch.norms_L) == layers:
            found.append(f"{place}: levels or norms of another number of layers than {layers}")
        if "task" in environment:
            due = environment["task"]["batches_per_epoch"] // epoch.batch_multiple
            if epoch.updates + epoch.skipped != due:
                found.append(f"{place}: {epoch.updates} updates and {epoch.skipped} left out are not {due}")
    if len(epoch.extra.get("skipped", [])) > epoch.skipped:
        found.append(f"{place}: names more updates left out than it counts")
    rate = epoch.batch_multiple * LRSchedule(config.lr_schedule, config.workers).rate(epoch.epoch)
    if config.scheduler.name in SCHEDULERS and not math.isclose(epoch.learning_rate, rate):  # an own one may set it
        found.append(f"{place}: learning rate {epoch.learning_rate:g}, scheduled {rate:g}")
    return found
