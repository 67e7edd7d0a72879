"""A run's epochs checked against what its configuration makes of them: network, traffic, levels, data, checkpoints.

This loads torch to build the network's shapes, and the data where it is on this machine. verify.py does the rest.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from accordion_bench.compressors import build_compressor
from accordion_bench.config.parsing import from_yaml
from accordion_bench.config.schema import RunConfig, differences
from accordion_bench.errors import UserError
from accordion_bench.foreign import MEBIBYTE, read_text
from accordion_bench.plugins import NotImported
from accordion_bench.runs import checkpoint
from accordion_bench.runs.persistence import check_parts
from accordion_bench.runs.records import RunDirectory
from accordion_bench.runs.run import problem_of
from accordion_bench.schedulers import build_scheduler
from accordion_bench.schedulers.base import EpochStatistics
from accordion_bench.training.compressor import Compressor
from accordion_bench.training.gradients import Layout
from accordion_bench.training.lr_schedule import LRSchedule
from accordion_bench.training.record import EpochRecord
from accordion_bench.training.traffic import Traffic
from accordion_bench.workloads.datasets import is_here
from accordion_bench.workloads.models import build_model
from accordion_bench.workloads.tasks import build_task


def plan_problems(directory: Path, data: bool = True) -> list[str]:
    """What is wrong, one line each without the run's name. Only for runs whose files are in order (verify.problems).

    Args:
        directory: the run's.
        data: compare the recorded checksums with the data on this machine, if it is there.
    """
    run = RunDirectory(directory)
    try:
        config = from_yaml(read_text(directory / "config.yaml", MEBIBYTE))
        environment = run.read_json("environment.json") or {}
        epochs = run.read_epochs()
        found = _damaged_checkpoints(directory)
        if "task" in environment:
            found += _layers(config, environment)
        if not found:
            found += _courses(config, environment, epochs)
        if data and "data" in environment:
            found += _data(config, environment["data"])
    except UserError as error:
        return [" ".join(str(error).split())]
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        return [f"environment.json or a record is not one ({type(error).__name__}: {' '.join(str(error).split())})"]
    return found


def _damaged_checkpoints(directory: Path) -> list[str]:
    found = []
    for path in checkpoint.candidates(directory):
        try:
            check_parts(checkpoint.load(path), path)
        except checkpoint.DamagedCheckpoint:
            found.append(f"{path.name} is damaged")
    return found


def _layers(config: RunConfig, environment: dict[str, Any]) -> list[str]:
    """The network that this program builds is the one that was trained."""
    with suppress(NotImported):
        with torch.device("meta"):
            model = build_model(config.model.name, environment["task"]["facts"], config.model.settings)
        return _same_layers(config, environment, Layout.of(model))
    return []


def _same_layers(config: RunConfig, environment: dict[str, Any], layout: Layout) -> list[str]:
    recorded = [(layer["name"], tuple(layer["shape"])) for layer in environment["model"]["layers"]]
    if recorded != [(slot.name, slot.shape) for slot in layout.layers]:
        return [f"{config.model.name} has other layers now than those in environment.json"]
    if environment["model"]["parameters"] != layout.size:
        return [
            f"{config.model.name} has {layout.size} parameters, environment.json {environment['model']['parameters']}"
        ]
    return []


def _courses(config: RunConfig, environment: dict[str, Any], epochs: list[EpochRecord]) -> list[str]:
    try:
        compressor = _compressor(config, environment["model"])
    except NotImported:
        return []
    traffic = [line for epoch in epochs for line in _traffic(config, compressor, epoch)]
    return traffic + _decisions(config, compressor, epochs)


def _compressor(config: RunConfig, model: dict[str, Any]) -> Compressor:
    """The compressor for the recorded layers; 1-D tensors count together."""
    shapes = {layer["name"]: tuple(layer["shape"]) for layer in model["layers"]}
    matrices = Layout(shapes)
    if model["parameters"] > matrices.size:
        shapes["all 1-D tensors"] = (model["parameters"] - matrices.size,)
    return build_compressor(
        config.compressor.name,
        Layout(shapes),
        config.seed,
        error_feedback=config.compressor.error_feedback,
        settings=config.compressor.settings,
    )


def _traffic(config: RunConfig, compressor: Compressor, epoch: EpochRecord) -> list[str]:
    """Gradient traffic is that of the recorded levels times the updates, left-out ones included; or at most that."""
    levels_L = [config.compressor.levels[index] for index in epoch.level_index_L]
    planned = compressor.cost(levels_L).times(epoch.updates + epoch.skipped)
    counted = Traffic.from_dict(epoch.traffic)
    if compressor.data_dependent:
        same = 0 < counted.bytes_per_worker <= planned.bytes_per_worker
    else:
        same = (counted.mean, counted.gather) == (planned.mean, planned.gather)
    if same:
        return []
    return [
        f"epoch {epoch.epoch + 1}: {counted.floats_per_worker:,.0f} floats in {counted.collectives} collectives "
        f"on record, {planned.floats_per_worker:,.0f} in {planned.collectives} planned"
    ]


def _decisions(config: RunConfig, compressor: Compressor, epochs: list[EpochRecord]) -> list[str]:
    """Follow the scheduler through the recorded norms: same levels, same batches, same end.

    Schedulers that read more than is on record (means, errors, eigenvalues) are not followed.
    """
    try:
        scheduler = build_scheduler(config.scheduler.name, config.scheduler.settings, config.statistic)
    except NotImported:
        return []
    if scheduler.needs_errors or scheduler.needs_eigenvalue:
        return []
    problem = problem_of(config, compressor.layout, compressor)
    rates = LRSchedule(config.lr_schedule, config.workers)
    state, decision = scheduler.start(problem)
    sent = 0.0
    for epoch in epochs:
        place = f"epoch {epoch.epoch + 1}"
        if decision.stop:
            return [f"{place}: {config.scheduler.name} had ended the run before"]
        if decision.level_index_L != epoch.level_index_L:
            return [f"{place}: other levels on record than {config.scheduler.name} chooses from the recorded norms"]
        if problem.multiples[decision.batch_index] != epoch.batch_multiple:
            return [f"{place}: another batch on record than {config.scheduler.name} chooses from the recorded norms"]
        sent += Traffic.from_dict(epoch.traffic).floats_per_worker
        try:
            state, decision = scheduler.decide(state, problem, _statistics(epoch, rates, sent))
        except _NotOnRecord:
            return []
    if 0 < len(epochs) < config.epochs and scheduler.may_stop and not decision.stop:
        return [f"{config.scheduler.name} would have gone on after epoch {len(epochs)}"]
    return []


class _NotOnRecord(Exception):
    """The scheduler wants what the records do not hold."""


class _Unknown(tuple[float, ...]):
    """Numbers per layer that were not recorded: whoever looks at them raises."""

    def __getitem__(self, index: Any) -> Any:
        raise _NotOnRecord

    def __iter__(self) -> Any:
        raise _NotOnRecord


def _statistics(epoch: EpochRecord, rates: LRSchedule, sent: float) -> EpochStatistics:
    return EpochStatistics(
        epoch=epoch.epoch,
        learning_rate=rates.rate(epoch.epoch),
        next_learning_rate=rates.rate(epoch.epoch + 1),
        norms_L=epoch.norms_L,
        means_L=_Unknown(),
        deviations_L=_Unknown(),
        norm=epoch.norm,
        loss=epoch.loss,
        floats_per_worker=sent,
        updates=epoch.updates,
    )


def _data(config: RunConfig, recorded: dict[str, str]) -> list[str]:
    key = repr(config.dataset)
    if key not in _checksums:
        _checksums[key] = _checksums_here(config)
    found = differences(recorded, _checksums[key]) if _checksums[key] else []
    return [f"the data in {config.dataset.root} is not what was trained on: {'; '.join(found)}"] if found else []


_checksums: dict[str, dict[str, str]] = {}  # of the data of every configuration that was asked for; empty if not here


def _checksums_here(config: RunConfig) -> dict[str, str]:
    try:
        if not is_here(config.dataset):
            return {}
        task = build_task(
            config.dataset,
            batch_per_worker=config.batch.per_worker,
            workers=config.workers,
            seed=config.seed,
            device="cpu",
            shuffle=config.shuffle,
        )
    except UserError:  # damaged or of a component that is not here: training would say so
        return {}
    return dict(task.checksums)
