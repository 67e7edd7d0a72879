"""What interpolates the seed sees the run's own seed, wherever runs are composed together."""

from __future__ import annotations

from pathlib import Path

import pytest

from accordion_bench.commands.cli import main
from accordion_bench.config.compose import compose, compose_all, compose_seeds
from accordion_bench.sweeps.jobs import grid_jobs, resolve, table_jobs
from accordion_bench.sweeps.table import parse_table

SMALL = ["dataset=digits", "model=smallcnn", "dataset.limit_train=128", "dataset.limit_test=64", "quiet=true"]


@pytest.mark.parametrize("words", [["epochs=${seed}"], ["results=out/t${seed}"], ["compressor.levels=[1,${seed}]"]])
def test_runs_that_are_composed_together_are_what_each_is_alone(words: list[str]) -> None:
    alone = [compose([*SMALL, *words, f"seed={seed}"]) for seed in (2, 3)]
    assert compose_all([[*SMALL, *words, f"seed={seed}"] for seed in (2, 3)]) == alone
    assert compose_seeds([*SMALL, *words], (2, 3)) == alone
    assert [job.config for job in grid_jobs([*SMALL, *words, "seed=2,3"])] == alone
    assert compose_all([[*SMALL, f"seed={seed}", *words] for seed in (2, 3, 2)])[2] == alone[0]


def test_a_tables_rows_and_its_runs_are_the_same_with_every_seed() -> None:
    row = {"group": "g", "label": "growing", "role": "other", "overrides": [*SMALL, "epochs=${seed}"]}
    table = parse_table("own", {"title": "t", "scale": "small", "seeds": [2, 3], "rows": [row]})
    jobs = table_jobs(table)
    assert [job.config.epochs for job in jobs] == [2, 3]
    assert resolve(table)[0].directories == {job.config.seed: job.config.directory for job in jobs}


@pytest.mark.parametrize("chdir", [[], ["hydra.job.chdir=true"]])
def test_multirun_looks_for_its_runs_where_they_were_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chdir: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["run", "-m", "seed=1,2", "epochs=${seed}", "results=out/t${seed}", *SMALL, *chdir]) == 0
    written = sorted(tmp_path.glob("out/*/runs/*/*/epochs.jsonl"))
    assert [len(path.read_text().splitlines()) for path in written] == [1, 2]
    assert [path.relative_to(tmp_path).parts[1] for path in written] == ["t1", "t2"]


def test_a_run_whose_working_directory_hydra_changes_stays_where_it_was_typed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["run", "epochs=1", "hydra.job.chdir=true", *SMALL]) == 0
    assert len(list(tmp_path.glob("results/runs/*/seed-1/summary.json"))) == 1
    assert Path.cwd() == tmp_path


@pytest.mark.parametrize("seed", ["010", "01", "1e1", "0x1", "-1", "1:30", "on"])
def test_what_is_not_a_seed_is_refused_by_every_way_to_give_one(
    seed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    row = f"{{group: g, label: a, role: other, overrides: [{', '.join(SMALL[:2])}]}}"
    Path("own.yaml").write_text(f"title: t\nscale: s\nseeds: [{seed}, 2]\nrows: [{row}]\n")
    Path("good.yaml").write_text(f"title: t\nscale: s\nseeds: [2]\nrows: [{row}]\n")
    for words in (
        ["run", f"seed={seed}"],
        ["run", "-m", f"seed={seed},2"],
        ["sweep", f"seed={seed},2"],
        ["sweep", "table=good.yaml", f"seeds={seed},2"],
        ["sweep", "table=own.yaml", "--dry-run"],
        ["plan", f"seed={seed}"],
    ):
        with_settings = [*words, *SMALL] if "seed=" in words[-1] else words
        assert main(with_settings) == 2, words
        said = capsys.readouterr().err
        assert "seed" in said and "whole number" in said and said.count("\n") == 1, (words, said)
    assert not list(tmp_path.glob("results/**/epochs.jsonl"))


def test_a_seed_given_twice_is_one_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    loud = [word for word in SMALL if word != "quiet=true"]
    assert main(["run", "-m", "seed=2,1_0,2,10", "epochs=1", *loud]) == 0
    said = capsys.readouterr()
    assert said.err.count("already") == said.out.count("already") == 0
    assert sorted(path.parent.name for path in tmp_path.glob("results/runs/*/*/summary.json")) == ["seed-10", "seed-2"]
    assert [job.config.seed for job in grid_jobs([*SMALL, "seed=2,1_0,2,10"])] == [2, 10]
    row = {"group": "g", "label": "a", "role": "other", "overrides": SMALL[:2]}
    table = parse_table("own", {"title": "t", "scale": "small", "seeds": [2, 3, 2], "rows": [row]})
    assert table.seeds == (2, 3)
    assert [job.config.seed for job in table_jobs(table, [5, 5])] == [5]
