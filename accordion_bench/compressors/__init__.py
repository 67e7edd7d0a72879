"""The compressors, by name. No torch until one is loaded."""

from __future__ import annotations

from dataclasses import dataclass

from accordion_bench.ladders import FRACTIONS, RANKS, Ladder


@dataclass(frozen=True)
class Entry:
    """Where a compressor is and what its levels are.

    Attributes:
        path: "module:Class".
        ladder: the kind of level it takes.
    """

    path: str
    ladder: Ladder


COMPRESSORS: dict[str, Entry] = {
    "none": Entry("accordion_bench.compressors.none:Uncompressed", FRACTIONS),
    "powersgd": Entry("accordion_bench.compressors.powersgd:PowerSGD", RANKS),
    "randomk": Entry("accordion_bench.compressors.randomk:RandomK", FRACTIONS),
    "topk": Entry("accordion_bench.compressors.topk:TopK", FRACTIONS),
}
