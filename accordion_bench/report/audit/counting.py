"""The counting rules behind the paper's Data Sent column, and what a printed number can be compared with.

Rules, with which most static cells are reproduced: PowerSGD and batch size count the 32-bit words of one worker;
Top-K counts 2 words for every kept element of every worker and the 1-D tensors once; an epoch has 98 updates (50,000
images in batches of 512), or 12 at batch 4096; a run has 300 epochs. Torch is loaded when a network's shapes are
first asked for.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_DOWN, ROUND_HALF_UP, Decimal
from functools import cache
from typing import TYPE_CHECKING, Any

from accordion_bench.errors import UserError
from accordion_bench.report import published

if TYPE_CHECKING:
    from accordion_bench.training.gradients import Layout

WORKERS = 4
EPOCHS = 300
STEPS = 98  # backward passes per epoch and worker: ceil(50000 / 512)
UPDATES_AT_4096 = 12  # floor(50000 / 4096)
CLASSES = {"CIFAR-10": 10, "CIFAR-100": 100}
# The paper's name -> (ours, settings per data set); a setting names the network whose count Tables 8 and 9 print.
NETWORKS: dict[str, tuple[str, dict[str, dict[str, str]]]] = {
    "ResNet-18": ("resnet18", {}),
    "VGG-19bn": ("vgg19bn", {}),
    "SENet": ("senet", {"CIFAR-10": {"variant": "preact"}, "CIFAR-100": {"variant": "post"}}),
    "DenseNet": ("densenet", {}),
    "GoogLeNet": ("googlenet", {}),
}
_NUMBER = re.compile(r"\d+(\.\d+)?")


@dataclass(frozen=True)
class Cell:
    """One row of Tables 1-6, as printed (texts keep their digits; an empty text was not printed)."""

    table: str
    dataset: str
    network: str
    method: str
    level: str
    role: str
    accuracy_pct: str
    data_sent: str
    data_unit: str
    data_ratio: str
    time_s: str
    time_ratio: str

    @property
    def group(self) -> tuple[str, str, str]:
        """What the row is compared within: table, data set, network."""
        return self.table, self.dataset, self.network

    @property
    def name(self) -> str:
        """For messages: "Table 1 SENet rank4"."""
        return f"Table {self.table} {self.network} {self.level}"

    @property
    def floats(self) -> float:
        """Data Sent in 32-bit words."""
        return float(self.data_sent) * published.UNITS[self.data_unit]

    @property
    def seconds(self) -> float:
        """Time of the run."""
        return float(self.time_s)


def published_cells() -> tuple[Cell, ...]:
    """All rows of Tables 1-6. UserError if a number that every row must have is not one."""
    return checked(
        Cell(**{str(k): str(v) for k, v in row.items()}) for row in published.data("tables.csv").to_dict("records")
    )


def checked(cells: Any) -> tuple[Cell, ...]:
    """The cells, after checking that each can be computed with.

    Raises:
        UserError: a cell without a positive Data Sent or Time, of an unknown unit, network or data set; a group that
            lacks its low or high row or has two equal ones.
    """
    cells = tuple(cells)
    for cell in cells:
        for column in ("data_sent", "time_s", "accuracy_pct"):
            text = getattr(cell, column)
            if not _NUMBER.fullmatch(text) or float(text) <= 0:
                raise UserError(f"{column} of {cell.name} must be a number above 0, got {text!r}; see Tables 1-6")
        for column, known in (("data_unit", published.UNITS), ("network", NETWORKS), ("dataset", CLASSES)):
            if getattr(cell, column) not in known:
                given = getattr(cell, column)
                raise UserError(
                    f"{column} of {cell.name} must be one of {', '.join(known)}, got {given!r}; see Tables 1-6"
                )
    for group in dict.fromkeys(cell.group for cell in cells):
        low, high = (find(cells, group, role) for role in ("low", "high"))
        if low.data_sent == high.data_sent or low.time_s == high.time_s:
            raise UserError(f"data_sent and time_s of {low.name} and {high.name} must differ; see Tables 1-6")
    return cells


def find(cells: Sequence[Cell], group: tuple[str, str, str], role: str) -> Cell:
    """The group's row of that role; UserError if there is not exactly one."""
    found = [cell for cell in cells if cell.group == group and cell.role == role]
    if len(found) != 1:
        where = "Table {}, {}, {}".format(*group)
        raise UserError(f"{where} must have one row of role {role}, got {len(found)}; give all rows of the table")
    return found[0]


@cache
def layout(network: str, dataset: str, variant: str | None = None) -> Layout:
    """Shapes of one of the paper's networks (no memory is used for the weights).

    Args:
        network: the paper's name.
        dataset: CIFAR-10 or CIFAR-100.
        variant: of a network that has several; None for the one that Tables 8 and 9 count.
    """
    import torch

    from accordion_bench.training.gradients import Layout
    from accordion_bench.workloads.models import build_model

    name, settings = NETWORKS[network]
    chosen = dict(settings.get(dataset, {}))
    if variant is not None:
        chosen["variant"] = variant
    with torch.device("meta"):
        facts = {"kind": "image", "channels": 3, "size": 32, "classes": CLASSES[dataset]}
        return Layout.of(build_model(name, facts, chosen))


@dataclass(frozen=True)
class Setup:
    """One reading of what a row ran: enough to count its words.

    Attributes:
        network, dataset: the paper's names.
        method: powersgd, topk or batch_size.
        level: rank, kept percent, or batch size.
        variant: of the network; None for the one of Tables 8 and 9.
        steps: updates per epoch of a run without batch growth.
        epochs: of the run.
    """

    network: str
    dataset: str
    method: str
    level: int
    variant: str | None = None
    steps: int = STEPS
    epochs: int = EPOCHS

    @property
    def updates(self) -> int:
        """Optimiser steps of the whole run."""
        at_4096 = self.method == "batch_size" and self.level == 4096
        return self.epochs * (UPDATES_AT_4096 if at_4096 else self.steps)

    @property
    def words_per_update(self) -> int:
        """The paper's count for one update."""
        return _words(self.network, self.dataset, self.variant, self.method, self.level)

    @property
    def words(self) -> int:
        """The paper's count for the whole run."""
        return self.words_per_update * self.updates


def setup_of(cell: Cell) -> Setup:
    """The paper's own reading of a static row ("rank2", "k99" or "4096")."""
    level = int(cell.level.removeprefix("rank").removeprefix("k"))
    return Setup(cell.network, cell.dataset, cell.method, level)


@cache
def _words(network: str, dataset: str, variant: str | None, method: str, level: int) -> int:
    shapes = layout(network, dataset, variant)
    vectors = shapes.dense.stop - shapes.dense.start
    if method == "powersgd":
        return vectors + sum(min(level, slot.rows, slot.columns) * (slot.rows + slot.columns) for slot in shapes.layers)
    if method == "topk":
        return vectors + sum(2 * WORKERS * int(level / 100 * slot.size) for slot in shapes.layers)
    return shapes.size


def printed_form(value: Decimal, text: str) -> str | None:
    """How a value leads to a printed text: "rounded" (half up) or, else, "truncated"; None if it does not."""
    printed = Decimal(text)
    unit = Decimal(1).scaleb(int(printed.as_tuple().exponent))
    for form, mode in (("rounded", ROUND_HALF_UP), ("truncated", ROUND_DOWN)):
        if value.quantize(unit, rounding=mode) == printed:
            return form
    return None


def in_unit(words: int, unit: str) -> Decimal:
    """Words in millions or billions, exactly."""
    return Decimal(words) / Decimal(int(published.UNITS[unit]))
