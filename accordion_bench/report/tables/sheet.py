"""A finished table before it has a format: blocks of columns and cells, and the notes under them.

The Markdown, CSV, LaTeX and HTML files of a table are four renderings of one Sheet, so they cannot disagree.
"""

from __future__ import annotations

from dataclasses import dataclass

DASH = "-"  # what stands where there is no number


@dataclass(frozen=True)
class Column:
    """A column.

    Attributes:
        title: heading for people.
        fields: names of the CSV columns it becomes; none if the column is for people only.
        numeric: whether it is aligned to the right.
        shown: whether it appears in the formats for people.
    """

    title: str
    fields: tuple[str, ...]
    numeric: bool = True
    shown: bool = True


@dataclass(frozen=True)
class Cell:
    """One value.

    Attributes:
        text: for people; DASH where there is nothing to show.
        values: one per field of its column, as written in the CSV; empty text where there is no value.
    """

    text: str
    values: tuple[str, ...] = ()


@dataclass(frozen=True)
class Line:
    """A row of cells, one per column; `first` marks the first line of a group."""

    cells: tuple[Cell, ...]
    first: bool


@dataclass(frozen=True)
class Block:
    """A table proper; `heading` stands above it where a sheet has more than one."""

    heading: str
    columns: tuple[Column, ...]
    lines: tuple[Line, ...]

    @property
    def shown(self) -> tuple[int, ...]:
        """Indices of the columns for people."""
        return tuple(index for index, column in enumerate(self.columns) if column.shown)


@dataclass(frozen=True)
class Sheet:
    """A whole table.

    Attributes:
        name: of the files.
        title: one line: what, seeds, interval, scale.
        blocks: with the same rows, in the same order.
        notes: lines under the table.
    """

    name: str
    title: str
    blocks: tuple[Block, ...]
    notes: tuple[str, ...]
