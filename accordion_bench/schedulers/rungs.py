"""Places on a ladder, by index or by batch multiple, and decisions that are the same for every layer."""

from __future__ import annotations

from accordion_bench.errors import UserError
from accordion_bench.schedulers.base import Decision, Problem

ROUNDING = 1e-9  # relative; 0.4 / 0.04 must count as 10


def place(index: int | None, length: int, default: int, setting: str) -> int:
    """The index counted from 0; None means `default`, negative counts from the end. UserError outside the ladder."""
    if index is None:
        return default
    if not -length <= index < length:
        rungs = "1 rung" if length == 1 else f"{length} rungs"
        raise UserError(
            f"scheduler.{setting} must be in {-length}..{length - 1} for a ladder of {rungs}, got {index}; "
            "0 saves most, -1 least"
        )
    return index % length


def uniform(problem: Problem, index: int | None = None, batch_index: int | None = None, prefix: str = "") -> Decision:
    """The same level for all layers: least compressed, base batch, unless told otherwise."""
    level = place(index, problem.rungs, problem.low, f"{prefix}index")
    batch = place(batch_index, len(problem.multiples), problem.small_batch, f"{prefix}batch_index")
    return Decision((level,) * len(problem.layers), batch)


def asks_low(problem: Problem, level_index_L: tuple[int, ...], batch_index: int) -> bool:
    """Whether some layer, or the batch, is on the careful end of a ladder that has more than one rung."""
    careful_level = problem.rungs > 1 and problem.low in level_index_L
    careful_batch = len(problem.multiples) > 1 and batch_index == problem.small_batch
    return careful_level or careful_batch


def largest_multiple(problem: Problem, wanted: float) -> int:
    """Index of the largest multiple that is not above `wanted`; the base batch if all are."""
    fitting = (i for i, multiple in enumerate(problem.multiples) if multiple <= wanted * (1 + ROUNDING))
    return next(fitting, problem.small_batch)


def require_batch_ladder(problem: Problem, name: str) -> None:
    """UserError unless there is more than one batch size to choose from."""
    if len(problem.multiples) < 2:
        raise UserError(
            f"scheduler {name} changes the batch size and needs two batch.multipliers or more, "
            f"got {list(problem.multiples)}; write e.g. batch.multipliers=[10, 1]"
        )
