"""Records that were cut, edited or spoilt: named in the table, never a number, never the end of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from report_records import edit_json, one_row, results, write_run

from accordion_bench.report.tables.make import make_tables
from accordion_bench.runs.stored import FinishedRun, Problem, read_run


def damage_lines(change: Callable[[list[str]], list[str]]) -> Callable[[Path], object]:
    def damage(run: Path) -> object:
        path = run / "epochs.jsonl"
        return path.write_text("".join(change(path.read_text().splitlines(keepends=True))))

    return damage


def edit_line(number: int, **changes: object) -> Callable[[Path], object]:
    def edited(lines: list[str]) -> list[str]:
        lines[number] = json.dumps(json.loads(lines[number]) | changes) + "\n"
        return lines

    return damage_lines(edited)


DAMAGE: dict[str, tuple[Callable[[Path], object], str, str]] = {
    "epoch missing": (
        damage_lines(lambda lines: lines[:1] + lines[2:]),
        "damaged",
        "epochs.jsonl line 2 must be epoch 1, got 2",
    ),
    "last epoch missing": (damage_lines(lambda lines: lines[:-1]), "incomplete", "counts 3 epochs, epochs.jsonl has 2"),
    "torn last line": (damage_lines(lambda lines: [*lines[:-1], lines[-1][:20]]), "incomplete", "has 2"),
    "epoch twice": (damage_lines(lambda lines: lines[:2] + lines[1:]), "damaged", "line 3 must be epoch 2, got 1"),
    "no epochs": (lambda run: (run / "epochs.jsonl").unlink(), "incomplete", "has 0"),
    "garbage in a line": (damage_lines(lambda lines: ["{\n", *lines]), "damaged", "line 1 is not an epoch record"),
    "key missing in a line": (
        damage_lines(lambda lines: ['{"epoch":0}\n', *lines[1:]]),
        "damaged",
        "line 1 is not an epoch",
    ),
    "traffic a number": (edit_line(1, traffic=3), "damaged", "holds a record that is not one"),
    "seconds a text": (edit_line(1, seconds={"compute": "long"}), "damaged", "holds a record that is not one"),
    "metric gone": (edit_line(2, metrics={"loss": 1.0}), "damaged", "holds a record that is not one (KeyError"),
    "metric a text": (edit_line(2, metrics={"accuracy": "high"}), "damaged", "holds a record that is not one"),
    "accuracy improved in a line": (
        edit_line(2, metrics={"accuracy": 99.0}),
        "damaged",
        "says final 70.0, epochs.jsonl says 99.0",
    ),
    "accuracy improved": (
        lambda run: edit_json(run / "summary.json", final=99.0),
        "damaged",
        "summary.json says final 99.0",
    ),
    "traffic reduced": (
        lambda run: edit_json(run / "summary.json", paper_floats=1.0),
        "damaged",
        "says paper_floats 1.0",
    ),
    "time reduced": (
        lambda run: edit_json(run / "summary.json", training_seconds=1.0),
        "damaged",
        "says training_seconds",
    ),
    "level outside the ladder": (edit_line(1, level_index_L=[0, 2, 0]), "damaged", "epoch 1: level_index_L [0, 2, 0]"),
    "level a text": (edit_line(1, level_index_L="abc"), "damaged", "do not fit a ladder of 2"),
    "layer lost": (edit_line(1, level_index_L=[0]), "damaged", "do not fit a ladder of 2"),
    "batch of nothing": (edit_line(1, batch_multiple=0), "damaged", "batch_multiple 0"),
    "another schema": (
        lambda run: edit_json(run / "summary.json", schema=2),
        "damaged",
        "has schema 2, this program reads 1",
    ),
    "no schema": (lambda run: (run / "summary.json").write_text("{}"), "damaged", "has schema None"),
    "unknown key": (lambda run: edit_json(run / "summary.json", note="x"), "damaged", "'note' is unknown"),
    "wrong type": (
        lambda run: edit_json(run / "summary.json", epochs="3"),
        "damaged",
        "epochs must be of type int, got '3'",
    ),
    "truth for a number": (
        lambda run: edit_json(run / "summary.json", final=True),
        "damaged",
        "final must be of type float",
    ),
    "not finite": (lambda run: edit_json(run / "summary.json", final=float("nan")), "diverged", "accuracy nan"),
    "summary cut": (
        lambda run: (run / "summary.json").write_text('{"epo'),
        "damaged",
        "summary.json is not valid JSON",
    ),
    "summary a list": (lambda run: (run / "summary.json").write_text("[]"), "damaged", "must hold a JSON object"),
    "summary not text": (lambda run: (run / "summary.json").write_bytes(b"\xff\xfe"), "damaged", "not valid JSON"),
    "summary a folder": (
        lambda run: ((run / "summary.json").unlink(), (run / "summary.json").mkdir()),
        "damaged",
        "summary",
    ),
    "no configuration": (lambda run: (run / "config.yaml").unlink(), "damaged", "config.yaml is missing"),
    "bad configuration": (
        lambda run: (run / "config.yaml").write_text("a: ["),
        "damaged",
        "config.yaml is not valid YAML",
    ),
    "other configuration": (
        lambda run: (run / "config.yaml").write_text("a: 1"),
        "damaged",
        "not a run's configuration",
    ),
    "interrupted": (lambda run: (run / "summary.json").unlink(), "unfinished", "3 epochs recorded"),
}


@pytest.mark.parametrize("case", DAMAGE)
def test_a_damaged_run_is_named_and_the_table_stands(tmp_path: Path, case: str):
    damage, state, message = DAMAGE[case]
    table, rows = one_row(tmp_path, [[50.0, 60.0, 70.0], [50.0, 60.0, 80.0]])
    damage(rows[0].directories[1])
    (result,) = results(table, rows)
    assert [run.seed for run in result.runs] == [2]
    assert result.estimates["metric"].mean == 80.0
    (problem,) = result.problems
    assert (problem.seed, problem.state) == (1, state)
    assert message in problem.message
    (text,) = make_tables([(table, rows)], output=tmp_path / "out")
    assert f"{state}: net rank 1 seed 1 (" in text.text or f"{state} (1 of 2 seeds)" in text.text
    assert str(tmp_path) not in text.text


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
FIELDS = ["epochs", "updates", "metric", "higher_is_better", "final", "paper_floats", "workers", "schema"]
KEYS = ["epoch", "updates", "metrics", "traffic", "seconds", "level_index_L", "norms_L", "skipped", "loss", "extra"]


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(field=st.sampled_from(FIELDS), value=JSON, key=st.sampled_from(KEYS), other=JSON, both=st.booleans())
def test_no_content_of_a_record_is_an_error(
    tmp_path: Path, field: str, value: object, key: str, other: object, both: bool
):
    directory = tmp_path / "runs" / "run" / "seed-1"
    if not directory.exists():
        write_run(directory, [50.0, 60.0])
        for name in ("summary.json", "epochs.jsonl"):
            (tmp_path / name).write_text((directory / name).read_text())
    for name in ("summary.json", "epochs.jsonl"):
        (directory / name).write_text((tmp_path / name).read_text())
    edit_json(directory / "summary.json", **{field: value})
    if both:
        edit_line(1, **{key: other})(directory)
    assert isinstance(read_run(directory, 1), (FinishedRun, Problem))
