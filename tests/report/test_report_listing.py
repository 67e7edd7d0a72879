"""The list of runs: states from files and real locks, and the words on the screen."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from report_records import dense, write_run

from accordion_bench.report.listing import ListedRun, age, list_runs, render_runs
from accordion_bench.runs.lock import STALE_SECONDS, Lock

MESSAGE = "diverged: loss became non-finite in epoch 12, step 4, layer features.40"
NOW = 1.8e9


def only(results: Path) -> ListedRun:
    (run,) = list_runs(results)
    return run


def interrupted(results: Path) -> Path:
    return write_run(results / "runs" / "name-0123" / "seed-7", [50.0, 60.0], planned_epochs=300, finished=False).path


def test_a_finished_run_has_its_totals(tmp_path: Path):
    write_run(tmp_path / "runs" / "name-0123" / "seed-7", [50.0, 60.0])
    run = only(tmp_path)
    assert (run.name, run.seed, run.state) == ("name-0123", 7, "finished")
    assert (run.epochs, run.planned_epochs, run.metric, run.value) == (2, 2, "accuracy", 60.0)
    assert run.floats_per_worker == 2 * dense(0).floats_per_worker


def test_an_unfinished_run_without_a_lock_was_interrupted(tmp_path: Path):
    interrupted(tmp_path)
    run = only(tmp_path)
    assert (run.state, run.epochs, run.planned_epochs, run.value) == ("interrupted", 2, 300, 60.0)
    assert run.floats_per_worker == 2 * dense(0).floats_per_worker


def test_a_run_whose_lock_is_held_is_running(tmp_path: Path):
    directory = interrupted(tmp_path)
    with Lock(directory):
        run = only(tmp_path)
    assert run.state == "running"
    assert run.message == f"on {socket.gethostname()}, process {os.getpid()}"
    assert only(tmp_path).state == "interrupted"


def test_a_lock_of_a_process_that_is_gone_means_nothing(tmp_path: Path):
    directory = interrupted(tmp_path)
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    owner = {"host": socket.gethostname(), "pid": process.pid, "time": time.time()}
    (directory / "lock").write_text(json.dumps(owner))
    assert only(tmp_path).state == "interrupted"


def test_another_host_s_lock_holds_while_it_is_fresh(tmp_path: Path):
    directory = interrupted(tmp_path)
    lock = directory / "lock"
    lock.write_text(json.dumps({"host": "elsewhere", "pid": 1, "time": 0}))
    assert only(tmp_path).state == "running"
    old = time.time() - STALE_SECONDS - 60
    os.utime(lock, (old, old))
    assert only(tmp_path).state == "interrupted"


@pytest.mark.parametrize(("state", "shown"), [("diverged", "diverged"), ("failed", "failed"), ("else", "failed")])
def test_a_failure_is_shown_with_its_message(tmp_path: Path, state: str, shown: str):
    failure = {"state": state, "message": MESSAGE}
    write_run(tmp_path / "runs" / "name-0123" / "seed-7", [50.0], finished=False, failure=failure)
    run = only(tmp_path)
    assert (run.state, run.message) == (shown, MESSAGE.removeprefix("diverged: "))


def test_a_failed_run_that_was_started_again_is_running(tmp_path: Path):
    failure = {"state": "failed", "message": "x"}
    directory = write_run(tmp_path / "runs" / "name-0123" / "seed-7", [50.0], finished=False, failure=failure).path
    with Lock(directory):
        assert only(tmp_path).state == "running"


def test_a_run_that_wrote_nothing_yet_is_listed(tmp_path: Path):
    (tmp_path / "runs" / "name-0123" / "seed-7").mkdir(parents=True)
    run = only(tmp_path)
    assert (run.state, run.epochs, run.planned_epochs, run.value) == ("not started", 0, None, None)


@pytest.mark.parametrize("name", ["summary.json", "failure.json", "epochs.jsonl"])
def test_a_damaged_file_is_named_without_its_folder(tmp_path: Path, name: str):
    directory = interrupted(tmp_path)
    (directory / name).write_text("{\n")
    run = only(tmp_path)
    assert run.state == "damaged"
    assert run.message.startswith(name)
    assert str(tmp_path) not in run.message


def test_a_damaged_configuration_costs_only_the_number_of_epochs(tmp_path: Path):
    (interrupted(tmp_path) / "config.yaml").write_text("a: [")
    run = only(tmp_path)
    assert (run.state, run.planned_epochs) == ("interrupted", None)


def test_what_is_no_run_is_not_listed(tmp_path: Path):
    assert list_runs(tmp_path) == []
    (tmp_path / "runs" / "notes").mkdir(parents=True)
    (tmp_path / "runs" / "notes" / "seed-x").mkdir()
    (tmp_path / "runs" / "seed-1").write_text("")
    assert list_runs(tmp_path) == []


RUNS = [
    ListedRun("digits-smallcnn-topk-1f3a9c", 1, "finished", 20, 20, "accuracy", 97.25, 1.5e6, NOW - 7300),
    ListedRun("digits-smallcnn-topk-1f3a9c", 10, "running", 5, 20, "accuracy", 90.0, 4e5, NOW - 30, "on a, process 7"),
    ListedRun("wikitext2-lstm-none-88c0d2", 1, "diverged", 12, 90, "perplexity", 301.5, 2.5e9, NOW - 90, "step 4"),
    ListedRun("x", 2, "interrupted", 0, None, None, None, None, NOW - 200_000),
]
PLAIN = """\
run                          seed  state        epoch             metric  sent/worker  updated
digits-smallcnn-topk-1f3a9c     1  finished     20/20             97.2 %       1.50 M  2 h ago
digits-smallcnn-topk-1f3a9c    10  running       5/20             90.0 %     400.00 k  now (on a, process 7)
wikitext2-lstm-none-88c0d2      1  diverged     12/90  301.50 perplexity       2.50 G  1 min ago (step 4)
x                               2  interrupted    0/?                  -            -  2 d ago
4 runs: 1 running, 1 finished, 1 interrupted, 1 diverged"""


def test_plain_text_for_a_pipe():
    assert render_runs(RUNS, now=NOW) == PLAIN


def test_a_terminal_gets_colours_and_no_line_wider_than_itself():
    import rich.text

    text = render_runs(RUNS, now=NOW, width=100)
    assert "\x1b[" in text
    lines = rich.text.Text.from_ansi(text).plain.splitlines()
    assert max(map(len, lines)) <= 100
    assert any("301.50 perplexity" in line for line in lines)


def test_no_runs_say_how_to_start_one():
    assert "accordion-bench run" in render_runs([])


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (-5, "now"),
        (4, "now"),
        (59, "59 s ago"),
        (60, "1 min ago"),
        (7199, "1 h ago"),
        (86400, "1 d ago"),
        (9e6, "104 d ago"),
    ],
)
def test_ages_are_one_unit(seconds: float, words: str):
    assert age(seconds) == words
