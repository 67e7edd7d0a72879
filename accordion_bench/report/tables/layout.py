"""Rows with their numbers -> a Sheet: which columns there are and what each cell says."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from accordion_bench.report.estimates import Estimate
from accordion_bench.report.numbers import UNITS, decimals_for, number, plain, ratio, signed, unit_for, with_interval
from accordion_bench.report.tables import notes
from accordion_bench.report.tables.aggregate import PAPER_SCALE, RowResult
from accordion_bench.report.tables.sheet import DASH, Block, Cell, Column, Line, Sheet
from accordion_bench.sweeps.table import Table
from accordion_bench.training.network import Network

PREFIXES = dict(UNITS)
COUNTS = (
    ("floats_per_worker", "sent per worker", " floats"),
    ("bytes_per_worker", "sent per worker", "B"),
    ("bits_per_update", "sent per update", "bit"),
    ("collectives", "collectives", ""),
)
Filled = tuple[Column, list[Cell]]


def build_sheet(table: Table, results: list[RowResult], *, metric: str, ci: str, network: Network) -> Sheet:
    """The whole table: a block like the paper's, and one with the other ways to count and the modelled time."""
    compare = any(result.published for result in results)
    differ = compare and table.scale == PAPER_SCALE
    metric_name = _metric_name(results)
    head = _head(results, compare)
    first = [*head, *_metric(results, metric_name, compare, differ), *_sent(results, compare), *_time(results, compare)]
    again = [(Column(column.title, (), column.numeric), cells) for column, cells in head[:2]]
    second = [*again, *_counts(results, differ), *_modelled(results, network)]
    return Sheet(
        name=table.name,
        title=notes.title(table, results, metric_name, metric, ci),
        blocks=(_block("", results, first), _block("Counted per worker, and modelled time", results, second)),
        notes=notes.notes(table, results, metric, network),
    )


def _block(heading: str, results: Sequence[RowResult], filled: Sequence[Filled]) -> Block:
    starts = [index == 0 or results[index - 1].row.group != result.row.group for index, result in enumerate(results)]
    lines = [Line(tuple(cells[index] for _, cells in filled), start) for index, start in enumerate(starts)]
    return Block(heading, tuple(column for column, _ in filled), tuple(lines))


def _metric_name(results: Sequence[RowResult]) -> str:
    """Of the finished runs, else of the published rows."""
    measured = [run.summary.metric for result in results for run in result.runs]
    published = [result.published.metric for result in results if result.published]
    return " / ".join(dict.fromkeys(measured or published)) or "metric"


def _head(results: Sequence[RowResult], compare: bool) -> list[Filled]:
    groups = [Cell(result.row.group, (result.row.group,)) for result in results]
    labels = [Cell(result.row.label, (result.row.label,)) for result in results]
    counts = [_seeds(result) for result in results]
    state = [Cell("", (_state(result),)) for result in results]
    return [
        (Column("network" if compare else "group", ("group",), numeric=False), groups),
        (Column("level", ("level",), numeric=False), labels),
        (Column("seeds", ("seeds", "planned_seeds")), counts),
        (Column("state", ("problems",), numeric=False, shown=False), state),
    ]


def _seeds(result: RowResult) -> Cell:
    done = len(result.runs)
    text = str(done) if done == result.planned else f"{done}/{result.planned}"
    return Cell(text, (str(done), str(result.planned)))


def _state(result: RowResult) -> str:
    """For the CSV: what the notes say about this row."""
    parts = [f"seed {problem.seed} {problem.state}" for problem in result.problems]
    parts += [f"seed {seed} skipped {left_out} updates" for seed, (left_out, _) in result.skipped.items()]
    return "; ".join(parts)


def _metric(results: Sequence[RowResult], name: str, compare: bool, differ: bool) -> list[Filled]:
    estimates = [result.estimates.get("metric") for result in results]
    percent = name == "accuracy"
    decimals = decimals_for(estimates, digits=0 if percent else 4, least=1)
    field = "accuracy_percent" if percent else name.replace(" / ", "_or_").replace(" ", "_")
    cells = [_metric_cell(result, decimals) for result in results]
    filled = [(Column("accuracy %" if percent else name, (field, f"{field}_ci95")), cells)]
    if compare:
        texts = [
            (result.published.text, plain(result.published.value)) if result.published else ("", "")
            for result in results
        ]
        filled.append((Column("paper", (f"paper_{field}",)), [Cell(text or DASH, (raw,)) for text, raw in texts]))
    if differ:
        differences = [_difference(result) for result in results]
        texts_ = [DASH if value is None else signed(value, decimals) for value in differences]
        both = zip(texts_, differences, strict=True)
        filled.append(
            (Column("difference", (f"{field}_difference",)), [Cell(text, (plain(value),)) for text, value in both])
        )
    return filled


def _metric_cell(result: RowResult, decimals: int) -> Cell:
    """Diverged seeds are said in the cell itself, beside the number of the others."""
    value = result.estimates.get("metric")
    text = with_interval(value, decimals)
    if result.skipped:
        text += " †"
    if diverged := result.count("diverged"):
        said = f"diverged ({diverged} of {result.planned} seeds)"
        text = said if value is None else f"{text}, {said}"
    return Cell(text, _raw(value))


def _difference(result: RowResult) -> float | None:
    value = result.estimates.get("metric")
    if value is None or result.published is None or result.published.metric != _only_metric(result):
        return None
    return value.mean - result.published.value


def _only_metric(result: RowResult) -> str:
    return " / ".join(sorted({run.summary.metric for run in result.runs}))


def _sent(results: Sequence[RowResult], compare: bool) -> list[Filled]:
    """Data sent in the paper's convention, in the paper's unit where that suits the measured numbers."""
    means = [value.mean for value in _quantity(results, "paper_floats") if value]
    means += [result.plan for result in results if result.plan is not None]
    paper_unit = max((result.published.floats_unit or 0.0 for result in results if result.published), default=0.0)
    unit, prefix = unit_for(means)
    if paper_unit and max(means, default=paper_unit) >= paper_unit:
        unit, prefix = paper_unit, PREFIXES[paper_unit]
    filled = _with_ratio(results, "paper_floats", f"data sent ({prefix} floats)".replace("( ", "("), unit, digits=5)
    if any(result.plan is not None for result in results):
        filled[0] = _with_plans(results, filled[0], unit)
        filled.append(
            (Column("", ("planned_paper_floats",), shown=False), [Cell("", (plain(r.plan),)) for r in results])
        )
    if compare:
        title = "paper" if paper_unit in (0.0, unit) else f"paper ({PREFIXES[paper_unit]} floats)"
        cells = [_printed_floats(result) for result in results]
        filled.append((Column(title, ("paper_printed_floats",)), cells))
    return filled


def _with_plans(results: Sequence[RowResult], filled: Filled, unit: float) -> Filled:
    """What was not run but planned says so; it has no value among the measured ones."""
    column, cells = filled
    decimals = decimals_for(
        [Estimate(result.plan, None, 0) for result in results if result.plan is not None], digits=5, unit=unit
    )
    planned = [
        cell if result.plan is None else Cell(f"{number(result.plan / unit, decimals)} (plan)", cell.values)
        for result, cell in zip(results, cells, strict=True)
    ]
    return column, planned


def _printed_floats(result: RowResult) -> Cell:
    if result.published is None or result.published.floats_text is None:
        return Cell(DASH, ("",))
    return Cell(result.published.floats_text, (plain(result.published.floats),))


def _time(results: Sequence[RowResult], compare: bool) -> list[Filled]:
    columns = _with_ratio(results, "training_seconds", "time (s)", 1.0, digits=4)
    if compare:
        seconds = [result.published.seconds if result.published else None for result in results]
        cells = [Cell(DASH if value is None else f"{value:.0f}", (plain(value),)) for value in seconds]
        columns.append((Column("paper", ("paper_printed_seconds",)), cells))
    return columns


def _counts(results: Sequence[RowResult], differ: bool) -> list[Filled]:
    filled = []
    for name, title, word in COUNTS:
        means = [value.mean for value in _quantity(results, name) if value]
        unit, prefix = unit_for(means) if word else (1.0, "")
        heading = f"{title} ({prefix}{word})".replace("( ", "(") if word else title
        filled.append(_estimated(results, name, heading, unit, digits=5 if prefix else 0, exact=True))
    filled.append(
        _estimated(results, "compress_seconds_per_update", "compression (ms per update)", 1e-3, digits=3, exact=False)
    )
    if differ:
        filled.append(_relative(results, "data sent: difference %", "paper_floats", lambda published: published.floats))
        filled.append(_relative(results, "time: difference %", "training_seconds", lambda published: published.seconds))
    return filled


def _modelled(results: Sequence[RowResult], network: Network) -> list[Filled]:
    return _with_ratio(results, "modelled_seconds", f"modelled time (s), network {network.name}", 1.0, digits=4)


def _with_ratio(results: Sequence[RowResult], name: str, title: str, unit: float, digits: int) -> list[Filled]:
    texts = [ratio(result.ratios.get(name), baseline=result.row.role == "low") for result in results]
    cells = [Cell(text, (plain(result.ratios.get(name)),)) for text, result in zip(texts, results, strict=True)]
    exact = name == "paper_floats"
    return [_estimated(results, name, title, unit, digits, exact), (Column("ratio", (f"{name}_ratio",)), cells)]


def _estimated(results: Sequence[RowResult], name: str, title: str, unit: float, digits: int, exact: bool) -> Filled:
    estimates = _quantity(results, name)
    decimals = decimals_for(estimates, digits=digits, unit=unit)
    cells = [Cell(with_interval(value, decimals, unit, exact), _raw(value)) for value in estimates]
    return Column(title, (name, f"{name}_ci95")), cells


def _relative(
    results: Sequence[RowResult], title: str, name: str, published_value: Callable[..., float | None]
) -> Filled:
    """Measured against published, in percent of the published value."""
    cells = []
    for result in results:
        value, printed = result.estimates.get(name), published_value(result.published) if result.published else None
        difference = 100 * (value.mean / printed - 1) if value and printed else None
        cells.append(Cell(DASH if difference is None else signed(difference, 2), (plain(difference),)))
    return Column(title, (f"{name}_difference_percent",)), cells


def _quantity(results: Sequence[RowResult], name: str) -> list[Estimate | None]:
    return [result.estimates.get(name) for result in results]


def _raw(value: Estimate | None) -> tuple[str, str]:
    return (plain(value.mean), plain(value.half_width)) if value else ("", "")
