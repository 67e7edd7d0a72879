"""Critical regimes as grey bands behind a panel whose horizontal axis counts epochs from 1."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOUR = "#d5d9de"  # light enough for every line on it, dark enough to be seen on a grey printer


def spans(critical_E: Sequence[bool]) -> list[tuple[float, float]]:
    """Where runs of critical epochs begin and end on the axis: epochs 0 and 1 are (0.5, 2.5)."""
    found, epoch = [], 0
    for critical, group in groupby(critical_E):
        length = len(list(group))
        if critical:
            found.append((epoch + 0.5, epoch + length + 0.5))
        epoch += length
    return found


def shade(axes: Axes, critical_E: Sequence[bool]) -> None:
    """Draw the bands."""
    for start, stop in spans(critical_E):
        axes.axvspan(start, stop, color=COLOUR, lw=0, zorder=0)


def legend_entry(label: str) -> Any:
    """A patch that explains the bands."""
    from matplotlib.patches import Patch

    return Patch(color=COLOUR, lw=0, label=label)
