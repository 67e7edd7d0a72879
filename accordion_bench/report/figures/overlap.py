"""Figure 4a: how many of their largest coordinates two stochastic gradients have in common, over training."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from accordion_bench.report import published
from accordion_bench.report.estimates import estimate
from accordion_bench.report.figures import style
from accordion_bench.report.figures.charts import set_title
from accordion_bench.report.figures.shading import legend_entry, shade
from accordion_bench.report.tables.aggregate import PAPER_SCALE, read_rows
from accordion_bench.sweeps.row_records import RowRecords
from accordion_bench.sweeps.table import RowRuns, Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

CHANCE = 10.0  # percent: what two gradients that have nothing to do with each other share of their top 10 %
CLAIM = "16"  # of claims.csv: what the paper says of this figure


def make_overlap(table: Table, rows: list[RowRuns], *, output: Path) -> list[Path]:
    """Write <output>/<name>-overlap.png and .svg: the overlap in percent after every epoch in which it was measured.

    A line is the mean over the seeds of a row, its band the 95 % interval (Student t). The critical epochs of the first
    run are shaded.

    Returns:
        The files; none where no run has measured it.

    Raises:
        UserError: if published keys match nothing or output cannot be written.
    """
    from matplotlib import rc_context

    records = [record for record in read_rows(table, rows) if any(run.measured("overlap") for run in record.runs)]
    if not records:
        return []
    with rc_context(style.SETTINGS):
        figure = style.new_figure(8.0, 3.6)
        axes = figure.subplots()
        _draw(axes, records, paper=table.scale == PAPER_SCALE)
        set_title(figure, table, records)
        return style.save(figure, output, f"{table.name}-overlap")


def _draw(axes: Axes, records: list[RowRecords], paper: bool) -> None:
    from matplotlib.ticker import MaxNLocator

    looks = style.styles([record.row_runs.row.role for record in records])
    for record, (colour, marker) in zip(records, looks, strict=True):
        series = [run.measured("overlap") for run in record.runs]
        epochs = sorted(set.intersection(*(set(values) for values in series)))
        estimates = [estimate([values[epoch] for values in series]) for epoch in epochs]
        there = [value for value in estimates if value is not None]
        x, y = [epoch + 1 for epoch in epochs], [value.mean for value in there]
        every = max(1, len(x) // 12)
        axes.plot(x, y, color=colour, marker=marker, markevery=every, ms=5, lw=1.5, label=record.row_runs.row.label)
        if len(series) > 1:
            widths = [value.half_width or 0.0 for value in there]
            low = [max(mean - width, 0.0) for mean, width in zip(y, widths, strict=True)]
            high = [min(mean + width, 100.0) for mean, width in zip(y, widths, strict=True)]
            axes.fill_between(x, low, high, color=colour, alpha=0.15, lw=0, label="95 % CI over seeds")
    first = records[0].runs[0]
    critical_E = [epoch.critical for epoch in first.epochs]
    shade(axes, critical_E)
    axes.axhline(CHANCE, color=style.GREY, ls=":", lw=1.2, label="unrelated gradients (10 %)")
    if paper:
        claims = published.data("claims.csv").set_index("id")
        value = str(claims.loc[CLAIM, "value"])
        axes.axhline(float(value.lstrip(">")), color=style.GREY, ls="--", lw=1.2, label=f"the paper: {value} %")
    axes.set_ylim(0, 100)
    axes.set_xlim(0.5, len(first.epochs) + 0.5)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=7, steps=[1, 2, 5, 10], integer=True))
    axes.set_xlabel("epochs")
    axes.set_ylabel("overlap of the top 10 % coordinates (%)")
    handles = axes.get_legend_handles_labels()[0] + [legend_entry("critical regimes")] * any(critical_E)
    axes.legend(handles=handles, loc="center left", bbox_to_anchor=(1.01, 0.5))
