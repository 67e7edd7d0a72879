"""`accordion-bench verify` finds what was edited, however well the other files were made to fit."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import faults
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from accordion_bench.commands.cli import main
from accordion_bench.runs import checkpoint
from accordion_bench.runs.records import NAMES, RunDirectory
from accordion_bench.runs.verify import problems
from accordion_bench.runs.verify_plan import plan_problems
from accordion_bench.training.record import EpochRecord

RUNS = {
    "powersgd": (),
    "topk": ("compressor=topk",),
    "adacomp": ("compressor=adacomp",),
    "batch": ("compressor=none", "batch=accordion", "batch.multipliers=[2,1]"),
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Directories of finished runs."""
    made = {}
    for name, overrides in RUNS.items():
        folder = tmp_path_factory.mktemp(name)
        code, said = faults.run(folder, *faults.SMALL, *overrides)
        assert code == 0, said
        made[name] = faults.directory_of(folder)
    return made


@pytest.fixture
def copy(runs: dict[str, Path], tmp_path: Path) -> Path:
    """A PowerSGD run of one's own, below a results directory."""
    source = runs["powersgd"]
    return shutil.copytree(source, tmp_path / "runs" / source.parent.name / source.name)


@pytest.mark.parametrize("name", RUNS)
def test_nothing_is_wrong_with_what_the_program_leaves(runs: dict[str, Path], name: str) -> None:
    assert problems(runs[name]) == []
    assert plan_problems(runs[name]) == []


def edit(directory: Path, change: Callable[[list[EpochRecord]], list[EpochRecord]]) -> None:
    """Change the records, and make the summary fit, as somebody would who wants it to look right."""
    run = RunDirectory(directory)
    records = change(run.read_epochs())
    run.write_epochs(records)
    summary = run.read_json("summary.json")
    assert summary is not None
    summary |= {
        "epochs": len(records),
        "updates": sum(record.updates for record in records),
        "skipped": sum(record.skipped for record in records),
        "final": records[-1].metrics["accuracy"],
        "best": max(record.metrics["accuracy"] for record in records),
        "loss": records[-1].loss,
        "collectives": sum(record.traffic["mean"]["calls"] for record in records),
        "bytes_per_worker": sum(record.traffic["mean"]["bytes"] for record in records),
        "training_seconds": sum(
            value for record in records for name, value in record.seconds.items() if name != "evaluate"
        ),
    }
    summary["floats_per_worker"] = summary["paper_floats"] = summary["bytes_per_worker"] / 4
    run.write_json("summary.json", summary)


def in_last(**changes: Any) -> Callable[[list[EpochRecord]], list[EpochRecord]]:
    """Other values in the last epoch."""
    return lambda records: [*records[:-1], replace(records[-1], **changes)]


def half_the_traffic(records: list[EpochRecord]) -> list[EpochRecord]:
    """Half the floats in the last epoch."""
    mean = {name: value // 2 for name, value in records[-1].traffic["mean"].items()}
    return in_last(traffic=records[-1].traffic | {"mean": mean})(records)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda records: records[:-1], "finished, but epochs.jsonl has 2 of 3 epochs"),
        (in_last(updates=4), "epoch 3: 4 updates and 0 left out are not 5"),
        (in_last(learning_rate=0.3), "epoch 3: learning rate 0.3, scheduled 0.08"),
        (in_last(batch_multiple=2), "epoch 3: batch multiple 2 is none of [1]"),
        (in_last(extra={"skipped": [[0, "layer"]]}), "epoch 3: names more updates left out than it counts"),
        (half_the_traffic, "epoch 3: 1,832 floats in 5 collectives on record, 3,665 in 10 planned"),
        (in_last(level_index_L=(1, 1, 1, 1)), "epoch 3: 3,665 floats in 10 collectives on record, 6,480 in 10 planned"),
        (
            lambda records: [replace(records[0], norms_L=tuple(9 * n for n in records[0].norms_L)), *records[1:]],
            "epoch 3: other levels on record than accordion chooses from the recorded norms",
        ),
    ],
)
def test_edited_records_are_found_though_the_summary_fits(
    copy: Path, change: Callable[[list[EpochRecord]], list[EpochRecord]], complaint: str
) -> None:
    edit(copy, change)
    found = problems(copy) or plan_problems(copy)
    assert found[:1] == [complaint], found


def test_another_configuration_or_seed_than_the_name_says_is_found(copy: Path) -> None:
    path = copy / "config.yaml"
    path.write_text(path.read_text().replace("momentum: 0.9", "momentum: 0.5").replace("seed: 1\n", "seed: 2\n"))
    first, second = problems(copy)
    assert first.startswith("config.yaml makes digits-smallcnn-powersgd-accordion-")
    assert first.endswith(f"not {copy.parent.name}")
    assert second == "config.yaml has seed 2, not 1"


@pytest.mark.parametrize("name", ["config.yaml", "environment.json"])
def test_a_missing_file_is_found(copy: Path, name: str) -> None:
    (copy / name).unlink()
    assert any(f"{name} is missing" in line for line in problems(copy))


@pytest.mark.parametrize(
    ("name", "text"),
    [("summary.json", "{"), ("environment.json", "[]"), ("epochs.jsonl", "{}\n"), ("config.yaml", ":")],
)
def test_a_file_that_is_none_is_one_line(copy: Path, name: str, text: str) -> None:
    (copy / name).write_text(text)
    assert len(problems(copy)) == 1


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_whatever_is_in_a_file_there_is_an_answer_in_lines(copy: Path, data: st.DataObject) -> None:
    path = copy / data.draw(st.sampled_from(NAMES[:4]))
    before = path.read_bytes()
    start = data.draw(st.integers(0, len(before)))
    stop = data.draw(st.integers(start, min(len(before), start + 40)))
    piece = data.draw(st.binary(max_size=8) | st.sampled_from([b"null", b"{}", b"[]", b"-1", b'"x"', b"1e999", b"NaN"]))
    path.write_bytes(before[:start] + piece + before[stop:])
    try:
        for line in problems(copy) or plan_problems(copy, data=False):
            assert line.strip()
            assert "\n" not in line
    finally:
        path.write_bytes(before)


def test_other_data_and_another_network_are_found(copy: Path) -> None:
    run = RunDirectory(copy)
    environment = run.read_json("environment.json")
    assert environment is not None
    run.write_json("environment.json", environment | {"data": environment["data"] | {"test_labels": "0" * 16}})
    assert "test_labels 0000000000000000, not" in plan_problems(copy)[0]
    assert plan_problems(copy, data=False) == []
    layers = environment["model"]["layers"]
    layers[0]["shape"][0] += 1
    run.write_json("environment.json", environment)
    assert "smallcnn has other layers now" in plan_problems(copy)[0]


def test_a_damaged_checkpoint_is_found(copy: Path) -> None:
    path = copy / checkpoint.NAMES[0]
    path.write_bytes(path.read_bytes()[:-1])
    assert plan_problems(copy) == ["checkpoint.pt is damaged"]


def test_an_interrupted_run_is_in_order_as_far_as_it_goes(tmp_path: Path) -> None:
    code, _ = faults.run(tmp_path, *faults.SMALL, "checkpoint.minutes=0", before=partial(faults.die_after_saves, 7))
    assert code == -9
    directory = faults.directory_of(tmp_path)
    assert problems(directory) == []
    assert plan_problems(directory) == []
    edit_line(directory, updates=3)
    assert problems(directory) == ["epoch 1: 3 updates and 0 left out are not 5"]


def edit_line(directory: Path, **changes: Any) -> None:
    """Change the first record alone."""
    run = RunDirectory(directory)
    first, *others = run.read_epochs()
    run.write_epochs([EpochRecord(**asdict(first) | changes), *others])


def test_the_command_names_every_problem_and_says_so_in_its_exit_code(
    copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = copy.parents[2]
    assert main(["verify", str(results)]) == 0
    assert capsys.readouterr().out == "1 run checked: nothing wrong\n"
    shutil.copytree(copy, copy.parent / "seed-2")
    assert main(["verify", str(results), "--quick"]) == 1
    output = capsys.readouterr().out.splitlines()
    assert output == [f"{copy.parent / 'seed-2'}: config.yaml has seed 1, not 2", "2 runs checked: 1 with problems"]
    assert main(["verify", str(copy)]) == 0
    assert main(["verify", str(copy / "nowhere")]) == 2
    assert "no run in" in capsys.readouterr().err


def test_tables_count_no_run_that_is_not_what_it_says(
    copy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    overrides = [override for override in faults.SMALL if not override.startswith("checkpoint")]
    row = {"group": "small", "label": "Accordion", "role": "other", "overrides": []}
    table = {"title": "Small", "number": None, "scale": "small", "seeds": [1], "base": overrides, "rows": [row]}
    (tmp_path / "small.yaml").write_text(json.dumps(table))
    command = ["tables", str(tmp_path / "small.yaml"), "--results", str(copy.parents[2])]
    accuracy = f"{RunDirectory(copy).read_epochs()[-1].metrics['accuracy']:.1f}"
    assert main(command) == 0
    assert accuracy in capsys.readouterr().out
    edit(copy, in_last(learning_rate=0.3))
    assert main(command) == 0
    output = capsys.readouterr().out
    assert accuracy not in output
    assert "not verified: epoch 3: learning rate 0.3, scheduled 0.08" in output
    assert main([*command, "--unverified"]) == 0
    assert accuracy in capsys.readouterr().out


def test_the_quick_check_does_without_torch(copy: Path) -> None:
    code = (
        "import sys; from accordion_bench.commands.cli import main; "
        f"code = main(['verify', '--quick', {str(copy)!r}]); print('torch' in sys.modules, code)"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.splitlines()[-1] == "False 0", json.dumps(answer.stderr)
