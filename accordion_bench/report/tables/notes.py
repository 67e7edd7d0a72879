"""What stands around a table: its title and, under it, everything that is missing or needs a word."""

from __future__ import annotations

from accordion_bench.report.estimates import KINDS
from accordion_bench.report.tables.aggregate import PAPER_SCALE, RowResult
from accordion_bench.runs.stored import replay_note
from accordion_bench.sweeps.table import Table
from accordion_bench.training.network import Network

WHICH = {"final": "of the last epoch", "best": "of the best epoch"}


def title(table: Table, results: list[RowResult], metric_name: str, metric: str, ci: str) -> str:
    """One line: what, how many seeds, which interval, which metric, which scale."""
    planned = max((result.planned for result in results), default=0)
    seeds = f"{planned} seeds, mean ± 95 % CI ({KINDS[ci]})" if planned > 1 else "1 seed, no interval"
    which = WHICH.get(metric) or f"mean of the last {metric.removeprefix('last')} epochs"
    scale = "paper scale" if table.scale == PAPER_SCALE else f"reduced scale: {table.scale}"
    head = f"Table {table.number}. " if table.number is not None else ""
    return f"{head}{table.title} · {seeds} · {metric_name} {which} · {scale}"


def notes(table: Table, results: list[RowResult], metric: str, network: Network) -> tuple[str, ...]:
    """Problems first, then how to read the columns."""
    lines = [_missing(table, results)]
    for state in ("unfinished", "incomplete", "diverged", "failed", "damaged", "incomparable"):
        lines.append(_named(results, state))
    lines += [_short(results, metric), _skipped(results)]
    any_published = any(result.published for result in results)
    if any_published and table.scale != PAPER_SCALE:
        lines.append("paper: printed for full-scale runs; this table is not one, so no difference is shown")
    lines.append(replay_note(run for result in results for run in result.runs))
    if any(result.plan is not None for result in results):
        lines.append("(plan): not run; what a run would send")
    if any(result.estimates for result in results):
        lines += _how_to_read(results, network)
    return tuple(line for line in lines if line)


def _how_to_read(results: list[RowResult], network: Network) -> list[str]:
    sent = "data sent: the paper's convention, floats of one worker, gathered ones times the number of workers"
    same = any(result.estimates["paper_floats"].same for result in results if "paper_floats" in result.estimates)
    return [
        sent + ("; without ±: equal on all seeds" if same else ""),
        "ratio: mean of the group's baseline over the mean of the row (times less)",
        "modelled time: measured seconds outside communication + the recorded traffic on network "
        f"{network.name} ({network.description})",
    ]


def _missing(table: Table, results: list[RowResult]) -> str:
    """Whole groups and rows in one word where nothing of them was run."""
    total = sum(result.count("missing") for result in results)
    if not total:
        return ""
    parts: list[str] = []
    for group in dict.fromkeys(result.row.group for result in results):
        mine = [result for result in results if result.row.group == group]
        missing = sum(result.count("missing") for result in mine)
        if missing == sum(result.planned for result in mine):
            parts.append(f"{group} ({missing} run{'s' * (missing != 1)})")
            continue
        for result in mine:
            seeds = [problem.seed for problem in result.problems if problem.state == "missing"]
            if seeds:
                parts.append(f"{group} {result.row.label} ({_seeds(seeds)})")
    return f"missing: {'; '.join(parts)} · run them: accordion-bench sweep table={table.given or table.name}"


def _named(results: list[RowResult], state: str) -> str:
    parts = [
        f"{result.row.group} {result.row.label} seed {problem.seed}"
        + (f" ({problem.message})" if problem.message else "")
        for result in results
        for problem in result.problems
        if problem.state == state
    ]
    return f"{state}: {'; '.join(parts)}" if parts else ""


def _short(results: list[RowResult], metric: str) -> str:
    parts = [
        f"{result.row.group} {result.row.label} ({_seeds(list(result.short))})" for result in results if result.short
    ]
    return f"too few epochs for {metric}: {'; '.join(parts)}" if parts else ""


def _skipped(results: list[RowResult]) -> str:
    parts = [
        f"{result.row.group} {result.row.label} seed {seed} ({left_out:,} of {left_out + made:,})"
        for result in results
        for seed, (left_out, made) in result.skipped.items()
    ]
    return f"† updates left out because of non-finite numbers: {'; '.join(parts)}" if parts else ""


def _seeds(seeds: list[int]) -> str:
    return f"seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}"
