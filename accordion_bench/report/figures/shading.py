"""Critical regimes as hatched stripes behind a panel whose horizontal axis counts epochs from 1."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Hatched, so that nobody takes them for the band of an interval; light, so that every line on them is seen.
LOOK: dict[str, Any] = {"facecolor": "#f0f1f3", "edgecolor": "#c3c9d0", "hatch": "////", "lw": 0}


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
    """Draw the stripes."""
    for start, stop in spans(critical_E):
        axes.axvspan(start, stop, zorder=0, **LOOK)


def legend_entry(label: str) -> Any:
    """A patch that explains the stripes."""
    from matplotlib.patches import Patch

    return Patch(label=label, **LOOK)
