"""The printed ratios of Tables 1-6, and the claims of the paper's text that follow from its tables, recomputed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from accordion_bench.report import published
from accordion_bench.report.audit.counting import STEPS, UPDATES_AT_4096, Cell, Setup, find, layout, printed_form

YES, NO, PARTLY = "yes", "no", "partly"
COMPRESSION, BATCH = ("powersgd", "topk"), ("batch_size",)


@dataclass(frozen=True)
class RatioRow:
    """One printed ratio against its group's low row.

    Attributes:
        table, dataset, network, level: which row.
        quantity: "data" or "time".
        printed: as printed, "" if the paper prints none.
        computed: from the printed Data Sent or Time.
        agrees: whether numbers that print as these two, rounded or truncated, can have it; None if not printed.
    """

    table: str
    dataset: str
    network: str
    level: str
    quantity: str
    printed: str
    computed: float
    agrees: bool | None


@dataclass(frozen=True)
class ClaimRow:
    """One number of the text.

    Attributes:
        id, location, claim, value, unit: as in claims.csv.
        computed: what the tables say, in words.
        holds: yes | no | partly ("up to" a value that is reached and exceeded).
    """

    id: str
    location: str
    claim: str
    value: str
    unit: str
    computed: str
    holds: str


def ratio_rows(cells: Sequence[Cell]) -> tuple[RatioRow, ...]:
    """Both ratios of every row that is not a low row itself."""
    rows = []
    for cell in cells:
        if cell.role == "low":
            continue
        low = find(cells, cell.group, "low")
        for quantity, text, above, below in (
            ("data", cell.data_ratio, low.data_sent, cell.data_sent),
            ("time", cell.time_ratio, low.time_s, cell.time_s),
        ):
            computed = float(above) / float(below)
            agrees = _possible(above, below, text) if text else None
            rows.append(RatioRow(cell.table, cell.dataset, cell.network, cell.level, quantity, text, computed, agrees))
    return tuple(rows)


def _possible(above: str, below: str, ratio: str) -> bool:
    """Whether above / below can be `ratio`, each being known to its printed digits only."""
    (above_min, above_max), (below_min, below_max), (least, most) = map(_interval, (above, below, ratio))
    return above_max / below_min >= least and above_min / below_max < most


def _interval(text: str) -> tuple[float, float]:
    """What rounds or truncates to a printed number: half a unit of its last digit below it, one above."""
    unit = 10.0 ** int(Decimal(text).as_tuple().exponent)
    return float(text) - unit / 2, float(text) + unit


def _agrees(value: float, text: str) -> bool:
    return printed_form(Decimal(repr(value)), text) is not None


@dataclass(frozen=True)
class Tables:
    """What a check reads: the cells, and the names of those whose Data Sent is a misprint."""

    cells: Sequence[Cell]
    misprints: frozenset[tuple[str, str, str]]

    def cell(self, table: str, network: str, role: str) -> Cell:
        """One row (a table holds a network once)."""
        dataset = "CIFAR-10" if int(table) % 2 else "CIFAR-100"
        return find(self.cells, (table, dataset, network), role)

    def ratio(self, table: str, network: str, role: str, quantity: str) -> float:
        """low / role, of "floats", "seconds"."""
        return getattr(self.cell(table, network, "low"), quantity) / getattr(self.cell(table, network, role), quantity)

    def accordion(self, methods: tuple[str, ...], quantity: str) -> list[tuple[float, Cell]]:
        """(low / Accordion, row) of these methods, the largest first; misprinted Data Sent is left out."""
        rows = [c for c in self.cells if c.role == "accordion" and c.method in methods]
        rows = [c for c in rows if quantity == "seconds" or c.group not in self.misprints]
        found = [(self.ratio(c.table, c.network, "accordion", quantity), c) for c in rows]
        return sorted(found, key=lambda pair: -pair[0])


Check = Callable[[Tables, str], tuple[str, str]]  # (tables, claimed value) -> (computed, in words; holds)


def _up_to(methods: tuple[str, ...], quantity: str) -> Check:
    """ "Up to x": yes if x is the largest ratio to its digits, partly if it is reached but exceeded."""

    def check(tables: Tables, claimed: str) -> tuple[str, str]:
        ratios = tables.accordion(methods, quantity)
        largest, cell = ratios[0]
        said = f"largest: {largest:.2f} (Table {cell.table} {cell.network})"
        left_out = [
            c for c in tables.cells if c.group in tables.misprints and c.role == "accordion" and c.method in methods
        ]
        if quantity == "floats" and left_out:
            said += f", leaving out {', '.join(f'Table {c.table} {c.network}' for c in left_out)}"
        if _agrees(largest, claimed):
            return said, YES
        return said, PARTLY if any(_agrees(ratio, claimed) for ratio, _ in ratios) else NO

    return check


def _each(*checks: Check) -> Check:
    """A claim of several values "a / b": yes if every one holds."""

    def check(tables: Tables, value: str) -> tuple[str, str]:
        found = [check(tables, part) for check, part in zip(checks, value.split(" / "), strict=True)]
        holds = {verdict for _, verdict in found}
        return "; ".join(said for said, _ in found), holds.pop() if len(holds) == 1 else PARTLY

    return check


def _equals(value_of: Callable[[Tables], float], how: str) -> Check:
    def check(tables: Tables, value: str) -> tuple[str, str]:
        computed = value_of(tables)
        return f"{how}: {computed:.2f}", YES if _agrees(computed, value) else NO

    return check


def _accuracies(table: str, order: tuple[str, ...]) -> Check:
    """The stated accuracies, against the named table's ResNet-18 rows."""

    def check(tables: Tables, value: str) -> tuple[str, str]:
        there = [tables.cell(table, "ResNet-18", role).accuracy_pct for role in order]
        said = f"Table {table} prints {' / '.join(there)}"
        same = there == value.split(" / ")
        others = [
            other
            for other in map(str, range(1, 7))
            if [tables.cell(other, "ResNet-18", role).accuracy_pct for role in order] == value.split(" / ")
        ]
        return said + (f"; these are Table {others[0]}'s" if others and not same else ""), YES if same else NO

    return check


def _accuracy_gap(table: str, network: str) -> Callable[[Tables], float]:
    def gap(tables: Tables) -> float:
        low, high = (Decimal(tables.cell(table, network, role).accuracy_pct) for role in ("low", "high"))
        return float(low - high)

    return gap


def _impossible_above(network: str, dataset: str, low: int, high: int) -> Check:
    """A saving between two ranks cannot exceed the ratio of what they send."""

    def check(tables: Tables, value: str) -> tuple[str, str]:
        words = [Setup(network, dataset, "powersgd", rank).words_per_update for rank in (low, high)]
        bound = words[0] / words[1]
        return f"rank {high} all along sends only {bound:.2f}x less", NO if float(value) > bound else YES

    return check


def _logs(tables: Tables, value: str) -> tuple[str, str]:
    last = {
        level: published.row({"table": "fig11", "dataset": "WikiText-2", "network": "LSTM", "level": level}).value
        for level in ("k99", "k2", "accordion")
    }
    said = "last perplexity in the logs: " + ", ".join(f"{level} {value:.2f}" for level, value in last.items())
    return said, YES if last["accordion"] <= last["k99"] else NO


def _quotient(claim: str) -> float:
    """a / b of a claim whose value is "a vs b"."""
    claims = published.data("claims.csv").set_index("id")
    first, second = claims.loc[claim, "value"].split(" vs ")
    return float(first) / float(second)


CHECKS: Mapping[str, Check] = {
    "1": _up_to(BATCH, "floats"),
    "2": _up_to((*COMPRESSION, *BATCH), "seconds"),
    "3": _equals(lambda t: t.ratio("3", "ResNet-18", "high", "seconds"), "Table 3"),
    "4": _equals(_accuracy_gap("3", "ResNet-18"), "Table 3"),
    "5": _up_to(COMPRESSION, "floats"),
    "6": _up_to(COMPRESSION, "seconds"),
    "7": _up_to(BATCH, "floats"),
    "8": _up_to(BATCH, "seconds"),
    "9": _up_to(BATCH, "floats"),
    "15": _equals(lambda t: layout("ResNet-18", "CIFAR-10").size * 4 / 1e6, "Table 8's network, 4 bytes a parameter"),
    "24": _accuracies("2", ("low", "high", "accordion")),
    "25": _equals(_accuracy_gap("1", "VGG-19bn"), "Table 1"),
    "26": _equals(lambda t: t.ratio("1", "VGG-19bn", "accordion", "floats"), "Table 1"),
    "27": _accuracies("3", ("high", "low", "accordion")),
    "28": _equals(lambda t: t.ratio("4", "ResNet-18", "accordion", "floats"), "Table 4"),
    "29": _each(_up_to(BATCH, "floats"), _up_to(BATCH, "seconds")),
    "31": _equals(lambda t: _quotient("30"), "Sec. 5.6, the two reductions' ratio"),
    "37": _impossible_above("VGG-19bn", "CIFAR-100", low=4, high=2),
    "39": _up_to(COMPRESSION, "floats"),
    "42": _logs,
    "45": _equals(lambda t: STEPS / UPDATES_AT_4096, f"{STEPS} / {UPDATES_AT_4096} updates"),
}


def claim_rows(cells: Sequence[Cell], misprints: frozenset[tuple[str, str, str]]) -> tuple[ClaimRow, ...]:
    """Every claim that follows from the tables, as ordered in claims.csv; misprints: (table, data set, network)."""
    tables = Tables(cells, misprints)
    rows = []
    for claim in published.data("claims.csv").to_dict("records"):
        if claim["id"] in CHECKS:
            computed, holds = CHECKS[claim["id"]](tables, claim["value"])
            rows.append(
                ClaimRow(claim["id"], claim["location"], claim["claim"], claim["value"], claim["unit"], computed, holds)
            )
    return tuple(rows)
