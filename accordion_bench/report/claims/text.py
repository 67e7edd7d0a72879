"""Verdicts as Markdown. Nothing here depends on the time or the machine."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from tabulate import tabulate

from accordion_bench.report.claims.numbered import Statement
from accordion_bench.report.claims.statistics import LEVEL, POWER
from accordion_bench.report.claims.verdicts import NOT_RUN, VERDICTS, Verdict, count_words
from accordion_bench.report.numbers import number, signed
from accordion_bench.report.tables.render import marked
from accordion_bench.runs.stored import replay_note
from accordion_bench.sweeps.claims import Claim
from accordion_bench.sweeps.table import Table

DASH = "-"
HEADERS = ("#", "group", "claim", "found (95 % interval)", "p", "verdict")
NOTE = (
    "Differences are paired by seed (final metric, positive is better) and tested with a one-sided t-test against the "
    "margin that was written down before the runs; ratios are of floats sent per worker (geometric mean). p is after "
    f"Holm's correction over the table's claims, level {LEVEL:g}; a claim is contradicted where the opposite test "
    f"rejects. Seeds needed: for power {POWER:g} if the true effect were the one seen, at the strictest level."
)


def claim_text(claim: Claim, unit: str = "") -> str:
    """The claim in words."""
    points = {"accuracy": "points", "perplexity": "of perplexity"}.get(unit, "")
    if claim.kind == "as_good":
        return f"{claim.row} loses less than {claim.margin:g} {points} to {claim.other}".replace("  ", " ")
    if claim.kind == "better":
        return f"{claim.row} is better than {claim.other}"
    return f"{claim.row} sends at least {claim.least:.3g}x less than {claim.other}"


def render(
    found: Mapping[str, Sequence[Verdict]], tables: Mapping[str, Table], numbered: Sequence[Statement], full: bool
) -> str:
    """The whole page: tables with verdicts first, then the numbered statements; `full` lists claims not run too."""
    parts = ["# Claims", NOTE]
    empty = []
    for name, verdicts in found.items():
        if full or any(verdict.word != NOT_RUN for verdict in verdicts):
            parts += _table(tables[name], verdicts)
        else:
            empty.append(
                f"{_title(tables[name])}: {len(verdicts)} claims, {NOT_RUN} (`accordion-bench sweep table={name}`)"
            )
    if empty:
        parts.append("\n".join(f"* {line}" for line in empty))
    parts += ["## The paper's numbered statements", _numbered(numbered)]
    return "\n\n".join(parts) + "\n"


def _title(table: Table) -> str:
    return f"Table {table.number}" if table.number else table.name


def _table(table: Table, verdicts: Sequence[Verdict]) -> list[str]:
    lines = [
        (
            str(index),
            verdict.claim.group,
            claim_text(verdict.claim, verdict.unit),
            _found(verdict),
            _p(verdict.p),
            _word(verdict),
        )
        for index, verdict in enumerate(verdicts, start=1)
    ]
    parts = [f"## {table.name}: {table.title}", f"{table.scale}. {count_words(verdicts)}.", _grid(HEADERS, lines)]
    runs = [f"* {index}: {_runs(verdict)}" for index, verdict in enumerate(verdicts, start=1) if verdict.runs]
    missing = sorted({note for verdict in verdicts for note in verdict.notes}) if any(v.runs for v in verdicts) else []
    if runs:
        parts += ["Runs:", "\n".join(runs)]
    if note := replay_note(run for verdict in verdicts for run in verdict.finished):
        parts.append(f"{note.capitalize()}.")
    if missing:
        parts.append("Not counted: " + "; ".join(missing) + ".")
    return parts


def _runs(verdict: Verdict) -> str:
    seeds = ",".join(map(str, verdict.seeds))
    return ", ".join(f"`{directory.as_posix()}/seed-{{{seeds}}}`" for directory in verdict.runs)


def _found(verdict: Verdict) -> str:
    test = verdict.test
    if test is None:
        return DASH
    if verdict.unit == "x":
        return f"{number(test.mean, 2)}x ({number(test.low, 2)} to {number(test.high, 2)})"
    return f"{signed(test.mean, 2)} ({signed(test.low, 2)} to {signed(test.high, 2)})"


def _p(p: float | None) -> str:
    if p is None:
        return DASH
    return "< 0.0001" if p < 0.0001 else f"{p:.4f}"


def _word(verdict: Verdict) -> str:
    """The verdict and, where it is undecided, what would decide it."""
    there = len(verdict.seeds)
    if verdict.word != "undecided":
        return verdict.word
    if there < verdict.planned:
        return f"undecided: {there} of {verdict.planned} seeds so far"
    return f"undecided: about {verdict.needed} seeds needed" if verdict.needed else "undecided: over 1000 seeds needed"


def _numbered(numbered: Iterable[Statement]) -> str:
    headers = ("#", "where", "the paper says", "value", "by its own tables", "in small")
    lines = [
        (
            str(item.number),
            item.location,
            item.claim,
            f"{item.value} {item.unit}".strip() or DASH,
            item.arithmetic or DASH,
            _answer(item),
        )
        for item in numbered
    ]
    return _grid(headers, lines)


def _answer(item: Statement) -> str:
    if not item.answers:
        return item.reason or NOT_RUN
    by_table: dict[str, list[Verdict]] = {}
    for table, verdict in item.answers:
        by_table.setdefault(table, []).append(verdict)
    return "; ".join(f"{table}: {count_words(verdicts)}" for table, verdicts in by_table.items())


def _grid(headers: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    safe = [[marked(cell).replace("|", "\\|") for cell in line] for line in lines]
    text = tabulate(safe, headers=headers, tablefmt="github", disable_numparse=True)
    return re.sub(r" {2,}", " ", re.sub(r"-{4,}", "---", text))


def summary(found: Mapping[str, Sequence[Verdict]], path: Path, designs: Mapping[str, str]) -> str:
    """What the terminal says after the page: where it is, and which commit wrote down each table's claims."""
    lines = [f"{name}: claims as of commit {commit}" for name, commit in designs.items() if commit]
    words = [verdict for verdicts in found.values() for verdict in verdicts]
    assert all(verdict.word in VERDICTS for verdict in words)
    return "\n".join([*lines, f"{count_words(words)}; written to {path}"])
