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
from torch.nn.parameter import is_lazy

from accordion_bench.errors import RunFailure, UserError


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
        """The layout of a model's trainable parameters; a tied one appears once, one without elements not at all.

        Raises:
            UserError: nothing can be trained, or not by one flat buffer.
        """
        trainable = {name: p for name, p in model.named_parameters() if p.requires_grad}
        for name, p in trainable.items():
            if is_lazy(p):
                raise UserError(
                    f"parameter {name} of the model has no shape yet, got {type(p).__name__}; build the model with "
                    "sizes, or call it once on an example before it is returned"
                )
        trainable = {name: p for name, p in trainable.items() if p.numel()}
        if not trainable:
            raise UserError(
                "the model must have a parameter to train, got none with requires_grad; leave at least one trainable"
            )
        first, like = next(iter(trainable.items()))
        for name, p in trainable.items():
            if (p.dtype, p.device) != (like.dtype, like.device):
                raise UserError(
                    f"parameters of the model must have one type on one device, got {first} {_kind(like)} and {name} "
                    f"{_kind(p)}; convert it with model.to(dtype=...) before it is returned"
                )
        if not like.dtype.is_floating_point:
            raise UserError(
                f"parameters of the model must be floating-point numbers, got {first} {_kind(like)}; use float"
            )
        return cls({name: tuple(p.shape) for name, p in trainable.items()})

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


def _kind(p: Tensor) -> str:
    return f"{str(p.dtype).removeprefix('torch.')} on {p.device}"


def _matrix_shape(shape: tuple[int, ...]) -> tuple[int, int]:
    rows, size = shape[0], 1
    for extent in shape:
        size *= extent
    return rows, size // max(rows, 1)


def clip_(gradients: Tensor, limit: float, dim: int | None = None) -> None:
    """Scale down to an L2 norm of `limit` (along `dim`, or of all), as torch's clip_grad_norm_ does.

    Also where the sum of squares overflows, which would make zeros of all that is finite.
    """
    norm = torch.linalg.vector_norm(gradients, dim=dim, keepdim=dim is not None)
    wide = torch.linalg.vector_norm(gradients, dim=dim, keepdim=dim is not None, dtype=torch.float64)
    factor = torch.where(norm.isfinite(), limit / (norm + 1e-6), (limit / wide).to(norm.dtype))
    gradients *= factor.clamp(max=1.0)


class Binding:
    """Ties a model's `p.grad` to a flat buffer, so that a backward pass writes straight into it.

    A model may do with its gradients and parameters what it likes in its own forward; what it does is noticed here.
    """

    def __init__(self, model: torch.nn.Module, layout: Layout) -> None:
        self.model = model
        self.layout = layout
        parameters = dict(model.named_parameters())
        self.parameters = [parameters[slot.name] for slot in layout.slots]
        self.others = {name: p for name, p in parameters.items() if name not in {slot.name for slot in layout.slots}}
        self.views: list[Tensor] = []

    def bind(self, flat_N: Tensor) -> None:
        """Point every `p.grad` at its view of flat_N; backward passes add to what is there."""
        self.views = self.layout.views(flat_N)
        for parameter, view in zip(self.parameters, self.views, strict=True):
            parameter.grad = view

    @torch.no_grad()
    def collect(self) -> None:
        """After a backward pass: add each gradient that is no longer a view (the model set `p.grad` to None or to a
        tensor of its own, and autograd went on from there) to its view, and bind it again.

        Raises:
            RunFailure: a parameter needs a gradient that did not when the run began.
        """
        for parameter, view in zip(self.parameters, self.views, strict=True):
            if parameter.grad is not view:
                if parameter.grad is not None:
                    view += parameter.grad
                parameter.grad = view
        for name, parameter in self.others.items():
            if parameter.requires_grad and parameter.numel():
                raise RunFailure(
                    f"parameter {name} of the model was frozen when the run began and is trainable now; build the "
                    "model with requires_grad=True and freeze it afterwards"
                )

    def bind_trainable(self, flat_N: Tensor) -> None:
        """For the optimiser: the gradient of what is trainable now, None (left as it is) for what is frozen now."""
        self.bind(flat_N)
        for parameter in self.parameters:
            if not parameter.requires_grad:
                parameter.grad = None

    def check(self) -> None:
        """Raise RunFailure if the model's parameters are not those that the run began with."""
        now = dict(self.model.named_parameters())
        began = self.others | {slot.name: p for slot, p in zip(self.layout.slots, self.parameters, strict=True)}
        for name in [*began, *now]:
            if now.get(name) is not began.get(name):
                what = "replaced" if name in now and name in began else "added" if name in now else "removed"
                raise RunFailure(
                    f"parameter {name} of the model was {what} after the run began; make all parameters when the model "
                    "is built, and change their values in place"
                )
