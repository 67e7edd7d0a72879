"""What a compressor's levels may be. No torch, so that a wrong level is refused at once."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from accordion_bench.errors import UserError

MOST = 10**9  # of a level; compared before anything is computed with it


@dataclass(frozen=True)
class Ladder:
    """The kind of level that a compressor takes.

    Attributes:
        unit: what a level is, in the plural, for messages ("ranks >= 1").
        label: turns a level into the words of a table ("rank 2").
        allowed: tells whether one level is valid.
        remedy: what to write instead of a level that is not.
    """

    unit: str
    label: Callable[[float], str]
    allowed: Callable[[float], bool]
    remedy: str

    def check(self, levels: Sequence[float]) -> tuple[float, ...]:
        """The levels, from most to least compressed; UserError if one is not valid or the order is wrong."""
        if not levels:
            raise UserError(
                f"compressor.levels must be {self.unit}, got an empty list; write one level or more, e.g. [1]"
            )
        for level in levels:
            number = isinstance(level, (int, float)) and not isinstance(level, bool)
            if not number or not abs(level) <= MOST or not self.allowed(level):
                raise UserError(f"compressor.levels must be {self.unit}, got {level!r}; {self.remedy}")
        if list(levels) != sorted(set(levels)):
            fixed = "[" + ", ".join(f"{level:g}" for level in sorted(set(levels))) + "]"
            given = "[" + ", ".join(f"{level:g}" for level in levels) + "]"
            raise UserError(f"compressor.levels must rise from most to least compressed, got {given}; write {fixed}")
        return tuple(levels)


RANKS = Ladder(
    unit="ranks >= 1 (whole numbers)",
    label=lambda level: f"rank {level:g}",
    allowed=lambda level: level == int(level) and level >= 1,
    remedy="rank 1 sends least",
)
FRACTIONS = Ladder(
    unit="fractions in (0, 1]",
    label=lambda level: f"{100 * level:g} %",
    allowed=lambda level: 0 < level <= 1,
    remedy="write 0.015 for 1.5 %",
)
BITS = Ladder(
    unit="bits per element (whole numbers from 2 to 8, one of them the sign)",
    label=lambda level: f"{level:g} bits",
    allowed=lambda level: level == int(level) and 2 <= level <= 8,
    remedy="4 bits are 7 steps on either side of zero",
)
ATOMS = Ladder(
    unit="atoms per layer (whole numbers >= 1)",
    label=lambda level: f"{level:g} atoms" if level > 1 else "1 atom",
    allowed=lambda level: level == int(level) and level >= 1,
    remedy="1 atom sends least",
)
ANY = Ladder(
    unit="numbers",
    label=lambda level: f"level {level:g}",
    allowed=math.isfinite,
    remedy="what they mean is known to their compressor",
)
NOMINAL = Ladder(
    unit="[1], as this compressor has no ladder",
    label=lambda level: "fixed",
    allowed=lambda level: level == 1,
    remedy="write [1]",
)
