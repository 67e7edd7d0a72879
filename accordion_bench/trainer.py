"""The epoch and the step, readable top to bottom.

Shape suffixes: H hosted workers, N parameters in the flat buffer, L layers.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn

from accordion_bench.aggregator import Aggregator
from accordion_bench.communicator import Communicator
from accordion_bench.errors import Diverged
from accordion_bench.gradients import Binding, Layout
from accordion_bench.lr_schedule import LRSchedule
from accordion_bench.records import EpochRecord
from accordion_bench.schedulers.base import Decision, EpochStatistics, Problem, Scheduler
from accordion_bench.seeds import seed_for
from accordion_bench.statistics import GradientSum
from accordion_bench.tasks.base import Batch, Carry, Task, WorkerBuffers
from accordion_bench.traffic import Traffic


@dataclass
class Epoch:
    """What adds up while an epoch runs."""

    loss: Tensor  # float64 sum over hosted workers and updates of the mean loss of an update
    updates: int = 0
    skipped: int = 0


@dataclass(kw_only=True)
class Trainer:
    """Data-parallel SGD with A workers, H of them hosted here.

    Every collaborator is built elsewhere (run.py). `position` is the next epoch; with `state_dict` it is all that a
    checkpoint needs.

    Attributes:
        levels: the level ladder, most compressed first.
        clip_norm: clip each worker's gradient to this norm before compression, or None.
        skip_nonfinite: leave out an update that is not finite, and count it, instead of raising Diverged.
        on_update: called after every update with (updates done, updates of the epoch).
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
    clip_norm: float | None = None
    skip_nonfinite: bool = False
    on_update: Callable[[int, int], None] = lambda done, total: None
    position: int = 0
    traffic: Traffic = field(default_factory=Traffic)  # of all finished epochs

    def __post_init__(self) -> None:
        like = next(self.model.parameters())
        self.grads_HN = self.layout.zeros(self.communicator.hosted, like.device, like.dtype)
        self.binding = Binding(self.model, self.layout)
        self.buffers = WorkerBuffers(self.model, self.communicator.hosted)
        self.scheduler_state, self.decision = self.scheduler.start(self.problem)

    def epochs(self) -> Iterator[EpochRecord]:
        """Train from `position` to the end, an epoch per item. Raises Diverged."""
        while self.position < self.problem.epochs and not self.decision.stop:
            yield self._epoch(self.position)

    def _epoch(self, number: int) -> EpochRecord:
        clock = self.communicator.clock
        clock.read()
        decision = self.decision
        multiple = self.problem.multiples[decision.batch_index]
        scheduled = self.lr_schedule.rate(number)
        factor = multiple if decision.learning_rate_factor is None else decision.learning_rate_factor
        for group in self.optimizer.param_groups:
            group["lr"] = scheduled * factor
        self.aggregator.compressor.set_levels([self.levels[index] for index in decision.level_index_L])

        epoch = self._train(number, multiple)
        loss = self._mean_loss(epoch)
        norms_L, means_L, deviations_L, norm = self.statistic.read()
        with clock.section("evaluate"):
            metrics = self.evaluate()

        traffic, self.communicator.traffic = self._take_traffic()
        self.traffic = self.traffic + traffic
        statistics = EpochStatistics(
            epoch=number,
            learning_rate=scheduled,
            next_learning_rate=self.lr_schedule.rate(number + 1),
            norms_L=norms_L,
            means_L=means_L,
            deviations_L=deviations_L,
            norm=norm,
            loss=loss,
            floats_per_worker=self.traffic.floats_per_worker,
            updates=epoch.updates,
        )
        self.scheduler_state, self.decision = self.scheduler.decide(self.scheduler_state, self.problem, statistics)
        self.position = number + 1
        return EpochRecord(
            epoch=number,
            updates=epoch.updates,
            skipped=epoch.skipped,
            learning_rate=scheduled * factor,
            batch_multiple=multiple,
            loss=loss,
            metrics=metrics,
            traffic=traffic.as_dict(),
            seconds=clock.read(),
            level_index_L=decision.level_index_L,
            norms_L=norms_L,
            norm=norm,
            critical=decision.critical,
            time=time.time(),
        )

    def _train(self, number: int, multiple: int) -> Epoch:
        """All updates of one epoch: floor(batches / multiple) of them, `multiple` backward passes each."""
        epoch = Epoch(torch.zeros((), dtype=torch.float64, device=self.grads_HN.device))
        updates = self.task.batches_per_epoch // multiple
        batches_H = [self.task.batches(number, worker) for worker in self.communicator.hosted_workers]
        carries_H = [self.task.first_carry() for _ in batches_H]
        self.statistic.reset()
        self.model.train()
        for step in range(updates):
            self.grads_HN.zero_()
            for h, batches in enumerate(batches_H):
                with self.communicator.clock.section("data"):
                    accumulated = list(islice(batches, multiple))
                with self.communicator.clock.section("compute"):
                    loss, carries_H[h] = self._backward(h, accumulated, carries_H[h], number, step * multiple)
                    epoch.loss += loss
            self._update(epoch, number, step)
            self.on_update(step + 1, updates)
        return epoch

    def _backward(self, h: int, batches: list[Batch], carry: Carry, epoch: int, first: int) -> tuple[Tensor, Carry]:
        """One hosted worker's gradient of the mean loss over its batches, straight into grads_HN[h]."""
        worker = self.communicator.hosted_workers[h]
        self.binding.bind(self.grads_HN[h])
        self.buffers.use(h)
        examples = sum(self.task.size(batch) for batch in batches)
        mean_loss = torch.zeros((), device=self.grads_HN.device)
        for place, batch in enumerate(batches):
            with private_randomness(seed_for(self.seed, "forward", epoch, first + place, worker), self.grads_HN.device):
                loss, carry = self.task.loss(self.model, batch, carry)
                loss = loss * (self.task.size(batch) / examples)
                loss.backward()
            mean_loss += loss.detach()
        if self.clip_norm is not None:
            norm = torch.linalg.vector_norm(self.grads_HN[h])
            self.grads_HN[h] *= (self.clip_norm / (norm + 1e-6)).clamp(max=1.0)  # as torch's clip_grad_norm_
        return mean_loss, carry

    def _update(self, epoch: Epoch, number: int, step: int) -> None:
        """Aggregate the hosted gradients and let the optimiser step; skip or raise if the update is not finite."""
        self.statistic.add_local(self.grads_HN)
        update_N, finite = self.aggregator.reduce(self.grads_HN, self.communicator)
        if not finite:
            if not self.skip_nonfinite:
                raise Diverged(number, step, self._bad_layer(update_N))
            epoch.skipped += 1
            return
        self.statistic.add_update(update_N)
        with self.communicator.clock.section("compute"):
            self.binding.bind(update_N)
            self.optimizer.step()
        epoch.updates += 1

    def _bad_layer(self, update_N: Tensor) -> str:
        """The first layer whose update is not finite; 1-D tensors last, since Aggregator spoils them on purpose."""
        for slot in self.layout.slots:
            if not bool(update_N[slot.start : slot.stop].isfinite().all()):
                return slot.name
        return "unknown"

    def _mean_loss(self, epoch: Epoch) -> float:
        total = float(self.communicator.total(epoch.loss))
        return total / max(self.communicator.workers * (epoch.updates + epoch.skipped), 1)

    @torch.no_grad()
    def evaluate(self) -> dict[str, float]:
        """The task's metrics with worker 0's BatchNorm statistics, whichever process evaluates."""
        self.buffers.use(0)
        if self.communicator.processes == 1:
            return self.task.evaluate(self.model, self.communicator)
        own = self.buffers.state_dict(0)
        first = self.communicator.from_first({name: buffer.clone() for name, buffer in own.items()})
        saved = {name: buffer.clone() for name, buffer in own.items()}
        self.buffers.load_state_dict(0, first)
        metrics = self.task.evaluate(self.model, self.communicator)
        self.buffers.load_state_dict(0, saved)
        return metrics

    def _take_traffic(self) -> tuple[Traffic, Traffic]:
        return self.communicator.traffic, Traffic()

    def state_dict(self) -> dict[str, Any]:
        """Everything that the next epoch depends on, shared by all workers, keyed by parameter name."""
        names = [slot.name for slot in self.layout.slots]
        momenta = {
            name: self.optimizer.state[parameter]["momentum_buffer"]
            for name, parameter in zip(names, self.binding.parameters, strict=True)
            if self.optimizer.state[parameter].get("momentum_buffer") is not None
        }
        return {
            "position": self.position,
            "parameters": {
                name: parameter.detach() for name, parameter in zip(names, self.binding.parameters, strict=True)
            },
            "momenta": momenta,
            "compressor": self.aggregator.compressor.state_dict(),
            "compressor_updates": self.aggregator.compressor.updates,
            "levels_L": list(self.aggregator.compressor.levels_L),
            "scheduler": self.scheduler_state,
            "decision": {
                "level_index_L": list(self.decision.level_index_L),
                "batch_index": self.decision.batch_index,
                "learning_rate_factor": self.decision.learning_rate_factor,
                "critical": self.decision.critical,
                "stop": self.decision.stop,
            },
            "traffic": self.traffic.as_dict(),
            "task": self.task.state_dict(),
        }

    def worker_state_dict(self, h: int) -> dict[str, Any]:
        """What one hosted worker owns: BatchNorm statistics and error memory."""
        memory = self.aggregator.memory(h)
        state: dict[str, Any] = {"buffers": self.buffers.state_dict(h)}
        if memory is not None:
            state["memory"] = {
                slot.name: view for slot, view in zip(self.layout.slots, self.layout.views(memory), strict=True)
            }
        return state

    @torch.no_grad()
    def load_state_dict(self, state: dict[str, Any], workers_H: list[dict[str, Any]]) -> None:
        """Continue from a checkpoint: the shared state and the states of the workers hosted here."""
        device = self.grads_HN.device
        self.position = state["position"]
        for slot, parameter in zip(self.layout.slots, self.binding.parameters, strict=True):
            parameter.copy_(state["parameters"][slot.name])
            if slot.name in state["momenta"]:
                self.optimizer.state[parameter]["momentum_buffer"] = state["momenta"][slot.name].to(device).clone()
        compressor = self.aggregator.compressor
        if state["levels_L"]:
            compressor.set_levels(state["levels_L"])
        compressor.load_state_dict({name: value.to(device) for name, value in state["compressor"].items()})
        compressor.updates = state["compressor_updates"]
        self.scheduler_state = state["scheduler"]
        decision = dict(state["decision"])
        decision["level_index_L"] = tuple(decision["level_index_L"])
        self.decision = Decision(**decision)
        self.traffic = Traffic.from_dict(state["traffic"])
        self.task.load_state_dict(state["task"])
        for h, worker in enumerate(workers_H):
            self.buffers.load_state_dict(h, worker["buffers"])
        if "memory" in workers_H[0]:
            memory_HN = torch.zeros_like(self.grads_HN)
            for h, worker in enumerate(workers_H):
                for slot, view in zip(self.layout.slots, self.layout.views(memory_HN[h]), strict=True):
                    view.copy_(worker["memory"][slot.name])
            self.aggregator.load_memory(memory_HN)


@contextmanager
def private_randomness(seed: int, device: torch.device) -> Iterator[None]:
    """Seed torch's global generators for what happens inside; nobody outside sees a change."""
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(seed)
        yield
