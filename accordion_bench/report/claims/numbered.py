"""The paper's numbered statements (published/claims.csv) and what answers each of them here.

A statement is answered by arithmetic (`accordion-bench audit` recomputes it from the printed tables), by experiments
(claims of a table that name its number), or not at all, with the reason: it says how something was set up, or measures
seconds of machines that are not here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from accordion_bench.report import published
from accordion_bench.report.claims.verdicts import Verdict

SETUP = "how the experiment was set up; the defaults follow it (docs: protocols)"
SECONDS = "seconds on four GPUs of the time; not measurable in small"
UNANSWERED: Mapping[str, str] = {
    **dict.fromkeys(("11", "12", "13", "14", "17", "18", "19", "20", "21", "22", "23", "41", "43", "44"), SETUP),
    **dict.fromkeys(("2", "3", "6", "8"), SECONDS),
    "10": "counted exactly by accordion-bench plan and audit",
    "15": "arithmetic about memory",
    "16": "drawn, not tested: accordion-bench figures fig4a",
    "31": "arithmetic on statement 30",
    "45": "arithmetic on Table 5",
}


@dataclass(frozen=True)
class Statement:
    """One numbered statement.

    Attributes:
        number, location, claim, value, unit: as in claims.csv.
        arithmetic: whether it follows from the printed tables: yes | no | partly, or "" if that cannot be computed.
        answers: (table, verdict) of every claim that is its twin.
        reason: why there is no experiment, or "".
    """

    number: int
    location: str
    claim: str
    value: str
    unit: str
    arithmetic: str
    answers: tuple[tuple[str, Verdict], ...]
    reason: str


def statements(found: Mapping[str, Iterable[Verdict]]) -> list[Statement]:
    """Every numbered statement of the paper, given the verdicts of each table. Loads torch, for the audit."""
    from accordion_bench.report.audit.report import audit

    holds = {row.id: row.holds for row in audit().claims}
    twins: dict[int, list[tuple[str, Verdict]]] = {}
    for table, verdicts in found.items():
        for verdict in verdicts:
            for number in verdict.claim.paper:
                twins.setdefault(number, []).append((table, verdict))
    lines = published.data("claims.csv").to_dict("records")
    return [
        Statement(
            number=int(line["id"]),
            location=line["location"],
            claim=line["claim"],
            value=line["value"],
            unit=line["unit"],
            arithmetic=holds.get(line["id"], ""),
            answers=tuple(twins.get(int(line["id"]), ())),
            reason=UNANSWERED.get(line["id"], ""),
        )
        for line in lines
    ]
