"""The compressors, one algorithm a file, and their registry by name; beside them the ladders of levels and the
checks of what every compressor and scheduler promises (conformance). May import training and schedulers; never
workloads, config or anything above. No torch until one is loaded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from accordion_bench.compressors.ladders import ATOMS, BITS, FRACTIONS, NOMINAL, RANKS, Ladder
from accordion_bench.errors import UserError
from accordion_bench.plugins import check_settings, closest, load_object, load_own

if TYPE_CHECKING:
    from accordion_bench.training.compressor import Compressor
    from accordion_bench.training.gradients import Layout


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
    "adacomp": Entry("accordion_bench.compressors.adacomp:AdaComp", NOMINAL),
    "atomo": Entry("accordion_bench.compressors.atomo:Atomo", ATOMS),
    "dgc": Entry("accordion_bench.compressors.dgc:DGC", FRACTIONS),
    "efsignsgd": Entry("accordion_bench.compressors.efsignsgd:EFSignSGD", NOMINAL),
    "onebit": Entry("accordion_bench.compressors.onebit:OneBit", NOMINAL),
    "powersgd": Entry("accordion_bench.compressors.powersgd:PowerSGD", RANKS),
    "qsgd": Entry("accordion_bench.compressors.qsgd:QSGD", BITS),
    "randomk": Entry("accordion_bench.compressors.randomk:RandomK", FRACTIONS),
    "signsgd": Entry("accordion_bench.compressors.signsgd:SignSGD", NOMINAL),
    "terngrad": Entry("accordion_bench.compressors.terngrad:TernGrad", NOMINAL),
    "topk": Entry("accordion_bench.compressors.topk:TopK", FRACTIONS),
}


def find_compressor(name: str) -> Entry:
    """The entry of a registered name, or one for a user's own "module:Class" (its class attribute `ladder`)."""
    if ":" in name:
        ladder = getattr(load_own(name, "compressor.name"), "ladder", None)
        if not isinstance(ladder, Ladder):
            raise UserError(f"{name} must have a class attribute `ladder`, e.g. accordion_bench.ladders.FRACTIONS")
        return Entry(name, ladder)
    if name not in COMPRESSORS:
        known = ", ".join(COMPRESSORS)
        raise UserError(f"no compressor {name!r}{closest(name, list(COMPRESSORS)) or ';'} there are: {known}")
    return COMPRESSORS[name]


def build_compressor(
    name: str, layout: Layout, seed: int, *, error_feedback: bool, settings: Mapping[str, Any]
) -> Compressor:
    """The compressor with its settings checked; UserError if one is wrong."""
    kind = load_object(find_compressor(name).path, "compressor.name")
    checked = check_settings(kind, settings, "compressor", skip=("error_feedback",))
    return kind(layout, seed, error_feedback=error_feedback, **checked)
