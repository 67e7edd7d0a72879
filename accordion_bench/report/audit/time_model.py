"""The Time column of Tables 1-6 from an alpha-beta model, and what a step with fused collectives would take on the same
network.

Seconds of a static run = backward passes * (compute + compression) + updates * (calls * latency + ring bytes /
bandwidth), after T(512) = 98*300*(c + x) and T(4096) = 98*300*c + 3600*x. Messages are those of the published code:
one all-reduce per 1-D tensor and, for each matrix, one all-reduce (batch size), two (PowerSGD's P and Q) or two all-
gathers (Top-K's 64-bit indices and its values). Compression is that code's too: orthogonalisation column by column,
a full sort, and adding four workers' sparse tensors.

The unknowns are as few as the rows allow: compute per network; one latency for the batch-size runs and one for the
runs with compression (they cannot be the same, see `TimeFit.common_latency_error`); a cost per matrix and rank; a
cost per element sorted and one per element sent. They are solved for exactly from as many rows (FIT); every other
row is a prediction. Published runs always made 98 backward passes per epoch, whatever Data Sent counts; epochs are
those that Data Sent seems to count.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from accordion_bench.report.audit.counting import STEPS, WORKERS, Setup, layout
from accordion_bench.training.network import Network, seconds
from accordion_bench.training.traffic import BYTES_PER_FLOAT, Traffic

if TYPE_CHECKING:
    from accordion_bench.training.compressor import Compressor

BANDWIDTH_BITS_PER_S = 1e10  # of the paper's instances, "up to" in the vendor's list
INDEX_BYTES = 8  # torch.argsort gives 64-bit indices
LATENCIES = {"batch_size": "latency batch-size runs", **dict.fromkeys(("powersgd", "topk"), "latency compressed runs")}


@dataclass(frozen=True)
class Run:
    """A static row as the model sees it: seconds = known + sum of unknown * weight.

    Attributes:
        setup: what the row ran.
        known: seconds that the bytes take on the wire.
        weights: name of an unknown -> how often the run pays it.
        collectives: messages of one update.
    """

    setup: Setup
    known: float
    weights: dict[str, float]
    collectives: int

    @property
    def passes(self) -> int:
        """Backward passes per worker."""
        return STEPS * self.setup.epochs

    def seconds(self, unknowns: Mapping[str, float]) -> float:
        """Of the whole run."""
        return self.known + sum(unknowns[name] * weight for name, weight in self.weights.items())


def published_traffic(setup: Setup) -> Traffic:
    """What the published code sends in one update: a message per tensor, or two."""
    shapes = layout(setup.network, setup.dataset, setup.variant)
    traffic = Traffic()
    for slot in shapes.slots[len(shapes.layers) :]:
        traffic.mean.add(slot.size, slot.size * BYTES_PER_FLOAT)
    for slot in shapes.layers:
        if setup.method == "powersgd":
            for size in (slot.rows, slot.columns):
                words = size * min(setup.level, slot.rows, slot.columns)
                traffic.mean.add(words, words * BYTES_PER_FLOAT)
        elif setup.method == "topk":
            kept = int(setup.level / 100 * slot.size)
            for width in (INDEX_BYTES, BYTES_PER_FLOAT):
                traffic.gather.add(kept, kept * width)
        else:
            traffic.mean.add(slot.size, slot.size * BYTES_PER_FLOAT)
    return traffic


def fused_traffic(setup: Setup) -> Traffic:
    """What this program's compressors send in one update: one or two messages for the whole model."""
    from accordion_bench.compressors import build_compressor

    shapes = layout(setup.network, setup.dataset, setup.variant)
    name = "none" if setup.method == "batch_size" else setup.method
    level = setup.level / 100 if setup.method == "topk" else 1 if name == "none" else setup.level
    compressor: Compressor = build_compressor(name, shapes, 0, error_feedback=True, settings={})
    return compressor.cost([level] * len(shapes.layers))


def run_of(setup: Setup, traffic: Traffic) -> Run:
    """The model of one static run with these messages per update."""
    shapes = layout(setup.network, setup.dataset, setup.variant)
    passes = float(STEPS * setup.epochs)
    weights = {f"compute {setup.network}": passes}
    # network.py's alpha is one hop; an all-reduce of A workers has 2 of them and an all-gather half as many.
    calls = traffic.mean.calls + traffic.gather.calls / 2
    weights[LATENCIES[setup.method]] = setup.updates * calls
    if setup.method == "powersgd":
        weights["per matrix and rank"] = passes * setup.level * len(shapes.layers)
    elif setup.method == "topk":
        weights["per element sorted"] = passes * sum(slot.size for slot in shapes.layers)
        weights["per element sent"] = passes * traffic.gather.elements / 2  # an index and a value each
    wire = Network("wire", 0.0, BANDWIDTH_BITS_PER_S, "bytes only")
    return Run(setup, setup.updates * seconds(traffic, WORKERS, wire), weights, traffic.collectives)
