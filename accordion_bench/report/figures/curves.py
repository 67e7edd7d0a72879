"""One group's learning curves: the metric against epochs and against floats sent, with bands over seeds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from accordion_bench.report import published
from accordion_bench.report.estimates import estimate
from accordion_bench.report.figures import style
from accordion_bench.report.figures.shading import legend_entry, shade
from accordion_bench.report.numbers import unit_for
from accordion_bench.report.tables.aggregate import published_of
from accordion_bench.runs.stored import FinishedRun
from accordion_bench.sweeps.row_records import RowRecords
from accordion_bench.training.traffic import Traffic

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LOG_FROM = 4.0  # the axis of floats is logarithmic when totals differ by more than this factor
EDGE = 0.1  # share of points at the bad end (the first epochs) that the axis of the metric may leave out
LONG, WINDOW = 100, 5  # runs of so many epochs are drawn as running means of so many, or lines hide one another
MOST = {"accuracy": 100.0}  # no interval reaches beyond what a metric can be
DASHES = (0, (4, 2))


@dataclass(frozen=True)
class Curve:
    """A line: x, y, and the lower and upper ends of its interval (None for a single seed)."""

    epochs: list[float]
    floats: list[float]
    values: list[float]
    band: tuple[list[float], list[float]] | None


def draw_group(pair: Sequence[Axes], group: Sequence[RowRecords], overlay: bool, shaded: str = "") -> None:
    """Both panels of one group, with one legend at their right.

    Args:
        pair: the panels, against epochs and against floats sent.
        group: rows, of which at least one has a finished run.
        overlay: draw the published curves too.
        shaded: label of the row whose critical epochs (of its first run) are shaded, or empty.
    """
    from matplotlib.ticker import FuncFormatter

    left, right = pair
    some = next(run for record in group for run in record.runs)
    metric, window = some.summary.metric, WINDOW if len(some.epochs) >= LONG else 1
    handles: list[Any] = []
    points: list[float] = []
    totals: list[float] = []
    banded = dashed = False
    curves = [_curve(record.runs, window) if record.runs else None for record in group]
    unit, prefix = unit_for([curve.floats[-1] for curve in curves if curve])
    looks = style.styles([record.row_runs.row.role for record in group])
    for order, (record, curve, look) in enumerate(zip(group, curves, looks, strict=True)):
        row = record.row_runs.row
        if curve:
            count = f" ({len(record.runs)} of {len(record.row_runs.directories)} seeds)" if record.problems else ""
            _draw(left, curve.epochs, curve, look, order)
            handles.append(
                _draw(right, [value / unit for value in curve.floats], curve, look, order, row.label + count)
            )
            banded |= curve.band is not None
            points += curve.values
            totals.append(curve.floats[-1])
        result = published_of(row) if overlay else None
        if result and result.metric == metric:
            line, values = _draw_published(left, row.published, metric, look, order, window)
            points += values
            dashed = True
            if not curve:
                line.set_label(f"{row.label} (published only)")
                handles.append(line)
    _finish(left, right, metric, some.summary.higher_is_better, points, window)
    regimes = [record.runs[0] for record in group if record.row_runs.row.label == shaded and record.runs]
    for run in regimes:
        shade(left, [epoch.critical for epoch in run.epochs])
    left.set_title(group[0].row_runs.row.group)
    right.set_xlabel(f"floats sent per worker ({prefix})" if prefix else "floats sent per worker")
    if max(totals) > LOG_FROM * min(totals) > 0:
        right.set_xscale("log")
        right.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        low, high = right.get_ylim()
        both = [pair for curve in curves if curve for pair in zip(curve.floats, curve.values, strict=True)]
        right.set_xlim(left=0.8 * min(x for x, y in both if low <= y <= high) / unit)  # not where no line is seen
    extras = _legend_extras(banded, dashed) + [legend_entry("critical regimes")] * bool(regimes)
    right.legend(handles=handles + extras, loc="center left", bbox_to_anchor=(1.02, 0.5))


def _curve(runs: Sequence[FinishedRun], window: int) -> Curve:
    """Mean over seeds epoch by epoch, as far as all of them go, of each run's running mean."""
    length = min(len(run.epochs) for run in runs)
    sent_SE = [_cumulative_floats(run)[:length] for run in runs]
    name = runs[0].summary.metric
    values_SE = [running_mean([epoch.metrics[name] for epoch in run.epochs[:length]], window) for run in runs]
    estimates = [estimate(values) for values in zip(*values_SE, strict=True)]
    there = [value for value in estimates if value is not None]
    widths = [value.half_width or 0.0 for value in there]
    most = MOST.get(name, math.inf)
    return Curve(
        epochs=[epoch + 1.0 for epoch in range(length)],
        floats=[sum(sent) / len(runs) for sent in zip(*sent_SE, strict=True)],
        values=[value.mean for value in there],
        band=(
            [max(value.mean - width, 0.0) for value, width in zip(there, widths, strict=True)],
            [min(value.mean + width, most) for value, width in zip(there, widths, strict=True)],
        )
        if len(runs) > 1
        else None,
    )


def running_mean(values: Sequence[float], window: int) -> list[float]:
    """Each value's mean with up to window - 1 values before it."""
    parts = [values[max(0, end - window) : end] for end in range(1, len(values) + 1)]
    return [sum(part) / len(part) for part in parts]


def _cumulative_floats(run: FinishedRun) -> list[float]:
    sent, total = [], 0.0
    for epoch in run.epochs:
        total += Traffic.from_dict(epoch.traffic).floats_per_worker
        sent.append(total)
    return sent


def _draw(axes: Axes, x: list[float], curve: Curve, look: tuple[str, str], order: int, label: str = "") -> Any:
    colour, marker = look
    every = _marks(len(x), order)
    (line,) = axes.plot(
        x, curve.values, color=colour, marker=marker, markevery=every, markersize=5, lw=1.5, label=label
    )
    if curve.band is not None:
        axes.fill_between(x, *curve.band, color=colour, alpha=0.15, lw=0)
    return line


def _draw_published(
    axes: Axes, keys: dict[str, str | int], metric: str, look: tuple[str, str], order: int, window: int
) -> tuple[Any, list[float]]:
    """The published run, dashed with hollow markers; its line and values."""
    colour, marker = look
    frame = published.curve(keys)
    values = running_mean([float(value) for value in frame[metric]], window)
    x = [float(epoch) + 1 for epoch in frame["epoch"]]
    places = _marks(len(x), order + 0.5)
    (line,) = axes.plot(
        x, values, color=colour, ls=DASHES, lw=1.0, marker=marker, mfc="white", markevery=places, markersize=4
    )
    return line, values


def _marks(length: int, order: float) -> list[int]:
    """About eight places, another offset for each line so that markers do not hide one another."""
    step = max(1, length // 8)
    return sorted({min(length - 1, int(order * step / 5) % step + place) for place in range(0, length, step)})


def _finish(left: Axes, right: Axes, metric: str, higher_is_better: bool, points: list[float], window: int) -> None:
    """Labels, and the same range of the metric in both panels, without the first epochs' worst values."""
    from matplotlib.ticker import MaxNLocator

    ordered = sorted(points)
    skipped = int(EDGE * len(ordered))
    low, high = (ordered[skipped], ordered[-1]) if higher_is_better else (ordered[0], ordered[-1 - skipped])
    margin = 0.04 * (high - low) or 1.0
    for axes in (left, right):
        axes.set_ylim(low - margin, min(high + margin, MOST.get(metric, math.inf) + margin / 4))
        axes.set_ylabel("test accuracy (%)" if metric == "accuracy" else f"test {metric}")
    left.set_xlabel(f"epochs (curves: running mean of {window})" if window > 1 else "epochs")
    left.xaxis.set_major_locator(MaxNLocator(nbins=7, steps=[1, 2, 5, 10], integer=True))


def _legend_extras(banded: bool, dashed: bool) -> list[Any]:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    extras: list[Any] = []
    if banded:
        extras.append(Patch(color=style.GREY, alpha=0.25, lw=0, label="95 % CI over seeds"))
    if dashed:
        extras.append(Line2D([], [], color=style.GREY, ls=DASHES, lw=1.0, label="published, 1 run"))
    return extras
