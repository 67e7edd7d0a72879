"""Figure 3: the critical regimes that the gradient norm finds beside those of the Hessian's top eigenvalue."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from accordion_bench.report.figures import style
from accordion_bench.report.figures.charts import file_part, set_title
from accordion_bench.report.figures.shading import legend_entry, shade
from accordion_bench.report.tables.aggregate import read_rows
from accordion_bench.runs.stored import FinishedRun
from accordion_bench.schedulers.accordion import Accordion
from accordion_bench.schedulers.base import EpochStatistics, Problem
from accordion_bench.sweeps.row_records import RowRecords
from accordion_bench.sweeps.table import RowRuns, Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

KEYS = ("eta", "interval", "check")  # of the test that both quantities are put to


def make_regimes(table: Table, rows: list[RowRuns], *, output: Path) -> list[Path]:
    """Write <output>/<name>-regimes-<row>.png and .svg for every row whose runs measured the eigenvalue.

    Two panels, one per quantity, of the row's first finished seed. The same test (Algorithm 1 on one number for the
    whole model, with the run's own settings where it has them) is put to both, and what it calls critical is shaded.

    Returns:
        The files; none where no run has measured anything.

    Raises:
        UserError: if published keys match nothing or output cannot be written.
    """
    from matplotlib import rc_context

    paths: list[Path] = []
    with rc_context(style.SETTINGS):
        for record in read_rows(table, rows):
            measured = [run for run in record.runs if run.measured("eigenvalue")]
            if not measured:
                continue
            run, row = measured[0], record.row_runs.row
            figure = style.new_figure(8.0, 5.2)
            upper, lower = figure.subplots(2, 1, sharex=True)
            norm_E, eigenvalue_E = critical_by_norm(run), critical_by_eigenvalue(run)
            _draw(upper, run, {epoch.epoch: epoch.norm for epoch in run.epochs}, norm_E, "gradient norm of an epoch")
            _draw(lower, run, run.measured("eigenvalue"), eigenvalue_E, "top Hessian eigenvalue")
            same = sum(one == other for one, other in zip(norm_E, eigenvalue_E, strict=True))
            upper.set_title("decided by the gradient norm")
            lower.set_title(f"decided by the eigenvalue: the same in {same} of {len(norm_E)} epochs")
            lower.set_xlabel(f"epochs\n\neigenvalue: {cost(run)}")
            of = f": {row.label}, seed {run.seed}"
            set_title(figure, table, [RowRecords(record.row_runs, (run,), ())], of)
            paths += style.save(figure, output, f"{table.name}-regimes-{file_part(row)}")
    return paths


def critical_by_norm(run: FinishedRun) -> list[bool]:
    """Which epochs the test on the whole model's gradient norm calls critical."""
    updates = [epoch.updates for epoch in run.epochs]
    return _replay([epoch.norm for epoch in run.epochs], updates, _rates(run), run.config["scheduler"])


def critical_by_eigenvalue(run: FinishedRun) -> list[bool]:
    """The same for the eigenvalue; where it was not measured at a comparison, the one before it counts."""
    known, values, latest = run.measured("eigenvalue"), [], math.nan
    for epoch in run.epochs:
        latest = known.get(epoch.epoch, latest)
        values.append(latest)
    return _replay(values, [0] * len(values), _rates(run), run.config["scheduler"])


def cost(run: FinishedRun) -> str:
    """What the eigenvalue cost, in words."""
    products, seconds = (list(run.measured(f"eigenvalue_{name}").values()) for name in ("products", "seconds"))
    if not products or not seconds:
        return "cost not recorded"
    share = 100 * sum(seconds) / run.summary.training_seconds if run.summary.training_seconds else math.nan
    each = f"{sum(products) / len(products):.0f} Hessian-vector products, {sum(seconds) / len(seconds):.2g} s each time"
    return f"{each}, in all {share:.0f} % of the training time"


def _rates(run: FinishedRun) -> list[float]:
    """The scheduled learning rate of every epoch, without the batch multiple."""
    return [epoch.learning_rate / epoch.batch_multiple for epoch in run.epochs]


def _replay(
    values: Sequence[float], updates: Sequence[int], rates: Sequence[float], settings: Mapping[str, Any]
) -> list[bool]:
    """Accordion on one number per epoch: which epochs it would have called critical."""
    scheduler = Accordion(**{key: settings[key] for key in KEYS if key in settings})
    problem = Problem(layers=("model",), rungs=2, epochs=len(values))
    state, decision = scheduler.start(problem)
    critical = []
    for epoch, value in enumerate(values):
        critical.append(decision.critical)
        after = rates[min(epoch + 1, len(rates) - 1)]
        statistics = EpochStatistics(
            epoch, rates[epoch], after, (value,), (0.0,), (1.0,), value, updates=updates[epoch]
        )
        state, decision = scheduler.decide(state, problem, statistics)
    return critical


def _draw(axes: Axes, run: FinishedRun, values: Mapping[int, float], critical_E: Sequence[bool], label: str) -> None:
    """One quantity over its regimes, and where the learning rate falls."""
    from matplotlib.lines import Line2D
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

    shade(axes, critical_E)
    epochs = [epoch + 1 for epoch in values]
    marker = "o" if len(epochs) <= 60 else None
    axes.plot(epochs, list(values.values()), color=style.BLACK, lw=1.4, marker=marker, markersize=3.5)
    positive = [value for value in values.values() if value > 0]
    if len(positive) == len(values) and max(positive) > 10 * min(positive):
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.yaxis.set_minor_formatter(NullFormatter())
    rates = _rates(run)
    falls = [epoch + 0.5 for epoch in range(1, len(rates)) if rates[epoch] < rates[epoch - 1]]
    for place in falls:
        axes.axvline(place, color=style.VERMILLION, lw=1.0, ls=(0, (4, 2)))
    axes.set_xlim(0.5, len(run.epochs) + 0.5)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=7, steps=[1, 2, 5, 10], integer=True))
    axes.set_ylabel(label)
    entries = [legend_entry("critical")]
    if falls:
        entries.append(Line2D([], [], color=style.VERMILLION, lw=1.0, ls=(0, (4, 2)), label="learning rate falls"))
    axes.legend(handles=entries, loc="center left", bbox_to_anchor=(1.01, 0.5))
