"""An interrupted run continues bit for bit, in any placement; a damaged checkpoint is never taken for a whole one."""

from __future__ import annotations

import functools
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from processes import run_processes
from small_trainer import Setting, make_trainer, parameters_of, setting_of
from torch import Tensor

from accordion_bench.compressors import COMPRESSORS
from accordion_bench.runs import checkpoint
from accordion_bench.schedulers import SCHEDULERS
from accordion_bench.training.record import EpochRecord
from accordion_bench.training.state import restore, shared_state, worker_state
from accordion_bench.training.trainer import Trainer

EPOCHS = 3
SCHEDULER_SETTINGS: dict[str, dict[str, Any]] = {
    "accordion": {"interval": 1},
    "adabatch": {"interval": 1},
    "adaqs": {"interval": 1},
    "auto_ladder": {},
    "budget": {"reference_epochs": 2, "reference_index": 0},
    "hessian": {"interval": 1},
    "lgreco": {},
    "manual": {"ranges": [{"from": 1, "until": 2, "index": 0, "batch_index": 0}]},
    "smith": {},
    "static": {},
}


def _compressor_setting(name: str) -> Setting:
    """With a change of level in the middle where there is a ladder."""
    own = setting_of(name, epochs=EPOCHS, batch=10)
    if len(own.levels) < 2:
        return own
    return replace(own, scheduler="manual", scheduler_settings={"ranges": [{"from": 1, "until": 2, "index": 0}]})


def _scheduler_setting(name: str) -> Setting:
    own = setting_of("powersgd", epochs=EPOCHS, batch=10, multiples=(2, 1))
    if name == "adaqs":
        own = replace(own, multiples=(1,))
    return replace(own, scheduler=name, scheduler_settings=SCHEDULER_SETTINGS[name])


SETTINGS = {f"compressor {name}": _compressor_setting(name) for name in COMPRESSORS} | {
    f"scheduler {name}": _scheduler_setting(name) for name in SCHEDULERS
}
SETTINGS["aggregated statistic"] = replace(SETTINGS["scheduler accordion"], statistic="aggregated", clip_norm=0.3)


class Stop(Exception):
    """Ends training between two updates."""


def _train(trainer: Trainer, stop: tuple[int, int] | None = None) -> list[EpochRecord]:
    """To the end, or until `stop` = (epoch, updates done in it)."""

    def after_update(done: int, total: int) -> None:
        if (trainer.position, done) == stop:
            raise Stop

    trainer.after_update = after_update
    records: list[EpochRecord] = []
    try:
        for record in trainer.epochs():
            records.append(record)
            if stop == (trainer.position, 0):
                break
    except Stop:
        pass
    return records


def _state(trainer: Trainer) -> dict[str, Any]:
    workers = [checkpoint.detached(worker_state(trainer, h)) for h in range(trainer.communicator.hosted)]
    everyone = trainer.communicator.objects(workers)
    return {"shared": shared_state(trainer), "workers": [state for part in everyone for state in part]}  # type: ignore[attr-defined]


def _continue(setting: Setting, path: Path, process: int = 0, processes: int = 1) -> Trainer:
    """A fresh trainer at the checkpoint."""
    trainer = make_trainer(setting, process, processes)
    state = checkpoint.load(path)
    restore(trainer, state["shared"], [state["workers"][worker] for worker in trainer.communicator.hosted_workers])
    return trainer


def _assert_same(one: Any, other: Any, where: str = "") -> None:
    """Equal bit for bit, what is measured in seconds aside."""
    if isinstance(one, dict):
        assert one.keys() == other.keys(), where
        for key in one:
            if "seconds" not in key and key != "time":
                _assert_same(one[key], other[key], f"{where}/{key}")
    elif isinstance(one, (list, tuple)):
        assert len(one) == len(other), where
        for place, (left, right) in enumerate(zip(one, other, strict=True)):
            _assert_same(left, right, f"{where}/{place}")
    elif isinstance(one, Tensor):
        assert torch.equal(one, other), where
    else:
        assert one == other, where


@pytest.mark.parametrize("name", SETTINGS)
def test_an_interrupted_run_continues_bit_for_bit(name: str, tmp_path: Path) -> None:
    """Between two epochs, in the middle of one, and in the middle of the next, each time from the file."""
    setting = SETTINGS[name]
    whole = make_trainer(setting)
    expected = _train(whole)
    records: list[EpochRecord] = []
    trainer = make_trainer(setting)
    for stop in ((0, 1), (1, 0), (1, 1), (2, 1)):
        records += _train(trainer, stop)
        state = _state(trainer)
        checkpoint.save(tmp_path, state)
        assert trainer.position == stop[0]
        trainer = _continue(setting, tmp_path / "checkpoint.pt")
        _assert_same(checkpoint.detached(_state(trainer)), checkpoint.detached(state), f"after {stop}")
    records += _train(trainer)
    assert len(records) == len(expected)
    for one, other in zip(records, expected, strict=True):
        _assert_same(vars(one), vars(other), f"epoch {other.epoch}")
    _assert_same(_state(trainer), _state(whole), "end")


ELSEWHERE = ("compressor powersgd", "compressor topk", "compressor randomk", "compressor dgc", "scheduler accordion")


def _start_elsewhere(process: int, processes: int, folder: Path) -> None:
    for name in ELSEWHERE:
        trainer = make_trainer(SETTINGS[name], process, processes)
        _train(trainer, (1, 1))
        state = _state(trainer)
        if process == 0:
            (folder / name).mkdir()
            checkpoint.save(folder / name, state)


def _finish_elsewhere(process: int, processes: int, folder: Path) -> dict[str, Tensor]:
    results = {}
    for name in ELSEWHERE:
        trainer = _continue(SETTINGS[name], folder / name / "checkpoint.pt", process, processes)
        _train(trainer)
        results[name] = parameters_of(trainer)
    return results


@pytest.mark.parametrize(("before", "after"), [(1, 4), (4, 2), (2, 1)])
def test_a_run_continues_in_another_placement(before: int, after: int, tmp_path: Path) -> None:
    if before == 1:
        _start_elsewhere(0, 1, tmp_path)
    else:
        run_processes(before, _start_elsewhere, tmp_path)
    answers = [_finish_elsewhere(0, 1, tmp_path)] if after == 1 else run_processes(after, _finish_elsewhere, tmp_path)
    for name in ELSEWHERE:
        for answer in answers:
            torch.testing.assert_close(answer[name], _undisturbed(name), rtol=0, atol=1e-11, msg=name)


@functools.cache
def _undisturbed(name: str) -> Tensor:
    whole = make_trainer(SETTINGS[name])
    _train(whole)
    return parameters_of(whole)


STATE = {
    "numbers": torch.arange(3000.0),
    "nested": {"list": [1, 2.5, None, "x", torch.ones(2, 2, dtype=torch.float64)]},
}


def test_what_is_loaded_is_what_was_saved_and_shares_no_memory(tmp_path: Path) -> None:
    big = torch.zeros(1_000_000)
    checkpoint.save(tmp_path, STATE | {"view": big[10:20]})
    _assert_same(checkpoint.load(tmp_path / "checkpoint.pt"), STATE | {"view": torch.zeros(10)})
    assert (tmp_path / "checkpoint.pt").stat().st_size < 100_000  # the view did not drag its buffer along


def test_a_file_truncated_anywhere_is_damaged_and_never_garbage(tmp_path: Path) -> None:
    checkpoint.save(tmp_path, STATE)
    path = tmp_path / "checkpoint.pt"
    content = path.read_bytes()
    for length in [*range(0, len(content), 1024), 5, 11, 40, 42, 43, 44, len(content) - 1]:
        path.write_bytes(content[:length])
        with pytest.raises(checkpoint.DamagedCheckpoint, match=r"checkpoint\.pt is damaged or truncated"):
            checkpoint.load(path)
    for extra in (b"\0", content):
        path.write_bytes(content + extra)
        with pytest.raises(checkpoint.DamagedCheckpoint):
            checkpoint.load(path)
    path.write_bytes(content)
    _assert_same(checkpoint.load(path), STATE)


def test_a_single_flipped_bit_anywhere_is_noticed(tmp_path: Path) -> None:
    checkpoint.save(tmp_path, STATE)
    path = tmp_path / "checkpoint.pt"
    content = path.read_bytes()
    generator = np.random.default_rng(0)
    for place in [0, 12, 43, 44, *generator.integers(0, len(content), 40).tolist()]:
        path.write_bytes(
            content[:place] + bytes([content[place] ^ 1 << int(generator.integers(8))]) + content[place + 1 :]
        )
        with pytest.raises(checkpoint.DamagedCheckpoint):
            checkpoint.load(path)


def test_the_checkpoint_before_the_last_one_is_kept_and_offered_next(tmp_path: Path) -> None:
    assert list(checkpoint.candidates(tmp_path)) == []
    for number in range(3):
        checkpoint.save(tmp_path, {"number": number})
    newest, previous = checkpoint.candidates(tmp_path)
    assert (checkpoint.load(newest), checkpoint.load(previous)) == ({"number": 2}, {"number": 1})
    newest.unlink()  # a crash between the two renames
    assert [checkpoint.load(path) for path in checkpoint.candidates(tmp_path)] == [{"number": 1}]
    checkpoint.save(tmp_path, {"number": 3})
    assert [checkpoint.load(path)["number"] for path in checkpoint.candidates(tmp_path)] == [3, 1]
    checkpoint.remove(tmp_path)
    assert os.listdir(tmp_path) == []


def test_a_failed_save_leaves_both_checkpoints_and_nothing_else(tmp_path: Path) -> None:
    for number in range(2):
        checkpoint.save(tmp_path, {"number": number})
    with pytest.raises((AttributeError, TypeError)):
        checkpoint.save(tmp_path, {"number": lambda: None})  # cannot be pickled
    (tmp_path / ".checkpoint.new").mkdir()  # cannot be written
    with pytest.raises(OSError, match="directory"):
        checkpoint.save(tmp_path, {"number": 5})
    assert [checkpoint.load(path)["number"] for path in checkpoint.candidates(tmp_path)] == [1, 0]
    assert sorted(os.listdir(tmp_path)) == [".checkpoint.new", "checkpoint.previous.pt", "checkpoint.pt"]


class Evil:
    """Unpickling it would write a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


def test_loading_never_runs_code_from_the_file(tmp_path: Path) -> None:
    checkpoint.save(tmp_path, {"evil": Evil(tmp_path / "run")})
    with pytest.raises(checkpoint.DamagedCheckpoint):
        checkpoint.load(tmp_path / "checkpoint.pt")
    assert not (tmp_path / "run").exists()
