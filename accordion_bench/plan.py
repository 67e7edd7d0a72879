"""What a run will send, hold in memory and wait for, before anyone pays for a GPU.

The counts come from the compressor's own `cost` and the scheduler's own decisions, so they are exactly what the meter
counts later wherever the decisions do not depend on the data. Where they do, two imagined runs bracket it: a calm one,
whose gradient never changes, and a restless one, whose gradient changes beyond any threshold all the time.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from accordion_bench import network
from accordion_bench.config import RunConfig
from accordion_bench.lr_schedule import LRSchedule
from accordion_bench.progress import human_count, human_time
from accordion_bench.schedulers import build_scheduler
from accordion_bench.schedulers.base import EpochStatistics, Problem, Scheduler
from accordion_bench.traffic import BYTES_PER_FLOAT, Traffic

OFFICIAL_IMAGES = {  # name -> (training images, channels, size, classes); needs no files
    "cifar10": (50_000, 3, 32, 10),
    "cifar100": (50_000, 3, 32, 100),
}


@dataclass(frozen=True)
class Course:
    """One way the run can go.

    Attributes:
        updates: optimiser steps of the whole run.
        epochs: epochs of the whole run (a scheduler may stop early).
        traffic: of one worker over the whole run.
        communication_seconds: modelled on the network, nothing overlapping.
    """

    updates: int
    epochs: int
    traffic: dict[str, dict[str, int]]
    floats_per_worker: float
    collectives: int
    communication_seconds: float


@dataclass(frozen=True)
class Plan:
    """A run before it starts.

    Attributes:
        batches_per_epoch: base batches per worker and epoch.
        floats_per_update: words of one worker at every level of the ladder.
        collectives_per_update: gradient collectives at every level.
        memory_bytes: per process with one hosted worker: what training keeps besides activations.
        calm, restless: the two courses; equal where the decisions do not depend on the data.
        estimated: the compressor's payload depends on the data, so the words are its own estimate.
    """

    title: str
    network: str
    parameters: int
    batches_per_epoch: int
    levels: tuple[float, ...]
    floats_per_update: tuple[float, ...]
    collectives_per_update: tuple[int, ...]
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
    """Plan a run; loads torch to build the model's shapes, and the data only where its size is not official."""
    import torch

    from accordion_bench.compressors import build_compressor
    from accordion_bench.gradients import Layout
    from accordion_bench.models import build_model
    from accordion_bench.run import problem_of

    facts, batches = _facts(config)
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

    def cost(level_index_L: tuple[int, ...]) -> Traffic:
        return compressor.cost([config.compressor.levels[index] for index in level_index_L])

    scheduler = build_scheduler(config.scheduler.name, config.scheduler.settings, config.statistic)
    courses = [_course(config, scheduler, problem, batches, cost, restless) for restless in (False, True)]
    uniform = [cost((rung,) * len(layout.layers)) for rung in range(len(config.compressor.levels))]
    buffer = BYTES_PER_FLOAT * layout.size
    return Plan(
        title=config.title,
        network=config.network,
        parameters=layout.size,
        batches_per_epoch=batches,
        levels=config.compressor.levels,
        floats_per_update=tuple(traffic.floats_per_worker for traffic in uniform),
        collectives_per_update=tuple(traffic.collectives for traffic in uniform),
        memory_bytes={
            "parameters": buffer,
            "gradient": buffer,
            "update": buffer,
            "momentum": buffer if config.optimizer.momentum else 0,
            "error memory": buffer if config.compressor.error_feedback else 0,
            "gradient summed over the epoch": buffer,
        },
        calm=courses[0],
        restless=courses[1],
        estimated=getattr(compressor, "data_dependent", False),
    )


def _facts(config: RunConfig) -> tuple[dict[str, Any], int]:
    """What the model must know, and base batches per worker and epoch."""
    official = OFFICIAL_IMAGES.get(config.dataset.name)
    if official is None:
        from accordion_bench.tasks import build_task

        task = build_task(
            config.dataset,
            batch_per_worker=config.batch.per_worker,
            workers=config.workers,
            seed=config.seed,
            device="cpu",
            shuffle=config.shuffle,
        )
        return task.facts, task.batches_per_epoch
    images, channels, size, classes = official
    share = (config.dataset.limit_train or images) // config.workers
    facts = {"kind": "image", "channels": channels, "size": size, "classes": classes}
    return facts, -(-share // config.batch.per_worker)


def _course(
    config: RunConfig, scheduler: Scheduler, problem: Problem, batches: int, cost: Any, restless: bool
) -> Course:
    """Follow the scheduler through a run that never was."""
    rates = LRSchedule(config.lr_schedule, config.workers)
    state, decision = scheduler.start(problem)
    total, updates, epoch = Traffic(), 0, 0
    costs: dict[tuple[int, ...], Traffic] = {}
    while epoch < problem.epochs and not decision.stop:
        multiple = problem.multiples[decision.batch_index]
        if decision.level_index_L not in costs:
            costs[decision.level_index_L] = cost(decision.level_index_L)
        steps = batches // multiple
        total = total + costs[decision.level_index_L].times(steps)
        updates += steps
        statistics = _imagined(problem, rates, epoch, restless, total.floats_per_worker, steps)
        state, decision = scheduler.decide(state, problem, statistics)
        epoch += 1
    return Course(
        updates=updates,
        epochs=epoch,
        traffic=total.as_dict(),
        floats_per_worker=total.floats_per_worker,
        collectives=total.collectives,
        communication_seconds=network.seconds(total, config.workers, network.find_network(config.network)),
    )


def _imagined(
    problem: Problem, rates: LRSchedule, epoch: int, restless: bool, floats: float, steps: int
) -> EpochStatistics:
    """Statistics of an epoch: the same every time, or larger by more than half from each epoch to the next."""
    layers = len(problem.layers)
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
        errors_LK=tuple(
            tuple(1 - (rung + 1) / (problem.rungs + 1) for rung in range(problem.rungs)) for _ in range(layers)
        ),
    )


def render(plan: Plan) -> str:
    """The plan as a person reads it."""
    lines = [plan.title, f"{plan.parameters:,} parameters, {plan.batches_per_epoch} batches per worker and epoch", ""]
    for level, floats, calls in zip(plan.levels, plan.floats_per_update, plan.collectives_per_update, strict=True):
        lines.append(f"level {level:g}: {floats:,.0f} floats per worker and update in {calls} collectives")
    lines.append("")
    about = "about " if plan.estimated else ""
    if plan.calm == plan.restless:
        lines.append(f"{about}{_line(plan.calm, plan.network)}" + ("" if plan.estimated else " (exactly)"))
    else:
        lines.append("depends on the gradients:")
        lines.append(f"  if they never change fast:   {about}{_line(plan.calm, plan.network)}")
        lines.append(f"  if they always change fast:  {about}{_line(plan.restless, plan.network)}")
    total = sum(plan.memory_bytes.values())
    parts = ", ".join(f"{name} {size / 2**20:.0f}" for name, size in plan.memory_bytes.items() if size)
    lines += ["", f"memory per worker besides activations: {total / 2**20:.0f} MiB ({parts})"]
    return "\n".join(lines)


def _line(course: Course, network_name: str) -> str:
    return (
        f"{human_count(course.floats_per_worker)} floats per worker, {course.updates:,} updates in {course.epochs} epochs, "
        f"{course.collectives:,} collectives, {human_time(course.communication_seconds)} of communication on "
        f"network {network_name}"
    )
