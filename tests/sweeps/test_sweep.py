"""Sweeps: which runs a table or a grid is made of, skipping, failing, racing and being killed."""

from __future__ import annotations

import csv
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from places import REPOSITORY

from accordion_bench.commands.cli import main
from accordion_bench.config.compose import compose
from accordion_bench.errors import RunFailure, UserError
from accordion_bench.report import published
from accordion_bench.runs.records import RunDirectory
from accordion_bench.sweeps.jobs import grid_jobs, resolve, state_of, table_jobs
from accordion_bench.sweeps.runner import Sweep, Timing
from accordion_bench.sweeps.table import Row, Table, load_table, table_names

SMALL = ("dataset=digits", "model=smallcnn", "dataset.limit_train=160", "epochs=1")
TABLE_FILE = """\
title: Small
number: null
scale: digits, {epochs} epochs
seeds: [1, 2]
base: [dataset=digits, model=smallcnn, dataset.limit_train=160, epochs={epochs}, scheduler=static]
rows:
  - {{group: PowerSGD, label: rank 2, role: low, overrides: ["compressor.levels=[2]"]}}
  - {{group: PowerSGD, label: rank 1, role: high, overrides: ["compressor.levels=[1]"]}}
"""


@pytest.fixture(autouse=True)
def _empty_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def small_table(*extra_rows: Row) -> Table:
    rows = (
        Row("PowerSGD", "rank 2", "low", ("compressor=powersgd", "compressor.levels=[2]")),
        Row("Top-K", "K 10 %", "high", ("compressor=topk", "compressor.levels=[0.1]")),
    )
    return Table("small", "Small", "digits", (1, 2), (*SMALL, "scheduler=static"), (*rows, *extra_rows))


@pytest.mark.parametrize("name", ["1", "2", "3", "4", "5", "6", "demo", "cifar10_small"])
def test_every_row_of_the_shipped_tables_is_a_run_of_its_own(name: str) -> None:
    table = load_table(name)
    directories = [path for row in resolve(table) for path in row.directories.values()]
    assert len(set(directories)) == len(table.rows) * len(table.seeds)
    assert {row.role for row in table.rows} >= {"low", "high", "accordion"}


@pytest.mark.parametrize("number", range(1, 7))
def test_the_papers_tables_have_the_papers_rows(number: int) -> None:
    """Every printed row of the table is there once, in order, under its published value."""
    printed = published.data("tables.csv")
    printed = printed[printed["table"].astype(str) == str(number)]
    keys = [(row["dataset"], row["network"], str(row["level"])) for _, row in printed.iterrows()]
    ours = [row.published for row in load_table(str(number)).rows]
    assert [(row["dataset"], row["network"], str(row["level"])) for row in ours] == keys
    assert table_names()[number - 1] == str(number)


def test_resolve_and_sweep_mean_the_same_directories() -> None:
    table = small_table()
    jobs = table_jobs(table)
    assert {job.config.directory for job in jobs} == {
        path for row in resolve(table) for path in row.directories.values()
    }
    assert [job.config.seed for job in jobs] == [1, 1, 2, 2]  # whole comparisons first
    for job in jobs:
        assert compose(job.overrides) == job.config  # what a child process would run


def test_results_directory_with_any_name() -> None:
    name = "it's a {strange}, [name]=$x: #1"
    path = resolve(small_table(), name)[0].directories[1]
    assert path.parts[0] == name


def test_overrides_that_change_no_result_are_allowed_and_others_are_not() -> None:
    table = small_table()
    extra = ["results=elsewhere", "launch.threads=2", "dataset.root=there", "dataset.verify=false", "network=nvlink"]
    plain, moved = table_jobs(table), table_jobs(table, extra=extra)
    assert [job.config.hash for job in plain] == [job.config.hash for job in moved]
    assert moved[0].config.results == "elsewhere"
    with pytest.raises(UserError, match="changes the result of row 'PowerSGD/rank 2'"):
        table_jobs(table, extra=["workers=2"])


def test_rows_are_chosen_by_name_or_override_in_any_case() -> None:
    assert {job.config.compressor.name for job in table_jobs(small_table(), rows="TOP-K")} == {"topk"}
    assert {job.config.compressor.name for job in table_jobs(small_table(), rows="compressor=powersgd")} == {"powersgd"}
    assert [job.config.seed for job in table_jobs(small_table(), seeds=[7], rows="rank")] == [7]


def test_a_row_that_is_no_configuration_is_named() -> None:
    table = small_table(Row("Bad", "row", "other", ("compressor.levels=[0]",)))
    with pytest.raises(UserError, match=r"table small, row 'Bad/row': compressor\.levels must be ranks"):
        resolve(table)


def test_a_grid_is_every_combination_once() -> None:
    jobs = grid_jobs([*SMALL, "compressor=powersgd,topk", "seed=1,2,1"])
    assert len(jobs) == 4
    assert len({job.config.directory for job in jobs}) == 4
    assert len(grid_jobs([*SMALL, "workers=range(1,4)"])) == 3
    assert len(grid_jobs([*SMALL, "compressor.levels=[1,2],[1,4]"])) == 2


def test_time_left_follows_what_rows_have_taken() -> None:
    jobs = table_jobs(small_table())
    timing = Timing()
    assert timing.left(jobs, 1) is None
    timing.add(jobs[0], 10.0)  # rank 2
    assert timing.left(jobs[1:], 1) == pytest.approx(30.0)  # a row never seen counts as the average
    timing.add(jobs[1], 30.0)  # Top-K
    assert timing.left(jobs[2:], 1) == pytest.approx(40.0)
    assert timing.left(jobs[2:], 2) == pytest.approx(20.0)


def test_sweep_goes_on_past_a_failed_run_and_skips_what_is_finished(capsys: pytest.CaptureFixture[str]) -> None:
    table = small_table(Row("Bad", "batch", "other", ("batch.per_worker=1000",)))
    with pytest.raises(RunFailure, match=r"2 of 6 runs failed or diverged: Bad/batch, seed 1 .*Bad/batch, seed 2"):
        Sweep(table_jobs(table)).run()
    first = capsys.readouterr().err
    assert first.splitlines()[0].startswith("6 runs: 0 finished, 6 to do")
    assert [state_of(job.config) for job in table_jobs(table)] == ["finished", "finished", "missing"] * 2
    summaries = {path: path.stat().st_mtime_ns for path in Path("results").rglob("summary.json")}
    assert len(summaries) == 4
    with pytest.raises(RunFailure, match="2 of 6"):
        Sweep(table_jobs(table)).run()
    assert "6 runs: 4 finished, 2 to do" in capsys.readouterr().err
    assert {path: path.stat().st_mtime_ns for path in Path("results").rglob("summary.json")} == summaries


def test_a_diverged_run_is_not_repeated_and_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    jobs = grid_jobs(
        [
            *SMALL,
            "compressor=none",
            "scheduler=static",
            "lr_schedule.base=1e9",
            "optimizer.weight_decay=1e9",
            "seed=1,2",
        ]
    )
    for attempt in ("0 finished, 2 to do", "0 finished, 2 diverged, 0 to do"):
        with pytest.raises(RunFailure, match="2 of 2 runs failed or diverged"):
            Sweep(jobs).run()
        assert attempt in capsys.readouterr().err
    assert [state_of(job.config) for job in jobs] == ["diverged", "diverged"]


def test_dry_run_lists_and_starts_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sweep", "table=demo", "rows=accordion", "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert out.count("missing  ") == 6
    assert "6 runs: 6 missing" in out
    assert list(Path().iterdir()) == []


def start(*arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "accordion_bench", "sweep", *arguments]
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


def results_of(directory: str) -> dict[str, tuple[float, float]]:
    """Run -> (final metric, floats sent)."""
    found = {}
    for path in sorted(Path(directory).rglob("summary.json")):
        summary = RunDirectory(path.parent).read_json("summary.json") or {}
        found["/".join(path.parts[-3:-1])] = (summary["final"], summary["floats_per_worker"])
    return found


def table_of(directory: str) -> list[dict[str, str]]:
    """The rows of small.yaml's table in machine-readable form, without what a clock measured."""
    assert main(["tables", "small.yaml", "--results", directory]) == 0
    with Path(directory, "tables", "small.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    return [{name: value for name, value in row.items() if "seconds" not in name} for row in rows]


def test_a_killed_sweep_continues_and_ends_as_an_undisturbed_one() -> None:
    Path("small.yaml").write_text(TABLE_FILE.format(epochs=4))
    assert main(["sweep", "table=small.yaml", "results=undisturbed"]) == 0
    killed = start("table=small.yaml", "results=disturbed")
    deadline = time.monotonic() + 200
    while not list(Path("disturbed").rglob("summary.json")) and time.monotonic() < deadline and killed.poll() is None:
        time.sleep(0.02)
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    assert 1 <= len(results_of("disturbed")) < 4
    assert main(["sweep", "table=small.yaml", "results=disturbed"]) == 0
    assert len(results_of("undisturbed")) == 4
    assert results_of("disturbed") == results_of("undisturbed")
    tables = [table_of(directory) for directory in ("undisturbed", "disturbed")]
    assert tables[0] == tables[1]
    assert [row["seeds"] for row in tables[0]] == ["2", "2"]
    assert all(row["accuracy_percent"] and row["paper_floats"] for row in tables[0])


def test_two_sweeps_on_one_results_directory_share_the_work() -> None:
    Path("small.yaml").write_text(TABLE_FILE.format(epochs=4))
    other = start("table=small.yaml")
    assert main(["sweep", "table=small.yaml"]) == 0
    assert other.wait(300) == 0, other.communicate()
    assert len(results_of("results")) == 4


def test_simultaneous_runs_go_on_past_a_failure_and_end_as_one_after_another() -> None:
    bad = '  - {group: PowerSGD, label: too large, role: other, overrides: ["batch.per_worker=1000"]}\n'
    Path("small.yaml").write_text(TABLE_FILE.format(epochs=1) + bad)
    arguments = ["table=small.yaml", "seeds=1", "results=together", "jobs=2"]
    _, err = (together := start(*arguments)).communicate(timeout=300)
    assert together.returncode == 1
    assert "PowerSGD/too large, seed 1: batch.per_worker must be at most 40" in err
    assert "1 of 3 runs failed or diverged" in err.splitlines()[-1]
    assert main(["sweep", "table=small.yaml", "seeds=1", "results=alone"]) == 1
    assert len(results_of("alone")) == 2
    assert results_of("together") == results_of("alone")


def test_interrupting_a_sweep_of_processes_leaves_none_behind() -> None:
    Path("small.yaml").write_text(TABLE_FILE.format(epochs=1000))
    sweep = start("table=small.yaml", "jobs=2")
    deadline = time.monotonic() + 200
    while len(list(Path().rglob("epochs.jsonl"))) < 2 and time.monotonic() < deadline and sweep.poll() is None:
        time.sleep(0.05)
    children = Path(f"/proc/{sweep.pid}/task/{sweep.pid}/children").read_text().split()
    assert len(children) == 2
    sweep.send_signal(signal.SIGINT)
    _, err = sweep.communicate(timeout=120)
    assert sweep.returncode == 130, err
    assert err.splitlines()[-1].startswith("accordion-bench: interrupted")
    assert not [child for child in children if Path(f"/proc/{child}").exists()]
    assert main(["sweep", "table=small.yaml", "--dry-run"]) == 0
