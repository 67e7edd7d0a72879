"""What every compressor promises (training/compressor.py), as checks that run on any of them.

Shape suffixes: H hosted workers, N parameters in the flat buffer, L layers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from accordion_bench.compressors import build_compressor, find_compressor
from accordion_bench.compressors.conformance.promise import require
from accordion_bench.errors import UserError
from accordion_bench.training.aggregator import Aggregator
from accordion_bench.training.communicator import Communicator
from accordion_bench.training.compressor import Compressor
from accordion_bench.training.gradients import Layout
from accordion_bench.training.seeds import generator_for

MODELS: dict[str, Mapping[str, Sequence[int]]] = {
    "a small network": {"conv": (4, 3, 3, 3), "conv.bias": (4,), "linear": (20, 7), "table": (1, 1), "scale": ()},
    "only 1-D tensors": {"a": (5,), "b": (1,)},
    "no 1-D tensor": {"w": (6, 5), "x": (3, 2, 2, 2), "y": (6, 5)},
    "a single element": {"w": (1, 1)},
}
LIKELY_LEVELS = (0.01, 0.1, 0.5, 1, 2, 4, 8)  # some are on any ladder of fractions, ranks or bits
WORKERS = 3


@dataclass(frozen=True)
class Subject:
    """A compressor class with what is needed to build and feed it."""

    name: str
    levels: tuple[float, ...]
    settings: dict[str, Any]
    layouts: dict[str, Layout]
    seed: int
    error_feedback: bool  # as far as it allows

    def build(self, layout: Layout, level: float | None = None, *, error_feedback: bool | None = None) -> Compressor:
        """A fresh one at one level (by default the most compressed) for all layers."""
        feedback = self.error_feedback if error_feedback is None else error_feedback
        compressor = build_compressor(self.name, layout, self.seed, error_feedback=feedback, settings=self.settings)
        compressor.set_levels([self.levels[0] if level is None else level] * len(layout.layers))
        return compressor

    def gradients(self, layout: Layout, workers: int, step: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
        """Standard normal (H, N)."""
        generator = generator_for(self.seed, "conformance", step, workers)
        return torch.randn(workers, layout.size, generator=generator, dtype=torch.float64).to(dtype)


def subject(
    name: str,
    levels: Sequence[float] | None,
    settings: dict[str, Any],
    shapes: Mapping[str, Sequence[int]] | None,
    seed: int,
) -> Subject:
    """What is to be checked; UserError if it cannot be built."""
    ladder = find_compressor(name).ladder
    if levels is None:
        levels = [level for level in LIKELY_LEVELS if ladder.allowed(level)]
    models = MODELS if shapes is None else {"the model given": shapes}
    layouts = {title: Layout(model) for title, model in models.items()}
    subject = Subject(name, ladder.check(levels), settings, layouts, seed, error_feedback=True)
    try:
        subject.build(next(iter(layouts.values())))
    except UserError:  # some have no use for it and say so
        subject = Subject(name, subject.levels, settings, layouts, seed, error_feedback=False)
        subject.build(next(iter(layouts.values())))
    return subject


def _conserves(subject: Subject) -> None:
    for title, layout in subject.layouts.items():
        for level in subject.levels:
            compressor = subject.build(layout, level)
            if not compressor.conserves:
                return
            for step in range(3):
                given_HN = subject.gradients(layout, 1, step)
                rest_HN = given_HN.clone()
                update_N = compressor.reduce(rest_HN, Communicator(1))
                size = max(float(update_N.abs().max()), float(given_HN.abs().max()))
                error = float((update_N + rest_HN[0] - given_HN[0]).abs().max())
                require(error <= 1e-5 * size, f"{title}, level {level:g}, update {step}: off by {error:.3g}")


def _averages_dense(subject: Subject) -> None:
    for title, layout in subject.layouts.items():
        grads_HN = subject.gradients(layout, WORKERS)
        mean_N = grads_HN.mean(0)
        update_N = subject.build(layout).reduce(grads_HN, Communicator(WORKERS))
        error = (update_N - mean_N)[layout.dense].abs().sum()
        require(float(error) <= 1e-5, f"{title}: the 1-D tensors are off by {float(error):.3g}")


def _keeps_type(subject: Subject) -> None:
    for title, layout in subject.layouts.items():
        for dtype in (torch.float32, torch.float64):
            update_N = subject.build(layout).reduce(subject.gradients(layout, 2, dtype=dtype), Communicator(2))
            require(
                update_N.shape == (layout.size,) and update_N.dtype == dtype,
                f"{title}: from {dtype} of {layout.size} elements it made {update_N.dtype} of {tuple(update_N.shape)}",
            )


def _stays_finite(subject: Subject) -> None:
    for title, layout in subject.layouts.items():
        drawn_HN = subject.gradients(layout, 2)
        sparse_HN = torch.where(drawn_HN > 1, drawn_HN, 0)
        kinds = {
            "all zero": torch.zeros_like(drawn_HN),
            "all equal": torch.ones_like(drawn_HN),
            "all equal and negative": -torch.ones_like(drawn_HN),
            "mostly zero": sparse_HN,
            "of size 1e-12": 1e-12 * drawn_HN,
            "of size 1e12": 1e12 * drawn_HN,
            "zero on one worker": drawn_HN * torch.tensor([[0.0], [1.0]]),
        }
        for kind, given_HN in kinds.items():
            aggregator = Aggregator(subject.build(layout), error_feedback=subject.error_feedback)
            for step in range(3):
                update_N, _ = aggregator.reduce(given_HN.clone(), Communicator(2))
                require(bool(update_N.isfinite().all()), f"{title}, gradients {kind}, update {step}: not finite")


def _shows_bad_numbers(subject: Subject) -> None:
    for title, layout in subject.layouts.items():
        for worker, bad in enumerate((math.nan, math.inf, -math.inf)):
            place = (7 * worker) % layout.size
            _require_visible(subject, layout, bad, worker, place, f"{title}, {bad} in worker {worker}'s gradient")


def _require_visible(subject: Subject, layout: Layout, bad: float, worker: int, place: int, where: str) -> None:
    aggregator = Aggregator(subject.build(layout), error_feedback=subject.error_feedback)
    aggregator.reduce(subject.gradients(layout, WORKERS), Communicator(WORKERS))
    grads_HN = subject.gradients(layout, WORKERS, 1)
    grads_HN[worker, place] = bad
    update_N, finite = aggregator.reduce(grads_HN, Communicator(WORKERS))
    require(not finite and not bool(update_N.isfinite().all()), f"{where}: the update hides it")
    update_N, finite = aggregator.reduce(subject.gradients(layout, WORKERS, 2), Communicator(WORKERS))
    require(finite, f"{where}: the next update, from good gradients, is not finite either")


def _costs_what_it_says(subject: Subject) -> None:
    for title, layout in subject.layouts.items():
        count = len(layout.layers)
        mixed = [subject.levels[layer % len(subject.levels)] for layer in range(count)]
        for levels_L in ([[level] * count for level in subject.levels] + [mixed]) if count else [[]]:
            compressor, communicator = subject.build(layout), Communicator(2)
            compressor.set_levels(levels_L)
            promised = compressor.cost(levels_L)
            compressor.reduce(subject.gradients(layout, 2), communicator)
            where = f"{title}, levels {levels_L}"
            counted = communicator.traffic
            if compressor.data_dependent:
                holds = counted.bytes_per_worker <= promised.bytes_per_worker
                require(
                    holds, f"{where}: cost() allows {promised.bytes_per_worker}, sent {counted.bytes_per_worker} bytes"
                )
            else:
                require(counted == promised, f"{where}: cost() says {promised.as_dict()}, sent {counted.as_dict()}")


def _repeats(subject: Subject) -> None:
    for title, layout in subject.layouts.items():
        first, second = (_updates(subject, layout, _aggregator(subject, layout), range(3)) for _ in range(2))
        require(_equal(first, second), f"{title}: two instances with one seed and the same gradients disagree")


def _keeps_memory(subject: Subject) -> None:
    for title, layout in subject.layouts.items():
        plain, touched = _aggregator(subject, layout), _aggregator(subject, layout)
        for aggregator in (plain, touched):
            _updates(subject, layout, aggregator, range(2))
        touched.compressor.set_levels(touched.compressor.levels_L)
        same = _equal(*(_updates(subject, layout, each, range(2, 4)) for each in (plain, touched)))
        require(same, f"{title}: setting the same levels again changes the updates")
        before_H = [_copy(touched.compressor.worker_state_dict(h)) for h in range(WORKERS)]
        touched.compressor.set_levels([subject.levels[-1]] * len(layout.layers))
        for h, before in enumerate(before_H):
            kept = _same_tensors(before, touched.compressor.worker_state_dict(h))
            require(kept, f"{title}: a new level changes what worker {h} has kept")
        later = _updates(subject, layout, touched, range(4, 6))
        require(all(bool(update_N.isfinite().all()) for update_N in later), f"{title}: not finite after a new level")


def _continues(subject: Subject) -> None:
    for title, layout in subject.layouts.items():
        original = _aggregator(subject, layout)
        _updates(subject, layout, original, range(2))
        restored = _aggregator(subject, layout)
        kept = original.compressor
        own_H = [_copy(kept.worker_state_dict(h)) for h in range(WORKERS)]
        restored.compressor.load_state_dict(_copy(kept.state_dict()))
        restored.compressor.updates = kept.updates
        restored.compressor.load_worker_state_dicts(own_H)
        restored.load_memory(None if original.memory_HN is None else original.memory_HN.clone())
        same = _equal(*(_updates(subject, layout, each, range(2, 4)) for each in (original, restored)))
        require(same, f"{title}: after state_dict and load_state_dict the next updates differ")


def _aggregator(subject: Subject, layout: Layout) -> Aggregator:
    return Aggregator(subject.build(layout), error_feedback=subject.error_feedback)


def _updates(subject: Subject, layout: Layout, aggregator: Aggregator, steps: range) -> list[Tensor]:
    communicator = Communicator(WORKERS)
    gradients = (subject.gradients(layout, WORKERS, step) for step in steps)
    return [aggregator.reduce(grads_HN, communicator)[0].clone() for grads_HN in gradients]


def _equal(first: list[Tensor], second: list[Tensor]) -> bool:
    return all(torch.equal(a_N, b_N) for a_N, b_N in zip(first, second, strict=True))


def _copy(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {key: value.clone() for key, value in tensors.items()}


def _same_tensors(first: dict[str, Tensor], second: dict[str, Tensor]) -> bool:
    return first.keys() == second.keys() and all(torch.equal(first[key], second[key]) for key in first)


CLAIMS: dict[str, Callable[[Subject], None]] = {
    "with one worker, update + residual equals the gradient": _conserves,
    "1-D tensors are averaged uncompressed": _averages_dense,
    "the update has the buffer's length and type, float32 or float64": _keeps_type,
    "gradients that are zero, equal, tiny or huge give finite updates": _stays_finite,
    "a NaN or Inf of any worker shows in the update and leaves no trace": _shows_bad_numbers,
    "the meter counts what cost() says": _costs_what_it_says,
    "equal seeds give equal updates": _repeats,
    "a new level keeps what workers have not sent yet": _keeps_memory,
    "state_dict is enough to continue identically": _continues,
}
