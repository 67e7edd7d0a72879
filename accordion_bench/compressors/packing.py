"""Bits in bytes, so that what a collective is handed is as small as the paper counts it.

Shape suffixes: S numbers (scales), B bits, Y bytes, H hosted workers, A all workers.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from accordion_bench.training.communicator import Communicator

BITS_PER_BYTE = 8


def pack(bits_B: Tensor) -> Tensor:
    """Bools, or integers 0 and 1, (B,) -> (Y,) uint8, Y = ceil(B / 8): first bit highest, zeros at the end."""
    if bits_B.device.type == "cpu":  # several times faster than the same in torch
        return torch.from_numpy(np.packbits(bits_B.numpy()))
    return pack_in_torch(bits_B)


def pack_in_torch(bits_B: Tensor) -> Tensor:
    """`pack` on any device."""
    whole_Y8 = pad(bits_B.to(torch.uint8), (0, -len(bits_B) % BITS_PER_BYTE)).view(-1, BITS_PER_BYTE)
    return (whole_Y8 << _shifts(bits_B.device)).sum(1, dtype=torch.uint8)


def unpack(packed_Y: Tensor, count: int) -> Tensor:
    """The first `count` bits of (Y,) uint8 as uint8 0 and 1."""
    if packed_Y.device.type == "cpu":
        return torch.from_numpy(np.unpackbits(packed_Y.numpy(), count=count))
    return unpack_in_torch(packed_Y, count)


def unpack_in_torch(packed_Y: Tensor, count: int) -> Tensor:
    """`unpack` on any device."""
    return ((packed_Y.unsqueeze(1) >> _shifts(packed_Y.device)) & 1).flatten()[:count]


def _shifts(device: torch.device) -> Tensor:
    return torch.arange(BITS_PER_BYTE - 1, -1, -1, device=device, dtype=torch.uint8)


def as_bytes(numbers: Tensor) -> Tensor:
    """Numbers (..., S), at least one -> their bytes (..., Y)."""
    return numbers.contiguous().view(torch.uint8)


def as_numbers(message: Tensor, dtype: torch.dtype) -> Tensor:
    """Bytes (..., Y) -> numbers (..., S); copies, since a slice of a message need not be aligned."""
    return message.clone(memory_format=torch.contiguous_format).view(dtype)


def exchange(numbers_HS: Tensor, packed_HY: Tensor, communicator: Communicator) -> tuple[Tensor, Tensor]:
    """All workers' (numbers (A, S), packed bits (A, Y)) in one gather of exactly their bytes."""
    if not numbers_HS.shape[1]:
        packed_AY = communicator.gather(packed_HY)
        return numbers_HS.new_empty(communicator.workers, 0), packed_AY
    head_HY = as_bytes(numbers_HS)
    received_A = communicator.gather(torch.cat([head_HY, packed_HY], dim=1))
    split = head_HY.shape[1]
    return as_numbers(received_A[:, :split], numbers_HS.dtype), received_A[:, split:]
