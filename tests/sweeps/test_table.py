"""Table files: what they may say, and one line for everything that they may not."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from accordion_bench.errors import UserError
from accordion_bench.sweeps.table import Table, load_table, parse_table, parse_text, table_names

GOOD: dict[str, Any] = {
    "title": "Accordion with PowerSGD on CIFAR-10",
    "number": 1,
    "scale": "paper",
    "seeds": [1, 2, 3],
    "base": ["dataset=cifar10"],
    "rows": [
        {
            "group": "ResNet-18",
            "label": "rank 2",
            "role": "low",
            "overrides": ["model=resnet18", "compressor.levels=[2]"],
            "published": {"table": 1, "dataset": "CIFAR-10", "network": "ResNet-18", "level": "rank2"},
        },
        {"group": "ResNet-18", "label": "rank 1", "role": "high", "overrides": ["compressor.levels=[1]"]},
    ],
}


def changed(change: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    mapping = copy.deepcopy(GOOD)
    change(mapping)
    return mapping


def test_a_good_table_is_read_whole():
    table = parse_text("mine", yaml.safe_dump(GOOD))
    assert (table.name, table.number, table.scale, table.seeds) == ("mine", 1, "paper", (1, 2, 3))
    assert table.base == ("dataset=cifar10",)
    assert [row.id for row in table.rows] == ["ResNet-18/rank 2", "ResNet-18/rank 1"]
    assert table.rows[0].published["level"] == "rank2"
    assert table.rows[1].published == {}


def test_base_number_and_published_may_be_left_out():
    table = parse_table("mine", changed(lambda table: (table.pop("base"), table.pop("number"))))
    assert (table.base, table.number) == ((), None)


BAD: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "unknown key": (lambda t: t.update(seed=[1]), r"unknown key 'seed'; did you mean seeds\? there are: title, number"),
    "unknown row key": (
        lambda t: t["rows"][1].update(lable="x"),
        r"row 2 has an unknown key 'lable'; did you mean label",
    ),
    "row key missing": (lambda t: t["rows"][1].pop("role"), "row 2 lacks the key 'role'"),
    "title missing": (lambda t: t.pop("title"), "lacks the key 'title'"),
    "title a number": (lambda t: t.update(title=4), "title must be one line of text, got 4"),
    "title of two lines": (lambda t: t.update(title="a\nb"), "title must be one line of text"),
    "label a number": (lambda t: t["rows"][0].update(label=512), "row 1: label must be one line of text, got 512"),
    "label empty": (lambda t: t["rows"][0].update(label=" "), "row 1: label must be one line"),
    "number a text": (lambda t: t.update(number="one"), "number must be a whole number or null, got 'one'"),
    "number a truth": (lambda t: t.update(number=True), "number must be a whole number or null, got True"),
    "no seeds": (lambda t: t.update(seeds=[]), r"seeds must be a list of one whole number or more, got \[\]"),
    "one seed bare": (lambda t: t.update(seeds=1), "seeds must be a list"),
    "seed a text": (lambda t: t.update(seeds=["1"]), "seeds must be whole numbers >= 0, got '1'"),
    "seed negative": (lambda t: t.update(seeds=[-1]), "seeds must be whole numbers >= 0, got -1"),
    "no rows": (lambda t: t.update(rows=[]), r"rows must be a list of one row or more, got \[\]"),
    "rows a mapping": (lambda t: t.update(rows={"a": 1}), "rows must be a list"),
    "row a text": (lambda t: t.update(rows=["resnet18"]), "row 1 must be a mapping with the keys group, label"),
    "row twice": (lambda t: t["rows"].append(t["rows"][0]), "the row 'ResNet-18/rank 2' twice"),
    "row renamed": (lambda t: t["rows"].append(t["rows"][1] | {"label": "x"}), "have the same overrides"),
    "two baselines": (lambda t: t["rows"][1].update(role="low"), "two rows with role low"),
    "unknown role": (
        lambda t: t["rows"][0].update(role="lo"),
        r"role must be one of low, .*, got 'lo'; did you mean low",
    ),
    "overrides a text": (lambda t: t["rows"][0].update(overrides="a=b"), "overrides must be a list of overrides"),
    "override without value": (
        lambda t: t["rows"][0].update(overrides=["model"]),
        "overrides like key=value, got 'model'",
    ),
    "override a mapping": (
        lambda t: t["rows"][0].update(overrides=[{"model": 1}]),
        "overrides like key=value, got {'mo",
    ),
    "seed in a row": (lambda t: t["rows"][0].update(overrides=["seed=3"]), "must not set the seed, got 'seed=3'"),
    "seed in base": (lambda t: t.update(base=["+seed=3"]), "base must not set the seed"),
    "published unknown": (lambda t: t["rows"][0]["published"].update(net="x"), "published has an unknown key 'net'"),
    "published incomplete": (lambda t: t["rows"][0]["published"].pop("level"), "published lacks the key 'level'"),
    "published a list": (lambda t: t["rows"][0]["published"].update(level=[1]), "published.level must be text"),
    "published a text": (lambda t: t["rows"][0].update(published="Table 1"), "published must be a mapping"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_wrong_table_is_refused_in_one_line(case: str):
    change, message = BAD[case]
    with pytest.raises(UserError, match=message) as caught:
        parse_table("mine", changed(change))
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith("table mine")


@pytest.mark.parametrize(
    "text", ["", "3", "- a", "title: [", "a: b: c", "\x00", "? [a]: b", "&a [*a]", "title: !!python/none x"]
)
def test_text_that_is_no_table_is_refused_in_one_line(text: str):
    with pytest.raises(UserError, match="table mine") as caught:
        parse_text("mine", text)
    assert "\n" not in str(caught.value)


def test_a_user_s_own_file_is_found_by_its_path(tmp_path: Path):
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump(GOOD))
    table = load_table(path)
    assert (table.name, table.given) == ("mine", str(path))


def test_files_that_cannot_be_read_are_named(tmp_path: Path):
    with pytest.raises(UserError, match=r"nowhere\.yaml cannot be read: No such file"):
        load_table(tmp_path / "nowhere.yaml")
    (tmp_path / "latin.yaml").write_bytes("title: é".encode("latin-1"))
    with pytest.raises(UserError, match="not UTF-8"):
        load_table(tmp_path / "latin.yaml")


def test_an_unknown_name_lists_the_tables():
    with pytest.raises(UserError, match=r"no table 'nothing'.* there are: .* or a path to your own \.yaml"):
        load_table("nothing")


def test_numbered_tables_come_first():
    names = table_names()
    numbers = [int(name) for name in names if name.isdigit()]
    assert names[: len(numbers)] == [str(number) for number in sorted(numbers)]


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.floats(allow_nan=False) | st.text(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*GOOD, "group", "label"]), inner, max_size=4)
    ),
    max_leaves=8,
)


def accepted_or_one_line(parse: Callable[[], Table]) -> bool:
    """Whether parse gives a table or a message of one line; any other error passes through."""
    try:
        return isinstance(parse(), Table)
    except UserError as error:
        return len(str(error).splitlines()) == 1


@settings(max_examples=60)
@given(key=st.sampled_from(list(GOOD)), value=PLAIN)
def test_any_value_gives_a_table_or_one_line(key: str, value: object):
    assert accepted_or_one_line(lambda: parse_table("mine", copy.deepcopy(GOOD) | {key: value}))


@settings(max_examples=60)
@given(key=st.sampled_from(["group", "label", "role", "overrides", "published", "x"]), value=PLAIN)
def test_any_value_in_a_row_gives_a_table_or_one_line(key: str, value: object):
    mapping = changed(lambda table: table["rows"][1].update({key: value}))
    assert accepted_or_one_line(lambda: parse_table("mine", mapping))


@settings(max_examples=60)
@given(text=st.text(max_size=60))
def test_any_text_gives_a_table_or_one_line(text: str):
    assert accepted_or_one_line(lambda: parse_text("mine", text))
