"""Randomness as a function of (seed, purpose, epoch, step, worker), never of what ran before."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def seed_for(seed: int, purpose: str, *place: int) -> int:
    """A 63-bit seed that depends on all its arguments and on nothing else.

    `place` is whatever tells two draws of one purpose apart: epoch, step, worker, in that order.
    """
    text = "/".join([str(seed), purpose, *map(str, place)])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1


def generator_for(seed: int, purpose: str, *place: int) -> torch.Generator:
    """A CPU generator seeded with `seed_for`; draws made on the CPU are the same on every device."""
    import torch

    return torch.Generator().manual_seed(seed_for(seed, purpose, *place))


@contextmanager
def private_randomness(seed: int, device: torch.device) -> Iterator[None]:
    """Seed torch's global generators for what happens inside; nobody outside sees a change."""
    import torch

    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(seed)
        yield
