"""A NaN or Inf of one worker ends training, or is left out, and poisons nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from processes import run_processes
from small_trainer import Setting, make_trainer, parameters_of, setting_of
from torch import Tensor, nn

from accordion_bench.errors import Diverged
from accordion_bench.training.communicator import Communicator
from accordion_bench.training.task import Carry, Task
from accordion_bench.training.trainer import Trainer


class Sabotaged(Task):
    """Another task whose loss is spoiled for one batch of one epoch."""

    metric, higher_is_better = "accuracy", True

    def __init__(
        self, task: Task, worker: int, epoch: int, step: int, spoil: Callable[[nn.Module, Tensor], Tensor]
    ) -> None:
        self.task, self.facts = task, task.facts
        self.worker, self.epoch, self.step, self.spoil = worker, epoch, step, spoil

    @property
    def batches_per_epoch(self) -> int:
        return self.task.batches_per_epoch

    def batches(self, epoch: int, worker: int) -> Iterator[Any]:
        for step, batch in enumerate(self.task.batches(epoch, worker)):
            yield (epoch, worker, step) == (self.epoch, self.worker, self.step), batch

    def size(self, batch: Any) -> int:
        return self.task.size(batch[1])

    def first_carry(self) -> Carry:
        return torch.zeros((), dtype=torch.float64)

    def loss(self, model: nn.Module, batch: Any, carry: Carry) -> tuple[Tensor, Carry]:
        bad, (images, labels) = batch
        if bad and self.spoil is _bad_images:
            images = images * torch.nan
        loss, _ = self.task.loss(model, (images, labels), None)
        loss = loss + carry  # as an LSTM's state would, a bad carry spoils what follows
        if bad:
            loss = self.spoil(model, loss)
        return loss, carry + 0 * loss.detach()

    def evaluate(self, model: nn.Module, communicator: Communicator) -> dict[str, float]:
        return self.task.evaluate(model, communicator)


def _bad_images(model: nn.Module, loss: Tensor) -> Tensor:
    return loss


def _infinite_loss(model: nn.Module, loss: Tensor) -> Tensor:
    return loss * torch.inf


def _bad_bias(model: nn.Module, loss: Tensor) -> Tensor:
    return loss + torch.sqrt(0 * model.features[1].bias[3])  # type: ignore[index]  # infinite slope at a finite value


def _bad_last_bias(model: nn.Module, loss: Tensor) -> Tensor:
    return loss + torch.sqrt(0 * model.head.bias[0])  # type: ignore[index,union-attr]


def _bad_second_convolution(model: nn.Module, loss: Tensor) -> Tensor:
    return loss + torch.sqrt(0 * model.features[3].weight[5, 5, 2, 2])  # type: ignore[index]


SPOILERS = {
    _bad_images: "features.0.weight",
    _infinite_loss: "features.0.weight",
    _bad_bias: "features.1.bias",
    _bad_last_bias: "head.bias",
    _bad_second_convolution: "features.3.weight",
}


def _sabotaged(setting: Setting, spoil: Any, process: int = 0, processes: int = 1) -> Trainer:
    trainer = make_trainer(setting, process, processes)
    trainer.task = Sabotaged(trainer.task, worker=2, epoch=1, step=3, spoil=spoil)
    return trainer


@pytest.mark.parametrize("spoil", SPOILERS)
@pytest.mark.parametrize("name", ["none", "powersgd", "topk", "randomk"])
def test_a_bad_gradient_of_one_worker_ends_training_with_epoch_step_and_layer(name: str, spoil: Any) -> None:
    trainer = _sabotaged(setting_of(name), spoil)
    with pytest.raises(Diverged) as caught:
        list(trainer.epochs())
    assert (caught.value.epoch, caught.value.step, caught.value.layer) == (1, 3, SPOILERS[spoil])
    assert "epoch 1, step 3" in str(caught.value)
    _assert_finite(trainer)


def _assert_finite(trainer: Trainer) -> None:
    """Nothing that the next step starts from holds a NaN or Inf."""
    assert bool(parameters_of(trainer).isfinite().all())
    for state in trainer.optimizer.state.values():
        assert all(bool(value.isfinite().all()) for value in state.values() if isinstance(value, Tensor))
    memory_HN = trainer.aggregator.memory_HN
    assert memory_HN is None or bool(memory_HN.isfinite().all())
    assert all(bool(q.isfinite().all()) for q in trainer.aggregator.compressor.state_dict().values())


@pytest.mark.parametrize("spoil", SPOILERS)
@pytest.mark.parametrize("name", ["none", "powersgd", "topk", "randomk"])
def test_skipping_leaves_one_update_out_and_goes_on_with_finite_numbers(name: str, spoil: Any) -> None:
    trainer = _sabotaged(setting_of(name, skip_nonfinite=True, epochs=3), spoil)
    records = list(trainer.epochs())
    assert [record.skipped for record in records] == [0, 1, 0]
    assert [record.updates for record in records] == [5, 4, 5]
    assert np.isfinite([record.loss for record in records]).all()
    assert np.isfinite([record.norm for record in records]).all()
    assert np.isfinite([record.metrics["loss"] for record in records]).all()
    _assert_finite(trainer)
    for h in range(4):
        for buffer_name, buffer in trainer.buffers.state_dict(h).items():
            assert bool(buffer.isfinite().all()), buffer_name


def _skip_in_processes(process: int, processes: int) -> tuple[str, list[int], Tensor]:
    setting = setting_of("randomk")
    try:
        list(_sabotaged(setting, _bad_second_convolution, process, processes).epochs())
    except Diverged as error:
        layer = error.layer
    trainer = _sabotaged(replace(setting, skip_nonfinite=True, epochs=3), _bad_images, process, processes)
    return layer, [record.skipped for record in trainer.epochs()], parameters_of(trainer)


def test_all_processes_notice_what_one_workers_gradient_does() -> None:
    answers = run_processes(2, _skip_in_processes)
    alone = _skip_in_processes(0, 1)
    for layer, skipped, parameters in answers:
        assert layer == "features.3.weight"
        assert skipped == [0, 1, 0]
        torch.testing.assert_close(parameters, alone[2], rtol=0, atol=1e-10)


def test_an_epoch_whose_updates_were_all_skipped_has_no_loss() -> None:
    trainer = make_trainer(setting_of("none", skip_nonfinite=True, epochs=1))
    with torch.no_grad():
        trainer.model.head.bias.fill_(torch.nan)
    record = next(trainer.epochs())
    assert (record.updates, record.skipped) == (0, 5)
    assert np.isnan(record.loss)
