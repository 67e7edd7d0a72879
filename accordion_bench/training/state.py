"""What of a Trainer must survive between two updates: one shared state and one per worker, keyed by parameter name.

The states name workers and parameters, not processes, so a run can be continued in another placement.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor

from accordion_bench.schedulers.base import Decision
from accordion_bench.training.gradients import Layout
from accordion_bench.training.traffic import Traffic
from accordion_bench.training.trainer import Epoch, Trainer


def shared_state(trainer: Trainer) -> dict[str, Any]:
    """What is the same for all workers, as process 0 sees it."""
    names = [slot.name for slot in trainer.layout.slots]
    parameters = dict(zip(names, trainer.binding.parameters, strict=True))
    buffers = {name: trainer.optimizer.state[p].get("momentum_buffer") for name, p in parameters.items()}
    compressor = trainer.aggregator.compressor
    state: dict[str, Any] = {
        "position": trainer.position,
        "parameters": {name: parameter.detach() for name, parameter in parameters.items()},
        "momenta": {name: buffer for name, buffer in buffers.items() if buffer is not None},
        "compressor": compressor.state_dict(),
        "compressor_updates": compressor.updates,
        "levels_L": list(compressor.levels_L),
        "scheduler": trainer.scheduler_state,
        "decision": asdict(trainer.decision) | {"level_index_L": list(trainer.decision.level_index_L)},
        "traffic": trainer.traffic.as_dict(),
        "task": trainer.task.state_dict(),
        "epoch": None,
    }
    if trainer.current is not None:
        epoch = trainer.current
        _add_seconds(epoch.seconds, trainer.communicator.clock.read())
        state["epoch"] = {
            "number": epoch.number,
            "multiple": epoch.multiple,
            "step": epoch.step,
            "skipped": epoch.skipped,
            "bad": epoch.bad,
            "seconds": dict(epoch.seconds),
            "traffic": trainer.communicator.traffic.as_dict(),
            "gradient_sum": named_views(trainer.layout, trainer.statistic.sum_N),
        }
    return state


def worker_state(trainer: Trainer, h: int) -> dict[str, Any]:
    """What one hosted worker owns: BatchNorm statistics, error memory, a compressor's own memory, the carry."""
    memory = trainer.aggregator.memory(h)
    state: dict[str, Any] = {
        "buffers": trainer.buffers.state_dict(h),
        "memory": None if memory is None else named_views(trainer.layout, memory),
        "compressor": trainer.aggregator.compressor.worker_state_dict(h),
    }
    if trainer.current is not None:
        state["loss"] = trainer.current.loss_H[h]
        state["carry"] = trainer.current.carries_H[h]
    return state


@torch.no_grad()
def restore(trainer: Trainer, shared: dict[str, Any], workers_H: list[dict[str, Any]]) -> None:
    """Continue from a checkpoint: the shared state and the states of the workers hosted here."""
    device = trainer.grads_HN.device
    trainer.position = shared["position"]
    for slot, parameter in zip(trainer.layout.slots, trainer.binding.parameters, strict=True):
        parameter.copy_(shared["parameters"][slot.name])
        if slot.name in shared["momenta"]:
            trainer.optimizer.state[parameter]["momentum_buffer"] = shared["momenta"][slot.name].to(device).clone()
    compressor = trainer.aggregator.compressor
    if shared["levels_L"]:
        compressor.set_levels(shared["levels_L"])
    compressor.load_state_dict({name: value.to(device) for name, value in shared["compressor"].items()})
    compressor.updates = shared["compressor_updates"]
    trainer.scheduler_state = shared["scheduler"]
    decision = shared["decision"]
    trainer.decision = Decision(**decision | {"level_index_L": tuple(decision["level_index_L"])})
    trainer.traffic = Traffic.from_dict(shared["traffic"])
    trainer.task.load_state_dict(shared["task"])
    for h, worker in enumerate(workers_H):
        trainer.buffers.load_state_dict(h, worker["buffers"])
    compressor.load_worker_state_dicts([on_device(worker["compressor"], device) for worker in workers_H])
    if workers_H[0]["memory"] is not None:
        memory_HN = torch.zeros_like(trainer.grads_HN)
        for memory_N, worker in zip(memory_HN, workers_H, strict=True):
            fill_views(trainer.layout, memory_N, worker["memory"])
        trainer.aggregator.load_memory(memory_HN)
    if shared["epoch"] is not None:
        _restore_epoch(trainer, shared["epoch"], workers_H)


def _restore_epoch(trainer: Trainer, saved: dict[str, Any], workers_H: list[dict[str, Any]]) -> None:
    """Continue in the middle of an epoch."""
    device = trainer.grads_HN.device
    trainer.current = Epoch(
        number=saved["number"],
        multiple=saved["multiple"],
        loss_H=[worker["loss"] for worker in workers_H],
        carries_H=[as_tuples(on_device(worker["carry"], device)) for worker in workers_H],
        step=saved["step"],
        skipped=saved["skipped"],
        bad=saved["bad"],
    )
    _add_seconds(trainer.current.seconds, saved["seconds"])
    trainer.communicator.traffic = Traffic.from_dict(saved["traffic"])
    fill_views(trainer.layout, trainer.statistic.sum_N, saved["gradient_sum"])


def _add_seconds(total: dict[str, float], more: dict[str, float]) -> None:
    for name, seconds in more.items():
        total[name] = total.get(name, 0.0) + seconds


def named_views(layout: Layout, flat_N: Tensor) -> dict[str, Tensor]:
    """Views of (N,) by parameter name."""
    return {slot.name: view for slot, view in zip(layout.slots, layout.views(flat_N), strict=True)}


def fill_views(layout: Layout, flat_N: Tensor, values: dict[str, Tensor]) -> None:
    """Overwrite (N,) with values by parameter name."""
    for name, view in named_views(layout, flat_N).items():
        view.copy_(values[name])


def on_device(value: Any, device: torch.device) -> Any:
    """Every tensor inside, on the device."""
    if isinstance(value, Tensor):
        return value.to(device)
    if isinstance(value, dict):
        return {key: on_device(item, device) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(on_device(item, device) for item in value)
    return value


def as_tuples(value: Any) -> Any:
    """Lists, which a checkpoint makes of tuples, turned back (an LSTM's hidden state is a tuple)."""
    return tuple(as_tuples(item) for item in value) if isinstance(value, list) else value
