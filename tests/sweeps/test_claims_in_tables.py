"""Claims in a table file: what is read, and what is refused in one line."""

from __future__ import annotations

from typing import Any

import pytest

from accordion_bench.errors import UserError
from accordion_bench.sweeps.claims import Claim, parse_claims
from accordion_bench.sweeps.table import load_table, parse_table, table_names

ROWS = [("A", "low"), ("A", "high"), ("B", "low")]
GOOD = {"group": "A", "as_good": ["high", "low"], "margin": 0.5}


def test_each_kind_is_read() -> None:
    items = [GOOD, {"group": "A", "better": ["low", "high"]}, {"group": "A", "sends_less": ["high", "low"], "least": 2}]
    assert parse_claims(items, ROWS, "claims") == (
        Claim("A", "as_good", "high", "low", margin=0.5),
        Claim("A", "better", "low", "high"),
        Claim("A", "sends_less", "high", "low", least=2.0),
    )


@pytest.mark.parametrize(
    ("items", "expected"),
    [
        ("words", "claims must be a list, got 'words'"),
        ([{"as_good": ["high", "low"]}], "claims item 1 lacks the key 'group'"),
        ([{"group": "A"}], "must have one of as_good, better, sends_less, got none"),
        ([{**GOOD, "better": ["low", "high"]}], "must have one of as_good, better, sends_less, got as_good, better"),
        ([{"group": "A", "as_good": ["high", "low"]}], "as_good needs margin"),
        ([{**GOOD, "least": 2}], "sends_less needs least"),
        ([{"group": "A", "better": ["low", "high"], "margin": 1}], "as_good needs margin, and only that does"),
        ([{**GOOD, "group": "C"}], "no group 'C'"),
        ([{**GOOD, "group": "B"}], "group 'B' has no row 'high'; it has: low"),
        ([{**GOOD, "as_good": ["hihg", "low"]}], "did you mean"),
        ([{**GOOD, "as_good": ["low"]}], "must be the labels of two rows"),
        ([{**GOOD, "as_good": ["low", "low"]}], "must be the labels of two rows"),
        ([{**GOOD, "margin": -1}], "margin must be a finite number >= 0, got -1"),
        ([{**GOOD, "margin": float("nan")}], "margin must be a finite number >= 0, got nan"),
        ([{**GOOD, "margin": True}], "margin must be a finite number >= 0, got True"),
        ([{"group": "A", "sends_less": ["high", "low"], "least": 0.5}], "least must be a finite number >= 1, got 0.5"),
        ([{**GOOD, "paper": [0]}], "paper must be a list of numbers of the paper's claims"),
        ([{**GOOD, "paper": 3}], "paper must be a list of numbers of the paper's claims"),
        ([GOOD, {**GOOD, "margin": 2}], "claims item 2 repeats an earlier one"),
    ],
)
def test_a_wrong_claim_is_refused_in_one_line(items: Any, expected: str) -> None:
    with pytest.raises(UserError) as refused:
        parse_claims(items, ROWS, "claims")
    assert expected in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_table_file_holds_its_claims() -> None:
    rows = [
        {"group": "A", "label": name, "role": role, "overrides": [f"epochs={index}"]}
        for index, (name, role) in enumerate([("l", "low"), ("h", "high")])
    ]
    keys = {"title": "t", "scale": "s", "seeds": [1], "rows": rows}
    assert parse_table("mine", keys).claims == ()
    claimed = parse_table("mine", {**keys, "claims": [{"group": "A", "better": ["l", "h"]}]})
    assert claimed.claims == (Claim("A", "better", "l", "h"),)


@pytest.mark.parametrize("name", [name for name in table_names() if load_table(name).claims])
def test_every_claim_of_accordion_says_what_it_keeps_and_what_it_saves(name: str) -> None:
    table = load_table(name)
    kinds = {(claim.group, claim.kind) for claim in table.claims}
    accordions = {row.group for row in table.rows if row.role == "accordion"}
    assert {(group, kind) for group in accordions for kind in ("as_good", "better", "sends_less")} <= kinds
