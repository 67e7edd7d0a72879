"""The published cells, and rows of a report, for the tests of the audit."""

from __future__ import annotations

from dataclasses import replace

from accordion_bench.report.audit.counting import Cell
from accordion_bench.report.audit.data_sent import DataSentRow
from accordion_bench.report.audit.report import AuditReport
from accordion_bench.report.audit.time import TimeRow


def changed(cells: tuple[Cell, ...], table: str, net: str, level: str, **columns: str) -> tuple[Cell, ...]:
    """The cells with some columns of one row replaced."""
    wanted = (table, net, level)
    out = tuple(replace(c, **columns) if (c.table, c.network, c.level) == wanted else c for c in cells)
    assert out != cells
    return out


def data_row(report: AuditReport, table: str, network: str, level: str) -> DataSentRow:
    (row,) = (r for r in report.data_sent if (r.table, r.network, r.level) == (table, network, level))
    return row


def time_row(report: AuditReport, table: str, network: str, level: str) -> TimeRow:
    (row,) = (r for r in report.time.rows if (r.table, r.network, r.level) == (table, network, level))
    return row
