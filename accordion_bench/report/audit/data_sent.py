"""Data Sent of the static rows of Tables 1-6: predicted, compared with the print, and explained where it does not
agree."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from accordion_bench.report.audit.assumptions import ASSUMPTIONS, Assumption, Evidence, copied_cell_evidence
from accordion_bench.report.audit.counting import EPOCHS, STEPS, Cell, Setup, in_unit, printed_form, setup_of

AGREE, EXPLAINED, UNEXPLAINED = "agree", "explained", "unexplained"


@dataclass(frozen=True)
class DataSentRow:
    """One static cell.

    Attributes:
        table, dataset, network, level: which.
        unit: million or billion 32-bit words, of the three numbers.
        printed: the cell's text.
        predicted: under the paper's own reading.
        relative_difference: (predicted - printed) / printed.
        verdict: agree | explained | unexplained.
        form: how the accepted prediction leads to the printed digits: "rounded" or "truncated"; None if it does not.
        assumptions: keys of the smallest set of changes that makes it agree.
        says: the same in words.
        explained: the prediction under them; None where there are none.
        evidence: what else speaks for or against.
        supported: whether anything independent supports the assumptions, all of them.
        also: other single changes of one number that would fit as well.
        epochs, variant: of the accepted reading.
    """

    table: str
    dataset: str
    network: str
    level: str
    unit: str
    printed: str
    predicted: float
    relative_difference: float
    verdict: str
    form: str | None
    assumptions: tuple[str, ...] = ()
    says: str = ""
    explained: float | None = None
    evidence: tuple[Evidence, ...] = ()
    supported: bool = False
    also: tuple[str, ...] = ()
    epochs: int = EPOCHS
    variant: str | None = None

    @property
    def key(self) -> tuple[str, str, str, str]:
        """The published row."""
        return self.table, self.dataset, self.network, self.level


def static_rows(cells: Sequence[Cell]) -> tuple[DataSentRow, ...]:
    """Every static row, in the order of the cells; a copied cell is looked for where nothing else explains it."""
    static = [cell for cell in cells if cell.role != "accordion"]
    rows = [_judge(cell, cells) for cell in static]
    known = dict(zip(static, rows, strict=True))
    return tuple(_copied(cell, row, known, cells) if row.verdict == UNEXPLAINED else row for cell, row in known.items())


def _judge(cell: Cell, cells: Sequence[Cell]) -> DataSentRow:
    setup = setup_of(cell)
    plain = _plain(cell, setup)
    if plain.verdict == AGREE:
        return plain
    for chosen, changed in _changes(setup):
        form = printed_form(in_unit(changed.words, cell.data_unit), cell.data_sent)
        if form is None:
            continue
        found = [assumption.evidence(cell, cells) for assumption in chosen]
        return replace(
            plain,
            verdict=EXPLAINED,
            form=form,
            assumptions=tuple(assumption.key for assumption in chosen),
            says=" and ".join(assumption.says for assumption in chosen),
            explained=float(in_unit(changed.words, cell.data_unit)),
            evidence=tuple(item for items in found for item in items),
            supported=all(any(item.supports for item in items) for items in found),
            also=tuple(_other_numbers(cell, changed)),
            epochs=changed.epochs,
            variant=changed.variant,
        )
    return plain


def _plain(cell: Cell, setup: Setup) -> DataSentRow:
    value = in_unit(setup.words, cell.data_unit)
    form = printed_form(value, cell.data_sent)
    return DataSentRow(
        cell.table,
        cell.dataset,
        cell.network,
        cell.level,
        cell.data_unit,
        cell.data_sent,
        predicted=float(value),
        relative_difference=float(value) / float(cell.data_sent) - 1,
        verdict=AGREE if form else UNEXPLAINED,
        form=form,
    )


def _changes(setup: Setup) -> Iterator[tuple[tuple[Assumption, ...], Setup]]:
    """All sets of one and then of two assumptions that apply, each with the reading it leads to."""
    for size in (1, 2):
        for chosen in combinations(ASSUMPTIONS, size):
            changed: Setup | None = setup
            for assumption in chosen:
                changed = assumption.change(changed) if changed else None
            if changed:
                yield chosen, changed


def _other_numbers(cell: Cell, accepted: Setup) -> Iterator[str]:
    """Single numbers (updates per epoch, epochs, kept percent) that would do instead, on the accepted network."""
    plain = replace(setup_of(cell), variant=accepted.variant)
    tried = {f"{steps} updates per epoch": replace(plain, steps=steps) for steps in range(1, 2 * STEPS)}
    tried |= {f"{epochs} epochs": replace(plain, epochs=epochs) for epochs in range(1, 2 * EPOCHS)}
    if cell.method == "topk":
        tried |= {f"{percent} % kept": replace(plain, level=percent) for percent in range(1, 101)}
    for words, setup in tried.items():
        if setup != accepted and printed_form(in_unit(setup.words, cell.data_unit), cell.data_sent):
            yield words


def _copied(cell: Cell, row: DataSentRow, known: dict[Cell, DataSentRow], cells: Sequence[Cell]) -> DataSentRow:
    """The row, explained if another table prints this text for this network and level and is accounted for."""
    for other, accepted in known.items():
        same = all(getattr(cell, key) == getattr(other, key) for key in ("network", "method", "level", "data_sent"))
        if other == cell or not same or accepted.verdict == UNEXPLAINED:
            continue
        under = f" (which needs: {', '.join(accepted.assumptions)})" if accepted.assumptions else ""
        return replace(
            row,
            verdict=EXPLAINED,
            form=accepted.form,
            assumptions=(f"cell of Table {other.table}",),
            says=f"the cell is a copy of Table {other.table}'s, {other.dataset}{under}",
            explained=accepted.predicted if accepted.explained is None else accepted.explained,
            evidence=tuple(copied_cell_evidence(cell, cells)),
        )
    return row
