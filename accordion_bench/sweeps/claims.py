"""Claims of a table: what its rows are to show, and by what margin, written down before they run. No torch.

In conf/table/<name>.yaml, each item compares two rows of one group:

    claims:
      - {group: ResNet-8, as_good: [Accordion, rank 4], margin: 1.0, paper: [26]}   # loses less than 1 point
      - {group: ResNet-8, better: [rank 4, rank 1]}                                 # reaches more
      - {group: ResNet-8, sends_less: [Accordion, rank 4], least: 1.5}              # at least 1.5 times less

Beside the kind: margin is in the metric's unit (points of accuracy, or perplexity); least is a ratio of floats sent;
paper holds the numbers of the paper's claims of which this is the twin (accordion-bench claims lists them).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from accordion_bench.errors import UserError
from accordion_bench.plugins import closest
from accordion_bench.sweeps.fields import keys_of, shown, text

KINDS = ("as_good", "better", "sends_less")
CLAIM_KEYS = ("group", *KINDS, "margin", "least", "paper")


@dataclass(frozen=True)
class Claim:
    """One comparison of two rows of a group.

    Attributes:
        group: of both rows.
        kind: as_good (non-inferior) | better (superior) | sends_less.
        row: label of the row of which something is claimed.
        other: label of the row that it is compared with.
        margin: for as_good, what may be lost, in the metric's unit; else 0.
        least: for sends_less, the least ratio of floats sent; else 1.
        paper: numbers of the paper's claims that this is the twin of.
    """

    group: str
    kind: str
    row: str
    other: str
    margin: float = 0.0
    least: float = 1.0
    paper: tuple[int, ...] = ()


def parse_claims(items: object, rows: Sequence[tuple[str, str]], where: str) -> tuple[Claim, ...]:
    """The claims that a table's key lists; rows are its (group, label).

    Raises:
        UserError: an item is not as above, or names a row that the table does not have.
    """
    if not isinstance(items, list):
        raise UserError(f"{where} must be a list, got {shown(items)}; each item compares two rows of one group")
    claims = tuple(_claim(item, rows, f"{where} item {index + 1}") for index, item in enumerate(items))
    for index, claim in enumerate(claims):
        if any(_same(claim, earlier) for earlier in claims[:index]):
            raise UserError(f"{where} item {index + 1} repeats an earlier one; leave one out")
    return claims


def _same(one: Claim, other: Claim) -> bool:
    return (one.group, one.kind, one.row, one.other) == (other.group, other.kind, other.row, other.other)


def _claim(item: object, rows: Sequence[tuple[str, str]], where: str) -> Claim:
    keys = keys_of(item, CLAIM_KEYS, ("group",), where)
    kinds = [kind for kind in KINDS if kind in keys]
    if len(kinds) != 1:
        raise UserError(f"{where} must have one of {', '.join(KINDS)}, got {', '.join(kinds) or 'none'}")
    kind, group = kinds[0], text(keys["group"], f"{where}: group")
    for key, owner in (("margin", "as_good"), ("least", "sends_less")):
        if (key in keys) != (kind == owner):
            raise UserError(f"{where}: {owner} needs {key}, and only that does; got {shown(dict(keys))}")
    row, other = _labels(keys[kind], group, rows, f"{where}: {kind}")
    return Claim(
        group=group,
        kind=kind,
        row=row,
        other=other,
        margin=_number(keys.get("margin", 0.0), 0.0, f"{where}: margin"),
        least=_number(keys.get("least", 1.0), 1.0, f"{where}: least"),
        paper=_numbers(keys.get("paper", []), f"{where}: paper"),
    )


def _labels(pair: object, group: str, rows: Sequence[tuple[str, str]], where: str) -> tuple[str, str]:
    """Two labels of rows of the group."""
    groups = list(dict.fromkeys(name for name, _ in rows))
    if group not in groups:
        raise UserError(f"{where}: no group {group!r}{closest(group, groups) or ';'} there are: {', '.join(groups)}")
    if not isinstance(pair, list) or len(pair) != 2 or pair[0] == pair[1]:
        raise UserError(f"{where} must be the labels of two rows, got {shown(pair)}; write [Accordion, rank 4]")
    labels = [label for name, label in rows if name == group]
    for label in pair:
        if label not in labels:
            near = closest(str(label), labels) or ";"
            raise UserError(f"{where}: group {group!r} has no row {label!r}{near} it has: {', '.join(labels)}")
    return pair[0], pair[1]


def _number(value: object, least: float, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not least <= value < math.inf:
        raise UserError(f"{where} must be a finite number >= {least:g}, got {shown(value)}")
    return float(value)


def _numbers(value: object, where: str) -> tuple[int, ...]:
    if not isinstance(value, list) or not all(type(number) is int and number > 0 for number in value):
        raise UserError(f"{where} must be a list of numbers of the paper's claims, got {shown(value)}; write [25, 26]")
    return tuple(value)
