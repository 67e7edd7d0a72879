"""What the quantisers have in common: a few numbers and a stream of bits per worker, in one gather."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor

from accordion_bench.communicator import Communicator
from accordion_bench.compressors.base import Compressor
from accordion_bench.compressors.packing import BITS_PER_BYTE, exchange, pack, unpack
from accordion_bench.gradients import Slot
from accordion_bench.traffic import BYTES_PER_FLOAT, Traffic


class Coded(Compressor):
    """Every worker encodes all its layers as S numbers and B bits and decodes everybody's.

    Two collectives for the whole model: a gather of 4 S + ceil(B / 8) bytes and a mean of the 1-D tensors. The bits of
    all layers are one stream, so a message is at most 7 bits longer than its content.

    Shape suffixes: M elements of all layers together (the flat buffer without the 1-D tensors), S numbers, B bits.
    """

    gathers = True
    extra_bits: int = 0  # of a message, besides those of the layers

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
    def decode(self, numbers_S: Tensor, bits_B: Tensor) -> Tensor:
        """What `encode` stands for, (M,); not finite where a number is not."""

    def combine(self, total_M: Tensor, workers: int) -> Tensor:
        """The update of the layers from the sum of what all workers sent; may overwrite it."""
        return total_M.div_(workers)

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
        update_N = torch.zeros_like(grads_HN[0])
        if self.layout.layers:
            layers = slice(0, self.layout.dense.start)
            self._reduce_layers(grads_HN[:, layers], update_N[layers], communicator)
        self.average_dense(grads_HN, update_N, communicator)
        self.updates += 1
        return update_N

    def _reduce_layers(self, values_HM: Tensor, update_M: Tensor, communicator: Communicator) -> None:
        self.prepare(values_HM, communicator)
        coded_H = [
            self.encode(values_M, worker)
            for values_M, worker in zip(values_HM, communicator.hosted_workers, strict=True)
        ]
        count = len(coded_H[0][1])
        numbers_HS = torch.stack([numbers_S for numbers_S, _ in coded_H])
        packed_HY = torch.stack([pack(bits_B) for _, bits_B in coded_H])
        received = zip(*exchange(numbers_HS, packed_HY, communicator), strict=True)
        for worker, (numbers_S, packed_Y) in enumerate(received):  # in worker order: deterministic
            sent_M = self.decode(numbers_S, unpack(packed_Y, count))
            update_M += sent_M
            if worker in communicator.hosted_workers:
                values_HM[worker - communicator.hosted_workers.start] -= sent_M
        update_M.copy_(self.combine(update_M, communicator.workers))

    def per_element(self, numbers_L: Tensor) -> Tensor:
        """One number per layer -> one per element, (M,)."""
        sizes_L = torch.tensor([slot.size for slot in self.layout.layers], device=numbers_L.device)
        return numbers_L.repeat_interleave(sizes_L, output_size=self.layout.dense.start)
