"""QSGD: stochastic rounding to a few steps between zero and a bucket's norm.

Alistarh, Grubic, Li, Tomioka and Vojnovic, "QSGD: Communication-Efficient SGD via Gradient Quantization and Encoding",
NeurIPS 2017, arXiv 1610.02132 (Eq. 4, Lemma 3.1 there for the bounds).
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from accordion_bench.compressors.coded import Coded, as_signs
from accordion_bench.errors import UserError
from accordion_bench.training.gradients import Layout, Slot


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
        drawn_M = self.draw("qsgd", worker, values_M)
        scaled_M = torch.abs(values_M, out=self.scratch(values_M))
        norms, planes = [], []
        for slot, level in zip(self.layout.layers, self.levels_L, strict=True):
            scaled_n = scaled_M[slot.start : slot.stop]
            for bucket in self._buckets(scaled_n):  # (., d)
                norm = self._norms(bucket)
                norms.append(norm)
                bucket /= torch.where(norm > 0, norm, 1).unsqueeze(1)
            scaled_n.mul_(_steps(level)).add_(drawn_M[slot.start : slot.stop]).clamp_(max=_steps(level))
            steps_n = scaled_n.to(torch.uint8)
            planes.append((values_M[slot.start : slot.stop] < 0).to(torch.uint8))
            planes += [(steps_n >> place) & 1 for place in range(int(level) - 1)]
        return torch.cat(norms), torch.cat(planes)

    def decode(self, numbers_S: Tensor, bits_B: Tensor, into_M: Tensor) -> None:
        """The quantised values."""
        number = bit = 0
        for slot, level in zip(self.layout.layers, self.levels_L, strict=True):
            into_n = into_M[slot.start : slot.stop]
            planes = bits_B[bit : bit + self.layer_bits(slot, level)].view(int(level), slot.size)
            steps_n = planes[1].clone()
            for place, plane_n in enumerate(planes[2:], start=1):
                steps_n |= plane_n << place
            as_signs(planes[0], into_n).mul_(steps_n).div_(-_steps(level))
            for bucket in self._buckets(into_n):
                bucket *= numbers_S[number : number + len(bucket)].unsqueeze(1)
                number += len(bucket)
            bit += planes.numel()

    def _buckets(self, values_n: Tensor) -> list[Tensor]:
        """Views (., d) of the whole buckets and (1, .) of what is left, without empty ones."""
        whole = len(values_n) // self.bucket * self.bucket
        views = values_n[:whole].view(-1, self.bucket), values_n[whole:].view(1, -1)
        return [view for view in views if view.numel()]

    def _norms(self, magnitudes: Tensor) -> Tensor:
        """(., d) -> (.,). Taken relative to the largest element, so that squares neither vanish nor overflow."""
        largest = magnitudes.amax(1)
        if self.norm == "max":
            return largest
        unit = torch.where(largest > 0, largest, 1)
        return torch.linalg.vector_norm(magnitudes / unit.unsqueeze(1), dim=1) * unit


def _steps(level: float) -> int:
    """s for b bits."""
    return int(2 ** (int(level) - 1)) - 1
