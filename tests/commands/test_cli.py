"""The command line: what it refuses, in one line and without a trace; what it prints; what Hydra is allowed to do."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from config_cases import OTHER, RUN
from places import REPOSITORY

from accordion_bench.commands.cli import COMMANDS, main
from accordion_bench.config.compose import groups

DIGITS = ["dataset=digits", "model=smallcnn", "epochs=1", "dataset.limit_train=200"]


@pytest.fixture(autouse=True)
def _empty_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def refused(arguments: list[str], expected: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 2, one line on standard error with the expected words, nothing else printed, nothing written."""
    code = main(arguments)
    out, err = capsys.readouterr()
    assert code == 2
    assert err.startswith("accordion-bench: ")
    assert err.count("\n") == 1 and err.endswith("\n")
    assert expected in err
    assert "Traceback" not in err
    assert out == ""
    assert list(Path().iterdir()) == []


@pytest.mark.parametrize(("line", "expected"), RUN, ids=[line for line, _ in RUN])
def test_run_refuses(line: str, expected: str, capsys: pytest.CaptureFixture[str]) -> None:
    refused(["run", *line.split(" ")], expected, capsys)


@pytest.mark.parametrize(("line", "expected"), OTHER, ids=[line for line, _ in OTHER])
def test_other_commands_refuse(line: str, expected: str, capsys: pytest.CaptureFixture[str]) -> None:
    refused(shlex.split(line), expected, capsys)


def test_a_file_in_the_way_of_the_results_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "results").write_text("")
    assert main(["run"]) == 2
    assert "results must be a directory that can be written" in capsys.readouterr().err


def test_batch_larger_than_a_shard_leaves_no_run_behind(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", *DIGITS, "batch.per_worker=1000", "-q"]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert not list(Path().rglob("seed-*"))


def test_help_lists_every_command_and_run_help_every_choice(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    top = capsys.readouterr().out
    assert main(["run", "--help"]) == 0
    run = capsys.readouterr().out
    assert all(f"  {command} " in top for command in COMMANDS)
    for group, choices in groups().items():
        assert f"\n  {group} " in run
        for choice in choices:
            assert re.search(rf"[ *]{choice} +\S", run), f"{group}/{choice} is not explained"
    assert max(map(len, run.splitlines())) <= 120


@pytest.mark.parametrize("command", [command for command in COMMANDS if command != "run"])
def test_every_command_explains_itself(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main([command, "--help"])
    assert stop.value.code == 0
    assert f"accordion-bench {command}" in capsys.readouterr().out


def test_cfg_job_prints_the_composed_configuration_and_writes_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--cfg", "job", "dataset=digits", "model=smallcnn", "compressor=topk", "seed=7"]) == 0
    values = yaml.safe_load(capsys.readouterr().out)
    assert values["seed"] == 7
    assert values["compressor"]["name"] == "topk"
    assert values["batch"]["per_worker"] == 32
    assert list(Path().iterdir()) == []


def test_info_shows_the_defaults_tree(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--info", "defaults-tree"]) == 0
    assert "recipe: paper_cifar10" in capsys.readouterr().out


def test_config_directory_of_ones_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine" / "scheduler").mkdir(parents=True)
    (tmp_path / "mine" / "scheduler" / "eager.yaml").write_text("name: accordion\neta: 0.1\n")
    assert main(["run", "--config-dir", "mine", "--cfg", "job", "scheduler=eager"]) == 0
    assert yaml.safe_load(capsys.readouterr().out)["scheduler"] == {"name": "accordion", "eta": 0.1}


def test_nothing_heavy_is_imported_by_help_and_by_a_refusal() -> None:
    program = (
        "import sys; from accordion_bench.commands.cli import main; main(['--help']); light = set(sys.modules); "
        "main(['run', 'epochs=0']); "
        "heavy = {'torch', 'pandas', 'matplotlib', 'scipy', 'sklearn', 'spacy', 'torchvision'}; "
        "assert not light & (heavy | {'hydra', 'numpy', 'yaml', 'rich'}), light & heavy; "
        "assert not set(sys.modules) & heavy, set(sys.modules) & heavy"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=REPOSITORY, check=False)
    assert done.returncode == 0, done.stderr


def test_module_is_the_same_program() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "accordion_bench", "run", "compressor=powersdg"],
        capture_output=True,
        text=True,
        cwd=REPOSITORY,
        check=False,
    )
    assert done.returncode == 2
    assert "did you mean powersgd?" in done.stderr


@pytest.mark.thorough
def test_multirun_runs_every_job_and_hydra_leaves_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    here = Path.cwd()
    assert main(["run", "seed=1,2", "-m", *DIGITS, "--quiet"]) == 0
    assert Path.cwd() == here
    assert [path.name for path in here.iterdir() if path.name != "data"] == ["results"]
    assert sorted(path.parent.name for path in here.rglob("summary.json")) == ["seed-1", "seed-2"]
    assert main(["run", *DIGITS, "--quiet"]) == 0  # finished: returns at once, changes nothing
    assert len(list(here.rglob("summary.json"))) == 2


@pytest.mark.thorough
def test_multirun_goes_on_past_a_failing_job_and_names_it(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["run", "-m", "batch.per_worker=1000,16", *DIGITS, "--quiet"])
    err = capsys.readouterr().err
    assert code == 1
    assert len(list(Path().rglob("summary.json"))) == 1
    assert "batch.per_worker must be at most 50" in err
    assert "1 runs did not finish: results/runs/digits-smallcnn-powersgd-accordion-" in err.splitlines()[-1]
    assert "Traceback" not in err
