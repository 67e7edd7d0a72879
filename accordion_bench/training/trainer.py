"""The epoch and the step, readable top to bottom.

Shape suffixes: H hosted workers, N parameters in the flat buffer, L layers.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn

from accordion_bench.errors import Diverged
from accordion_bench.schedulers.base import EpochStatistics, Problem, Scheduler
from accordion_bench.training.aggregator import Aggregator
from accordion_bench.training.communicator import Communicator
from accordion_bench.training.gradients import Binding, Layout, clip_
from accordion_bench.training.lr_schedule import LRSchedule
from accordion_bench.training.probes import Probes
from accordion_bench.training.record import EpochRecord
from accordion_bench.training.seeds import private_randomness, seed_for
from accordion_bench.training.statistics import GradientSum
from accordion_bench.training.task import Batch, Carry, Task, WorkerBuffers
from accordion_bench.training.traffic import Traffic

MOST_NAMED = 100  # updates left out that an epoch's record names


@dataclass
class Epoch:
    """An epoch on its way; with the trainer's other state it can be continued after any update."""

    number: int
    multiple: int
    loss_H: list[float]  # per hosted worker, sum over updates of the mean loss
    carries_H: list[Carry]
    step: int = 0  # updates tried
    skipped: int = 0
    bad: list[list[Any]] = field(default_factory=list)  # [step, layer] of updates left out, the first MOST_NAMED
    seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))


@dataclass(kw_only=True)
class Trainer:
    """Data-parallel SGD with A workers, H of them hosted here.

    Every collaborator is built elsewhere (run.py). state.py says what must survive between two updates.

    Attributes:
        levels: the level ladder, most compressed first.
        probes: measures what is costly, for schedulers that ask.
        clip_norm: clip each worker's gradient to this norm before compression, or None.
        skip_nonfinite: leave out an update that is not finite, and count it, instead of raising Diverged.
        after_update: called with (updates tried, updates of the epoch); what it raises ends training between updates.
        position: the next epoch, or the one on its way.
        traffic: of all finished epochs.
    """

    task: Task
    model: nn.Module
    layout: Layout
    aggregator: Aggregator
    scheduler: Scheduler
    problem: Problem
    levels: tuple[float, ...]
    lr_schedule: LRSchedule
    optimizer: torch.optim.Optimizer
    communicator: Communicator
    seed: int
    statistic: GradientSum
    probes: Probes
    clip_norm: float | None = None
    skip_nonfinite: bool = False
    after_update: Callable[[int, int], None] = lambda done, total: None
    position: int = 0
    traffic: Traffic = field(default_factory=Traffic)
    current: Epoch | None = None

    def __post_init__(self) -> None:
        self.binding = Binding(self.model, self.layout)
        like = self.binding.parameters[0]
        self.grads_HN = self.layout.zeros(self.communicator.hosted, like.device, like.dtype)
        self.buffers = WorkerBuffers(self.model, self.communicator.hosted)
        self.scheduler_state, self.decision = self.scheduler.start(self.problem)

    def epochs(self) -> Iterator[EpochRecord]:
        """Train from where we are to the end, an epoch per item. Raises Diverged."""
        while self.position < self.problem.epochs and not self.decision.stop:
            yield self._epoch()

    def _epoch(self) -> EpochRecord:
        clock = self.communicator.clock
        clock.read()
        epoch = self.current = self.current or self._begin()
        rate = self._set_rate(epoch)
        self._train(epoch)
        loss = self._mean_loss(epoch)
        with clock.section("evaluate"):
            metrics = self.evaluate()
        measured = self.probes.measure(self, epoch.number)
        used, statistics = self.decision, self._statistics(epoch, loss, measured)
        extra = self.aggregator.compressor.report() | measured | ({"skipped": epoch.bad} if epoch.bad else {})
        traffic, self.communicator.traffic = self.communicator.traffic, Traffic()
        self.traffic = self.traffic + traffic
        self.scheduler_state, self.decision = self.scheduler.decide(self.scheduler_state, self.problem, statistics)
        self.position, self.current = epoch.number + 1, None
        seconds = clock.read()
        return EpochRecord(
            epoch=epoch.number,
            updates=epoch.step - epoch.skipped,
            skipped=epoch.skipped,
            learning_rate=rate,
            batch_multiple=epoch.multiple,
            loss=loss,
            metrics=metrics,
            traffic=traffic.as_dict(),
            seconds={name: epoch.seconds[name] + seconds[name] for name in seconds},
            level_index_L=used.level_index_L,
            norms_L=statistics.norms_L,
            norm=statistics.norm,
            critical=used.critical,
            extra=extra,
            time=time.time(),
        )

    def _begin(self) -> Epoch:
        self.binding.check()
        self.aggregator.compressor.set_levels([self.levels[index] for index in self.decision.level_index_L])
        self.statistic.reset()
        hosted = self.communicator.hosted
        carries_H = [self.task.first_carry() for _ in range(hosted)]
        return Epoch(self.position, self.problem.multiples[self.decision.batch_index], [0.0] * hosted, carries_H)

    def _set_rate(self, epoch: Epoch) -> float:
        factor = self.decision.learning_rate_factor
        rate = self.lr_schedule.rate(epoch.number) * (epoch.multiple if factor is None else factor)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        return rate

    def _train(self, epoch: Epoch) -> None:
        """The epoch's floor(batches / multiple) updates, `multiple` backward passes each, from `epoch.step` on."""
        updates = self.task.batches_per_epoch // epoch.multiple
        batches_H = [self.task.batches(epoch.number, worker) for worker in self.communicator.hosted_workers]
        for batches in batches_H:  # what came before an interruption
            for _ in islice(batches, epoch.step * epoch.multiple):
                pass
        self.model.train()
        while epoch.step < updates:
            before = self._before_update(epoch) if self.skip_nonfinite else None
            self.grads_HN.zero_()
            losses = []
            for h, batches in enumerate(batches_H):
                with self.communicator.clock.section("data"):
                    accumulated = list(islice(batches, epoch.multiple))
                with self.communicator.clock.section("compute"):
                    losses.append(self._backward(h, accumulated, epoch))
            if self._update(epoch):
                for h, loss in enumerate(torch.stack(losses).tolist()):  # now: the device need not wait twice
                    epoch.loss_H[h] += loss
            elif before is not None:
                self._take_back(epoch, *before)
            epoch.step += 1
            self.after_update(epoch.step, updates)

    def _backward(self, h: int, batches: list[Batch], epoch: Epoch) -> Tensor:
        """One hosted worker's gradient of the mean loss over its batches, straight into grads_HN[h]; that loss."""
        worker = self.communicator.hosted_workers[h]
        self.binding.bind(self.grads_HN[h])
        self.buffers.use(h)
        examples = sum(self.task.size(batch) for batch in batches)
        mean_loss = torch.zeros((), device=self.grads_HN.device, dtype=self.grads_HN.dtype)
        for place, batch in enumerate(batches):
            seed = seed_for(self.seed, "forward", epoch.number, epoch.step * epoch.multiple + place, worker)
            with private_randomness(seed, self.grads_HN.device):
                loss, epoch.carries_H[h] = self.task.loss(self.model, batch, epoch.carries_H[h])
                loss = loss * (self.task.size(batch) / examples)
                loss.backward()
                self.binding.collect()
            mean_loss += loss.detach()
        if self.clip_norm is not None:
            clip_(self.grads_HN[h], self.clip_norm)
        return mean_loss

    def _before_update(self, epoch: Epoch) -> tuple[list[dict[str, Tensor]], list[Carry]]:
        """What forward passes change: a bad batch must leave no NaN in BatchNorm statistics or a hidden state."""
        buffers_H = [self.buffers.state_dict(h) for h in range(self.communicator.hosted)]
        return [{name: x.clone() for name, x in own.items()} for own in buffers_H], list(epoch.carries_H)

    def _take_back(self, epoch: Epoch, buffers_H: list[dict[str, Tensor]], carries_H: list[Carry]) -> None:
        for h, own in enumerate(buffers_H):
            self.buffers.load_state_dict(h, own)
        epoch.carries_H[:] = carries_H

    def _update(self, epoch: Epoch) -> bool:
        """Aggregate the hosted gradients and let the optimiser step; if it is not finite, raise or return False."""
        self.statistic.add_local(self.grads_HN)
        update_N, finite = self.aggregator.reduce(self.grads_HN, self.communicator)
        if not finite:
            layer = self._bad_layer(update_N)
            if not self.skip_nonfinite:
                raise Diverged(epoch.number, epoch.step, layer)
            epoch.skipped += 1
            epoch.bad += [[epoch.step, layer]] if epoch.skipped <= MOST_NAMED else []
            return False
        self.statistic.add_update(update_N)
        with self.communicator.clock.section("compute"):
            self.binding.bind_trainable(update_N)
            self.optimizer.step()
        return True

    def _bad_layer(self, update_N: Tensor) -> str:
        """The first parameter with a non-finite element in the update, or in what some worker did not send.

        Every process calls this. The last 1-D tensor comes last, since Aggregator spoils it on purpose.
        """
        bad_N = ~(update_N.isfinite() & self.grads_HN.isfinite().all(0))
        bad_slots = torch.stack([bad_N[slot.start : slot.stop].any() for slot in self.layout.slots]).float()
        return self.layout.slots[int(self.communicator.total(bad_slots).nonzero()[0])].name

    def _mean_loss(self, epoch: Epoch) -> float:
        """Over workers and updates; NaN if every update was skipped."""
        losses_A = torch.zeros(self.communicator.workers, dtype=torch.float64)
        for worker, loss in zip(self.communicator.hosted_workers, epoch.loss_H, strict=True):
            losses_A[worker] = loss
        mean = float(self.communicator.total(losses_A.to(self.grads_HN.device)).mean())
        updates = epoch.step - epoch.skipped
        return mean / updates if updates else math.nan

    def _statistics(self, epoch: Epoch, loss: float, measured: dict[str, list[float]]) -> EpochStatistics:
        norms_L, means_L, deviations_L, norm = self.statistic.read()
        wanted = self.scheduler.probes(epoch.number)
        costly: dict[str, Any] = {}
        if wanted and self.scheduler.needs_errors:
            costly["errors_LK"] = self.probes.approximation_errors(self.statistic, self.levels)
        if wanted and self.scheduler.needs_eigenvalue:
            costly["eigenvalue"] = measured["eigenvalue"][0]
        sent = self.traffic + self.communicator.traffic
        return EpochStatistics(
            epoch=epoch.number,
            learning_rate=self.lr_schedule.rate(epoch.number),
            next_learning_rate=self.lr_schedule.rate(epoch.number + 1),
            norms_L=norms_L,
            means_L=means_L,
            deviations_L=deviations_L,
            norm=norm,
            loss=loss,
            floats_per_worker=sent.floats_per_worker,
            updates=epoch.step - epoch.skipped,
            **costly,
        )

    @torch.no_grad()
    def evaluate(self) -> dict[str, float]:
        """The task's metrics with worker 0's BatchNorm statistics, whichever process evaluates."""
        self.buffers.use(0)
        if self.communicator.processes == 1:
            return self.task.evaluate(self.model, self.communicator)
        own = self.buffers.state_dict(0)
        saved = {name: buffer.clone() for name, buffer in own.items()}
        self.communicator.from_first(own)
        metrics = self.task.evaluate(self.model, self.communicator)
        self.buffers.load_state_dict(0, saved)
        return metrics
