"""Hosted workers x processes -> mean, gather, broadcast, and the traffic meter.

Every algorithm above sees A workers and never learns how many of them live in this process: with
H = 1 and NCCL this is an ordinary job with one process per GPU, with H = A a single process runs the same algorithm.
Only this file and launch.py import torch.distributed.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor

from accordion_bench.training.clock import Clock
from accordion_bench.training.traffic import Count, Traffic


class Communicator:
    """Collectives among all workers, H of them in each of P processes (A = H x P).

    Args:
        hosted: H, workers in this process.
        process: index of this process; it hosts workers process * H .. process * H + H - 1.
        processes: P. Above 1 a default process group must exist.
        clock: time spent here is counted as "communicate".
        traffic: the meter to count on; a fresh one by default.
    """

    def __init__(
        self,
        hosted: int,
        process: int = 0,
        processes: int = 1,
        clock: Clock | None = None,
        traffic: Traffic | None = None,
    ) -> None:
        self.hosted = hosted
        self.process = process
        self.processes = processes
        self.clock = clock or Clock()
        self.traffic = traffic or Traffic()

    @property
    def workers(self) -> int:
        """A: all workers."""
        return self.hosted * self.processes

    @property
    def hosted_workers(self) -> range:
        """Global indices of the workers in this process, in the order of the H dimension."""
        return range(self.process * self.hosted, (self.process + 1) * self.hosted)

    def mean(self, x_H: Tensor) -> Tensor:
        """Mean over all workers: (H, ...) -> (...). x_H keeps its values; the result is a new tensor.

        Counted as one call of x_H[0].numel() elements per worker.
        """
        _count(self.traffic.mean, x_H[0])
        with self.clock.section("communicate"):
            return self._sum(x_H).div_(self.workers)

    def sum(self, x_H: Tensor) -> Tensor:
        """Sum over all workers: (H, ...) -> (...), any dtype. Counted like `mean`."""
        _count(self.traffic.mean, x_H[0])
        with self.clock.section("communicate"):
            return self._sum(x_H)

    def max(self, x_H: Tensor) -> Tensor:
        """Largest over all workers by element: (H, ...) -> (...). Counted like `mean`. NaN counts as infinite."""
        _count(self.traffic.mean, x_H[0])
        with self.clock.section("communicate"):
            largest = x_H.amax(0).nan_to_num_(
                nan=torch.inf, posinf=torch.inf, neginf=-torch.inf
            )  # gloo would lose a NaN
            if self.processes > 1:
                dist.all_reduce(largest, op=dist.ReduceOp.MAX)
            return largest

    def gather(self, x_H: Tensor) -> Tensor:
        """All workers' tensors in worker order: (H, ...) -> (A, ...). Every worker sends the same shape.

        Counted as one call of x_H[0].numel() elements per worker.
        """
        _count(self.traffic.gather, x_H[0])
        with self.clock.section("communicate"):
            if self.processes == 1:
                return x_H
            parts = [torch.empty_like(x_H, memory_format=torch.contiguous_format) for _ in range(self.processes)]
            dist.all_gather(parts, x_H.contiguous())
            return torch.cat(parts)

    def broadcast(self, x: Tensor) -> Tensor:
        """Worker 0's x, on every process; x itself is overwritten elsewhere. Counted as control traffic."""
        _count(self.traffic.control, x)
        with self.clock.section("communicate"):
            if self.processes > 1:
                dist.broadcast(x, src=0)
            return x

    def total(self, x: Tensor) -> Tensor:
        """Sum over *processes* of what each contributes, in place; for evaluation, so it is not counted."""
        if self.processes > 1:
            dist.all_reduce(x)
        return x

    def from_first(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """Process 0's tensors, on every process; overwrites the others'. Not counted: evaluation and resuming."""
        if self.processes > 1:
            for tensor in tensors.values():
                dist.broadcast(tensor, src=0)
        return tensors

    def barrier(self) -> None:
        """Wait for every process."""
        if self.processes > 1:
            dist.barrier()

    def objects(self, value: object) -> list[object]:
        """Every process's value, in process order (checkpoints, host names); not counted."""
        if self.processes == 1:
            return [value]
        values: list[object] = [None] * self.processes
        dist.all_gather_object(values, value)
        return values

    def collect(self, value: object) -> list[object] | None:
        """Every process's value, in process order, on process 0; None elsewhere. Not counted."""
        if self.processes == 1:
            return [value]
        values: list[object] | None = [None] * self.processes if self.process == 0 else None
        dist.gather_object(value, values, dst=0)
        return values

    def _sum(self, x_H: Tensor) -> Tensor:
        total = x_H.sum(0, dtype=x_H.dtype) if self.hosted > 1 else x_H[0].clone()
        if self.processes > 1:
            dist.all_reduce(total)
        return total


def _count(count: Count, x: Tensor) -> None:
    count.add(elements=x.numel(), bytes=x.numel() * x.element_size())
