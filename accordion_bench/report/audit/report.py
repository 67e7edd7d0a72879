"""Explain the paper's own Data Sent and Time columns (Tables 1-6) without training anything.

    report = audit()          # loads torch, for the networks' shapes only
    print(render(report))     # for people (audit_text.py)
    report.to_json()          # for programs; AuditReport.from_json reads it back

What agrees, what agrees only under an assumption, and what does not is decided by computation: see audit_counting.py
for the rules, audit_assumptions.py for what may be assumed, audit_time.py for the model of seconds.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, is_dataclass
from typing import Any, get_args, get_origin, get_type_hints

from accordion_bench.report.audit.accordion import AccordionRow, accordion_rows
from accordion_bench.report.audit.claims import ClaimRow, RatioRow, claim_rows, ratio_rows
from accordion_bench.report.audit.counting import Cell, checked, published_cells
from accordion_bench.report.audit.data_sent import EXPLAINED, UNEXPLAINED, DataSentRow, static_rows
from accordion_bench.report.audit.time import TimeFit, time_fit


@dataclass(frozen=True)
class AuditReport:
    """Everything that was found.

    Attributes:
        data_sent: the static rows of Tables 1-6.
        accordion: the Accordion rows.
        ratios: the printed ratios.
        claims: claims of the text that follow from the tables.
        time: the model of the Time column.
    """

    data_sent: tuple[DataSentRow, ...]
    accordion: tuple[AccordionRow, ...]
    ratios: tuple[RatioRow, ...]
    claims: tuple[ClaimRow, ...]
    time: TimeFit

    @property
    def verdicts(self) -> dict[str, int]:
        """How many static Data Sent cells have which verdict."""
        return dict(Counter(row.verdict for row in self.data_sent))

    def to_json(self) -> str:
        """The report as JSON, fields named as here."""
        return json.dumps(asdict(self), indent=1)

    @classmethod
    def from_json(cls, text: str) -> AuditReport:
        """The reverse of `to_json`. ValueError, KeyError or TypeError if it is something else."""
        return _build(cls, json.loads(text))


def audit(cells: Sequence[Cell] | None = None) -> AuditReport:
    """Recompute everything that follows from the printed tables.

    Args:
        cells: the rows of Tables 1-6; as printed by default.

    Raises:
        UserError: cells that cannot be computed with.
    """
    rows = published_cells() if cells is None else checked(cells)
    static = static_rows(rows)
    accordion = accordion_rows(rows, static)
    misprints = frozenset(row.key[:3] for row in accordion if row.verdict in (EXPLAINED, UNEXPLAINED))
    return AuditReport(
        static, accordion, ratio_rows(rows), claim_rows(rows, misprints), time_fit(rows, static, accordion)
    )


def _build(kind: Any, value: Any) -> Any:
    """A value of type `kind` (dataclasses, tuples, plain JSON) from what json.loads gives."""
    if is_dataclass(kind):
        types = get_type_hints(kind)
        return kind(**{field.name: _build(types[field.name], value[field.name]) for field in fields(kind)})  # type: ignore[operator]
    if get_origin(kind) is tuple:
        of = get_args(kind)
        each = [of[0]] * len(value) if of[1:] == (...,) else of
        return tuple(_build(item_kind, item) for item_kind, item in zip(each, value, strict=True))
    return value
