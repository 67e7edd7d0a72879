"""What lies in a run's directory is damaged, torn, edited or swapped: it recovers, or is refused with the reason."""

from __future__ import annotations

import hashlib
import io
import json
import os
import pickle
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import faults
import pytest
import torch

from accordion_bench.runs import checkpoint

ALWAYS = "checkpoint.minutes=0"  # five checkpoints an epoch: after each update but the last, and at its end
SAVES_IN_TWO_EPOCHS = 10


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the small run leaves."""
    folder = tmp_path_factory.mktemp("undisturbed")
    code, said = faults.run(folder, *faults.SMALL)
    assert code == 0, said
    return faults.content_of(faults.directory_of(folder))


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The small run, killed when it had just saved the end of its second epoch; the one before is in its middle."""
    folder = tmp_path_factory.mktemp("killed")
    code, said = faults.run(folder, *faults.SMALL, ALWAYS, before=partial(faults.die_after_saves, SAVES_IN_TWO_EPOCHS))
    assert code == -9, said
    return folder


@pytest.fixture
def folder(tmp_path: Path, killed: Path) -> Path:
    """A copy of the killed run for one test."""
    return shutil.copytree(killed, tmp_path / "copy")


def flip(path: Path, place: int) -> None:
    """Change one byte."""
    content = bytearray(path.read_bytes())
    content[place] ^= 255
    path.write_bytes(bytes(content))


def continued(folder: Path) -> str:
    """Continue to the end; what was said."""
    code, said = faults.run(folder, *faults.SMALL, ALWAYS)
    assert code == 0, said
    return said


def refused(folder: Path, *overrides: str) -> str:
    """Try to continue, and see that it is refused without touching anything; the line that says why."""
    directory = faults.directory_of(folder)
    before = {path.name: path.read_bytes() for path in directory.iterdir() if path.name != "lock"}
    code, said = faults.run(folder, *faults.SMALL, ALWAYS, *overrides)
    assert code == 2, said
    assert {path.name: path.read_bytes() for path in directory.iterdir() if path.name != "lock"} == before
    (line,) = (line for line in said.splitlines() if line.startswith("accordion-bench: "))
    return line


def test_nothing_is_damaged(folder: Path, undisturbed: dict[str, Any]) -> None:
    assert "warning" not in continued(folder)
    assert faults.content_of(faults.directory_of(folder)) == undisturbed


@pytest.mark.parametrize("harm", ["flip", "cut", "empty", "missing"])
def test_a_damaged_checkpoint_gives_way_to_the_one_before(folder: Path, undisturbed: dict[str, Any], harm: str) -> None:
    current = faults.directory_of(folder) / "checkpoint.pt"
    if harm == "flip":
        flip(current, current.stat().st_size // 2)
    elif harm == "missing":
        current.unlink()
    else:
        os.truncate(current, 0 if harm == "empty" else current.stat().st_size - 1)
    said = continued(folder)
    assert "epoch 2" in said
    assert "will be repeated" in said
    if harm != "missing":
        assert f"warning: {current.relative_to(folder)} is damaged or truncated" in said
    assert faults.content_of(faults.directory_of(folder)) == undisturbed


def test_without_a_whole_checkpoint_the_run_starts_afresh_and_says_what_it_repeats(
    folder: Path, undisturbed: dict[str, Any]
) -> None:
    for name in checkpoint.NAMES:
        flip(faults.directory_of(folder) / name, 0)
    said = continued(folder)
    assert "the run starts afresh and repeats epochs 1 to 2" in said
    assert faults.content_of(faults.directory_of(folder)) == undisturbed


class Opens:
    """Pickles into a call of open(...): what somebody might try who can write to a results directory."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return open, (self.path, "w")


def test_no_pickle_in_a_checkpoint_is_executed(folder: Path, undisturbed: dict[str, Any]) -> None:
    for name, payload in zip(checkpoint.NAMES, _evil_payloads(str(folder / "executed")), strict=True):
        head = checkpoint.MAGIC + hashlib.sha256(payload).digest()
        (faults.directory_of(folder) / name).write_bytes(head + payload)
    assert "the run starts afresh" in continued(folder)
    assert not (folder / "executed").exists()
    assert faults.content_of(faults.directory_of(folder)) == undisturbed


def _evil_payloads(path: str) -> tuple[bytes, bytes]:
    buffer = io.BytesIO()
    torch.save({"shared": Opens(path)}, buffer)
    (made := Path(path)).unlink(missing_ok=True)
    assert not made.exists()
    return buffer.getvalue(), pickle.dumps(Opens(path))


@pytest.mark.parametrize("harm", ["torn", "lost", "shorter", "garbled"])
def test_records_that_are_lost_or_damaged_come_back_from_the_checkpoint(
    folder: Path, undisturbed: dict[str, Any], harm: str
) -> None:
    path = faults.directory_of(folder) / "epochs.jsonl"
    first, second = path.read_text().splitlines(keepends=True)
    if harm == "lost":
        path.unlink()
    else:
        path.write_text({"torn": first + second[:77], "shorter": first, "garbled": "}{\n" + second}[harm])
    said = continued(folder)
    if harm in ("lost", "shorter"):
        assert "restored from the checkpoint" in said
    assert faults.content_of(faults.directory_of(folder)) == undisturbed


def test_records_after_the_checkpoint_are_repeated(folder: Path, undisturbed: dict[str, Any]) -> None:
    path = faults.directory_of(folder) / "epochs.jsonl"
    record = json.loads(path.read_text().splitlines()[-1])
    with open(path, "a") as file:
        file.write(json.dumps(record | {"epoch": 2}) + "\n")
    assert "epoch 3 after the last checkpoint will be repeated" in continued(folder)
    assert faults.content_of(faults.directory_of(folder)) == undisturbed


def test_an_edited_record_is_refused_with_the_epoch_and_the_key(folder: Path) -> None:
    path = faults.directory_of(folder) / "epochs.jsonl"
    first, second = path.read_text().splitlines(keepends=True)
    path.write_text(json.dumps(json.loads(first) | {"loss": 0.1}) + "\n" + second)
    assert "epoch 1 differs from the checkpoint's in loss" in refused(folder)


@pytest.mark.parametrize(
    ("old", "new", "difference"),
    [
        ("epochs: 3\n", "epochs: 4\n", "epochs 4, not 3"),
        ("seed: 1\n", "seed: 7\n", "seed 7, not 1"),
        ("  momentum: 0.9\n", "  momentum: 0.8\n", "optimizer.momentum 0.8, not 0.9"),
        ("  limit_train: 320\n", "  limit_train: null\n", "dataset.limit_train None, not 320"),
    ],
)
def test_an_edited_configuration_is_refused_with_the_difference(
    folder: Path, old: str, new: str, difference: str
) -> None:
    path = faults.directory_of(folder) / "config.yaml"
    text = path.read_text()
    assert text.count(old) == 1
    path.write_text(text.replace(old, new))
    assert difference in refused(folder)


def test_a_configuration_that_cannot_be_read_is_refused(folder: Path) -> None:
    (faults.directory_of(folder) / "config.yaml").write_text("epochs: [3\n")
    assert "config.yaml" in refused(folder)


def test_a_checkpoint_of_another_run_is_refused_with_the_difference(folder: Path, tmp_path: Path) -> None:
    code, said = faults.run(tmp_path / "other", *faults.SMALL, "optimizer.momentum=0.5", "seed=3", "epochs=1")
    assert code == 0, said
    shutil.copy(faults.directory_of(tmp_path / "other") / "checkpoint.pt", faults.directory_of(folder))
    line = refused(folder)
    assert "epochs 1, not 3" in line
    assert "optimizer.momentum 0.5, not 0.9" in line
    assert "seed 3, not 1" in line


def test_other_data_than_the_checkpoints_is_refused(folder: Path) -> None:
    directory = faults.directory_of(folder)
    state = checkpoint.load(directory / "checkpoint.pt")
    state["data"]["train_labels"] = "0" * 16
    checkpoint.save(directory, state)
    line = refused(folder)
    assert "the data is not what" in line
    assert "train_labels 0000000000000000, not " in line


def test_what_changes_no_result_may_change(folder: Path, undisturbed: dict[str, Any]) -> None:
    code, said = faults.run(folder, *faults.SMALL, "checkpoint.minutes=5", "launch.timeout_s=60", "network=nvlink")
    assert code == 0, said
    assert faults.content_of(faults.directory_of(folder)) == undisturbed


def test_a_run_of_one_process_continues_in_four(folder: Path, undisturbed: dict[str, Any]) -> None:
    jobs = faults.start_members(folder, 4, *faults.SMALL)
    assert [job.wait() for job in jobs] == [0] * 4
    assert "continues after epoch 2" in jobs[0].said
    assert_close(faults.content_of(faults.directory_of(folder)), undisturbed)


def test_a_run_of_four_processes_continues_in_one(tmp_path: Path, undisturbed: dict[str, Any]) -> None:
    jobs = faults.start_members(tmp_path, 4, *faults.SMALL, ALWAYS, before=partial(faults.die_after_saves, 3))
    assert jobs[0].wait() == -9
    for job in jobs:
        job.terminate()
        job.wait()
    assert "continues within epoch 2" in continued(tmp_path)
    assert_close(faults.content_of(faults.directory_of(tmp_path)), undisturbed)


def assert_close(content: dict[str, Any], expected: dict[str, Any]) -> None:
    """The same run up to the order in which numbers were added."""
    assert content["config"] == expected["config"]
    assert_close_values(content["epochs"], expected["epochs"])
    assert_close_values(content["summary"], expected["summary"])


def assert_close_values(value: Any, expected: Any) -> None:
    if isinstance(expected, dict):
        assert list(value) == list(expected)
        value, expected = list(value.values()), list(expected.values())
    if isinstance(expected, list):
        assert len(value) == len(expected)
        for one, other in zip(value, expected, strict=True):
            assert_close_values(one, other)
    elif isinstance(expected, float):
        assert value == pytest.approx(expected, rel=1e-4)
    else:
        assert value == expected
