"""YAML means what the command line means, and no text is more than one line of trouble."""

from __future__ import annotations

import math

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from accordion_bench.config.compose import compose_values
from accordion_bench.config.plain_yaml import NotYaml, dump_yaml, load_yaml

WORDS = [
    "010",
    "0",
    "-3",
    "+3",
    "1_000",
    "1__0",
    "_1",
    "1:30",
    "1:30.5",
    "0x1F",
    "0o17",
    "0b11",
    ".5",
    "5.",
    "1e3",
    "1E-3",
]
WORDS += [
    "-.5e2",
    "1_0.5",
    "on",
    "off",
    "yes",
    "no",
    "y",
    "n",
    "true",
    "True",
    "false",
    "FALSE",
    "null",
    "2026-01-02",
    "inf",
]
WORDS += ["-inf", "nan", "0.1", "01.5", "00", "1.0e-05", "e3", "abc"]


@pytest.mark.parametrize("word", WORDS)
def test_a_plain_word_is_what_it_is_on_the_command_line(word: str) -> None:
    typed = compose_values([f"+scheduler.word={word}"])["scheduler"]["word"]
    written = load_yaml(f"word: {word}\nlist: [{word}]")
    for value in (written["word"], *written["list"]):
        assert type(value) is type(typed)
        assert value == typed or (math.isnan(value) and math.isnan(typed))


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from(WORDS),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


def _same(a: object, b: object) -> bool:
    if isinstance(a, dict) and isinstance(b, dict):
        return list(a) == list(b) and all(_same(a[key], b[key]) for key in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(_same, a, b))
    return type(a) is type(b) and (a == b or (a != a and b != b))


@given(PLAIN)
def test_what_is_written_is_read_back_by_this_and_by_any_other_reader(value: object) -> None:
    text = dump_yaml(value)
    assert _same(load_yaml(text), value)
    assert _same(yaml.safe_load(text), value)


@pytest.mark.parametrize(
    "text",
    [
        *("[" * 100_000, "{a: " * 100_000, "- " * 50_000 + "a", "? " * 50_000, "[" * 101 + "]" * 101 + "x"),
        *(
            "a: " + "9" * 10_000,
            "a: [1, 2",
            "a: b: c",
            "\x00",
            "!!python/object/apply:os.system ['true']",
            "a: !!int x",
        ),
        *("{[]: 1}", "a: !!timestamp 2026-13-45", "%YAML 9", "a: *b", "{{}: 1}", "\ud800"),
    ],
    ids=lambda text: repr(text[:12]),
)
def test_what_cannot_be_read_is_one_line(text: str) -> None:
    with pytest.raises(NotYaml) as caught:
        load_yaml(text)
    assert 0 < len(str(caught.value)) < 200
    assert "\n" not in str(caught.value)


@given(st.text())
def test_any_text_is_a_value_or_one_line(text: str) -> None:
    try:
        load_yaml(text)
    except NotYaml as error:
        assert "\n" not in str(error)
