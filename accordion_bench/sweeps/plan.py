"""What a run will send, hold in memory and wait for, before anyone pays for a GPU.

The counts come from the compressor's own `cost` and the scheduler's own decisions, so they are exactly what the meter
counts later wherever the decisions do not depend on the data. Where they do, two imagined runs bracket it: a calm one,
whose gradient never changes and is approximated without error, and a restless one, whose gradient changes beyond any
threshold all the time and is not approximated at all. Gradient traffic only: a scheduler's statistics, a few words per
layer and epoch, are not in it. CIFAR is taken to have its official size, so that no file is needed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

from accordion_bench.config.schema import RunConfig
from accordion_bench.schedulers import build_scheduler
from accordion_bench.schedulers.base import EpochStatistics, Problem, Scheduler
from accordion_bench.training import network
from accordion_bench.training.lr_schedule import LRSchedule
from accordion_bench.training.traffic import BYTES_PER_FLOAT, Count, Traffic
from accordion_bench.workloads.datasets.base import check_limit

OFFICIAL_IMAGES = {  # name -> (training images, channels, size, classes); needs no files
    "cifar10": (50_000, 3, 32, 10),
    "cifar100": (50_000, 3, 32, 100),
}


@dataclass(frozen=True)
class Rung:
    """One level and batch size, if every layer uses it.

    Attributes:
        batch_multiple: backward passes per update.
        updates_per_epoch: optimiser steps.
        floats_per_update: words of one worker.
        collectives_per_update: gradient collectives.
        communication_seconds_per_epoch: modelled on the network, nothing overlapping.
    """

    level: float
    batch_multiple: int
    updates_per_epoch: int
    floats_per_update: float
    collectives_per_update: int
    communication_seconds_per_epoch: float


@dataclass(frozen=True)
class Course:
    """One way the run can go.

    Attributes:
        updates: optimiser steps of the whole run.
        epochs: epochs of the whole run (a scheduler may stop early).
        traffic: of one worker over the whole run, by kind of gradient collective.
        communication_seconds: modelled on the network, nothing overlapping.
    """

    updates: int
    epochs: int
    traffic: dict[str, dict[str, int]]
    floats_per_worker: float
    collectives: int
    communication_seconds: float

    def paper_floats(self, workers: int) -> float:
        """The paper's Data Sent: gathered words count once per worker."""
        return Traffic.from_dict({**self.traffic, "control": asdict(Count())}).paper_floats(workers)


@dataclass(frozen=True)
class Plan:
    """A run before it starts.

    Attributes:
        batches_per_epoch: base batches per worker and epoch.
        rungs: every level with every batch multiple.
        memory_bytes: of a process that hosts one worker: what training keeps between updates, besides the data.
        calm, restless: the two courses; equal where the decisions do not depend on the data.
        estimated: the compressor's payload depends on the data, so the words are its own estimate.
    """

    title: str
    network: str
    parameters: int
    batches_per_epoch: int
    rungs: tuple[Rung, ...]
    memory_bytes: dict[str, int]
    calm: Course
    restless: Course
    estimated: bool

    @property
    def exact(self) -> bool:
        """Whether this is what the meter will count."""
        return self.calm == self.restless and not self.estimated

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for --json."""
        return asdict(self) | {"exact": self.exact}


def make_plan(config: RunConfig) -> Plan:
    """Plan a run; loads torch to build the model's shapes, and the data only where its size is not official.

    Raises:
        UserError: whatever would keep the run from starting on these data.
    """
    import torch

    from accordion_bench.compressors import build_compressor
    from accordion_bench.runs.run import check_multiples, problem_of
    from accordion_bench.training.gradients import Layout
    from accordion_bench.workloads.models import build_model

    facts, batches = _facts(config)
    check_multiples(config, batches)
    with torch.device("meta"):
        layout = Layout.of(build_model(config.model.name, facts, config.model.settings))
    compressor = build_compressor(
        config.compressor.name,
        layout,
        config.seed,
        error_feedback=config.compressor.error_feedback,
        settings=config.compressor.settings,
    )
    problem = problem_of(config, layout, compressor)

    @cache
    def cost(level_index_L: tuple[int, ...]) -> Traffic:
        return compressor.cost([config.compressor.levels[index] for index in level_index_L])

    scheduler = build_scheduler(config.scheduler.name, config.scheduler.settings, config.statistic)
    calm, restless = (_course(config, scheduler, problem, batches, cost, restless) for restless in (False, True))
    return Plan(
        title=config.title,
        network=config.network,
        parameters=layout.size,
        batches_per_epoch=batches,
        rungs=tuple(
            _rung(config, level, multiple, batches // multiple, cost((index,) * len(layout.layers)))
            for index, level in enumerate(config.compressor.levels)
            for multiple in config.batch.multipliers
        ),
        memory_bytes=_memory(config, BYTES_PER_FLOAT * layout.size, compressor.own_buffers),
        calm=calm,
        restless=restless,
        estimated=compressor.data_dependent,
    )


def _rung(config: RunConfig, level: float, multiple: int, updates: int, cost: Traffic) -> Rung:
    return Rung(
        level=level,
        batch_multiple=multiple,
        updates_per_epoch=updates,
        floats_per_update=cost.floats_per_worker,
        collectives_per_update=cost.collectives,
        communication_seconds_per_epoch=_seconds(config, cost.times(updates)),
    )


def _seconds(config: RunConfig, traffic: Traffic) -> float:
    return network.seconds(traffic, config.workers, network.find_network(config.network))


def _memory(config: RunConfig, buffer: int, own_buffers: int) -> dict[str, int]:
    """What is kept, in bytes: multiples of the flat buffer. The next error memory is written beside the present one."""
    return {
        "parameters": buffer,
        "gradient": buffer,
        "update": buffer,
        "momentum": buffer if config.optimizer.momentum else 0,
        "error memory": 2 * buffer if config.compressor.error_feedback else 0,
        "compressor": own_buffers * buffer,
        "gradient summed over the epoch": buffer,
    }


def _facts(config: RunConfig) -> tuple[dict[str, Any], int]:
    """What the model must know, and base batches per worker and epoch."""
    official = OFFICIAL_IMAGES.get(config.dataset.name)
    if official is None:
        from accordion_bench.workloads.tasks import build_task

        task = build_task(
            config.dataset,
            batch_per_worker=config.batch.per_worker,
            workers=config.workers,
            seed=config.seed,
            device="cpu",
            shuffle=config.shuffle,
        )
        return task.facts, task.batches_per_epoch
    from accordion_bench.workloads.tasks.images import images_per_worker

    images, channels, size, classes = official
    if config.dataset.limit_train is not None:
        check_limit("dataset.limit_train", config.dataset.limit_train, images, "images")
        images = config.dataset.limit_train
    share = images_per_worker(images, config.workers, config.batch.per_worker)
    facts = {"kind": "image", "channels": channels, "size": size, "classes": classes}
    return facts, -(-share // config.batch.per_worker)


def _course(
    config: RunConfig,
    scheduler: Scheduler,
    problem: Problem,
    batches: int,
    cost: Callable[[tuple[int, ...]], Traffic],
    restless: bool,
) -> Course:
    """Follow the scheduler through a run that never was."""
    rates = LRSchedule(config.lr_schedule, config.workers)
    state, decision = scheduler.start(problem)
    total, updates, epoch = Traffic(), 0, 0
    while epoch < problem.epochs and not decision.stop:
        steps = batches // problem.multiples[decision.batch_index]
        total = total + cost(tuple(decision.level_index_L)).times(steps)
        updates += steps
        statistics = _imagined(problem, rates, epoch, restless, total.floats_per_worker, steps)
        state, decision = scheduler.decide(state, problem, statistics)
        epoch += 1
    return Course(
        updates=updates,
        epochs=epoch,
        traffic={kind: total.as_dict()[kind] for kind in ("mean", "gather")},
        floats_per_worker=total.floats_per_worker,
        collectives=total.collectives,
        communication_seconds=_seconds(config, total),
    )


def _imagined(
    problem: Problem, rates: LRSchedule, epoch: int, restless: bool, floats: float, steps: int
) -> EpochStatistics:
    """Statistics of an epoch: the same every time, or larger by more than half from each epoch to the next."""
    layers = len(problem.layers)
    errors_K = (math.inf if restless else 0.0,) * problem.rungs
    size = 1.6**epoch if restless else 1.0
    mean = 0.1**epoch if restless else 1.0
    return EpochStatistics(
        epoch=epoch,
        learning_rate=rates.rate(epoch),
        next_learning_rate=rates.rate(epoch + 1),
        norms_L=(size,) * layers,
        means_L=(mean,) * layers,
        deviations_L=(1.0,) * layers,
        norm=size,
        loss=1.0,
        floats_per_worker=floats,
        updates=steps,
        eigenvalue=size,
        errors_LK=(errors_K,) * layers,
    )
