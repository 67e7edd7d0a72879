"""What the quantisers have in common: a few numbers and a stream of bits per worker, in one gather."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor

from accordion_bench.compressors.packing import BITS_PER_BYTE, exchange, pack, unpack
from accordion_bench.training.communicator import Communicator
from accordion_bench.training.compressor import Compressor
from accordion_bench.training.gradients import Slot
from accordion_bench.training.seeds import generator_for
from accordion_bench.training.traffic import BYTES_PER_FLOAT, Traffic


class Coded(Compressor):
    """Every worker encodes all its layers as S numbers and B bits and decodes everybody's.

    Two collectives for the whole model: a gather of 4 S + ceil(B / 8) bytes and a mean of the 1-D tensors. The bits of
    all layers are one stream, so a message is at most 7 bits longer than its content.

    Shape suffixes: M elements of all layers together (the flat buffer without the 1-D tensors), S numbers, B bits.
    """

    gathers = True
    extra_bits: int = 0  # of a message, besides those of the layers
    _scratch_M: Tensor | None = None
    _drawn_M: Tensor | None = None

    @abstractmethod
    def layer_numbers(self, slot: Slot, level: float) -> int:
        """32-bit numbers that a worker sends for one layer."""

    @abstractmethod
    def layer_bits(self, slot: Slot, level: float) -> int:
        """Bits that a worker sends for one layer."""

    def prepare(self, values_HM: Tensor, communicator: Communicator) -> None:
        """Whatever the workers must agree on before they encode; nothing by default."""

    @abstractmethod
    def encode(self, values_M: Tensor, worker: int) -> tuple[Tensor, Tensor]:
        """One worker's gradient -> (numbers (S,) of the gradient's type, bits (B,)); layer after layer in both."""

    @abstractmethod
    def decode(self, numbers_S: Tensor, bits_B: Tensor, into_M: Tensor) -> None:
        """Overwrite into_M with what the code stands for; not finite where the gradient was not."""

    def combine(self, total_M: Tensor, workers: int) -> None:
        """Turn the sum of what all workers sent into the update, in place."""
        total_M /= workers

    def layer_words(self, slot: Slot, level: float) -> float:
        """One word per number and one 32nd per bit."""
        return self.layer_numbers(slot, level) + self.layer_bits(slot, level) / (BITS_PER_BYTE * BYTES_PER_FLOAT)

    def cost(self, levels_L: Sequence[float]) -> Traffic:
        """Exactly the message's bytes."""
        pairs = list(zip(self.layout.layers, levels_L, strict=True))
        traffic = super().cost(levels_L)
        if pairs:
            bits = self.extra_bits + sum(self.layer_bits(slot, level) for slot, level in pairs)
            numbers = sum(self.layer_numbers(slot, level) for slot, level in pairs)
            size = BYTES_PER_FLOAT * numbers + -(-bits // BITS_PER_BYTE)
            traffic.gather.elements = traffic.gather.bytes = size
        return traffic

    @torch.no_grad()
    def reduce(self, grads_HN: Tensor, communicator: Communicator) -> Tensor:
        """Average over all workers -> (N,); leaves in grads_HN what was not sent."""
        update_N = self.update_buffer(grads_HN).zero_()
        if self.layout.layers:
            layers = slice(0, self.layout.dense.start)
            self._reduce_layers(grads_HN[:, layers], update_N[layers], communicator)
        self.average_dense(grads_HN, update_N, communicator)
        self.updates += 1
        return update_N

    def _reduce_layers(self, values_HM: Tensor, update_M: Tensor, communicator: Communicator) -> None:
        self.prepare(values_HM, communicator)
        numbers_H, packed_H, count = [], [], 0
        for values_M, worker in zip(values_HM, communicator.hosted_workers, strict=True):
            numbers_S, bits_B = self.encode(values_M, worker)
            numbers_H.append(numbers_S)
            packed_H.append(pack(bits_B))
            count = len(bits_B)
        received = zip(*exchange(torch.stack(numbers_H), torch.stack(packed_H), communicator), strict=True)
        sent_M = self.scratch(update_M)
        for worker, (numbers_S, packed_Y) in enumerate(received):  # in worker order: deterministic
            self.decode(numbers_S, unpack(packed_Y, count), sent_M)
            update_M += sent_M
            if worker in communicator.hosted_workers:
                values_HM[worker - communicator.hosted_workers.start] -= sent_M
        self.combine(update_M, communicator.workers)

    def scratch(self, like_M: Tensor) -> Tensor:
        """(M,), always the same memory, to be used and forgotten."""
        if self._scratch_M is None or self._scratch_M.dtype != like_M.dtype or self._scratch_M.device != like_M.device:
            self._scratch_M = torch.empty_like(like_M)
        return self._scratch_M

    def draw(self, purpose: str, worker: int, like_M: Tensor) -> Tensor:
        """Uniform in [0, 1), (M,) float32: the same on every device. Valid until the next call."""
        if self._drawn_M is None:
            self._drawn_M = torch.empty(len(like_M), dtype=torch.float32)
        generator = generator_for(self.seed, purpose, self.updates, worker)
        return torch.rand(len(like_M), generator=generator, out=self._drawn_M).to(like_M.device)

    def scale_layers(self, values_M: Tensor, numbers_L: Tensor) -> None:
        """Multiply every layer by its number, in place."""
        for slot, number in zip(self.layout.layers, numbers_L, strict=True):
            values_M[slot.start : slot.stop] *= number


def as_signs(bits_B: Tensor, into_M: Tensor) -> Tensor:
    """Overwrite into_M with +1 for bit 1, -1 for bit 0."""
    return into_M.copy_(bits_B).mul_(2).sub_(1)


def largest_magnitude(values_n: Tensor) -> Tensor:
    """max |v_i| as a 0-dimensional tensor; NaN if one is."""
    lowest, highest = torch.aminmax(values_n)
    return torch.maximum(-lowest, highest)
