"""How figures look: lines that colour-blind people and grey printers can tell apart, and files free of dates."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from accordion_bench.errors import UserError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Okabe and Ito, "Color Universal Design" (2008), without its yellow, which is too light for lines on white.
BLUE, VERMILLION, GREEN, ORANGE = "#0072B2", "#D55E00", "#009E73", "#E69F00"
BLACK, PURPLE, SKY = "#000000", "#CC79A7", "#56B4E9"
OF_ROLE = {"low": (BLUE, "o"), "high": (VERMILLION, "s"), "accordion": (BLACK, "^")}
OTHERS = ((GREEN, "D"), (ORANGE, "v"), (PURPLE, "P"), (SKY, "X"))
MORE = (GREEN, ORANGE, PURPLE, SKY, VERMILLION, BLUE)
# Neighbours differ in both, so that they can be told apart in grey too.
AGAIN = tuple((MORE[place % 6], "<>hd"[(place + place // 12) % 4]) for place in range(24))
GREY = "#6e7781"
SETTINGS: Any = {
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e5e7eb",
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "legend.frameon": False,
    "hatch.linewidth": 0.6,
    "svg.hashsalt": "accordion_bench",
}


def styles(roles: Sequence[str]) -> list[tuple[str, str]]:
    """(colour, marker) for the rows of a group: a role's own the first time it occurs, else the next that is free."""
    first = {role: roles.index(role) for role in OF_ROLE if role in roles}
    spare = iter([*OTHERS, *(look for role, look in OF_ROLE.items() if role not in first), *AGAIN])
    return [OF_ROLE[role] if first.get(role) == place else next(spare) for place, role in enumerate(roles)]


def new_figure(width: float, height: float) -> Figure:
    """An empty figure of that size in inches, drawn without a display."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def save(figure: Figure, output: Path, name: str) -> list[Path]:
    """Write <output>/<name>.png (200 dpi) and .svg, free of dates; the same figure gives the same bytes.

    Raises:
        UserError: if output cannot be written.
    """
    metadata: dict[str, dict[str, Any]] = {"png": {"Software": None}, "svg": {"Date": None, "Creator": None}}
    paths = []
    try:
        output.mkdir(parents=True, exist_ok=True)
        for kind, values in metadata.items():
            memory = io.BytesIO()
            figure.savefig(memory, format=kind, dpi=200, metadata=values)
            path = output / f"{name}.{kind}"
            beside = path.with_suffix(f".{kind}.part")
            beside.write_bytes(memory.getvalue())
            beside.replace(path)
            paths.append(path)
    except OSError as error:
        remedy = "make it writable or name another directory"
        raise UserError(f"cannot write figures to {output} ({error.strerror}); {remedy}") from None
    return paths
