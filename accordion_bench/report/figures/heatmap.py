"""What an adaptive run chose: the level of every layer over time, and the batch multiple."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from accordion_bench.report.figures import style
from accordion_bench.runs.stored import FinishedRun

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INCHES_PER_LAYER = 0.16
MOST_INCHES = 7.0  # or a network of a hundred layers needs more than a page
MOST_NAMES = 30  # above this only every second, third, ... layer is named


@dataclass(frozen=True)
class Changes:
    """Averages over seeds of what changes during the runs.

    Attributes:
        level_LE: ladder index per layer and epoch; empty if it never changes.
        layers: their names.
        levels: the ladder, most compressed first.
        multiple_E: batch multiple per epoch; empty if it never changes.
        seeds: how many runs.
    """

    level_LE: list[list[float]]
    layers: list[str]
    levels: tuple[float, ...]
    multiple_E: list[float]
    seeds: int

    @property
    def heights(self) -> list[float]:
        """Inches of the panels."""
        heat = [min(max(1.6, INCHES_PER_LAYER * len(self.level_LE)), MOST_INCHES)] if self.level_LE else []
        return heat + [1.3] * bool(self.multiple_E)


def changes(runs: Sequence[FinishedRun]) -> Changes | None:
    """What changes in these runs of one row, epoch by epoch as far as all of them go; None if nothing does."""
    if not runs:
        return None
    length = min(len(run.epochs) for run in runs)
    layers = min(len(run.epochs[0].level_index_L) for run in runs)
    level_LE = [
        [sum(run.epochs[epoch].level_index_L[layer] for run in runs) / len(runs) for epoch in range(length)]
        for layer in range(layers)
    ]
    multiple_E = [sum(run.epochs[epoch].batch_multiple for run in runs) / len(runs) for epoch in range(length)]
    level_changes = len({value for level_E in level_LE for value in level_E}) > 1
    multiple_changes = len(set(multiple_E)) > 1
    if not level_changes and not multiple_changes:
        return None
    names = list(runs[0].layers)
    return Changes(
        level_LE=level_LE if level_changes else [],
        layers=names if len(names) == layers else [f"layer {layer + 1}" for layer in range(layers)],
        levels=runs[0].levels,
        multiple_E=multiple_E if multiple_changes else [],
        seeds=len(runs),
    )


def draw_changes(figure: Figure, found: Changes) -> None:
    """A panel for the levels and one for the batch multiple, of which there is at least one."""
    from matplotlib.ticker import MaxNLocator

    heights = found.heights
    axes = list(figure.subplots(len(heights), 1, squeeze=False, sharex=True, height_ratios=heights)[:, 0])
    if found.level_LE:
        _draw_levels(figure, axes[0], found)
    if found.multiple_E:
        epochs = [epoch + 1 for epoch in range(len(found.multiple_E))]
        axes[-1].step(epochs, found.multiple_E, where="mid", color=style.BLACK, lw=1.5)
        axes[-1].set_ylim(0, 1.1 * max(found.multiple_E))
        axes[-1].set_ylabel("batch multiple")
        axes[-1].yaxis.set_major_locator(MaxNLocator(nbins=5, integer=True))
        axes[-1].set_xlim(0.5, len(epochs) + 0.5)
    axes[-1].xaxis.set_major_locator(MaxNLocator(nbins=7, steps=[1, 2, 5, 10], integer=True))
    axes[-1].set_xlabel("epochs")


def _draw_levels(figure: Figure, axes: Axes, found: Changes) -> None:
    """Light is most compressed, dark is least: the dark patches are the critical regimes."""
    layers, epochs = len(found.level_LE), len(found.level_LE[0])
    last = len(found.levels) - 1
    image = axes.imshow(
        found.level_LE,
        aspect="auto",
        interpolation="nearest",
        cmap="Blues",
        vmin=-0.15 * last,
        vmax=last,
        extent=(0.5, epochs + 0.5, layers - 0.5, -0.5),
    )
    step = -(-layers // MOST_NAMES)
    axes.set_yticks(range(0, layers, step), found.layers[::step], fontsize=7)
    axes.tick_params(left=False)
    axes.set_ylabel("layer")
    bar = figure.colorbar(image, ax=axes, ticks=range(last + 1), pad=0.01, fraction=0.04)
    bar.ax.set_ylim(0, last)
    bar.ax.set_yticklabels([f"{level:g}" for level in found.levels])
    bar.set_label("level (mean over seeds)" if found.seeds > 1 else "level")
