"""Sweeps that share a results directory never train the same run twice, and take over what a dead one left."""

from __future__ import annotations

import json
from collections import Counter
from functools import partial
from pathlib import Path

import faults

SEEDS = 8
SWEEP = (
    "dataset=digits",
    "model=smallcnn",
    "epochs=3",
    "dataset.limit_train=320",
    "dataset.limit_test=60",
    "batch.per_worker=16",
    "seed=" + ",".join(str(seed) for seed in range(1, SEEDS + 1)),
)


def start_sweep(folder: Path, name: str) -> faults.Job:
    """A sweep over eight seeds that logs in <name>.log what it trains."""
    log = partial(faults.log_runs, str(folder / f"{name}.log"))
    return faults.start(folder, *SWEEP, command="sweep", before=log, log=f"{name}.stderr")


def trained(folder: Path, *names: str) -> Counter[str]:
    """How often each run was trained by these sweeps."""
    logs = [folder / f"{name}.log" for name in names]
    return Counter(line for log in logs if log.exists() for line in log.read_text().splitlines())


def finished(folder: Path) -> int:
    """How many runs have a summary."""
    return len(list((folder / "results" / "runs").glob("*/seed-*/summary.json")))


def test_two_racing_sweeps_train_every_run_once(tmp_path: Path) -> None:
    jobs = [start_sweep(tmp_path, name) for name in ("one", "two")]
    assert [job.wait() for job in jobs] == [0, 0], [job.said for job in jobs]
    counts = trained(tmp_path, "one", "two")
    assert len(counts) == SEEDS
    assert set(counts.values()) == {1}
    assert trained(tmp_path, "one").keys().isdisjoint(trained(tmp_path, "two"))
    assert finished(tmp_path) == SEEDS
    assert not list((tmp_path / "results").glob("runs/*/*/lock*"))
    for job in jobs:
        assert f"[{SEEDS}/{SEEDS}]" in job.said


def test_what_a_killed_sweep_had_in_hand_is_finished_by_the_other(tmp_path: Path) -> None:
    one, two = start_sweep(tmp_path, "one"), start_sweep(tmp_path, "two")
    faults.wait_for(lambda: trained(tmp_path, "one"))
    one.kill()
    assert two.wait() == 0, two.said
    assert finished(tmp_path) == SEEDS
    (left,) = [run for run, count in trained(tmp_path, "one", "two").items() if count == 2] or [None]
    if left is not None:
        assert json.loads((tmp_path / left / "summary.json").read_text())["epochs"] == 3
