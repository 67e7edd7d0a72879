"""The helper that runs gloo processes reports what happens in them."""

from __future__ import annotations

import os
import time

import pytest
import torch
import torch.distributed as dist
from processes import ProcessFailed, run_processes

from accordion_bench.errors import Diverged


def _sum(process: int, processes: int, factor: int) -> tuple[int, float]:
    x = torch.tensor(float(process * factor))
    dist.all_reduce(x)
    return process, float(x)


def _raise_in_one(process: int, processes: int) -> None:
    if process == 1:
        raise Diverged(3, 4, "conv", "gradient")
    dist.all_reduce(torch.zeros(1))


def _die_in_one(process: int, processes: int) -> None:
    if process == 1:
        os._exit(9)
    dist.all_reduce(torch.zeros(1))


def _hang(process: int, processes: int) -> None:
    time.sleep(1000)


def test_results_come_in_order_of_the_processes() -> None:
    assert run_processes(3, _sum, 10) == [(0, 30.0), (1, 30.0), (2, 30.0)]


def test_the_exception_of_the_guilty_process_is_raised_here() -> None:
    with pytest.raises(Diverged) as caught:
        run_processes(3, _raise_in_one)
    assert (caught.value.epoch, caught.value.step, caught.value.layer) == (3, 4, "conv")


def test_a_process_that_dies_is_named() -> None:
    with pytest.raises(ProcessFailed, match="process 1 ended"):
        run_processes(2, _die_in_one)


def test_a_hanging_process_ends_in_a_timeout() -> None:
    with pytest.raises(TimeoutError, match="2 of 2"):
        run_processes(2, _hang, timeout_s=1.0)
