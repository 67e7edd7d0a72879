"""Stored runs -> figures: learning curves with bands over seeds, and the level of every layer over time.

Matplotlib is imported when a figure is drawn, not before.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from accordion_bench.report.figures import style
from accordion_bench.report.figures.curves import draw_group
from accordion_bench.report.figures.heatmap import changes, draw_changes
from accordion_bench.report.tables.aggregate import PAPER_SCALE, read_rows
from accordion_bench.sweeps.row_records import RowRecords
from accordion_bench.sweeps.table import Row, RowRuns, Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

GROUPS_PER_FIGURE = 3


def make_curves(table: Table, rows: list[RowRuns], *, output: Path, overlay_published: bool = True) -> list[Path]:
    """Write <output>/<name>-curves.png and .svg: the metric against epochs and against floats sent.

    Each group has its line of panels; more than three groups go on several figures. Lines are means over the finished
    seeds, bands their 95 % intervals (Student t). Published curves (one run each) are drawn dashed in a paper-scale
    table, against epochs only: how much those runs had sent by an epoch is not published.

    Returns:
        The files; none where no run has finished.

    Raises:
        UserError: if published keys match nothing or output cannot be written.
    """
    from matplotlib import rc_context

    records = read_rows(table, rows)
    names = dict.fromkeys(record.row_runs.row.group for record in records if record.runs)
    groups = [[record for record in records if record.row_runs.row.group == name] for name in names]
    overlay = overlay_published and table.scale == PAPER_SCALE
    paths: list[Path] = []
    with rc_context(style.SETTINGS):
        for start in range(0, len(groups), GROUPS_PER_FIGURE):
            part = groups[start : start + GROUPS_PER_FIGURE]
            number = f"-{start // GROUPS_PER_FIGURE + 1}" if len(groups) > GROUPS_PER_FIGURE else ""
            figure = style.new_figure(10.0, 0.5 + 3.0 * len(part))
            for pair, group in zip(figure.subplots(len(part), 2, squeeze=False), part, strict=True):
                draw_group(pair, group, overlay, table.shade)
            set_title(figure, table, [record for group in part for record in group])
            paths += style.save(figure, output, f"{table.name}-curves{number}")
    return paths


def make_levels(table: Table, rows: list[RowRuns], *, output: Path) -> list[Path]:
    """Write <output>/<name>-levels-<row>.png and .svg for every row whose levels or batch multiple change during a run.

    A heat map of the level per layer and epoch, averaged over the finished seeds, and below it the batch multiple where
    that changes.

    Returns:
        The files; none where nothing changes or no run has finished.

    Raises:
        UserError: if published keys match nothing or output cannot be written.
    """
    from matplotlib import rc_context

    paths: list[Path] = []
    with rc_context(style.SETTINGS | {"axes.grid": False}):
        for record in read_rows(table, rows):
            found = changes(record.runs)
            if found is None:
                continue
            figure = style.new_figure(8.0, 0.9 + sum(found.heights))
            draw_changes(figure, found)
            row = record.row_runs.row
            set_title(figure, table, [record], f": {row.group}, {row.label}")
            paths += style.save(figure, output, f"{table.name}-levels-{file_part(row)}")
    return paths


def file_part(row: Row) -> str:
    """The row's name as a part of a file's name."""
    return re.sub(r"[^a-z0-9]+", "-", row.id.lower()).strip("-")


def set_title(figure: Figure, table: Table, records: Sequence[RowRecords], of: str = "") -> None:
    """What, how many seeds, at which scale, above a whole figure."""
    counts = sorted({len(record.runs) for record in records if record.runs})
    seeds = "1 seed" if counts == [1] else f"mean of {' to '.join(map(str, sorted({counts[0], counts[-1]})))} seeds"
    scale = "paper scale" if table.scale == PAPER_SCALE else table.scale
    head = f"Figure {table.figure}. " if table.figure else f"Table {table.number}. " if table.number is not None else ""
    figure.suptitle(f"{head}{table.title}{of}\n{seeds} · {scale}", x=0.01, ha="left", fontsize=10.5)
