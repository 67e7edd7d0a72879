"""4 workers in 1, 2 or 4 processes train the same model and send the same, whatever the compressor."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

import pytest
import torch
from processes import run_processes
from small_trainer import Setting, make_trainer, parameters_of, setting_of
from torch import Tensor

from accordion_bench.compressors import COMPRESSORS
from accordion_bench.training.state import worker_state

# Largest difference in a float64 parameter after six updates with three or four workers: sums run in another order.
TOLERANCE = 1e-11

EXTRA = {
    "powersgd, local residual": replace(setting_of("powersgd"), compressor_settings={"residual": "local"}),
    "topk, aggregated": replace(setting_of("topk"), statistic="aggregated"),
    "accordion": replace(
        setting_of("powersgd"), scheduler="accordion", scheduler_settings={"interval": 1}, epochs=3, multiples=(2, 1)
    ),
    "hessian": replace(setting_of("randomk"), scheduler="hessian", scheduler_settings={"interval": 1}, clip_norm=0.5),
    "lgreco": replace(setting_of("powersgd"), levels=(1, 2, 4), scheduler="lgreco"),
}
SETTINGS: dict[str, Setting] = {name: setting_of(name) for name in COMPRESSORS} | EXTRA

Result = tuple[list[dict[str, Any]], Tensor, list[dict[str, Any]]]


def _train_all(process: int, processes: int, workers: int) -> dict[str, Result | Exception]:
    """Records, parameters, and the hosted workers' states, of every setting. A fault is returned, not raised."""
    results: dict[str, Result | Exception] = {}
    for name, setting in SETTINGS.items():
        try:
            trainer = make_trainer(replace(setting, workers=workers, images=24 * workers), process, processes)
            records = [vars(record) for record in trainer.epochs()]
            own = [worker_state(trainer, h) for h in range(trainer.communicator.hosted)]
            results[name] = records, parameters_of(trainer), own
        except Exception as error:
            results[name] = error
    return results


@functools.cache
def _outcome(workers: int, processes: int | None) -> list[dict[str, Result | Exception]]:
    """None: in this very process."""
    return [_train_all(0, 1, workers)] if processes is None else run_processes(processes, _train_all, workers)


def _of(name: str, workers: int, processes: int | None) -> list[Result]:
    results = []
    for answer in _outcome(workers, processes):
        result = answer[name]
        if isinstance(result, Exception):
            raise result
        results.append(result)
    return results


@pytest.mark.parametrize(("workers", "processes"), [(1, 1), (2, 2), (3, 3), (4, 2), (4, 4)])
@pytest.mark.parametrize("name", SETTINGS)
def test_every_placement_trains_the_same_model(name: str, workers: int, processes: int) -> None:
    records, parameters, states_A = _of(name, workers, None)[0]
    assert bool(parameters.isfinite().all())
    assert records[-1]["updates"] > 0
    tolerance = 0.0 if workers <= 2 else TOLERANCE  # a + b = b + a, so with two workers the arithmetic is the same
    answers = _of(name, workers, processes)
    for process, (other_records, other_parameters, _) in enumerate(answers):
        torch.testing.assert_close(other_parameters, parameters, rtol=0, atol=tolerance)
        _assert_close(other_records, records, tolerance, f"process {process}")
    others_A = [state for _, _, own_H in answers for state in own_H]
    _assert_close(others_A, states_A, tolerance, "worker")


def _assert_close(other: Any, one: Any, tolerance: float, where: str) -> None:
    """Equal, numbers to the tolerance (records hold float32 statistics), whatever is measured in seconds aside."""
    if isinstance(one, dict):
        assert other.keys() == one.keys(), where
        for key in one:
            if "seconds" not in key and key != "time":
                _assert_close(other[key], one[key], tolerance, f"{where}, {key}")
    elif isinstance(one, (list, tuple)):
        assert len(other) == len(one), where
        for place, (left, right) in enumerate(zip(other, one, strict=True)):
            _assert_close(left, right, tolerance, f"{where} {place}")
    elif isinstance(one, Tensor):
        torch.testing.assert_close(other, one, rtol=0, atol=tolerance, msg=lambda text: f"{where}: {text}")
    elif isinstance(one, float):
        assert other == pytest.approx(one, rel=1e-6 if tolerance else 0, abs=1e-9 if tolerance else 0), where
    else:
        assert other == one, where


@pytest.mark.parametrize("name", SETTINGS)
def test_processes_of_one_job_hold_the_same_parameters_bit_for_bit(name: str) -> None:
    first, *others = _of(name, 4, 4)
    for other in others:
        assert torch.equal(other[1], first[1])
        assert other[0][-1]["metrics"] == first[0][-1]["metrics"]
