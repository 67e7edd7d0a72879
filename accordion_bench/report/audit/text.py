"""The audit as text for a terminal of 120 columns."""

from __future__ import annotations

import textwrap
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from statistics import mean
from typing import Any

from tabulate import tabulate

from accordion_bench.report.audit.accordion import AccordionRow
from accordion_bench.report.audit.assumptions import Evidence
from accordion_bench.report.audit.claims import ClaimRow, RatioRow
from accordion_bench.report.audit.data_sent import AGREE, EXPLAINED, UNEXPLAINED, DataSentRow
from accordion_bench.report.audit.report import AuditReport
from accordion_bench.report.audit.time import TimeFit, TimeRow

WIDTH = 118
DASH = "-"
MARKS = {True: "for", False: "against", None: "note"}
UNITS = {"million": "M", "billion": "G"}


def render(report: AuditReport) -> str:
    """All parts, in the order Data Sent, Accordion, ratios, claims, Time."""
    parts = (
        _data_sent(report.data_sent),
        _accordion(report.accordion),
        _ratios(report.ratios),
        _claims(report.claims),
        _time(report.time),
    )
    return "\n\n\n".join(parts) + "\n"


def _table(headers: Sequence[str], rows: Iterable[Sequence[Any]], left: str) -> str:
    """A plain table; `left` names the left-aligned columns."""
    align = ["left" if header in left.split("|") else "right" for header in headers]
    text = tabulate(list(rows), headers=headers, tablefmt="simple", disable_numparse=True, colalign=align)
    return "\n".join(line.rstrip() for line in text.splitlines())


def _wrap(text: str, indent: str = "", hang: str = "") -> str:
    return textwrap.fill(text, WIDTH, initial_indent=indent, subsequent_indent=hang or " " * len(indent))


def _percent(fraction: float) -> str:
    return f"{100 * fraction:+.2f}"


def _number(value: float, like: str) -> str:
    """One digit more than the printed number has, so that rounding and truncation can be seen."""
    return f"{value:.{len(like.partition('.')[2]) + 1}f}"


def _data_sent(rows: Sequence[DataSentRow]) -> str:
    counts = {verdict: sum(row.verdict == verdict for row in rows) for verdict in (AGREE, EXPLAINED, UNEXPLAINED)}
    title = (
        f"DATA SENT, {len(rows)} static rows of Tables 1-6: {counts[AGREE]} agree with the print, "
        f"{counts[EXPLAINED]} are explained under an assumption, {counts[UNEXPLAINED]} unexplained"
    )
    rules = (
        "Counted in millions (M) or billions (G) of 32-bit words: PowerSGD and batch size, words of one worker; "
        "Top-K, 2 words per kept element of each of 4 workers, 1-D tensors once; 98 updates x 300 epochs (batch "
        "4096: 12 updates). diff = predicted / printed - 1."
    )
    body = [
        (
            row.table,
            row.dataset,
            row.network,
            row.level,
            row.printed,
            _number(row.predicted, row.printed),
            _percent(row.relative_difference),
            UNITS[row.unit],
            f"{row.verdict}, {row.form}" if row.form else row.verdict,
            " + ".join(row.assumptions),
        )
        for row in rows
    ]
    headers = ("T", "data set", "network", "level", "printed", "predicted", "diff %", "", "verdict", "if")
    table = _table(headers, body, "T|data set|network|level||verdict|if")
    return "\n\n".join([_wrap(title), _wrap(rules), table, *_explanations(rows)])


def _explanations(rows: Sequence[DataSentRow]) -> list[str]:
    """One paragraph for each assumption, with its rows, and what speaks for and against it."""
    groups: dict[tuple[str, ...], list[DataSentRow]] = defaultdict(list)
    for row in rows:
        if row.verdict == EXPLAINED:
            groups[row.assumptions].append(row)
    return ["Explained, not matched:", *(_explanation(group) for group in groups.values())] if groups else []


def _explanation(rows: Sequence[DataSentRow]) -> str:
    lines = [_wrap(f"* If {rows[0].says}:", hang="  ")]
    for row in rows:
        also = f"; so would {', '.join(row.also)}" if row.also else ""
        assert row.explained is not None
        lines.append(
            f"    Table {row.table} {row.network} {row.level}: {_number(row.explained, row.printed)} -> "
            f"{row.printed}{also}"
        )
    if not all(row.supported for row in rows):
        lines.append("  Nothing independent supports it.")
    return "\n".join(lines + _evidence(rows))


def _evidence(rows: Sequence[DataSentRow | AccordionRow]) -> list[str]:
    found: dict[Evidence, None] = {item: None for row in rows for item in row.evidence}
    return [_wrap(item.text, f"  {f'{MARKS[item.supports]}:':9}") for item in found]


def _accordion(rows: Sequence[AccordionRow]) -> str:
    title = "ACCORDION rows, bracketed by their group's static rows: printed = s x low + (1 - s) x high"
    note = (
        "s is the share of the run at the low level: of epochs for batch size, else weighted by what each layer "
        "sends more at the low level. Epochs: s x the run, as if all layers switched together. Traffic: share of "
        "what was sent that was sent at the low level. s by time: the same from the Time column, which weighs "
        "layers otherwise and is rough where low and high take similar time; all units are those of Data Sent."
    )
    body = [
        (
            row.table,
            row.network,
            row.high,
            row.printed,
            row.low,
            f"{row.low_share:.3f}" + ("" if row.inside else " !"),
            f"{row.low_epochs:.1f}",
            f"{100 * row.low_traffic_share:.0f} %",
            f"{row.time_share:.3f}",
            DASH if row.predicted is None else _number(row.predicted, row.printed),
            "" if row.predicted is None else row.verdict,
        )
        for row in rows
    ]
    headers = ("T", "network", "high", "printed", "low", "s", "epochs", "traffic", "s by time", "predicted", "verdict")
    parts = [_wrap(title), _wrap(note), _table(headers, body, "T|network|verdict")]
    parts.append(_wrap("Predicted: 20 epochs of 97 updates at batch 512 (so the published logs), 280 of 12 at 4096."))
    for row in rows:
        if row.verdict == EXPLAINED:
            head = _wrap(f"* Table {row.table} {row.network}, {row.printed}: explained if {row.says}.", hang="  ")
            parts.append("\n".join([head, *_evidence([row])]))
    return "\n\n".join(parts)


def _ratios(rows: Sequence[RatioRow]) -> str:
    printed = [row for row in rows if row.agrees is not None]
    wrong = [row for row in printed if not row.agrees]
    missing = [row for row in rows if row.agrees is None]
    title = f"RATIOS: of {len(printed)} printed ratios {len(printed) - len(wrong)} follow from the printed numbers"
    body = [
        (row.table, row.dataset, row.network, row.level, row.quantity, row.printed or DASH, f"{row.computed:.3f}")
        for row in [*wrong, *missing]
    ]
    headers = ("T", "data set", "network", "level", "ratio of", "printed", "computed")
    note = f"Not so (and {len(missing)} not printed):" if missing else "Not so:"
    return "\n\n".join([title, note, _table(headers, body, "T|data set|network|level|ratio of")])


def _claims(rows: Sequence[ClaimRow]) -> str:
    holds = {verdict: sum(row.holds == verdict for row in rows) for verdict in ("yes", "partly", "no")}
    title = f"CLAIMS of the text that follow from the tables: of {len(rows)}, "
    title += f"{holds['yes']} hold, {holds['partly']} in part, {holds['no']} do not"
    body = [
        (
            row.holds,
            textwrap.fill(row.location, 16),
            textwrap.fill(f"{row.claim} {row.value} {row.unit}", 44),
            textwrap.fill(row.computed, 40),
        )
        for row in rows
    ]
    return f"{title}\n\n{_table(('holds', 'where', 'claim', 'recomputed'), body, 'holds|where|claim|recomputed')}"


def _time(fit: TimeFit) -> str:
    predicted = [row for row in fit.rows if not row.fitted]
    title = f"TIME: {len(fit.unknowns)} unknowns solved from {len(fit.rows_used)} rows, {len(predicted)} rows predicted"
    unknowns = "; ".join(f"{name} {_si(value)}" for name, value in sorted(fit.unknowns.items()))
    used = ", ".join(f"Table {table} {network} {level}" for table, _, network, level in fit.rows_used)
    notes = (
        f"Solved for: {unknowns}. Assumed: {fit.bandwidth_bits_per_s / 1e9:g} Gbit/s, messages as in the published "
        "code (one per tensor, two for a compressed matrix), gathers at half an all-reduce's latency (a ring has "
        "half the hops).",
        f"Rows used to fit (marked *): {used}.",
        "Times in seconds. Ours: the same step with this program's messages, all other costs as they were. Latency: "
        "its share of the predicted time. Accordion rows mix the two predictions in the share s that Data Sent "
        "implies.",
    )
    headers = (
        "T",
        "network",
        "level",
        "printed",
        "model",
        "error %",
        "ms/step",
        "msgs",
        "latency",
        "our msgs",
        "ours",
        "faster",
    )
    table = _table(headers, [_time_row(row) for row in fit.rows], "T|network|level")
    parts = [title, *map(_wrap, notes), table, _errors(fit)]
    return "\n\n".join(parts)


def _time_row(row: TimeRow) -> tuple[str, ...]:
    def text(value: float | int | None, form: Callable[[Any], str]) -> str:
        return DASH if value is None else form(value)

    return (
        row.table,
        row.network,
        row.level,
        f"{row.printed:,.0f}",
        f"{row.predicted:,.0f}",
        "*" if row.fitted else f"{100 * row.error:+.1f}",
        f"{row.step_ms:.0f}",
        text(row.collectives, str),
        text(row.latency_share, lambda share: f"{100 * share:.0f} %"),
        text(row.fused_collectives, str),
        text(row.fused, lambda seconds: f"{seconds:,.0f}"),
        text(row.speedup, lambda factor: f"{factor:.1f}x"),
    )


def _errors(fit: TimeFit) -> str:
    """Mean absolute error of the predicted rows per kind of run, and what the model cannot do."""
    kinds = {"PowerSGD (Tables 1, 2)": "12", "Top-K (Tables 3, 4)": "34", "batch size (Tables 5, 6)": "56"}
    lines = ["Error of the predicted rows:"]
    for kind, tables in kinds.items():
        rows = [row for row in fit.rows if row.table in tables and not row.fitted]
        if rows:
            worst = max(rows, key=lambda row: abs(row.error))
            lines.append(
                f"  {kind}: mean {100 * mean(abs(row.error) for row in rows):.1f} % over {len(rows)} rows, worst "
                f"{100 * worst.error:+.0f} % (Table {worst.table} {worst.network} {worst.level})"
            )
    lines.append(
        _wrap(
            "One latency for all runs does not do: with that of the batch-size runs ResNet-18 at rank 1 (Table 1) "
            f"would be off by {100 * fit.common_latency_error:+.0f} %.",
            "  ",
        )
    )
    if fit.contradictions:
        lines.append("No model in which more data takes more time fits these:")
        lines += [_wrap(item, "  ") for item in fit.contradictions]
    return "\n".join(lines)


def _si(seconds: float) -> str:
    """Seconds as ms, us or ns with three digits."""
    for unit, size in (("ms", 1e-3), ("us", 1e-6)):
        if abs(seconds) >= size / 10:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"
