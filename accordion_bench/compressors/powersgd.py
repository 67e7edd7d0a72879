"""PowerSGD: low-rank approximation by one step of a warm-started power iteration.

Vogels, Karimireddy and Jaggi, "PowerSGD: Practical Low-Rank Gradient Compression for Distributed
Optimization", NeurIPS 2019, arXiv 1905.13727 (Algorithms 1 and 2).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from accordion_bench.errors import UserError
from accordion_bench.training.communicator import Communicator
from accordion_bench.training.compressor import Compressor
from accordion_bench.training.gradients import Layout, Slot
from accordion_bench.training.seeds import generator_for
from accordion_bench.training.traffic import BYTES_PER_FLOAT, Traffic


@dataclass(frozen=True)
class _Group:
    """Consecutive layers of one shape (n, m) and one rank r, and where their factors lie."""

    layers: range
    rows: int
    columns: int
    rank: int
    start: int  # of the matrices in the flat gradient
    p_start: int
    q_start: int

    @property
    def stop(self) -> int:
        return self.start + len(self.layers) * self.rows * self.columns

    def matrices(self, flat: Tensor) -> Tensor:
        """(..., N) -> view (..., count, n, m)."""
        return flat[..., self.start : self.stop].unflatten(-1, (len(self.layers), self.rows, self.columns))

    def p(self, factors: Tensor) -> Tensor:
        """(..., P) -> view (..., count, r, n): P transposed, since products with long rows are several times faster."""
        stop = self.p_start + len(self.layers) * self.rows * self.rank
        return factors[..., self.p_start : stop].unflatten(-1, (len(self.layers), self.rank, self.rows))

    def q(self, factors: Tensor) -> Tensor:
        """(..., Q) -> view (..., count, r, m): Q transposed."""
        stop = self.q_start + len(self.layers) * self.columns * self.rank
        return factors[..., self.q_start : stop].unflatten(-1, (len(self.layers), self.rank, self.columns))


class PowerSGD(Compressor):
    """Two collectives for the whole model: all P with what travels dense, then all Q.

    The levels are ranks. A layer of shape (n, m) uses r = min(rank, n, m) and goes dense where r(n + m) >= n m.
    Words per step: sum of r(n + m) over compressed layers, plus dense layers and 1-D tensors.

    Args:
        layout: of the flat buffers.
        seed: shared by all workers; the first Q is drawn from it.
        error_feedback: kept for the common signature; the algorithm is the same.
        residual: what error feedback remembers. "averaged": M minus the averaged update, as in the reference code;
            "local": M minus the worker's own approximation, as in the text of the paper.
    """

    def __init__(
        self,
        layout: Layout,
        seed: int,
        *,
        error_feedback: bool = True,
        residual: Literal["averaged", "local"] = "averaged",
    ) -> None:
        super().__init__(layout, seed, error_feedback=error_feedback)
        if residual not in ("averaged", "local"):
            raise UserError(f"compressor.residual must be averaged or local, got {residual!r}")
        self.local_residual = residual == "local"
        self._groups: tuple[_Group, ...] = ()
        self._dense: tuple[slice, ...] = ()  # what travels uncompressed, in the flat gradient
        self._p_size = self._q_size = 0
        self._q: Tensor | None = None  # (Q,): all Q factors, the same on every worker

    def set_levels(self, levels_L: Sequence[float]) -> None:
        """Use these ranks; keeps the columns of Q that both ranks have."""
        if tuple(levels_L) == self.levels_L and self._dense:  # _dense is empty before the first call
            return
        kept = self.state_dict()
        super().set_levels(levels_L)
        self._arrange()
        self._q = None
        if kept:
            self.load_state_dict(kept)

    def layer_words(self, slot: Slot, level: float) -> float:
        """r(n + m), or n m where that is not less."""
        return min(_rank(slot, level) * (slot.rows + slot.columns), slot.size)

    def cost(self, levels_L: Sequence[float]) -> Traffic:
        """One mean of all P with what travels dense, one of all Q."""
        first, second = self.layout.dense.stop - self.layout.dense.start, 0
        for slot, level in zip(self.layout.layers, levels_L, strict=True):
            r = _rank(slot, level)
            compressed = r * (slot.rows + slot.columns) < slot.size
            first += r * slot.rows if compressed else slot.size
            second += r * slot.columns if compressed else 0
        traffic = Traffic()
        for elements in (first, second) if second else (first,):
            traffic.mean.add(elements=elements, bytes=BYTES_PER_FLOAT * elements)
        return traffic

    def _arrange(self) -> None:
        """Lay out the factors for the current ranks."""
        groups: list[_Group] = []
        dense: list[slice] = []
        p_size = q_size = 0
        for block in self.layout.blocks:
            for layers, rank in _equal_runs(block.layers, self.levels_L):
                r = min(rank, block.rows, block.columns)
                start = self.layout.layers[layers[0]].start
                if r * (block.rows + block.columns) >= block.rows * block.columns:
                    dense.append(slice(start, self.layout.layers[layers[-1]].stop))
                    continue
                groups.append(_Group(layers, block.rows, block.columns, r, start, p_size, q_size))
                p_size += len(layers) * block.rows * r
                q_size += len(layers) * block.columns * r
        self._groups, self._p_size, self._q_size = tuple(groups), p_size, q_size
        self._dense = (*dense, self.layout.dense)

    @torch.no_grad()
    def reduce(self, grads_HN: Tensor, communicator: Communicator) -> Tensor:
        """Average over all workers -> (N,); leaves in grads_HN what was not sent."""
        if self._q is None:
            self._q = self._first_q(grads_HN)
        update_N = self.update_buffer(grads_HN)
        p, q, own_q_H = self._factors(grads_HN, update_N, communicator)
        for group in self._groups:
            _multiply(group.p(p).mT, group.q(q), out=group.matrices(update_N))
            for h, grads_N in enumerate(grads_HN):
                if self.local_residual:
                    group.matrices(grads_N).sub_(group.p(p).mT @ group.q(own_q_H[h]))
                else:
                    group.matrices(grads_N).sub_(group.matrices(update_N))
        for part in self._dense:
            grads_HN[:, part] = 0
        for group in self._groups:
            # Only the span matters. Left as it is, the next P = M Q would grow with the square of the gradient.
            _divide_by_largest(group.q(q).mT)
        # A NaN must reach the update, so that the step is refused, but not the next step's start.
        self._q = torch.where(q.isfinite().all(), q, self._q)
        self.updates += 1
        return update_N

    def _factors(self, grads_HN: Tensor, update_N: Tensor, communicator: Communicator) -> tuple[Tensor, Tensor, Tensor]:
        """Alg. 1, lines 2-5: orthonormal P, averaged Q, and the workers' own Q; fills update_N's dense parts."""
        assert self._q is not None
        hosted = grads_HN.shape[0]
        dense_size = sum(part.stop - part.start for part in self._dense)
        first_H = grads_HN.new_empty(hosted, self._p_size + dense_size)
        for group in self._groups:
            for h in range(hosted):
                _multiply(group.q(self._q), group.matrices(grads_HN[h]).mT, out=group.p(first_H[h]))
        place = self._p_size
        for part in self._dense:
            first_H[:, place : place + part.stop - part.start] = grads_HN[:, part]
            place += part.stop - part.start
        first = communicator.mean(first_H)
        place = self._p_size
        for part in self._dense:
            update_N[part] = first[place : place + part.stop - part.start]
            place += part.stop - part.start
        q_H = grads_HN.new_empty(hosted, self._q_size)
        if not self._groups:
            return first, self._q, q_H
        for group in self._groups:
            orthonormalise(group.p(first).mT)
            for h in range(hosted):
                _multiply(group.p(first), group.matrices(grads_HN[h]), out=group.q(q_H[h]))
        return first, communicator.mean(q_H), q_H

    def _first_q(self, like: Tensor) -> Tensor:
        """Standard normal columns; a new column of a layer is the same whatever the rank was before."""
        q = like.new_empty(self._q_size)
        for group in self._groups:
            for place, layer in enumerate(group.layers):
                drawn = torch.randn(
                    group.rank,
                    group.columns,
                    generator=generator_for(self.seed, "powersgd", layer),
                    dtype=torch.float32,
                )
                group.q(q)[place] = drawn
        return q

    def state_dict(self) -> dict[str, Tensor]:
        """Q (m, r) of every compressed layer by parameter name; empty before the first step."""
        if self._q is None:
            return {}
        return {
            self.layout.layers[layer].name: group.q(self._q)[place].T.clone()
            for group in self._groups
            for place, layer in enumerate(group.layers)
        }

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Take over the columns that fit the current ranks; draw the others."""
        if not state:
            return
        self._q = self._first_q(next(iter(state.values())))
        for group in self._groups:
            for place, layer in enumerate(group.layers):
                old = state.get(self.layout.layers[layer].name)
                if old is not None:
                    columns = min(old.shape[1], group.rank)
                    group.q(self._q)[place, :columns] = old[:, :columns].T


def _rank(slot: Slot, level: float) -> int:
    return min(int(level), slot.rows, slot.columns)


def orthonormalise(p: Tensor) -> None:
    """Overwrite (count, n, r) with orthonormal columns of the same span; zero or dependent columns are replaced."""
    _divide_by_largest(p)  # else the squares of elements below 1e-19 or above 1e19 leave float32's range
    if p.shape[-1] > 1:
        p.copy_(torch.linalg.qr(p).Q)  # Householder: orthonormal whatever the rank of p
        return
    norm = torch.linalg.vector_norm(p, dim=-2, keepdim=True)
    # A zero column would stay zero for ever (Q = M^T 0): take the first unit vector, as Householder does.
    p.div_(torch.where(norm == 0, 1, norm))
    p[..., :1, :] += (norm == 0).to(p.dtype)


def _divide_by_largest(columns: Tensor) -> None:
    """Make the largest magnitude in every column of (count, n, r) one; columns of zeros stay."""
    largest = columns.abs().amax(-2, keepdim=True)
    columns.div_(torch.where(largest == 0, 1, largest))


def _multiply(a: Tensor, b: Tensor, out: Tensor) -> None:
    """out = a @ b for (count, ., .); on the CPU one product per matrix, which is faster there than a batch."""
    if a.is_cuda:
        torch.bmm(a, b, out=out)
        return
    for left, right, target in zip(a, b, out, strict=True):
        torch.mm(left, right, out=target)


def _equal_runs(layers: range, levels_L: Sequence[float]) -> Iterator[tuple[range, int]]:
    """Split consecutive layers where the level changes."""
    start = layers.start
    for layer in layers:
        if layer + 1 == layers.stop or levels_L[layer + 1] != levels_L[start]:
            yield range(start, layer + 1), int(levels_L[start])
            start = layer + 1
