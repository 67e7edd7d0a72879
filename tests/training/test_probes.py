"""Measurements beside the training: right against dense linear algebra, and without any effect on the training."""

from __future__ import annotations

import math

import pytest
import torch
from small_trainer import Setting, make_trainer, parameters_of
from torch import Tensor, nn

from accordion_bench.config.compose import compose_values
from accordion_bench.config.parsing import from_mapping, from_yaml
from accordion_bench.config.schema import RunConfig, to_yaml
from accordion_bench.errors import UserError
from accordion_bench.training.probes import mean_overlap, top_eigenvalue
from accordion_bench.training.record import EpochRecord
from accordion_bench.training.trainer import Trainer


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(1)


def network() -> tuple[nn.Module, Tensor, Tensor]:
    """A small classifier in float64 with its data."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3)).double()
        return net, torch.randn(40, 5, dtype=torch.float64), torch.randint(0, 3, (40,))


def dense_hessian(net: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """By torch.autograd.functional.hessian, block by block."""
    named = dict(net.named_parameters())

    def loss(*parameters: Tensor) -> Tensor:
        return nn.functional.cross_entropy(
            torch.func.functional_call(net, dict(zip(named, parameters, strict=True)), (x,)), y
        )

    blocks = torch.autograd.functional.hessian(loss, tuple(named.values()))
    sizes = [parameter.numel() for parameter in named.values()]
    return torch.cat(
        [
            torch.cat([block.reshape(n, m) for block, m in zip(row, sizes, strict=True)], 1)
            for row, n in zip(blocks, sizes, strict=True)
        ]
    )


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_the_eigenvalue_is_that_of_the_dense_hessian(dtype: torch.dtype):
    net, x, y = network()
    largest = float(torch.linalg.eigvalsh(dense_hessian(net, x, y))[-1])
    net, x = net.to(dtype), x.to(dtype)
    value, products = top_eigenvalue(nn.functional.cross_entropy(net(x), y), list(net.parameters()), generator())
    assert value == pytest.approx(largest, rel=2e-3)
    assert 0 < products < 60


def test_the_eigenvalue_is_the_largest_not_the_one_of_largest_magnitude():
    """The quadratic form of -5, 1 and 2; and parameters on which the loss depends linearly or not at all."""
    p, linear, unused = (torch.ones(n, dtype=torch.float64, requires_grad=True) for n in (3, 2, 2))
    loss = 0.5 * (torch.tensor([-5.0, 1.0, 2.0], dtype=torch.float64) * p**2).sum() + linear.sum()
    value, _ = top_eigenvalue(loss, [p, linear, unused], generator())
    assert value == pytest.approx(2.0, rel=1e-6)


def test_a_hessian_that_is_not_finite_has_no_eigenvalue():
    p = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    value, _ = top_eigenvalue((p.sum() + (p * math.inf)[0] * 0).sin(), [p], generator())
    assert math.isnan(value)


def test_overlap_counts_shared_coordinates_of_largest_magnitude():
    one = torch.arange(100, dtype=torch.float64)
    assert mean_overlap([one, -one]) == 100.0
    assert mean_overlap([one, one.flip(0)]) == 0.0
    assert (
        mean_overlap([one, one.roll(4)]) == 60.0
    )  # the largest ten of one are 90 .. 99, of the other 94 .. 99, 0 .. 3
    assert mean_overlap([one, one, one.flip(0)]) == pytest.approx(100 / 3)
    assert math.isnan(mean_overlap([one]))


def test_unrelated_vectors_share_a_tenth():
    """Hypergeometric: mean 10 %, deviation below 0.1 points over 45 pairs of 20,000 coordinates."""
    vectors = list(torch.randn(10, 20_000, generator=generator()))
    assert mean_overlap(vectors) == pytest.approx(10.0, abs=0.5)


def trained(
    setting: Setting, eigenvalue: int | None = None, overlap: int | None = None
) -> tuple[Trainer, list[EpochRecord]]:
    trainer = make_trainer(setting)
    trainer.probes.eigenvalue_every, trainer.probes.overlap_every = eigenvalue, overlap
    return trainer, list(trainer.epochs())


def test_measuring_changes_nothing_else():
    """A network with BatchNorm and dropout, Accordion, four workers: the same weights to the last bit."""
    setting = Setting(scheduler="accordion", scheduler_settings={"interval": 1}, epochs=3)
    plain, plain_records = trained(setting)
    probed, probed_records = trained(setting, eigenvalue=1, overlap=2)
    assert torch.equal(parameters_of(plain), parameters_of(probed))
    for one, other in zip(plain_records, probed_records, strict=True):
        assert (one.loss, one.metrics, one.norms_L, one.level_index_L) == (
            other.loss,
            other.metrics,
            other.norms_L,
            other.level_index_L,
        )
        gradient = [
            {key: value for key, value in record.traffic.items() if key != "control"} for record in (one, other)
        ]
        assert gradient[0] == gradient[1]


def test_what_is_due_is_on_record_with_its_cost():
    _, records = trained(Setting(epochs=4), eigenvalue=2, overlap=4)
    assert [record.epoch for record in records if "eigenvalue" in record.extra] == [1, 3]
    assert [record.epoch for record in records if "overlap" in record.extra] == [3]
    extra = records[3].extra
    assert extra["eigenvalue"][0] > 0
    assert extra["eigenvalue_products"][0] >= 1
    assert extra["eigenvalue_seconds"][0] > 0
    assert 0 <= extra["overlap"][0] <= 100
    assert not trained(Setting(epochs=1))[1][0].extra


def test_the_hessian_scheduler_decides_by_the_recorded_eigenvalue():
    setting = Setting(scheduler="hessian", scheduler_settings={"interval": 1, "eta": 0.5}, epochs=3)
    trainer, records = trained(setting)
    assert all("eigenvalue_seconds" in record.extra for record in records)
    first, second = (records[epoch].extra["eigenvalue"][0] for epoch in (0, 1))
    assert records[2].critical is (abs(first - second) / abs(first) >= 0.5)
    assert trainer.scheduler_state["eigenvalue"] == records[2].extra["eigenvalue"][0]


def config(*overrides: str) -> RunConfig:
    return from_mapping(compose_values(["dataset=digits", "model=smallcnn", *overrides]))


def test_a_run_with_a_probe_is_another_run_with_the_same_result():
    """It leaves other records, so a finished run without them must not stand for it."""
    plain, probed = config(), config("probe.eigenvalue=2")
    assert plain.hash == config("probe.overlap=null").hash
    assert "probe" not in plain.identity
    assert len({plain.hash, probed.hash, config("probe.eigenvalue=3").hash, config("probe.overlap=2").hash}) == 4
    assert from_yaml(to_yaml(probed)) == probed


@pytest.mark.parametrize("given", ["0", "-1", "1.5", "often"])
def test_a_probe_that_is_no_number_of_epochs_is_refused(given: str):
    with pytest.raises(
        UserError, match=r"probe.eigenvalue must be a whole number >= 1 or null.*1 measures after every epoch"
    ):
        config(f"probe.eigenvalue={given}")
