"""Levels and batch sizes for ranges of epochs, written down by hand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from accordion_bench.errors import UserError
from accordion_bench.schedulers.base import Decision, EpochStatistics, Problem, Scheduler, State
from accordion_bench.schedulers.rungs import uniform

KEYS = ("from", "until", "index", "batch_index", "critical")
EXAMPLE = "write e.g. scheduler.ranges=[{from: 0, until: 20, index: -1}]"


@dataclass(frozen=True)
class Range:
    """Epochs start .. stop - 1; index and batch_index as in Static, None for the scheduler's default."""

    start: int
    stop: int
    index: int | None
    batch_index: int | None
    critical: bool


class Manual(Scheduler):
    """A list of epoch ranges: the paper's probes (Figs. 2 and 4b), or any schedule known beforehand.

    Args:
        ranges: mappings with `from` (first epoch) and `until` (first epoch after the range), and, where they differ
            from the default, `index` and `batch_index`. Ranges must not overlap; their order does not matter. Epochs
            inside count as critical unless the range says `critical: false`.
        index: place on the level ladder elsewhere; None: least compressed. Negative counts from the end.
        batch_index: place on the batch ladder elsewhere; None: base batch.

    Raises:
        UserError: on malformed, empty or overlapping ranges; from `start` if a place is not on its ladder.
    """

    def __init__(self, *, ranges: Any, index: int | None = None, batch_index: int | None = None) -> None:
        if not isinstance(ranges, (list, tuple)):
            raise UserError(f"scheduler.ranges must be a list of epoch ranges, got {ranges!r}; {EXAMPLE}")
        self.ranges = tuple(sorted(map(_parse, ranges), key=lambda item: item.start))
        self.index = index
        self.batch_index = batch_index
        for before, after in zip(self.ranges, self.ranges[1:], strict=False):
            if after.start < before.stop:
                raise UserError(
                    f"scheduler.ranges must not overlap, got [{before.start}, {before.stop}) and "
                    f"[{after.start}, {after.stop}); end the first at {after.start}"
                )

    def start(self, problem: Problem) -> tuple[State, Decision]:
        for number, item in enumerate(self.ranges):
            uniform(problem, item.index, item.batch_index, prefix=f"ranges[{number}].")
        return {}, self._at(problem, 0)

    def decide(self, state: State, problem: Problem, epoch: EpochStatistics) -> tuple[State, Decision]:
        return {}, self._at(problem, epoch.epoch + 1)

    def _at(self, problem: Problem, epoch: int) -> Decision:
        index, batch_index, critical = self.index, self.batch_index, False
        for item in self.ranges:
            if item.start <= epoch < item.stop:
                index = self.index if item.index is None else item.index
                batch_index = self.batch_index if item.batch_index is None else item.batch_index
                critical = item.critical
        everywhere = uniform(problem, index, batch_index)
        return Decision(everywhere.level_index_L, everywhere.batch_index, critical=critical)


def _parse(item: object) -> Range:
    if not isinstance(item, Mapping) or not {"from", "until"} <= set(item) <= set(KEYS):
        raise UserError(
            f"scheduler.ranges must hold mappings with from, until and any of {', '.join(KEYS[2:])}, "
            f"got {item!r}; {EXAMPLE}"
        )
    for key, value in item.items():
        kinds: tuple[type, ...] = (bool,) if key == "critical" else (int,)
        optional = value is None and key in ("index", "batch_index")
        if not optional and type(value) not in kinds:
            kind = "true or false" if key == "critical" else "a whole number"
            raise UserError(f"scheduler.ranges: {key} must be {kind}, got {value!r}; {EXAMPLE}")
    if not 0 <= item["from"] < item["until"]:
        raise UserError(
            f"scheduler.ranges must have 0 <= from < until, got from {item['from']} until {item['until']}; "
            "`until` is the first epoch after the range"
        )
    return Range(item["from"], item["until"], item.get("index"), item.get("batch_index"), item.get("critical", True))
