"""AdaComp: in every bin, the elements that the newest gradient has brought near the bin's maximum.

Chen, Choi, Brand, Agrawal, Zhang and Gopalakrishnan, "AdaComp: Adaptive Residual Gradient Compression for Data-Parallel
Distributed Training", AAAI 2018, arXiv 1712.02679 (Algorithm 2).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from accordion_bench.compressors.packing import as_bytes, as_numbers
from accordion_bench.errors import UserError
from accordion_bench.training.communicator import Communicator
from accordion_bench.training.compressor import Compressor
from accordion_bench.training.gradients import Layout, Slot
from accordion_bench.training.traffic import BYTES_PER_FLOAT, Traffic

SHORT_BIN = 63  # the longest bin of which an element is one byte
LONG_BIN = 16383  # and two bytes: sign, start of a bin, position


@dataclass(frozen=True)
class _Bins:
    """All layers with bins of one length; B bins in all, C codes of one worker.

    A code is a position in the bin, a mark that a new bin begins, and a sign; an empty bin is one code at the position
    `length`, just past its end. So positions need no more than the byte or two that the paper counts.
    """

    length: int
    layers: tuple[int, ...]
    slots: tuple[Slot, ...]
    starts_B: Tensor  # in the flat buffer
    layer_B: Tensor

    @property
    def code_bytes(self) -> int:
        return 1 if self.length <= SHORT_BIN else 2

    def arrange(self, values_N: Tensor, slot: Slot) -> Tensor:
        """One layer as (its bins, length), filled up with zeros."""
        return pad(values_N[slot.start : slot.stop], (0, -slot.size % self.length)).view(-1, self.length)

    def encode(self, chosen_C: Tensor, negative_C: Tensor) -> Tensor:
        """Elements to send, as rising bin * length + place, and their signs -> bytes, code_bytes for each code."""
        bins_C, places_C = chosen_C // self.length, chosen_C % self.length
        signs_C = negative_C.long()
        empty_E = (torch.bincount(bins_C, minlength=len(self.starts_B)) == 0).nonzero().squeeze(1)
        if len(empty_E):
            bins_C, order_C = torch.cat([bins_C, empty_E]).sort(stable=True)
            places_C = torch.cat([places_C, torch.full_like(empty_E, self.length)])[order_C]
            signs_C = torch.cat([signs_C, torch.zeros_like(empty_E)])[order_C]
        begins_C = torch.ones_like(bins_C)
        begins_C[1:] = bins_C[1:] - bins_C[:-1]  # every bin has a code, so that this is 0 or 1
        high = 8 * self.code_bytes - 1
        codes_C = (signs_C << high) | (begins_C << (high - 1)) | places_C
        planes = [(codes_C >> (8 * byte)) & 255 for byte in range(self.code_bytes)]
        return torch.stack(planes, dim=1).to(torch.uint8).flatten()

    def decode(self, message_Y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Bytes -> per element sent: index in the flat buffer, layer, sign (+1 or -1)."""
        planes_C = message_Y.view(-1, self.code_bytes).long()
        codes_C = sum(planes_C[:, byte] << (8 * byte) for byte in range(self.code_bytes))
        assert isinstance(codes_C, Tensor)
        high = 8 * self.code_bytes - 1
        places_C = codes_C & ((1 << (high - 1)) - 1)
        bins_C = ((codes_C >> (high - 1)) & 1).cumsum(0) - 1
        sent_C = places_C < self.length
        bins, places = bins_C[sent_C], places_C[sent_C]
        return self.starts_B[bins] + places, self.layer_B[bins], 1 - 2 * (codes_C[sent_C] >> high)


class AdaComp(Compressor):
    """With G = memory + gradient, H = G + gradient: sends i where |H_i| >= max |G| > 0 over its bin of L elements.

    What is sent is the sign of G_i times one scale per layer, the mean of the bins' maxima. The number sent adapts by
    itself, from layer to layer and over time; `report` tells it. There is no ladder. Without error feedback H = 2 G.

    Bits per element sent: 8 for L <= 63, else 16, plus 32 per layer; an empty bin costs as much as an element. Messages
    differ in length, and collectives want equal ones: a first gather of a word or two tells the lengths, and every
    message is filled up to the longest of this update. What is counted is what is handed over, the filling included.
    A third collective averages the 1-D tensors. `cost` is an upper bound (everything sent).

    Args:
        layout: of the flat buffers.
        seed: unused.
        error_feedback: part of the method.
        bin_convolution: L for tensors of three or more dimensions, 1 to 16383.
        bin_linear: L for matrices (linear and recurrent layers), 1 to 16383.
    """

    gathers = True
    data_dependent = True

    def __init__(
        self,
        layout: Layout,
        seed: int,
        *,
        error_feedback: bool = True,
        bin_convolution: int = 50,
        bin_linear: int = 500,
    ) -> None:
        super().__init__(layout, seed, error_feedback=error_feedback)
        for name, length in (("bin_convolution", bin_convolution), ("bin_linear", bin_linear)):
            if not 1 <= length <= LONG_BIN:
                raise UserError(
                    f"compressor.{name} must be 1 to {LONG_BIN} elements, got {length}; the paper has 50 and 500"
                )
        self.lengths = (bin_convolution, bin_linear)
        self._bins: tuple[_Bins, ...] = ()
        self._sent_L: Tensor | None = None  # elements, summed over workers and updates since the last report
        self._messages = 0  # of one worker in one update, since then

    def _arrange(self, device: torch.device) -> None:
        """Build the tables of bins, once."""
        bins = []
        for length, is_linear in zip(self.lengths, (False, True), strict=True):
            layers = [i for i, slot in enumerate(self.layout.layers) if (len(slot.shape) == 2) == is_linear]
            slots = [self.layout.layers[layer] for layer in layers]
            starts = [torch.arange(slot.start, slot.stop, length) for slot in slots]
            owners = [torch.full_like(start, layer) for start, layer in zip(starts, layers, strict=True)]
            if slots:
                tables = torch.cat(starts).to(device), torch.cat(owners).to(device)
                bins.append(_Bins(length, tuple(layers), tuple(slots), *tables))
        self._bins = tuple(bins)

    def layer_words(self, slot: Slot, level: float) -> float:
        """At most: the scale and a code for every element."""
        length = self.lengths[len(slot.shape) == 2]
        return 1 + slot.size * (1 if length <= SHORT_BIN else 2) / BYTES_PER_FLOAT

    def cost(self, levels_L: Sequence[float]) -> Traffic:
        """At most: the lengths, the scales and a code for every element."""
        traffic = super().cost(levels_L)
        if self.layout.layers:
            size = round(BYTES_PER_FLOAT * sum(self.layer_words(slot, 1) for slot in self.layout.layers))
            traffic.gather.elements = traffic.gather.bytes = size
            kinds = len({len(slot.shape) == 2 for slot in self.layout.layers})
            traffic.gather.add(elements=kinds, bytes=BYTES_PER_FLOAT * kinds)
        return traffic

    @torch.no_grad()
    def reduce(self, grads_HN: Tensor, communicator: Communicator) -> Tensor:
        """Average over all workers -> (N,); leaves in grads_HN what was not sent."""
        update_N = self.update_buffer(grads_HN).zero_()
        if self.layout.layers:
            if not self._bins or self._bins[0].starts_B.device != grads_HN.device:
                self._arrange(grads_HN.device)
            self._reduce_layers(grads_HN, update_N, communicator)
        self.average_dense(grads_HN, update_N, communicator)
        self.updates += 1
        return update_N

    def _reduce_layers(self, grads_HN: Tensor, update_N: Tensor, communicator: Communicator) -> None:
        parts_H = [self._encode(grads_HN, h) for h in range(len(grads_HN))]  # scales, then codes per bin length
        lengths = torch.tensor([[len(codes) for codes in parts[1:]] for parts in parts_H], dtype=torch.int32)
        lengths_A = communicator.gather(lengths.to(grads_HN.device)).tolist()
        head = len(parts_H[0][0])
        longest = head + max(map(sum, lengths_A))
        message_HY = torch.stack([pad(message, (0, longest - len(message))) for message in map(torch.cat, parts_H)])
        if self._sent_L is None:
            self._sent_L = torch.zeros(len(self.layout.layers), dtype=torch.int64, device=grads_HN.device)
        for worker, message_Y in enumerate(communicator.gather(message_HY)):  # in worker order: deterministic
            scales_L = as_numbers(message_Y[:head], grads_HN.dtype)
            sent_N = torch.zeros_like(update_N)
            for slot, scale in zip(self.layout.layers, scales_L, strict=True):
                sent_N[slot.start : slot.stop] = 0 * scale  # not finite: nothing may have been sent, yet it must show
            place = head
            for bins, length in zip(self._bins, lengths_A[worker], strict=True):
                indices, layers, signs = bins.decode(message_Y[place : place + length].contiguous())
                sent_N[indices] = scales_L[layers] * signs
                self._sent_L += layers.bincount(minlength=len(self.layout.layers))
                place += length
            update_N += sent_N
            if worker in communicator.hosted_workers:
                grads_HN[worker - communicator.hosted_workers.start] -= sent_N
        update_N /= communicator.workers
        self._messages += communicator.workers

    def _encode(self, grads_HN: Tensor, h: int) -> list[Tensor]:
        """Bytes of one hosted worker's scales in the order of the layers, and of its codes for every length of bins."""
        scales: dict[int, Tensor] = {}
        codes = []
        for bins in self._bins:
            chosen, negative, start = [], [], 0  # start: number of the layer's first bin
            for layer, slot in zip(bins.layers, bins.slots, strict=True):
                total = bins.arrange(grads_HN[h], slot)  # G
                # H = G + gradient = 2 G - memory
                newest = total * 2 if self.memory_HN is None else total * 2 - bins.arrange(self.memory_HN[h], slot)
                largest_B = torch.maximum(total.amax(1), -total.amin(1))
                scales[layer] = largest_B.mean()
                enough_B1 = torch.where(largest_B > 0, largest_B, math.inf).unsqueeze(1)
                places_C = (newest.abs_() >= enough_B1).flatten().nonzero().squeeze(1)
                chosen.append(places_C + start * bins.length)
                negative.append(total.flatten()[places_C] < 0)
                start += len(largest_B)
            codes.append(bins.encode(torch.cat(chosen), torch.cat(negative)))
        return [as_bytes(torch.stack([scales[layer] for layer in range(len(scales))])), *codes]

    def report(self) -> dict[str, list[float]]:
        """`sent_fraction_L`: of every layer's elements, the mean fraction sent since the last report."""
        if self._sent_L is None or not self._messages:
            return {}
        sizes_L = [slot.size for slot in self.layout.layers]
        fractions = [sent / (size * self._messages) for sent, size in zip(self._sent_L.tolist(), sizes_L, strict=True)]
        self._sent_L, self._messages = None, 0
        return {"sent_fraction_L": fractions}

    def state_dict(self) -> dict[str, Tensor]:
        """What the next report needs."""
        if self._sent_L is None:
            return {}
        return {"sent_L": self._sent_L.clone(), "messages": torch.tensor(self._messages)}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """The reverse."""
        if state:
            self._sent_L, self._messages = state["sent_L"].clone(), int(state["messages"])
