"""One flat buffer per worker and per-parameter views of it.

Shape suffixes: H hosted workers, A all workers, N parameters in the flat buffer, L layers.
A *layer* is a parameter tensor of two or more dimensions, seen as the matrix (first dimension x rest);
these are what compressors compress and schedulers decide about. 1-D tensors (biases, normalisation)
are always sent dense; they lie together at the end of the buffer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

import torch
from torch import Tensor


@dataclass(frozen=True)
class Slot:
    """Where one parameter lies in the flat buffer."""

    name: str
    shape: tuple[int, ...]
    start: int

    @property
    def size(self) -> int:
        """Number of elements."""
        size = 1
        for extent in self.shape:
            size *= extent
        return size

    @property
    def stop(self) -> int:
        """One past the last element."""
        return self.start + self.size

    @property
    def rows(self) -> int:
        """n of the matrix view (n, m)."""
        return self.shape[0]

    @property
    def columns(self) -> int:
        """m of the matrix view (n, m)."""
        return self.size // self.shape[0]


@dataclass(frozen=True)
class Block:
    """Consecutive layers of one matrix shape: `count` matrices of (n, m), one view (count, n, m)."""

    layers: range
    rows: int
    columns: int
    start: int
    stop: int


class Layout:
    """The order of parameters in the flat buffer: same-shape matrices adjacent, 1-D tensors last.

    The order depends only on the parameters' order and shapes, so it is the same on every process.

    Args:
        shapes: parameter name -> shape, in the model's order.
    """

    def __init__(self, shapes: Mapping[str, Sequence[int]]) -> None:
        matrices = [(name, tuple(shape)) for name, shape in shapes.items() if len(shape) >= 2]
        vectors = [(name, tuple(shape)) for name, shape in shapes.items() if len(shape) < 2]
        first_seen: dict[tuple[int, int], int] = {}
        for index, (_, shape) in enumerate(matrices):
            first_seen.setdefault(_matrix_shape(shape), index)
        matrices.sort(key=lambda item: first_seen[_matrix_shape(item[1])])  # stable: model order inside a shape
        start = 0
        slots = []
        for name, shape in matrices + vectors:
            slots.append(Slot(name, shape, start))
            start = slots[-1].stop
        self.slots: tuple[Slot, ...] = tuple(slots)
        self.layers: tuple[Slot, ...] = self.slots[: len(matrices)]
        self.size: int = start
        self.dense: slice = slice(self.layers[-1].stop if matrices else 0, start)
        self.blocks: tuple[Block, ...] = tuple(self._blocks())

    @classmethod
    def of(cls, model: torch.nn.Module) -> Layout:
        """The layout of a model's trainable parameters (a tied parameter appears once)."""
        return cls({name: tuple(p.shape) for name, p in model.named_parameters() if p.requires_grad})

    def _blocks(self) -> Iterable[Block]:
        for (rows, columns), group in groupby(
            range(len(self.layers)), key=lambda i: _matrix_shape(self.layers[i].shape)
        ):
            layers = list(group)
            span = range(layers[0], layers[-1] + 1)
            yield Block(span, rows, columns, self.layers[span[0]].start, self.layers[span[-1]].stop)

    def zeros(self, hosted: int, device: torch.device | str = "cpu", dtype: torch.dtype = torch.float32) -> Tensor:
        """A buffer (H, N) of zeros."""
        return torch.zeros(hosted, self.size, device=device, dtype=dtype)

    def matrix(self, flat: Tensor, layer: int) -> Tensor:
        """View of one layer in (..., N) as (..., n, m)."""
        slot = self.layers[layer]
        return flat[..., slot.start : slot.stop].unflatten(-1, (slot.rows, slot.columns))

    def block(self, flat: Tensor, block: Block) -> Tensor:
        """View of one block in (..., N) as (..., count, n, m)."""
        return flat[..., block.start : block.stop].unflatten(-1, (len(block.layers), block.rows, block.columns))

    def views(self, flat_N: Tensor) -> list[Tensor]:
        """Views of (N,) in the shapes of the parameters, in the order of `slots`."""
        return [flat_N[slot.start : slot.stop].view(slot.shape) for slot in self.slots]


def _matrix_shape(shape: tuple[int, ...]) -> tuple[int, int]:
    rows, size = shape[0], 1
    for extent in shape:
        size *= extent
    return rows, size // max(rows, 1)


class Binding:
    """Ties a model's `p.grad` to a flat buffer, so that a backward pass writes straight into it."""

    def __init__(self, model: torch.nn.Module, layout: Layout) -> None:
        parameters = dict(model.named_parameters())
        self.layout = layout
        self.parameters = [parameters[slot.name] for slot in layout.slots]

    def bind(self, flat_N: Tensor) -> None:
        """Point every `p.grad` at its view of flat_N; backward passes add to what is there."""
        for parameter, view in zip(self.parameters, self.layout.views(flat_N), strict=True):
            parameter.grad = view
