"""A table file -> its figures: which drawings it asks for, and which figure of the paper it is."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

from accordion_bench.report.figures.charts import make_curves, make_levels
from accordion_bench.report.figures.overlap import make_overlap
from accordion_bench.report.figures.rates import make_rates
from accordion_bench.report.figures.regimes import make_regimes
from accordion_bench.sweeps.table import RowRuns, Table

MAKERS: dict[str, Callable[..., list[Path]]] = {
    "curves": make_curves,
    "levels": make_levels,
    "rates": make_rates,
    "regimes": make_regimes,
    "overlap": make_overlap,
}


def draw(table: Table, rows: list[RowRuns], *, output: Path) -> list[Path]:
    """Everything that `table.draw` asks for; the files, none where no run has finished.

    Raises:
        UserError: if published keys match nothing or output cannot be written.
    """
    return [path for name in table.draw for path in MAKERS[name](table, rows, output=output)]


def figure_names(given: str, names: Sequence[str]) -> list[str]:
    """The tables that a word on the command line means: "4" is fig4a and fig4b; anything else means itself."""
    return [name for name in names if re.fullmatch(rf"fig{re.escape(given)}[a-z]?", name)] or [given]
