"""A table: a declarative list of rows, each a set of overrides; a row's runs are its seeds. No torch, no Hydra.

conf/table/<name>.yaml:

    title: Accordion with PowerSGD on CIFAR-10
    number: 1                       # the paper's table, or null
    scale: paper                    # or what is reduced, in words: "digits, 20 epochs"
    seeds: [1, 2, 3]
    base: [dataset=cifar10]         # overrides of every row
    rows:
      - group: ResNet-18            # rows of one group are compared with its baseline
        label: rank 2
        role: low                   # low (the group's baseline) | high | accordion | other
        overrides: [model=resnet18, compressor=powersgd, scheduler=static, "compressor.levels=[2]"]
        published: {table: 1, dataset: CIFAR-10, network: ResNet-18, level: rank2}   # optional
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Row:
    """One line of a table.

    Attributes:
        group: rows of one group are compared with the group's baseline (the row whose role is "low").
        label: what the row shows ("rank 2").
        role: low | high | accordion | other.
        overrides: of this row alone.
        published: keys into the published values (table, dataset, network, level), or empty.
    """

    group: str
    label: str
    role: str
    overrides: tuple[str, ...]
    published: dict[str, str | int] = field(default_factory=dict)

    @property
    def id(self) -> str:
        """Unique in the table: "ResNet-18/rank 2"."""
        return f"{self.group}/{self.label}"


@dataclass(frozen=True)
class Table:
    """A whole table; `name` is the file's stem."""

    name: str
    title: str
    scale: str
    seeds: tuple[int, ...]
    base: tuple[str, ...]
    rows: tuple[Row, ...]
    number: int | None = None


@dataclass(frozen=True)
class RowRuns:
    """A row with the run directories that its overrides lead to: seed -> .../seed-<n> (which may not exist)."""

    row: Row
    directories: dict[int, Path]
