"""RunConfig -> objects -> Trainer: the only place where registries are looked up."""

from __future__ import annotations

import math
import platform
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from accordion_bench.compressors import build_compressor
from accordion_bench.config.schema import RunConfig, to_yaml
from accordion_bench.errors import Diverged, UserError
from accordion_bench.foreign import make_way
from accordion_bench.runs import checkpoint
from accordion_bench.runs.environment import describe_environment, with_history
from accordion_bench.runs.guard import Guard
from accordion_bench.runs.persistence import Unusable, resume, save
from accordion_bench.runs.progress import Progress, announcement, farewell, title
from accordion_bench.runs.pulse import Pulse
from accordion_bench.runs.records import RunDirectory, Summary, write_atomically
from accordion_bench.schedulers import build_scheduler
from accordion_bench.schedulers.base import Problem
from accordion_bench.training.aggregator import Aggregator
from accordion_bench.training.clock import Clock
from accordion_bench.training.communicator import Communicator
from accordion_bench.training.compressor import Compressor
from accordion_bench.training.gradients import Layout
from accordion_bench.training.lr_schedule import LRSchedule
from accordion_bench.training.optimizer import build_optimizer
from accordion_bench.training.probes import Probes
from accordion_bench.training.record import EpochRecord
from accordion_bench.training.seeds import private_randomness, seed_for
from accordion_bench.training.statistics import GradientSum
from accordion_bench.training.traffic import Traffic
from accordion_bench.training.trainer import Trainer
from accordion_bench.workloads.models import build_model
from accordion_bench.workloads.tasks import build_task


@dataclass(frozen=True)
class Place:
    """Where this process stands in the job."""

    process: int
    processes: int
    device: str  # "cpu", "cuda:0"


def build_trainer(config: RunConfig, place: Place) -> Trainer:
    """All objects of a run. Raises UserError where the configuration does not fit the data."""
    device = torch.device(place.device)
    clock = Clock(device)
    communicator = Communicator(config.workers // place.processes, place.process, place.processes, clock)
    task = build_task(
        config.dataset,
        batch_per_worker=config.batch.per_worker,
        workers=config.workers,
        seed=config.seed,
        device=device,
        shuffle=config.shuffle,
    )
    check_multiples(config, task.batches_per_epoch)
    with private_randomness(seed_for(config.seed, "model"), torch.device("cpu")):
        model = build_model(config.model.name, task.facts, config.model.settings)
    model.to(device)
    layout = Layout.of(model)

    def make_compressor() -> Compressor:
        return build_compressor(
            config.compressor.name,
            layout,
            config.seed,
            error_feedback=config.compressor.error_feedback,
            settings=config.compressor.settings,
        )

    compressor = make_compressor()
    parameters = dict(model.named_parameters())
    return Trainer(
        task=task,
        model=model,
        layout=layout,
        aggregator=Aggregator(compressor, error_feedback=config.compressor.error_feedback, combine=config.aggregate),
        scheduler=build_scheduler(config.scheduler.name, config.scheduler.settings, config.statistic),
        problem=problem_of(config, layout, compressor),
        levels=config.compressor.levels,
        lr_schedule=LRSchedule(config.lr_schedule, config.workers),
        optimizer=build_optimizer([parameters[slot.name] for slot in layout.slots], config.optimizer),
        communicator=communicator,
        seed=config.seed,
        statistic=GradientSum(
            layout,
            config.statistic == "local",
            communicator,
            torch.zeros(layout.size, device=device),
            guarded=config.on_nonfinite == "skip",
        ),
        probes=Probes(make_compressor, eigenvalue_every=config.probe.eigenvalue, overlap_every=config.probe.overlap),
        clip_norm=config.optimizer.clip_norm,
        skip_nonfinite=config.on_nonfinite == "skip",
    )


def check_multiples(config: RunConfig, batches_per_epoch: int) -> None:
    """Raise UserError if an epoch has too few batches for one update at the largest batch multiple."""
    if config.batch.multipliers[0] > batches_per_epoch:
        raise UserError(
            f"batch.multipliers must not exceed the {batches_per_epoch} batches of an epoch, "
            f"got {config.batch.multipliers[0]}; choose a smaller multiple or batch.per_worker"
        )


def problem_of(config: RunConfig, layout: Layout, compressor: Compressor) -> Problem:
    """What the scheduler may choose from."""
    return Problem(
        layers=tuple(slot.name for slot in layout.layers),
        rungs=len(config.compressor.levels),
        multiples=config.batch.multipliers,
        epochs=config.epochs,
        floats_per_step=tuple(
            compressor.cost([level] * len(layout.layers)).floats_per_worker for level in config.compressor.levels
        ),
        words_LK=tuple(
            tuple(float(compressor.layer_words(slot, level)) for level in config.compressor.levels)
            for slot in layout.layers
        ),
        sizes_L=tuple(slot.size for slot in layout.layers),
    )


def execute(config: RunConfig, place: Place) -> Summary:
    """Train, or continue, and leave the records; every process of the job calls this.

    Raises:
        UserError: before anything is written.
        Diverged: after failure.json has been written; finished epochs stay.
        RunFailure: the records cannot be written.
    """
    first = place.process == 0
    directory = RunDirectory(config.directory)
    guard = Guard(directory.path, writes=first)
    unusable: list[Unusable] = []
    while True:
        trainer = build_trainer(config, place)
        progress = _progress(config, trainer, silent=config.quiet or not first)
        try:
            records = resume(config, trainer, directory, progress.say, unusable)
            break
        except Unusable as error:
            unusable.append(error)
    hosts = trainer.communicator.objects(f"{platform.node()}:{place.device}")
    if first:
        with guard.writing():
            _begin_records(config, trainer, directory, records, hosts, progress.say)
    progress.say(title(config, place.processes, place.device))
    progress.say(announcement(trainer, directory.path))

    def save_all() -> None:
        with guard.writing():
            save(config, trainer, directory, records)

    pulse = Pulse(
        trainer.communicator,
        save_all,
        config.checkpoint.minutes if config.checkpoint.enabled else None,
        trainer.grads_HN.device,
    )

    def after_update(done: int, total: int) -> None:
        progress.update(done, total)
        pulse.after_update(trainer.position, done, total)

    trainer.after_update = after_update
    progress.begin(trainer.position, trainer.traffic)
    try:
        with pulse.listening():
            for record in trainer.epochs():
                _check_loss(record)
                records.append(record)
                if first:
                    with guard.writing():
                        directory.append_epoch(record)
                progress.epoch(record)
                pulse.after_epoch(record.epoch)
    except Diverged as error:
        if first:
            with guard.writing():
                directory.write_failure(error)
        raise
    finally:
        progress.end()
    if config.checkpoint.enabled and config.checkpoint.keep:
        save_all()
    summary = summarise(config, trainer, records)
    if first:
        with guard.writing():
            directory.write_json("summary.json", summary.__dict__)
            if not config.checkpoint.keep:
                checkpoint.remove(directory.path)
    progress.say(farewell(summary, directory.path))
    trainer.communicator.barrier()
    return summary


def _progress(config: RunConfig, trainer: Trainer, silent: bool) -> Progress:
    return Progress(
        config,
        silent=silent,
        examples_per_batch=config.batch.per_worker * config.workers,
        # What depends on the data has no announced cost to compare with.
        low_floats=0.0 if trainer.aggregator.compressor.data_dependent else trainer.problem.floats_per_step[-1],
        metric=trainer.task.metric,
    )


def _check_loss(record: EpochRecord) -> None:
    if not math.isfinite(record.loss):
        raise Diverged(record.epoch, record.updates, "(all)", "training loss")


def _begin_records(
    config: RunConfig,
    trainer: Trainer,
    directory: RunDirectory,
    records: list[EpochRecord],
    hosts: list[Any],
    warn: Callable[[str], None],
) -> None:
    directory.remove_leftovers()
    write_atomically(directory.path / "config.yaml", to_yaml(config))
    environment = describe_environment(trainer.grads_HN.device, hosts)
    if records or trainer.current:
        try:
            before = directory.read_json("environment.json")
        except UserError as error:  # it is not needed to go on
            warn(f"warning: {error.args[0].partition(';')[0]}; what it said of the epochs before is lost")
            before = None
        environment = with_history(environment, before, len(records))
    layers = [{"name": slot.name, "shape": list(slot.shape)} for slot in trainer.layout.layers]
    environment["model"] = {"parameters": trainer.layout.size, "layers": layers}
    environment["task"] = {"facts": trainer.task.facts, "batches_per_epoch": trainer.task.batches_per_epoch}
    environment["data"] = trainer.task.checksums
    directory.write_json("environment.json", environment)
    directory.write_epochs(records)
    make_way(directory.path / "failure.json")
    (directory.path / "failure.json").unlink(missing_ok=True)


def summarise(config: RunConfig, trainer: Trainer, records: list[EpochRecord]) -> Summary:
    """Totals over the records of a finished run."""
    task = trainer.task
    values = [record.metrics[task.metric] for record in records]
    traffic = sum((Traffic.from_dict(record.traffic) for record in records), Traffic())
    return Summary(
        epochs=len(records),
        updates=sum(record.updates for record in records),
        metric=task.metric,
        higher_is_better=task.higher_is_better,
        final=values[-1],
        best=max(values) if task.higher_is_better else min(values),
        loss=records[-1].loss,
        floats_per_worker=traffic.floats_per_worker,
        paper_floats=traffic.paper_floats(config.workers),
        bytes_per_worker=traffic.bytes_per_worker,
        collectives=traffic.collectives,
        training_seconds=sum(
            seconds for record in records for name, seconds in record.seconds.items() if name != "evaluate"
        ),
        skipped=sum(record.skipped for record in records),
        workers=config.workers,
        parameters=trainer.layout.size,
    )
