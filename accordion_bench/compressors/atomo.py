"""ATOMO, spectral: random singular triplets, reweighted so that the mean is right.

Wang, Sievert, Liu, Charles, Papailiopoulos and Wright, "ATOMO: Communication-efficient Learning via Atomic
Sparsification", NeurIPS 2018, arXiv 1806.04090 (Algorithm 1 for the probabilities).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from accordion_bench.training.communicator import Communicator
from accordion_bench.training.compressor import Compressor
from accordion_bench.training.gradients import Slot
from accordion_bench.training.seeds import generator_for
from accordion_bench.training.traffic import BYTES_PER_FLOAT, Traffic


class Atomo(Compressor):
    """Keeps atom i of M = sum of s_i u_i v_i^T with p_i = min(1, c s_i), sum of p_i = budget, divided by p_i; unbiased.

    The levels are budgets. The paper keeps every atom by a draw of its own, so that the number kept is random; here
    they are drawn systematically (one uniform number per matrix), with the same p_i and always `budget` of them. Since
    the atoms are orthonormal the variance is the same, and all messages are equally long: r(n + m + 1) words per layer
    with r = min(budget, n, m), in one gather. Layers for which that is not less than n m travel dense with the 1-D
    tensors, in one mean.
    """

    def layer_words(self, slot: Slot, level: float) -> float:
        """r(n + m + 1), or n m where that is not less."""
        return min(_kept(slot, level) * (slot.rows + slot.columns + 1), slot.size)

    def cost(self, levels_L: Sequence[float]) -> Traffic:
        """A gather of the atoms and a mean of what travels dense."""
        traffic = Traffic()
        atoms, dense = 0, self.layout.dense.stop - self.layout.dense.start
        for slot, level in zip(self.layout.layers, levels_L, strict=True):
            if _is_dense(slot, level):
                dense += slot.size
            else:
                atoms += int(self.layer_words(slot, level))
        if atoms:
            traffic.gather.add(elements=atoms, bytes=BYTES_PER_FLOAT * atoms)
        if dense:
            traffic.mean.add(elements=dense, bytes=BYTES_PER_FLOAT * dense)
        return traffic

    @torch.no_grad()
    def reduce(self, grads_HN: Tensor, communicator: Communicator) -> Tensor:
        """Average over all workers -> (N,); leaves in grads_HN what was not sent."""
        update_N = self.update_buffer(grads_HN).zero_()
        dense, coded = [self.layout.dense], []
        for layer, (slot, level) in enumerate(zip(self.layout.layers, self.levels_L, strict=True)):
            if _is_dense(slot, level):
                dense.append(slice(slot.start, slot.stop))
            else:
                coded.append((layer, slot, _kept(slot, level)))
        self._average(grads_HN, update_N, [part for part in dense if part.stop > part.start], communicator)
        if coded:
            self._exchange(grads_HN, update_N, coded, communicator)
        self.updates += 1
        return update_N

    def _exchange(
        self, grads_HN: Tensor, update_N: Tensor, coded: list[tuple[int, Slot, int]], communicator: Communicator
    ) -> None:
        """Everybody's atoms of the layers (index, slot, number kept) into update_N."""
        message_HK = torch.stack(
            [
                torch.cat([self._atoms(grads_N, layer, slot, kept, worker) for layer, slot, kept in coded])
                for grads_N, worker in zip(grads_HN, communicator.hosted_workers, strict=True)
            ]
        )
        sizes = [kept * (slot.rows + slot.columns + 1) for _, slot, kept in coded]
        for worker, message_K in enumerate(communicator.gather(message_HK)):  # in worker order: deterministic
            for (_, slot, kept), part in zip(coded, message_K.split(sizes), strict=True):
                sent_n = _matrix(part, slot, kept).flatten()
                update_N[slot.start : slot.stop].add_(sent_n, alpha=1 / communicator.workers)
                if worker in communicator.hosted_workers:
                    grads_HN[worker - communicator.hosted_workers.start, slot.start : slot.stop] -= sent_n

    @staticmethod
    def _average(grads_HN: Tensor, update_N: Tensor, parts: list[slice], communicator: Communicator) -> None:
        """Average what travels uncompressed into update_N, in one mean; leaves zeros."""
        if not parts:
            return
        mean = communicator.mean(torch.cat([grads_HN[:, part] for part in parts], dim=1))
        for part, values in zip(parts, mean.split([part.stop - part.start for part in parts]), strict=True):
            update_N[part] = values
            grads_HN[:, part] = 0

    def _atoms(self, grads_N: Tensor, layer: int, slot: Slot, kept: int, worker: int) -> Tensor:
        """One worker's message for one layer: weights (r), U (n, r), V (m, r), flat."""
        matrix = self.layout.matrix(grads_N, layer)
        largest = matrix.abs().amax()
        usable = largest.isfinite() & (largest > 0)
        s, u, v = decompose(torch.where(usable, matrix / largest, 0))
        p = probabilities(s, kept)
        generator = generator_for(self.seed, "atomo", self.updates, worker, layer)
        chosen = draw_systematically(p, torch.rand((), generator=generator, dtype=torch.float64).to(p.device))
        places = chosen.to(torch.uint8).argsort(descending=True, stable=True)[:kept]
        weights = torch.where(chosen, s.double() / p, 0)[places].to(matrix.dtype) * largest  # NaN or 0 x Inf shows here
        return torch.cat([weights, u[:, places].flatten(), v[:, places].flatten()])


def decompose(matrix: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(n, m) -> singular values (q,), u (n, q), v (m, q) with matrix = u diag(s) v^T, q = min(n, m), rising.

    From the eigenvectors u of the smaller Gram matrix, several times faster than an SVD. Whatever their error, the
    atoms u_i (u_i^T matrix) add up to the matrix, because u is orthonormal; so the estimate stays unbiased.
    """
    if matrix.shape[0] > matrix.shape[1]:
        s, v, u = decompose(matrix.T)
        return s, u, v
    u = torch.linalg.eigh(matrix @ matrix.T).eigenvectors
    rows = u.T @ matrix
    s = torch.linalg.vector_norm(rows, dim=1)
    return s, u, (rows / torch.where(s > 0, s, 1).unsqueeze(1)).T


def probabilities(s: Tensor, budget: int) -> Tensor:
    """min(1, c s_i) with sum `budget`, float64; 1 for every s_i > 0 if these are not more than budget."""
    ordered = s.double().sort(descending=True).values
    tails = ordered.flip(0).cumsum(0).flip(0)  # what is left when the k largest have p = 1
    left = budget - torch.arange(len(s), device=s.device, dtype=torch.float64)
    fits = (left > 0) & (left * ordered <= tails) & (ordered > 0)
    c = torch.where(fits, left / torch.where(tails > 0, tails, 1), 0).amax()  # that of the smallest k that fits
    c = torch.where(c > 0, c, torch.inf)
    return torch.where(s > 0, (c * s.double()).clamp(max=1), 0)


def draw_systematically(p: Tensor, start: Tensor) -> Tensor:
    """Bools (q,): i is drawn with probability p_i <= 1 (`start` uniform in [0, 1)), sum(p) of them if that is whole."""
    upper = (p.cumsum(0) - start).floor()
    return upper > torch.cat([upper.new_full((1,), -1.0), upper[:-1]])


def _matrix(message: Tensor, slot: Slot, kept: int) -> Tensor:
    """(n, m) from weights (r), U (n, r), V (m, r)."""
    weights, u, v = message.split([kept, slot.rows * kept, slot.columns * kept])
    return (u.view(-1, kept) * weights) @ v.view(-1, kept).T


def _kept(slot: Slot, level: float) -> int:
    return min(int(level), slot.rows, slot.columns)


def _is_dense(slot: Slot, level: float) -> bool:
    return _kept(slot, level) * (slot.rows + slot.columns + 1) >= slot.size
