"""Changes of one assumption that may stand behind a Data Sent cell, and what else speaks for or against each.

An assumption is data and a mechanism: `change` turns the paper's reading of a row into another one, which is then
counted like any other. Nothing here knows a predicted number or a verdict. Evidence must come from somewhere other
than the cell it explains: other columns, other rows, the authors' logs and code (github.com/uw-mad-dash/Accordion,
and the logs in its raw_data_files).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from accordion_bench.errors import UserError
from accordion_bench.report import published
from accordion_bench.report.audit.counting import (
    EPOCHS,
    STEPS,
    UPDATES_AT_4096,
    Cell,
    Setup,
    in_unit,
    printed_form,
    setup_of,
)

LOW_EPOCHS = 20  # epochs at batch 512 in all six published logs of Accordion's batch-size runs
SHORT_EPOCHS = 249
FLOOR_STEPS = 50_000 // 512
CONTROL = "ResNet-18"  # its cells of Tables 1 and 2 agree with 300 epochs


@dataclass(frozen=True)
class Evidence:
    """One fact from elsewhere: whether it supports the assumption or speaks against it (None: neither)."""

    supports: bool | None
    text: str


@dataclass(frozen=True)
class Assumption:
    """One change.

    Attributes:
        key: short name.
        says: the assumption, to follow "if".
        change: the reading with the change made; None where it changes nothing.
        evidence: what is known about it for one row, besides that row's Data Sent.
    """

    key: str
    says: str
    change: Callable[[Setup], Setup | None]
    evidence: Callable[[Cell, Sequence[Cell]], list[Evidence]]


def _other_variant(setup: Setup) -> Setup | None:
    if (setup.network, setup.dataset) != ("SENet", "CIFAR-10"):
        return None
    return replace(setup, variant="post")


def _floor_steps(setup: Setup) -> Setup | None:
    changed = replace(setup, steps=FLOOR_STEPS)
    return changed if changed.updates != setup.updates else None


def _short_run(setup: Setup) -> Setup:
    return replace(setup, epochs=SHORT_EPOCHS)


def _everything_kept(setup: Setup) -> Setup | None:
    return replace(setup, level=100) if setup.method == "topk" and setup.level != 100 else None


def _variant_evidence(cell: Cell, cells: Sequence[Cell]) -> list[Evidence]:
    return [
        Evidence(True, "the published code holds exactly this network with 10 outputs (senet_new.py)"),
        Evidence(
            True,
            "first logged losses: 2.407 (seed 42, Tables 1 and 3), 2.475 and 2.493 (seed 4, Table 1); with these "
            "seeds this network starts at 2.31-2.44 and 2.36-2.50 (24 batches of CIFAR-10, not augmented), the one of "
            "Table 8 at 2.29-2.34 and 2.27-2.36",
        ),
        Evidence(False, "Table 8 counts the parameters of another SENet (11,260,354 instead of 11,389,726)"),
    ]


def _epoch_evidence(cell: Cell, cells: Sequence[Cell]) -> list[Evidence]:
    """What the Time column and the length of the published log say."""
    found = _time_evidence(cell, cells)
    try:
        logged = len(published.curve({key: getattr(cell, key) for key in published.KEYS}))
    except UserError:  # no log of this run was published
        return found
    return [*found, Evidence(logged == SHORT_EPOCHS, f"the published log of this run has {logged} epochs")]


def _time_evidence(cell: Cell, cells: Sequence[Cell]) -> list[Evidence]:
    """Rank 1 ran on both data sets, on one network but for its head: the times' ratio is that of the epochs."""
    times = {(c.network, c.dataset): c.seconds for c in cells if c.level == "rank1"}
    pairs = [(network, dataset) for network in (cell.network, CONTROL) for dataset in ("CIFAR-10", "CIFAR-100")]
    if cell.network == CONTROL or not all(pair in times for pair in pairs):
        return []
    here, there, control_here, control_there = (times[pair] for pair in pairs)
    ratio, control, expected = here / there, control_here / control_there, SHORT_EPOCHS / EPOCHS
    said = f"Time of {cell.network} at rank 1, Table 1 over Table 2: {ratio:.3f}; {SHORT_EPOCHS}/{EPOCHS} is "
    said += f"{expected:.3f} ({CONTROL}, {EPOCHS} epochs in both: {control:.3f})"
    return [Evidence(abs(ratio / control - expected) < 0.01, said)]


def _step_evidence(cell: Cell, cells: Sequence[Cell]) -> list[Evidence]:
    """Accordion's cells of the batch-size tables tell 97 from 98 updates in their 20 epochs at batch 512."""
    rows = [c for c in cells if c.method == "batch_size" and c.role == "accordion"]
    here, paper = (
        sum(printed_form(in_unit(accordion_batch_words(c, steps), c.data_unit), c.data_sent) is not None for c in rows)
        for steps in (FLOOR_STEPS, STEPS)
    )
    return [
        Evidence(
            here > paper,
            f"of the {len(rows)} Accordion cells of Tables 5-6 (20 epochs at 512, 280 at 4096) {here} agree with "
            f"{FLOOR_STEPS} updates per epoch and {paper} with {STEPS}",
        ),
        Evidence(
            None, f"floor(50000/512) = {FLOOR_STEPS}, and the rows at 4096 count floor(50000/4096) = {UPDATES_AT_4096}"
        ),
        Evidence(
            False,
            f"the published logs of these runs show {STEPS} batches (batch 95 is printed as 97 %); {FLOOR_STEPS} is "
            "a count on paper",
        ),
    ]


def accordion_batch_words(cell: Cell, steps: int) -> int:
    """Words of an Accordion batch-size run: 20 epochs at 512 with `steps` updates each, the rest at 4096."""
    setup = Setup(cell.network, cell.dataset, "batch_size", 512)
    return setup.words_per_update * (LOW_EPOCHS * steps + (EPOCHS - LOW_EPOCHS) * UPDATES_AT_4096)


def _fraction_evidence(cell: Cell, cells: Sequence[Cell]) -> list[Evidence]:
    return [Evidence(False, f"the table and the name of the published log say {cell.level.removeprefix('k')} %")]


def copied_cell_evidence(cell: Cell, cells: Sequence[Cell]) -> list[Evidence]:
    """What the group's Accordion cell says: it counts its own network, so the static cell is not of this run."""
    rows = [c for c in cells if c.group == cell.group and c.method == "batch_size" and c.role == "accordion"]
    own = in_unit(replace(setup_of(cell), steps=FLOOR_STEPS).words, cell.data_unit)
    return [
        Evidence(
            None,
            f"the group's Accordion cell, {row.data_sent}, fits its own network with {FLOOR_STEPS} updates per "
            f"epoch, with which this cell would be {own:.2f}",
        )
        for row in rows
        if printed_form(in_unit(accordion_batch_words(row, FLOOR_STEPS), row.data_unit), row.data_sent)
    ]


# In the order in which ties between equally small changes are decided.
ASSUMPTIONS: tuple[Assumption, ...] = (
    Assumption(
        "variant",
        "the network is the SE-ResNet-18 of 11,389,726 parameters, not Table 8's",
        _other_variant,
        _variant_evidence,
    ),
    Assumption(
        f"{FLOOR_STEPS} steps",
        f"an epoch counts {FLOOR_STEPS} updates, not {STEPS}",
        _floor_steps,
        _step_evidence,
    ),
    Assumption(
        f"{SHORT_EPOCHS} epochs",
        f"{SHORT_EPOCHS} epochs are counted, not {EPOCHS}",
        _short_run,
        _epoch_evidence,
    ),
    Assumption("100 % kept", "100 % of each tensor is sent", _everything_kept, _fraction_evidence),
)
