"""The trainer against DistributedDataParallel, large batches, bad gradients and its neighbours' random numbers."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from processes import run_processes
from small_trainer import SmallNet, make_trainer, parameters_of, setting_of
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from accordion_bench.training.communicator import Communicator
from accordion_bench.training.seeds import private_randomness
from accordion_bench.training.trainer import Trainer
from accordion_bench.workloads.datasets.base import ImageData
from accordion_bench.workloads.tasks.evaluation import Share
from accordion_bench.workloads.tasks.images import ImageClassification

NONE = setting_of("none")


def _copy_parameters(model: nn.Module, trainer: Trainer) -> None:
    model.load_state_dict(trainer.model.state_dict())


def _with_ddp(process: int, processes: int) -> tuple[float, float, float]:
    """Largest differences in parameters, running statistics and loss after two epochs of ours and of DDP."""
    setting = replace(NONE, workers=processes, epochs=2)
    trainer = make_trainer(setting, process, processes)
    model = SmallNet()
    model.load_state_dict(trainer.model.state_dict())
    model.dropout.p = trainer.model.dropout.p = 0.0  # its masks come from other generators
    trainer.model.dropout.p = 0.0
    ddp = DistributedDataParallel(model, broadcast_buffers=False)
    optimizer = torch.optim.SGD(model.parameters(), setting.rate, momentum=0.9, weight_decay=1e-4, nesterov=True)
    losses = []
    for epoch in range(setting.epochs):
        for images, labels in trainer.task.batches(epoch, process):
            optimizer.zero_grad()
            loss = F.cross_entropy(ddp(images), labels)
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
    records = list(trainer.epochs())
    ours = dict(trainer.model.named_parameters())
    parameters = max(float((p - ours[name]).abs().max()) for name, p in model.named_parameters())
    own = trainer.buffers.state_dict(0)
    statistics = max(float((b - own[name]).abs().max()) for name, b in model.named_buffers())
    mean = torch.stack(losses).double()[-len(losses) // 2 :].mean()
    torch.distributed.all_reduce(mean)
    return parameters, statistics, abs(float(mean) / processes - records[-1].loss)


def test_no_compression_equals_distributed_data_parallel_with_torchs_sgd() -> None:
    for differences in run_processes(2, _with_ddp):
        assert max(differences) < 1e-12, differences


def test_the_authors_language_model_step_is_heavy_ball_plus_gradient() -> None:
    setting = replace(NONE, plain=True, workers=1, epochs=1, optimizer="heavy_ball_plus_gradient")
    trainer = make_trainer(setting)
    model = SmallNet(plain=True)
    _copy_parameters(model, trainer)
    buffers = [torch.zeros_like(p) for p in model.parameters()]
    for images, labels in trainer.task.batches(0, 0):
        gradients = torch.autograd.grad(F.cross_entropy(model(images), labels), list(model.parameters()))
        for parameter, buffer, gradient in zip(model.parameters(), buffers, gradients, strict=True):
            full = gradient + 1e-4 * parameter.detach()
            buffer.mul_(0.9).add_(full)
            parameter.data -= setting.rate * (full + buffer)
    list(trainer.epochs())
    ours = dict(trainer.model.named_parameters())
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(ours[name], parameter, rtol=0, atol=1e-13)


@pytest.mark.parametrize("multiple", [2, 5])
def test_accumulating_m_batches_equals_a_batch_m_times_as_large(multiple: int) -> None:
    accumulated = replace(NONE, plain=True, batch=4, multiples=(multiple, 1), scheduler_settings={"batch_index": 0})
    large = replace(NONE, plain=True, batch=4 * multiple, rate=NONE.rate * multiple)  # the rate goes with the batch
    records, parameters = {}, {}
    for name, setting in (("accumulated", accumulated), ("large", large)):
        trainer = make_trainer(setting)
        records[name] = list(trainer.epochs())
        parameters[name] = parameters_of(trainer)
    for one, other in zip(records["accumulated"], records["large"], strict=True):
        assert (one.updates, one.traffic, one.learning_rate) == (other.updates, other.traffic, other.learning_rate)
        assert one.batch_multiple == multiple
        assert one.loss == pytest.approx(other.loss, rel=1e-12)
        assert one.norms_L == pytest.approx(other.norms_L, rel=1e-5)
    torch.testing.assert_close(parameters["accumulated"], parameters["large"], rtol=0, atol=1e-12)


def test_a_smaller_last_batch_counts_by_its_examples_when_accumulated() -> None:
    """36 images per worker in batches of 8 leave one of 4: the mean over all five is that over 36 images."""
    accumulated = replace(NONE, plain=True, images=144, multiples=(5, 1), scheduler_settings={"batch_index": 0})
    large = replace(NONE, plain=True, images=144, batch=36, rate=5 * NONE.rate)
    results = []
    for setting in (accumulated, large):
        trainer = make_trainer(setting)
        results.append((list(trainer.epochs())[-1].loss, parameters_of(trainer)))
    assert results[0][0] == pytest.approx(results[1][0], rel=1e-12)
    torch.testing.assert_close(results[0][1], results[1][1], rtol=0, atol=1e-12)


def test_the_batch_ladder_makes_twelve_updates_of_98_batches_at_eight_times() -> None:
    cifar = ImageData(
        *(np.zeros((50_000, 1, 1, 1), np.uint8), np.zeros(50_000, np.int64)) * 2, 1, (0.0,), (1.0,), augment=False
    )
    share = Share(128, 4, 0, "every_epoch", torch.device("cpu"))
    assert ImageClassification(cifar, share).batches_per_epoch == 98
    small = replace(NONE, images=4 * 98, batch=1, epochs=1, plain=True, rate=1e-3)
    for multiples, index, updates in (((8, 1), 0, 12), ((8, 1), 1, 98), ((98, 1), 0, 1)):
        setting = replace(small, multiples=multiples, scheduler_settings={"batch_index": index})
        record = next(make_trainer(setting).epochs())
        assert record.updates == record.traffic["mean"]["calls"] == updates


def _random_state() -> tuple[Any, ...]:
    numpy = np.random.get_state()
    return random.getstate(), numpy[1].tobytes(), numpy[2], torch.get_rng_state().numpy().tobytes()


@pytest.mark.parametrize("name", ["none", "powersgd", "topk", "randomk"])
def test_training_neither_reads_nor_moves_the_global_generators(name: str) -> None:
    finals = []
    for seed in (1, 2):
        random.seed(seed)
        np.random.seed(seed)  # the old generator on purpose: it is the one that must be left alone
        torch.manual_seed(seed)
        before = _random_state()
        trainer = make_trainer(setting_of(name, epochs=1))  # with dropout
        list(trainer.epochs())
        assert _random_state() == before
        finals.append(parameters_of(trainer))
    assert torch.equal(*finals)


def test_private_randomness_is_given_back_after_an_error() -> None:
    before = torch.get_rng_state()
    with pytest.raises(ZeroDivisionError), private_randomness(3, torch.device("cpu")):
        torch.rand(3)
        raise ZeroDivisionError
    assert torch.equal(torch.get_rng_state(), before)


def test_workers_draw_different_dropout_masks_in_every_step() -> None:
    masks: list[Tensor] = []
    trainer = make_trainer(replace(NONE, epochs=1))
    trainer.model.dropout.register_forward_hook(lambda module, x, y: masks.append(y != 0) if module.training else None)
    list(trainer.epochs())
    assert len(masks) == 4 * 5
    assert len({mask.numpy().tobytes() for mask in masks}) == len(masks)


def test_batchnorm_statistics_are_each_workers_own_and_worker_0_evaluates() -> None:
    setting = replace(NONE, epochs=1)
    trainer = make_trainer(setting)
    parameters = {name: p.detach().clone() for name, p in trainer.model.named_parameters()}
    seen: list[dict[str, Tensor]] = []
    evaluate = trainer.task.evaluate

    def watching(model: nn.Module, communicator: Communicator) -> dict[str, float]:
        seen.append({name: buffer.clone() for name, buffer in model.named_buffers()})
        return evaluate(model, communicator)

    trainer.task.evaluate = watching  # type: ignore[method-assign]
    list(trainer.epochs())
    statistics = [trainer.buffers.state_dict(h) for h in range(4)]
    for name, buffer in seen[0].items():
        assert torch.equal(buffer, statistics[0][name]), name
        if buffer.is_floating_point():
            assert len({own[name].numpy().tobytes() for own in statistics}) == 4, name
        else:
            assert [int(own[name]) for own in statistics] == [5] * 4
    # The first BatchNorm of worker 2 saw worker 2's images and nothing else; only the convolution before it moved.
    alone = make_trainer(replace(setting, rate=0.0))
    list(alone.epochs())
    model = SmallNet()
    model.load_state_dict(parameters | dict(SmallNet().named_buffers()))
    model.train()
    for images, _ in alone.task.batches(0, 2):
        model(images)
    own = alone.buffers.state_dict(2)
    for name, buffer in model.named_buffers():
        torch.testing.assert_close(own[name], buffer, rtol=0, atol=1e-14)


def test_every_worker_is_clipped_before_compression_as_torch_does() -> None:
    trainer = make_trainer(replace(NONE, plain=True, epochs=1, clip_norm=0.05, batch=40))
    model = SmallNet(plain=True)
    _copy_parameters(model, trainer)
    clipped = []
    for worker in range(4):
        images, labels = next(trainer.task.batches(0, worker))
        model.zero_grad()
        F.cross_entropy(model(images), labels).backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 0.05)
        assert float(norm) > 0.05
        clipped.append({name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None})
    list(trainer.epochs())
    for name, parameter in trainer.model.named_parameters():
        gradient = torch.stack([own[name] for own in clipped]).mean(0) + 1e-4 * dict(model.named_parameters())[name]
        expected = dict(model.named_parameters())[name] - 0.1 * 1.9 * gradient  # the first Nesterov step
        torch.testing.assert_close(parameter, expected, rtol=0, atol=1e-14)


@pytest.mark.parametrize("statistic", ["local", "aggregated"])
def test_the_recorded_norms_are_of_the_gradient_summed_over_the_epoch(statistic: str) -> None:
    setting = replace(NONE, epochs=1, rate=0.0, plain=True, statistic=statistic)  # parameters stand still
    trainer = make_trainer(setting)
    total = {name: torch.zeros_like(p) for name, p in trainer.model.named_parameters()}
    workers = range(1) if statistic == "local" else range(4)
    for worker in workers:
        for images, labels in trainer.task.batches(0, worker):
            trainer.model.zero_grad()
            F.cross_entropy(trainer.model(images), labels).backward()
            for name, p in trainer.model.named_parameters():
                total[name] += p.grad / len(workers)  # type: ignore[operator]
    record = next(trainer.epochs())
    assert record.norms_L == pytest.approx([float(total[slot.name].norm()) for slot in trainer.layout.layers], rel=1e-6)
    assert record.norm == pytest.approx(float(torch.cat([x.flatten() for x in total.values()]).norm()), rel=1e-6)
