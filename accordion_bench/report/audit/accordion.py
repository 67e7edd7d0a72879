"""Accordion's rows of Tables 1-6: what share of the run they imply at the least compressed level.

Data Sent of an Accordion row lies between its group's static rows, D = s * low + (1 - s) * high. For PowerSGD and
Top-K s weighs every layer by what it sends more at the low level (layers switch alone), for batch size it is the
share of epochs. The static rows are taken as printed. The six batch-size rows can be predicted outright, as their
published logs show 20 epochs at 512 and the rest at 4096.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from accordion_bench.report.audit.assumptions import FLOOR_STEPS, Evidence, accordion_batch_words
from accordion_bench.report.audit.counting import Cell, find, in_unit, printed_form
from accordion_bench.report.audit.data_sent import AGREE, EXPLAINED, UNEXPLAINED, DataSentRow

UNTESTED = "bracket"


@dataclass(frozen=True)
class AccordionRow:
    """One Accordion cell.

    Attributes:
        table, dataset, network, method, unit, printed: which, and what is printed.
        low, high: the static rows, as printed.
        low_share: s, the share at the low level (0 all high, 1 all low).
        low_epochs: s times the epochs: how long a run switching all layers together would stay low.
        low_traffic_share: share of what was sent that was sent at the low level.
        time_share: the same s from the Time column, (time - high) / (low - high).
        inside: whether the cell lies between the two.
        predicted: from the published logs' switch (batch size only).
        verdict: agree | explained | unexplained for predicted rows, else "bracket".
        says: the assumption of an explained one.
        evidence: what else speaks for or against it.
    """

    table: str
    dataset: str
    network: str
    method: str
    unit: str
    printed: str
    low: str
    high: str
    low_share: float
    low_epochs: float
    low_traffic_share: float
    time_share: float
    inside: bool
    predicted: float | None = None
    verdict: str = UNTESTED
    says: str = ""
    evidence: tuple[Evidence, ...] = ()

    @property
    def key(self) -> tuple[str, str, str, str]:
        """The published row."""
        return self.table, self.dataset, self.network, "accordion"


def accordion_rows(cells: Sequence[Cell], static: Sequence[DataSentRow]) -> tuple[AccordionRow, ...]:
    """Every Accordion row, as ordered in the cells; a run has the epochs that the group's static rows seem to count."""
    epochs = {row.key[:3]: row.epochs for row in static}
    return tuple(_bracket(cell, cells, epochs[cell.group]) for cell in cells if cell.role == "accordion")


def _bracket(cell: Cell, cells: Sequence[Cell], epochs: int) -> AccordionRow:
    low, high = find(cells, cell.group, "low"), find(cells, cell.group, "high")
    share = _share(cell.floats, low.floats, high.floats)
    row = AccordionRow(
        cell.table,
        cell.dataset,
        cell.network,
        cell.method,
        cell.data_unit,
        cell.data_sent,
        low.data_sent,
        high.data_sent,
        low_share=share,
        low_epochs=share * epochs,
        low_traffic_share=share * low.floats / cell.floats,
        time_share=_share(cell.seconds, low.seconds, high.seconds),
        inside=0 <= share <= 1,
    )
    return _predict(row, cell, low) if cell.method == "batch_size" else row


def _share(value: float, low: float, high: float) -> float:
    """s of value = s * low + (1 - s) * high."""
    return (value - high) / (low - high)


def _predict(row: AccordionRow, cell: Cell, low: Cell) -> AccordionRow:
    value = in_unit(accordion_batch_words(cell, FLOOR_STEPS), cell.data_unit)
    row = replace(row, predicted=float(value))
    if printed_form(value, cell.data_sent):
        return replace(row, verdict=AGREE)
    for text in transpositions(cell.data_sent):
        if printed_form(value, text):
            ratios = {printed: float(low.data_sent) / float(printed) for printed in (text, cell.data_sent)}
            supports = [
                printed_form(in_unit(round(r * 1e9), "billion"), cell.data_ratio) is not None for r in ratios.values()
            ]
            said = f"the printed ratio is {cell.data_ratio}; {low.data_sent}/{text} = {ratios[text]:.2f}, "
            said += f"{low.data_sent}/{cell.data_sent} = {ratios[cell.data_sent]:.2f}"
            evidence = Evidence(supports[0] and not supports[1], said)
            return replace(row, verdict=EXPLAINED, says=f"two digits are swapped in {text}", evidence=(evidence,))
    return replace(row, verdict=UNEXPLAINED)


def transpositions(text: str) -> list[str]:
    """The number with two neighbouring digits exchanged, in every way that changes it (the point stays where it is)."""
    point = text.find(".")
    digits = text.replace(".", "")
    swapped = []
    for i in range(len(digits) - 1):
        if digits[i] != digits[i + 1]:
            other = digits[:i] + digits[i + 1] + digits[i] + digits[i + 2 :]
            swapped.append(other if point < 0 else f"{other[:point]}.{other[point:]}")
    return swapped
