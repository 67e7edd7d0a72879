"""The claims of a table, each with a verdict from its runs.

A verdict waits for all planned seeds: looking earlier and stopping when it suits would make the level a lie. All claims
of one table are corrected together (Holm), for the claim and against it separately.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from accordion_bench.report.claims.statistics import LEVEL, Test, holm, ratio_test, seeds_needed, t_test
from accordion_bench.report.tables.aggregate import Check, published_of, read_rows
from accordion_bench.runs.stored import FinishedRun
from accordion_bench.sweeps.claims import Claim
from accordion_bench.sweeps.row_records import RowRecords
from accordion_bench.sweeps.table import Row, RowRuns, Table

SUPPORTED, CONTRADICTED, UNDECIDED, NOT_RUN = "supported", "contradicted", "undecided", "not run"
VERDICTS = (SUPPORTED, CONTRADICTED, UNDECIDED, NOT_RUN)
LEAST_MARGIN = 0.5  # points of accuracy
PART_OF_GAP = 0.25
PART_OF_SAVING = 0.9


@dataclass(frozen=True)
class Verdict:
    """What became of a claim.

    Attributes:
        claim: as written in the table.
        word: one of VERDICTS.
        seeds: those that both rows finished.
        planned: how many there should be.
        test: of the paired differences (points, positive is better) or of the ratios; None where nothing can be said.
        p: adjusted, of the test that decided, or the smaller of the two; None without a test.
        needed: seeds that would decide an undecided claim if the true effect were the one seen; None if unknown.
        unit: of the differences: the metric's name, or "x".
        runs: the run directories of both rows that entered, without seeds.
        notes: what is missing, one line per seed and row.
        finished: the runs themselves.
    """

    claim: Claim
    word: str
    seeds: tuple[int, ...]
    planned: int
    test: Test | None
    p: float | None
    needed: int | None
    unit: str
    runs: tuple[Path, ...]
    notes: tuple[str, ...]
    finished: tuple[FinishedRun, ...] = ()


@dataclass(frozen=True)
class _Measured:
    claim: Claim
    seeds: tuple[int, ...]
    planned: int
    test: Test | None
    unit: str
    runs: tuple[Path, ...]
    notes: tuple[str, ...]
    finished: tuple[FinishedRun, ...]

    @property
    def complete(self) -> bool:
        return self.test is not None and len(self.seeds) == self.planned


def verdicts(table: Table, rows: list[RowRuns], check: Check | None = None) -> list[Verdict]:
    """A verdict for every claim of the table (of a table of the paper: those that its printed results make).

    Args:
        table: with its claims.
        rows: its rows with their run directories.
        check: what is wrong with a run's directory; runs with problems do not count.
    """
    claims = table.claims or implied_claims(table)
    wanted = {(claim.group, label) for claim in claims for label in (claim.row, claim.other)}
    records = {
        (record.row_runs.row.group, record.row_runs.row.label): record
        for record in read_rows(table, rows, check)
        if (record.row_runs.row.group, record.row_runs.row.label) in wanted
    }
    measured = [_measure(claim, records, len(table.seeds)) for claim in claims]
    p_for = holm([item.test.p_for if item.test and item.complete else 1.0 for item in measured])
    p_against = holm([item.test.p_against if item.test and item.complete else 1.0 for item in measured])
    return [_verdict(item, yes, no, len(claims)) for item, yes, no in zip(measured, p_for, p_against, strict=True)]


def implied_claims(table: Table) -> tuple[Claim, ...]:
    """What the printed results of a table of the paper claim: each group's Accordion beside its low and high rows.

    The margin is a quarter of the printed gap, at least half a point; the saving nine tenths of the printed one.
    """
    claims: list[Claim] = []
    for group in dict.fromkeys(row.group for row in table.rows):
        by_role = {row.role: row for row in table.rows if row.group == group and row.published}
        if {"low", "high", "accordion"} <= set(by_role):
            claims += _implied(by_role)
    return tuple(claims)


def _implied(by_role: dict[str, Row]) -> list[Claim]:
    printed = {role: published_of(row) for role, row in by_role.items()}
    low, high, ours = (printed[role] for role in ("low", "high", "accordion"))
    labels = [by_role[role].label for role in ("low", "high", "accordion")]
    group = by_role["low"].group
    assert low and high and ours
    margin = max(LEAST_MARGIN, PART_OF_GAP * abs(low.value - high.value))
    found = [
        Claim(group, "as_good", labels[2], labels[0], margin=margin),
        Claim(group, "better", labels[0], labels[1]),
    ]
    if low.floats and ours.floats:
        least = max(1.0, PART_OF_SAVING * low.floats / ours.floats)
        found.append(Claim(group, "sends_less", labels[2], labels[0], least=least))
    return found


def _measure(claim: Claim, records: Mapping[tuple[str, str], RowRecords], planned: int) -> _Measured:
    mine, other = (records[claim.group, label] for label in (claim.row, claim.other))
    pairs = [(run, match) for run in mine.runs for match in other.runs if run.seed == match.seed]
    test, unit = None, "x" if claim.kind == "sends_less" else ""
    if claim.kind == "sends_less":
        sent = [(match.summary.floats_per_worker, run.summary.floats_per_worker) for run, match in pairs]
        test = ratio_test([more for more, _ in sent], [less for _, less in sent], claim.least)
    elif pairs:
        summary = pairs[0][0].summary
        sign, unit = (1 if summary.higher_is_better else -1), summary.metric
        test = t_test([sign * (run.summary.final - match.summary.final) for run, match in pairs], -claim.margin)
    notes = [
        f"{record.row_runs.row.label}, seed {problem.seed}: {problem.state}"
        for record in (mine, other)
        for problem in record.problems
    ]
    runs = {record.row_runs.directories[pairs[0][0].seed].parent for record in (mine, other)} if pairs else set()
    seeds = tuple(run.seed for run, _ in pairs)
    finished = tuple(run for pair in pairs for run in pair)
    return _Measured(claim, seeds, planned, test, unit, tuple(sorted(runs)), tuple(notes), finished)


def _verdict(item: _Measured, p_for: float, p_against: float, claims: int) -> Verdict:
    word, p, needed = UNDECIDED, None, None
    if item.test is None:
        word = NOT_RUN if len(item.seeds) < 2 else UNDECIDED
    elif item.complete:
        p = min(p_for, p_against)
        word = SUPPORTED if p_for <= LEVEL else CONTRADICTED if p_against <= LEVEL else UNDECIDED
    if word == UNDECIDED and item.test is not None:
        needed = seeds_needed(item.test.effect, claims)
    return Verdict(
        item.claim,
        word,
        item.seeds,
        item.planned,
        item.test,
        p,
        needed,
        item.unit,
        item.runs,
        item.notes,
        item.finished,
    )


def count_words(found: Sequence[Verdict]) -> str:
    """Such as "3 supported, 1 undecided"."""
    counts = {word: sum(verdict.word == word for verdict in found) for word in VERDICTS}
    return ", ".join(f"{count} {word}" for word, count in counts.items() if count) or "no claims"
