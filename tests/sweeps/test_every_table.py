"""Every table in conf/table: its runs keep the names by which stored results are found."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from places import REPOSITORY

from accordion_bench.config.compose import compose_all
from accordion_bench.config.parsing import from_mapping
from accordion_bench.sweeps.jobs import resolve
from accordion_bench.sweeps.table import DRAWINGS, load_table, table_names

NAMES = json.loads((REPOSITORY / "tests" / "golden" / "every_method.json").read_text(encoding="utf-8"))["names"]
OWN = [name for name in table_names() if not load_table(name).rows_of]
BORROWED = [name for name in table_names() if load_table(name).rows_of]


@pytest.mark.parametrize("name", OWN)
def test_runs_keep_their_names(name: str) -> None:
    rows = resolve(load_table(name))
    found = [str(directory) for row in rows for directory in row.directories.values()]
    assert len(set(found)) == len(found) or not name.startswith("fig"), "two curves would be one"
    assert sorted(found) == NAMES[name], "if that is meant: python tests/test_golden.py --write"


@pytest.mark.parametrize("name", BORROWED)
def test_rows_of_other_tables_are_the_same_runs(name: str) -> None:
    table = load_table(name)
    theirs = [load_table(other) for other in table.rows_of]
    assert [row.overrides for row in table.rows] == [(*own.base, *row.overrides) for own in theirs for row in own.rows]
    assert all(table.seeds == own.seeds for own in theirs)
    assert NAMES[name] == sorted(run for other in table.rows_of for run in NAMES[other])
    first = compose_all([table.rows[0].overrides], from_mapping)[0]
    assert {str(first.directory.parent)} < {str(Path(run).parent) for run in NAMES[name]}


@pytest.mark.parametrize("name", table_names())
def test_what_is_drawn_can_be_drawn(name: str) -> None:
    assert set(load_table(name).draw) <= set(DRAWINGS)
