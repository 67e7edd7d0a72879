"""What a compressor that adapts by itself sent of every layer over time (AdaComp)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from accordion_bench.report.figures import style
from accordion_bench.report.figures.charts import file_part, set_title
from accordion_bench.report.figures.heatmap import INCHES_PER_LAYER, MOST_INCHES, MOST_NAMES
from accordion_bench.report.tables.aggregate import read_rows
from accordion_bench.runs.stored import FinishedRun
from accordion_bench.sweeps.table import RowRuns, Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAME = "sent_fraction_L"  # in EpochRecord.extra


def make_rates(table: Table, rows: list[RowRuns], *, output: Path) -> list[Path]:
    """Write <output>/<name>-rates-<row>.png and .svg for every row whose compressor reported what it sent per layer.

    A heat map of the percentage of a layer's elements that were sent in an epoch, averaged over the finished seeds.

    Returns:
        The files; none where nothing was reported.

    Raises:
        UserError: if published keys match nothing or output cannot be written.
    """
    from matplotlib import rc_context

    paths: list[Path] = []
    with rc_context(style.SETTINGS | {"axes.grid": False}):
        for record in read_rows(table, rows):
            percent_LE = rates(record.runs)
            if not percent_LE:
                continue
            height = min(max(1.6, INCHES_PER_LAYER * len(percent_LE)), MOST_INCHES)
            figure = style.new_figure(8.0, 0.9 + height)
            _draw(figure, percent_LE, record.runs[0].layers)
            row = record.row_runs.row
            set_title(figure, table, [record], f": {row.group}, {row.label}")
            paths += style.save(figure, output, f"{table.name}-rates-{file_part(row)}")
    return paths


def rates(runs: Sequence[FinishedRun]) -> list[list[float]]:
    """Percent sent per layer and epoch, averaged over the runs as far as all of them go; empty where none reported."""
    reports = [[_numbers(epoch.extra.get(NAME)) for epoch in run.epochs] for run in runs]
    length = min((len(report) for report in reports), default=0)
    layers = {len(values_L) for report in reports for values_L in report[:length]}
    if len(layers) != 1:
        return []
    return [
        [100 * sum(report[epoch][layer] for report in reports) / len(reports) for epoch in range(length)]
        for layer in range(layers.pop())
    ]


def _numbers(values: object) -> list[float]:
    """The numbers of a list; none where it is not one of numbers."""
    whole = isinstance(values, list) and all(isinstance(value, (int, float)) for value in values)
    return [float(value) for value in values] if isinstance(values, list) and whole else []


def _draw(figure: Figure, percent_LE: list[list[float]], names: Sequence[str]) -> None:
    """On a logarithmic scale; what sent nothing stays white."""
    from matplotlib.colors import LogNorm
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

    axes = figure.subplots()
    layers, epochs = len(percent_LE), len(percent_LE[0])
    positive = [value for percent_E in percent_LE for value in percent_E if value > 0] or [1.0]
    image = axes.imshow(
        percent_LE,
        aspect="auto",
        interpolation="nearest",
        cmap="Blues",
        norm=LogNorm(0.5 * min(positive), max(positive)),
        extent=(0.5, epochs + 0.5, layers - 0.5, -0.5),
    )
    step = -(-layers // MOST_NAMES)
    labels = list(names) if len(names) == layers else [f"layer {layer + 1}" for layer in range(layers)]
    axes.set_yticks(range(0, layers, step), labels[::step], fontsize=7)
    axes.tick_params(left=False)
    axes.set_ylabel("layer")
    axes.set_xlabel("epochs")
    axes.xaxis.set_major_locator(MaxNLocator(nbins=7, steps=[1, 2, 5, 10], integer=True))
    bar = figure.colorbar(image, ax=axes, pad=0.01, fraction=0.04)
    bar.ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    bar.ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    bar.ax.yaxis.set_minor_formatter(NullFormatter())
    bar.ax.set_ylim(min(positive), max(positive))
    bar.set_label("sent (% of a layer's elements)")
