"""Deep Gradient Compression: Top-K of an accumulated momentum.

Lin, Han, Mao, Wang and Dally, "Deep Gradient Compression: Reducing the Communication Bandwidth for Distributed
Training", ICLR 2018, arXiv 1712.01887 (momentum correction, local gradient clipping, momentum factor masking).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from accordion_bench.compressors.topk import exchange, kept_count, largest
from accordion_bench.errors import UserError
from accordion_bench.training.communicator import Communicator
from accordion_bench.training.compressor import Compressor
from accordion_bench.training.gradients import Layout, Slot, clip_


class DGC(Compressor):
    """Every worker: g clipped to clip_norm / sqrt(A); u = m u + g; v = v + u; send the largest |v| as (value, index).

    Where it sent, v and u become zero. The momentum is here, so the optimiser must have none; 1-D tensors are averaged
    with the same momentum. v is the error memory, so Aggregator must keep none (`error_feedback` must be False). The
    levels are kept fractions k / n, exact where the published code samples; a scheduler lowers them during the warm-up.
    Two collectives: a gather of 2k words and a mean of the 1-D tensors.

    Args:
        layout: of the flat buffers.
        seed: unused.
        error_feedback: must be False.
        momentum: m in [0, 1).
        clip_norm: > 0, of the whole model's gradient, before dividing by the root of the number of workers; None does
            not clip, as on images in the paper.
    """

    gathers = True
    conserves = False
    own_buffers = 4  # u, v and memory for the next u and v

    def __init__(
        self,
        layout: Layout,
        seed: int,
        *,
        error_feedback: bool = False,
        momentum: float = 0.9,
        clip_norm: float | None = None,
    ) -> None:
        super().__init__(layout, seed, error_feedback=error_feedback)
        if error_feedback:
            raise UserError(
                "compressor.error_feedback must be false for dgc, got true; it keeps what it has not sent by itself"
            )
        if not 0 <= momentum < 1:
            raise UserError(f"compressor.momentum must be in [0, 1), got {momentum:g}; the paper has 0.9")
        if clip_norm is not None and not 0 < clip_norm < math.inf:
            raise UserError(f"compressor.clip_norm must be > 0, got {clip_norm:g}; null does not clip")
        self.momentum = momentum
        self.clip_norm = clip_norm
        self._momenta_HN: Tensor | None = None  # u
        self._unsent_HN: Tensor | None = None  # v; its 1-D part stays zero
        self._spare: tuple[Tensor, Tensor] | None = None  # memory for the next u and v

    def layer_words(self, slot: Slot, level: float) -> float:
        """2k: a value and an index for every element sent."""
        return 2 * kept_count(level, slot.size)

    @torch.no_grad()
    def reduce(self, grads_HN: Tensor, communicator: Communicator) -> Tensor:
        """The mean of what was sent, (N,); leaves in grads_HN the elements of this gradient that were not sent.

        u and v change only when the update is finite.
        """
        if self._momenta_HN is None or self._unsent_HN is None:
            self._momenta_HN, self._unsent_HN = torch.zeros_like(grads_HN), torch.zeros_like(grads_HN)
        if self._spare is None:
            self._spare = torch.empty_like(grads_HN), torch.empty_like(grads_HN)
        if self.clip_norm is not None:
            clip_(grads_HN, self.clip_norm / math.sqrt(communicator.workers), dim=1)
        dense = self.layout.dense
        momenta_HN = torch.mul(self._momenta_HN, self.momentum, out=self._spare[0]).add_(grads_HN)
        unsent_HN = torch.add(self._unsent_HN, momenta_HN, out=self._spare[1])
        unsent_HN[:, dense] = 0
        update_N = self.update_buffer(grads_HN).zero_()
        if self.layout.layers:
            self._exchange(unsent_HN, (momenta_HN, unsent_HN, grads_HN), update_N, communicator)
        if dense.stop > dense.start:
            update_N[dense] = communicator.mean(momenta_HN[:, dense])
            grads_HN[:, dense] = 0
        if bool(torch.stack(torch.aminmax(update_N)).isfinite().all()):
            self._spare = self._momenta_HN, self._unsent_HN
            self._momenta_HN, self._unsent_HN = momenta_HN, unsent_HN
        self.updates += 1
        return update_N

    def _exchange(
        self, unsent_HN: Tensor, masked: tuple[Tensor, ...], update_N: Tensor, communicator: Communicator
    ) -> None:
        """Send the largest of v into update_N; zero these places in all of `masked`."""
        kept_HK = torch.stack([self._largest(unsent_N) for unsent_N in unsent_HN])
        for values_K, indices_K in zip(*exchange(unsent_HN.gather(1, kept_HK), kept_HK, communicator), strict=True):
            update_N.index_add_(0, indices_K, values_K)
        update_N /= communicator.workers
        for tensor_HN in masked:
            tensor_HN.scatter_(1, kept_HK, 0)

    def _largest(self, unsent_N: Tensor) -> Tensor:
        """Indices (K,) into the flat buffer of what one worker sends, all layers together."""
        return torch.cat(
            [
                largest(unsent_N[slot.start : slot.stop].abs(), kept_count(level, slot.size)) + slot.start
                for slot, level in zip(self.layout.layers, self.levels_L, strict=True)
            ]
        )

    def worker_state_dict(self, h: int) -> dict[str, Tensor]:
        """One worker's u and v by parameter name; empty before the first step."""
        if self._momenta_HN is None or self._unsent_HN is None:
            return {}
        return {
            f"{kind}/{slot.name}": view
            for kind, tensor_HN in (("momentum", self._momenta_HN), ("unsent", self._unsent_HN))
            for slot, view in zip(self.layout.slots, self.layout.views(tensor_HN[h]), strict=True)
        }

    @torch.no_grad()
    def load_worker_state_dicts(self, states_H: list[dict[str, Tensor]]) -> None:
        """The reverse, for all hosted workers."""
        if not states_H or not states_H[0]:
            return
        like = next(iter(states_H[0].values()))
        self._momenta_HN = self.layout.zeros(len(states_H), like.device, like.dtype)
        self._unsent_HN = torch.zeros_like(self._momenta_HN)
        for h, state in enumerate(states_H):
            for kind, tensor_HN in (("momentum", self._momenta_HN), ("unsent", self._unsent_HN)):
                for slot, view in zip(self.layout.slots, self.layout.views(tensor_HN[h]), strict=True):
                    view.copy_(state[f"{kind}/{slot.name}"])
