"""The door: plain values in, a valid RunConfig out, or one UserError that says what to write instead. No torch.

Every check that needs neither data nor a device is made here. Whether a batch fits a worker's share of the data is
known only when the data is there, so tasks/ and datasets/ say that.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from accordion_bench.config.schema import (
    BatchConfig,
    CheckpointConfig,
    CompressorConfig,
    DatasetConfig,
    LaunchConfig,
    LRScheduleConfig,
    ModelConfig,
    OptimizerConfig,
    ProbeConfig,
    RunConfig,
    SchedulerConfig,
)
from accordion_bench.config.section import Section, show
from accordion_bench.errors import UserError

OPTIMIZERS = ("nesterov", "heavy_ball", "heavy_ball_plus_gradient")
PROTOCOLS = ("paper", "authors_code")


def parse(values: Mapping[str, Any]) -> RunConfig:
    """The configuration of a run that is about to start here.

    Args:
        values: composed and resolved, in the shape of conf/config.yaml.

    Raises:
        UserError: on the first value that cannot be used, or when the results directory cannot be written.
    """
    config = from_mapping(values)
    _check_writable(config)
    return config


def from_mapping(values: Mapping[str, Any]) -> RunConfig:
    """The reverse of config.to_mapping; checks all that lies in the values (not the results directory)."""
    top = Section(values)
    dataset = _dataset(top.section("dataset"))
    compressor = _compressor(top.section("compressor"))
    batch = _batch(top.section("batch"))
    statistic = top.choice("statistic", ("local", "aggregated"))
    epochs = top.integer("epochs", least=1, remedy="the paper trains 300 on CIFAR")
    workers = top.integer("workers", least=1, remedy="the paper has 4")
    config = RunConfig(
        dataset=dataset,
        model=_model(top.section("model"), dataset),
        compressor=compressor,
        scheduler=_scheduler(top, compressor, batch, statistic),
        batch=batch,
        protocol=top.choice("protocol", PROTOCOLS),
        shuffle=top.choice("shuffle", ("every_epoch", "once")),
        aggregate=top.choice("aggregate", ("mean", "sum")),
        optimizer=_optimizer(top.section("optimizer")),
        lr_schedule=_lr_schedule(top.section("lr_schedule")),
        epochs=epochs,
        workers=workers,
        seed=top.integer("seed", least=0, remedy="sweep over several with -m seed=1,2,3"),
        statistic=statistic,
        on_nonfinite=top.choice("on_nonfinite", ("stop", "skip")),
        probe=_probe(top.section("probe")),
        launch=_launch(top.section("launch"), workers),
        checkpoint=_checkpoint(top.section("checkpoint")),
        network=_network(top),
        results=top.text("results"),
        quiet=top.boolean("quiet"),
    )
    top.done()
    return config


def _dataset(section: Section) -> DatasetConfig:
    from accordion_bench.workloads.datasets import DATASETS

    name = section.known("name", DATASETS, "dataset", custom=True)
    kind = section.choice("kind", (DATASETS[name].kind,) if name in DATASETS else ("image", "text"))
    return DatasetConfig(
        name=name,
        kind=kind,
        root=section.text("root"),
        verify=section.boolean("verify"),
        limit_train=section.optional_integer("limit_train", least=1, remedy="null uses all of it"),
        limit_test=section.optional_integer("limit_test", least=1, remedy="null uses all of it"),
        settings=section.rest(),
    )


def _model(section: Section, dataset: DatasetConfig) -> ModelConfig:
    from accordion_bench.workloads import models

    config = ModelConfig(name=section.known("name", models.MODELS, "model", custom=True), settings=section.rest())
    models.check_fit(config.name, dataset.kind, dataset.name)
    return config


def _compressor(section: Section) -> CompressorConfig:
    from accordion_bench.compressors import COMPRESSORS, find_compressor

    name = section.known("name", COMPRESSORS, "compressor", custom=True)
    levels = section.list("levels", "a list of numbers, most compressed first", example="[1, 2]")
    return CompressorConfig(
        name=name,
        levels=find_compressor(name).ladder.check(levels),
        error_feedback=section.boolean("error_feedback"),
        settings=section.rest(),
    )


def _scheduler(top: Section, compressor: CompressorConfig, batch: BatchConfig, statistic: str) -> SchedulerConfig:
    from accordion_bench.schedulers import SCHEDULERS, build_scheduler
    from accordion_bench.schedulers.base import Problem

    section = top.section("scheduler")
    config = SchedulerConfig(name=section.known("name", SCHEDULERS, "scheduler", custom=True), settings=section.rest())
    scheduler = build_scheduler(config.name, config.settings, statistic)
    if config.name in SCHEDULERS:  # a dry start on one layer of one word: places outside a ladder are refused here
        rungs = len(compressor.levels)
        words = (1.0,) * rungs
        scheduler.start(Problem(("layer",), rungs, batch.multipliers, sys.maxsize, words, (words,), (1,)))
    return config


def _batch(section: Section) -> BatchConfig:
    per_worker = section.integer("per_worker", least=1, remedy="the paper has 128")
    multipliers = section.list("multipliers", "a list of whole numbers that fall to 1", example="[8, 1]")
    whole = all(type(multiple) is int and multiple >= 1 for multiple in multipliers)
    falling = whole and multipliers == sorted(set(multipliers), reverse=True)
    if not multipliers or not falling or multipliers[-1] != 1:
        remedy = "[" + ", ".join(map(str, sorted({1, *multipliers}, reverse=True))) + "]" if whole else "[8, 1]"
        raise UserError(
            f"batch.multipliers must be whole numbers that fall to 1, got {show(multipliers)}; write {remedy}"
        )
    section.done()
    return BatchConfig(per_worker=per_worker, multipliers=tuple(multipliers))


def _optimizer(section: Section) -> OptimizerConfig:
    config = OptimizerConfig(
        kind=section.choice("kind", OPTIMIZERS),
        momentum=section.number("momentum", least=0, below=1, remedy="the paper has 0.9"),
        weight_decay=section.number("weight_decay", least=0, remedy="the paper has 1e-4 on CIFAR"),
        clip_norm=section.optional_number("clip_norm", above=0, remedy="null does not clip"),
    )
    if config.kind == "nesterov" and config.momentum == 0:
        raise UserError("optimizer.momentum must be above 0 with optimizer.kind=nesterov, got 0.0; the paper has 0.9")
    section.done()
    return config


def _lr_schedule(section: Section) -> LRScheduleConfig:
    milestones = section.list("milestones", "a list of epochs", example="[150, 250]")
    if not all(type(epoch) is int and epoch >= 1 for epoch in milestones) or milestones != sorted(set(milestones)):
        raise UserError(
            f"lr_schedule.milestones must be rising epochs >= 1, got {show(milestones)}; write e.g. [150, 250], "
            "or [] for a constant rate"
        )
    config = LRScheduleConfig(
        base=section.number("base", above=0, remedy="the paper has 0.1 on CIFAR and 2.5 on WikiText-2"),
        scale_with_workers=section.boolean("scale_with_workers"),
        warmup_epochs=section.integer("warmup_epochs", least=0, remedy="0 starts at the full rate"),
        warmup_delay=section.integer("warmup_delay", least=0, remedy="the authors' code has 1"),
        milestones=tuple(milestones),
        factor=section.number("factor", above=0, most=1, remedy="0.1 divides by ten"),
    )
    section.done()
    return config


def _launch(section: Section, workers: int) -> LaunchConfig:
    processes = section.optional_integer("processes", least=1, remedy="null decides from the GPUs that are there")
    if processes is not None and workers % processes:
        divisors = ", ".join(str(n) for n in range(1, workers + 1) if workers % n == 0)
        raise UserError(
            f"launch.processes must divide workers={workers} so that each process hosts equally many, got {processes}; "
            f"use one of {divisors}"
        )
    config = LaunchConfig(
        processes=processes,
        device=section.choice("device", ("auto", "cpu", "cuda")),
        threads=section.integer("threads", least=1, remedy="1 per process suits several processes on one CPU"),
        timeout_s=section.number("timeout_s", above=0, remedy="600 gives a slow worker ten minutes"),
    )
    section.done()
    return config


def _checkpoint(section: Section) -> CheckpointConfig:
    config = CheckpointConfig(
        enabled=section.boolean("enabled"),
        minutes=section.number("minutes", least=0, remedy="0 saves after every update; checkpoint.enabled=false never"),
        keep=section.boolean("keep"),
    )
    section.done()
    return config


def _probe(section: Section) -> ProbeConfig:
    remedy = "1 measures after every epoch, null never"
    config = ProbeConfig(
        eigenvalue=section.optional_integer("eigenvalue", least=1, remedy=remedy),
        overlap=section.optional_integer("overlap", least=1, remedy=remedy),
    )
    section.done()
    return config


def _network(top: Section) -> str:
    from accordion_bench.training.network import NETWORKS

    return top.known("network", NETWORKS, "network")


def _check_writable(config: RunConfig) -> None:
    """Refuse a results directory in which no run could be recorded, before anything is trained."""
    path = Path(config.results).absolute()
    while not path.exists() and not path.is_symlink() and path != path.parent:
        path = path.parent
    if not path.is_dir() or not os.access(path, os.W_OK | os.X_OK):
        why = "is not writable" if path.is_dir() else "is not a directory"
        raise UserError(
            f"results must be a directory that can be written, got {config.results!r} ({path} {why}); set results=DIR"
        )


def from_yaml(text: str) -> RunConfig:
    """The reverse of `to_yaml`, equal to what was written; UserError if the text was edited into something invalid."""
    import yaml

    try:
        values = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise UserError(f"config.yaml is not valid YAML ({' '.join(str(error).split())}); restore it") from None
    if not isinstance(values, dict):
        raise UserError("config.yaml must hold a mapping of settings; restore it")
    return from_mapping(values)
