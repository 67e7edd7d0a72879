"""The Time column of Tables 1-6: fit the model of audit_time_model.py on as few rows as possible, and predict every
other row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from accordion_bench.errors import UserError
from accordion_bench.report.audit.accordion import AccordionRow
from accordion_bench.report.audit.assumptions import LOW_EPOCHS
from accordion_bench.report.audit.counting import EPOCHS, Cell, find, setup_of
from accordion_bench.report.audit.data_sent import DataSentRow
from accordion_bench.report.audit.time_model import (
    BANDWIDTH_BITS_PER_S,
    LATENCIES,
    Run,
    fused_traffic,
    published_traffic,
    run_of,
)

Key = tuple[str, str, str, str]
# (table, data set, network, level): one row per unknown.
FIT: tuple[Key, ...] = (
    ("5", "CIFAR-10", "ResNet-18", "512"),  # with the next: compute, and latency of the batch-size runs
    ("5", "CIFAR-10", "ResNet-18", "4096"),
    ("5", "CIFAR-10", "GoogLeNet", "4096"),  # compute
    ("5", "CIFAR-10", "DenseNet", "4096"),  # compute
    ("1", "CIFAR-10", "ResNet-18", "rank1"),  # with the next: latency of the runs with compression, cost of a rank
    ("1", "CIFAR-10", "ResNet-18", "rank2"),
    ("1", "CIFAR-10", "VGG-19bn", "rank1"),  # compute
    ("2", "CIFAR-100", "SENet", "rank1"),  # compute
    ("3", "CIFAR-10", "ResNet-18", "k10"),  # with the next: cost of an element sorted and of one sent
    ("3", "CIFAR-10", "ResNet-18", "k99"),
)


@dataclass(frozen=True)
class TimeRow:
    """One row of the Time column.

    Attributes:
        table, dataset, network, level: which.
        printed: seconds.
        predicted: seconds of the model.
        error: predicted / printed - 1.
        fitted: whether the row was used to fit.
        step_ms: printed time per backward pass, all included.
        collectives: messages of one update in the published code.
        latency_share: share of the predicted time that is latency.
        fused_collectives: of our step.
        fused: predicted seconds with our messages, all else equal.
        speedup: predicted / fused.
    The last five are None for Accordion rows, which mix two levels.
    """

    table: str
    dataset: str
    network: str
    level: str
    printed: float
    predicted: float
    error: float
    fitted: bool
    step_ms: float
    collectives: int | None = None
    latency_share: float | None = None
    fused_collectives: int | None = None
    fused: float | None = None
    speedup: float | None = None


@dataclass(frozen=True)
class TimeFit:
    """The fit and every row.

    Attributes:
        unknowns: name -> seconds.
        rows_used: (table, data set, network, level) of the rows that were fitted.
        bandwidth_bits_per_s: assumed, not fitted.
        rows: static and Accordion rows in the order of the cells.
        common_latency_error: of Table 1's ResNet-18 at rank 1, if the batch-size runs' latency held there too.
        contradictions: pairs of rows that no model can fit in which more data takes more time.
    """

    unknowns: dict[str, float]
    rows_used: tuple[Key, ...]
    bandwidth_bits_per_s: float
    rows: tuple[TimeRow, ...]
    common_latency_error: float
    contradictions: tuple[str, ...]


def time_fit(cells: Sequence[Cell], static: Sequence[DataSentRow], accordion: Sequence[AccordionRow]) -> TimeFit:
    """Fit on the rows of FIT and predict every row.

    Raises:
        UserError: if the cells lack a row of FIT.
    """
    readings = {row.key: row for row in static}
    runs = {_key(cell): _published_run(cell, readings[_key(cell)]) for cell in cells if _key(cell) in readings}
    printed = {_key(cell): cell.seconds for cell in cells}
    if missing := [key for key in FIT if key not in runs]:
        raise UserError(
            f"the fit needs Table {' '.join(missing[0])}, which is not among the cells; give all of Tables 1-6"
        )
    unknowns = _solve([runs[key] for key in FIT], [printed[key] for key in FIT])
    low_shares = {row.key: LOW_EPOCHS / EPOCHS if row.predicted else row.low_share for row in accordion}
    rows = []
    for cell in cells:
        key = _key(cell)
        if key in runs:
            rows.append(_static_row(cell, runs[key], unknowns))
        else:
            low, high = (runs[_key(find(cells, cell.group, role))] for role in ("low", "high"))
            rows.append(_accordion_row(cell, low_shares[key], low, high, unknowns))
    return TimeFit(
        unknowns,
        FIT,
        BANDWIDTH_BITS_PER_S,
        tuple(rows),
        _common_latency_error(runs, printed, unknowns),
        _contradictions(rows, runs),
    )


def _key(cell: Cell) -> Key:
    return (*cell.group, cell.level)


def _published_run(cell: Cell, reading: DataSentRow) -> Run:
    """The row with the network and epochs that its Data Sent seems to count."""
    setup = replace(setup_of(cell), variant=reading.variant, epochs=reading.epochs)
    return run_of(setup, published_traffic(setup))


def _solve(runs: Sequence[Run], times: Sequence[float]) -> dict[str, float]:
    import numpy as np

    names = list(dict.fromkeys(name for run in runs for name in run.weights))
    weights = np.array([[run.weights.get(name, 0.0) for name in names] for run in runs])
    known = np.array([run.known for run in runs])
    return dict(zip(names, np.linalg.solve(weights, np.array(times) - known).tolist(), strict=True))


def _static_row(cell: Cell, run: Run, unknowns: Mapping[str, float]) -> TimeRow:
    predicted = run.seconds(unknowns)
    fused = run_of(run.setup, fused_traffic(run.setup))
    latency = LATENCIES[run.setup.method]
    return TimeRow(
        *_key(cell),
        printed=cell.seconds,
        predicted=predicted,
        error=predicted / cell.seconds - 1,
        fitted=_key(cell) in FIT,
        step_ms=1000 * cell.seconds / run.passes,
        collectives=run.collectives,
        latency_share=unknowns[latency] * run.weights[latency] / predicted,
        fused_collectives=fused.collectives,
        fused=fused.seconds(unknowns),
        speedup=predicted / fused.seconds(unknowns),
    )


def _accordion_row(cell: Cell, low_share: float, low: Run, high: Run, unknowns: Mapping[str, float]) -> TimeRow:
    """A mixture of the group's two static runs, in the share that Data Sent implies."""
    predicted = low_share * low.seconds(unknowns) + (1 - low_share) * high.seconds(unknowns)
    return TimeRow(
        *_key(cell),
        printed=cell.seconds,
        predicted=predicted,
        error=predicted / cell.seconds - 1,
        fitted=False,
        step_ms=1000 * cell.seconds / low.passes,
    )


def _common_latency_error(
    runs: Mapping[Key, Run], printed: Mapping[Key, float], unknowns: Mapping[str, float]
) -> float:
    key = ("1", "CIFAR-10", "ResNet-18", "rank1")
    common = {**unknowns, LATENCIES["powersgd"]: unknowns[LATENCIES["batch_size"]]}
    return runs[key].seconds(common) / printed[key] - 1


def _contradictions(rows: Sequence[TimeRow], runs: Mapping[Key, Run]) -> tuple[str, ...]:
    """Runs of one network and method of which one sends half as much again per step as the other, in a shorter step."""
    static = [
        (row, runs[key].setup) for row in rows if (key := (row.table, row.dataset, row.network, row.level)) in runs
    ]
    found = []
    for row, setup in static:
        for other, theirs in static:
            ratio = setup.words_per_update / theirs.words_per_update
            same = (setup.network, setup.method) == (theirs.network, theirs.method)
            if same and ratio > 1.5 and row.step_ms < other.step_ms:
                found.append(
                    f"Table {row.table} {row.network} {row.level} sends {ratio:.1f} times as much per step as Table "
                    f"{other.table} {other.level}, in {row.step_ms / other.step_ms:.2f} of its time"
                )
    return tuple(found)
