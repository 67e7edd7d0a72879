"""QSGD: stochastic rounding to a few steps between zero and a bucket's norm.

Alistarh, Grubic, Li, Tomioka and Vojnovic, "QSGD: Communication-Efficient SGD via Gradient Quantization and Encoding",
NeurIPS 2017, arXiv 1610.02132 (Eq. 4, Lemma 3.1 there for the bounds).
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import pad

from accordion_bench.compressors.coded import Coded
from accordion_bench.errors import UserError
from accordion_bench.gradients import Layout, Slot
from accordion_bench.seeds import generator_for


class QSGD(Coded):
    """Per bucket v: ||v|| sign(v_i) l / s, where l is one of the two whole numbers around s |v_i| / ||v||; unbiased.

    A level is b bits per element, sign included, so s = 2^(b-1) - 1. Bits: 32 per bucket + n b. Codes have a fixed
    length; the paper's Elias coding, which pays for small s, is not used.

    Args:
        layout: of the flat buffers.
        seed: shared by all workers.
        error_feedback: keep what was not sent; not part of the method.
        bucket: d >= 1; a layer's last bucket may be shorter.
        norm: "l2", for which the paper proves its bounds, or "max", which its experiments use.
    """

    def __init__(
        self,
        layout: Layout,
        seed: int,
        *,
        error_feedback: bool = False,
        bucket: int = 512,
        norm: Literal["l2", "max"] = "l2",
    ) -> None:
        super().__init__(layout, seed, error_feedback=error_feedback)
        if bucket < 1:
            raise UserError(f"compressor.bucket must be >= 1 elements, got {bucket}; the paper uses 512 with 4 bits")
        if norm not in ("l2", "max"):
            raise UserError(f"compressor.norm must be l2 or max, got {norm!r}")
        self.bucket = bucket
        self.norm = norm

    def layer_numbers(self, slot: Slot, level: float) -> int:
        """A norm per bucket."""
        return -(-slot.size // self.bucket)

    def layer_bits(self, slot: Slot, level: float) -> int:
        """b per element."""
        return slot.size * int(level)

    def encode(self, values_M: Tensor, worker: int) -> tuple[Tensor, Tensor]:
        """Norms, and per layer b planes of n bits: the signs, then l from its lowest bit on."""
        generator = generator_for(self.seed, "qsgd", self.updates, worker)
        drawn_M = torch.rand(len(values_M), generator=generator).to(values_M.device)
        norms, planes = [], []
        for slot, level in zip(self.layout.layers, self.levels_L, strict=True):
            values_n, drawn_n = (tensor[slot.start : slot.stop] for tensor in (values_M, drawn_M))
            norms_B = self._norms(values_n)
            unit_n = self._spread(torch.where(norms_B > 0, norms_B, 1), slot)
            scaled_n = values_n.abs().div_(unit_n).mul_(_steps(level))
            steps_n = (scaled_n + drawn_n).floor_().clamp_(max=_steps(level)).to(torch.uint8)
            norms.append(norms_B)
            planes.append((values_n < 0).to(torch.uint8))
            planes += [(steps_n >> place) & 1 for place in range(int(level) - 1)]
        return torch.cat(norms), torch.cat(planes)

    def decode(self, numbers_S: Tensor, bits_B: Tensor) -> Tensor:
        """The quantised values."""
        layers = []
        number = bit = 0
        for slot, level in zip(self.layout.layers, self.levels_L, strict=True):
            norms_B = numbers_S[number : number + self.layer_numbers(slot, level)]
            planes = bits_B[bit : bit + self.layer_bits(slot, level)].view(int(level), slot.size)
            number, bit = number + len(norms_B), bit + planes.numel()
            steps_n = sum(plane << place for place, plane in enumerate(planes[1:]))
            signed_n = steps_n.to(norms_B.dtype) * (1 - 2 * planes[0].to(norms_B.dtype))
            layers.append(signed_n.div_(_steps(level)).mul_(self._spread(norms_B, slot)))
        return torch.cat(layers)

    def _norms(self, values_n: Tensor) -> Tensor:
        """Per bucket. Taken relative to the largest element, so that squares neither vanish nor overflow."""
        buckets = pad(values_n, (0, -len(values_n) % self.bucket)).view(-1, self.bucket)
        largest_B = buckets.abs().amax(1)
        if self.norm == "max":
            return largest_B
        unit_B = torch.where(largest_B > 0, largest_B, 1)
        return torch.linalg.vector_norm(buckets / unit_B.unsqueeze(1), dim=1) * unit_B

    def _spread(self, norms_B: Tensor, slot: Slot) -> Tensor:
        """A bucket's number for each of its elements, (n,)."""
        return norms_B.repeat_interleave(self.bucket)[: slot.size]


def _steps(level: float) -> int:
    """s for b bits."""
    return int(2 ** (int(level) - 1)) - 1
