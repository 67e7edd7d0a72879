"""What the tests of the core compressors share."""

from __future__ import annotations

import torch
from torch import Tensor

from accordion_bench.training.gradients import Layout

SHAPES = {
    "stem.weight": (8, 3, 3, 3),
    "stem.bias": (8,),
    "a.weight": (8, 8, 3, 3),
    "norm.weight": (8,),
    "b.weight": (8, 8, 3, 3),  # the shape of a: they share a block
    "tiny.weight": (2, 3),  # rank 2 would send more than the matrix
    "wide.weight": (5, 64),
    "scale": (),
    "head.weight": (32, 7),
}


def gradients(steps: int, workers: int, size: int, seed: int = 0) -> Tensor:
    """(steps, A, N) float64: what workers share plus what they do not, slowly turning."""
    generator = torch.Generator().manual_seed(seed)
    shared_N = torch.randn(size, generator=generator, dtype=torch.float64)
    noise_SAN = torch.randn(steps, workers, size, generator=generator, dtype=torch.float64)
    return shared_N + noise_SAN


def uniform(layout: Layout, level: float) -> list[float]:
    """One level for all layers."""
    return [level] * len(layout.layers)
