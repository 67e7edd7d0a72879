"""Plans: what the meter counts later, what the paper prints, what a real trainer holds; one line for nonsense."""

from __future__ import annotations

import csv
import gc
import json
import warnings
from pathlib import Path

import pytest
import torch

from accordion_bench.commands.cli import main
from accordion_bench.config.compose import compose
from accordion_bench.errors import UserError
from accordion_bench.runs.launch import launch
from accordion_bench.runs.records import RunDirectory
from accordion_bench.runs.run import Place, build_trainer
from accordion_bench.sweeps.dry_run import listing
from accordion_bench.sweeps.jobs import table_jobs
from accordion_bench.sweeps.plan import Plan, make_plan
from accordion_bench.sweeps.plan_text import render
from accordion_bench.sweeps.table import Row, Table, load_table
from accordion_bench.training.traffic import Traffic

DIGITS = ["dataset=digits", "model=smallcnn", "dataset.limit_train=256", "dataset.limit_test=32", "batch.per_worker=8"]
LADDER = ["batch.multipliers=[4,2,1]", "compressor=none"]

# Schedulers whose decisions follow from the epoch, the learning rate or what was sent; 8 batches an epoch.
KNOWN = {
    "static": ["scheduler=static", "scheduler.index=0"],
    "static topk": ["scheduler=static", "compressor=topk", "compressor.levels=[0.03]"],
    "manual": ["scheduler=manual", "scheduler.index=0", "scheduler.ranges=[{from: 1, until: 3, index: -1}]"],
    "smith": ["scheduler=smith", *LADDER, "lr_schedule.milestones=[1,3]"],
    "adabatch": ["scheduler=adabatch", *LADDER],
    "budget": ["scheduler=budget", "scheduler.reference_epochs=2"],
    "dgc_warmup": ["compressor=dgc", "scheduler=dgc_warmup", "protocol=authors_code"],
    "seven batches": ["scheduler=static", "batch.multipliers=[3,1]", "scheduler.batch_index=0", "workers=3"],
    "authors_code": ["scheduler=static", "protocol=authors_code", "compressor=topk"],
}


@pytest.fixture(autouse=True)
def _empty_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def counted(overrides: list[str]) -> tuple[Plan, Traffic, int, int]:
    """The plan of a run, and what the run then really counted: traffic, updates, epochs."""
    config = compose([*DIGITS, "epochs=5", "quiet=true", *overrides])
    plan = make_plan(config)
    summary = launch(config)
    records = RunDirectory(config.directory).read_epochs()
    return plan, sum((Traffic.from_dict(r.traffic) for r in records), Traffic()), summary.updates, summary.epochs


@pytest.mark.parametrize("case", KNOWN)
def test_where_decisions_do_not_depend_on_data_the_plan_is_what_the_meter_counts(case: str) -> None:
    plan, traffic, updates, epochs = counted(KNOWN[case])
    assert plan.exact
    for course in (plan.calm, plan.restless):
        assert course.traffic == {kind: traffic.as_dict()[kind] for kind in ("mean", "gather")}
        assert (course.updates, course.epochs) == (updates, epochs)
        assert (course.floats_per_worker, course.collectives) == (traffic.floats_per_worker, traffic.collectives)


DEPENDENT = {
    "accordion": ["scheduler=accordion"],
    "accordion, batch": ["scheduler=accordion", *LADDER],
    "adaqs": ["scheduler=adaqs"],
    "auto_ladder": ["scheduler=auto_ladder", "scheduler.interval=1", "compressor.levels=[1,2,4]"],
    "lgreco": ["scheduler=lgreco", "compressor.levels=[1,2,4]"],
    "hessian": ["scheduler=hessian", "scheduler.interval=2"],
}


@pytest.mark.parametrize("case", DEPENDENT)
def test_where_decisions_depend_on_data_the_meter_stays_between_the_two_courses(case: str) -> None:
    plan, traffic, updates, _ = counted(DEPENDENT[case])
    assert not plan.exact
    assert plan.calm.floats_per_worker < plan.restless.floats_per_worker
    assert plan.calm.floats_per_worker <= traffic.floats_per_worker <= plan.restless.floats_per_worker
    assert plan.calm.updates <= updates <= plan.restless.updates


def test_a_payload_that_depends_on_the_gradient_is_an_estimate() -> None:
    plan, traffic, updates, _ = counted(["compressor=adacomp", "scheduler=static"])
    assert (plan.calm, plan.exact, plan.calm.updates) == (plan.restless, False, updates)
    assert traffic.floats_per_worker > 0
    assert "the run: about" in render(plan)


# Tables 1, 3 and 5 of the paper: printed Data Sent of cells that follow from shapes and steps.
@pytest.mark.parametrize(
    ("overrides", "printed", "unit"),
    [
        (["compressor.levels=[2]"], 2418.4, 1e6),
        (["compressor.levels=[1]"], 1350.4, 1e6),
        (["model=vgg19bn", "compressor.levels=[4]"], 6752.0, 1e6),
        (["compressor=topk", "compressor.levels=[0.1]"], 262.8, 1e9),
        (["compressor=topk", "model=googlenet", "compressor.levels=[0.99]"], 1430.9, 1e9),
        (["compressor=none", "model=densenet"], 29.4, 1e9),
        (["compressor=none", "batch=accordion", "scheduler.batch_index=0"], 40.22, 1e9),
    ],
)
def test_plans_of_the_papers_static_rows_are_what_the_paper_prints(
    overrides: list[str], printed: float, unit: float
) -> None:
    course = make_plan(compose(["scheduler=static", *overrides])).calm
    digits = len(str(printed).partition(".")[2])
    assert course.paper_floats(workers=4) / unit == pytest.approx(printed, abs=1.01 * 10**-digits)


def test_communication_time_is_the_rings_by_hand() -> None:
    """Rank 2, 10 Gbit/s, 0.2 ms: two all-reduces are 2 x 6 messages and 6/4 of the bytes; an epoch has 98 updates."""
    plan = make_plan(compose(["scheduler=static", "compressor.levels=[2]"]))
    update = 12 * 2e-4 + 6 / 4 * 82_260 * 32 / 1e10
    (rung,) = plan.rungs
    assert (rung.floats_per_update, rung.collectives_per_update, rung.updates_per_epoch) == (82_260, 2, 98)
    assert rung.communication_seconds_per_epoch == pytest.approx(98 * update)
    assert plan.calm.communication_seconds == pytest.approx(300 * 98 * update)
    fast = make_plan(compose(["scheduler=static", "compressor.levels=[2]", "network=nvlink"]))
    assert fast.calm.communication_seconds < plan.calm.communication_seconds / 10


def test_every_level_with_every_batch_size_is_a_rung() -> None:
    plan = make_plan(compose(["batch.multipliers=[8,2,1]", "compressor.levels=[1,2]"]))
    rungs = [(rung.level, rung.batch_multiple, rung.updates_per_epoch) for rung in plan.rungs]
    assert rungs == [(1, 8, 12), (1, 2, 49), (1, 1, 98), (2, 8, 12), (2, 2, 49), (2, 1, 98)]


MEMORY = {
    "powersgd": ["compressor.levels=[1]"],
    "topk": ["compressor=topk"],
    "none": ["compressor=none"],
    "dgc": ["compressor=dgc"],
    "without error feedback": ["compressor=topk", "protocol=authors_code"],
    "language-model step": ["compressor=none", "optimizer.kind=heavy_ball_plus_gradient"],
}


@pytest.mark.filterwarnings("ignore::FutureWarning")  # of libraries whose objects the collector lists
@pytest.mark.parametrize("case", MEMORY)
def test_planned_memory_is_what_a_trainer_holds(case: str) -> None:
    small = ["dataset=digits", "model=resnet8", "dataset.limit_train=16", "batch.per_worker=8", "workers=1", "epochs=1"]
    config = compose([*small, "scheduler=static", *MEMORY[case]])
    plan = make_plan(config)
    before = storages()
    trainer = build_trainer(config, Place(0, 1, "cpu"))
    list(trainer.epochs())
    held = sum(size for place, size in storages().items() if place not in before)
    planned = sum(plan.memory_bytes.values())
    assert planned == pytest.approx(held, rel=0.02)  # the rest are BatchNorm statistics and PowerSGD's Q


def storages() -> dict[int, int]:
    """Address -> bytes of everything that floating-point tensors hold at this moment."""
    gc.collect()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tensors = [x for x in gc.get_objects() if isinstance(x, torch.Tensor) and x.is_floating_point()]
    return {x.untyped_storage().data_ptr(): x.untyped_storage().nbytes() for x in tensors if x.device.type == "cpu"}


REFUSED = {
    "batch.per_worker=20000": "batch.per_worker must be at most 12500 (50000 training images over 4 workers), got",
    "workers=60000": "workers must be at most 50000, one for each training image, got 60000",
    "batch.multipliers=[99,1]": "batch.multipliers must not exceed the 98 batches of an epoch, got 99",
    "dataset.limit_train=60000": "dataset.limit_train must be between 1 and 50000 (images) or null for all, got 60000",
    "model=lstm": "reads text",
    "compressor.levels=[0]": "compressor.levels must be ranks >= 1",
    "network=ether": "no network 'ether'",
}


@pytest.mark.parametrize("override", REFUSED)
def test_what_a_run_would_refuse_the_plan_refuses_in_one_line(
    override: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", override]) == 2
    error = capsys.readouterr().err
    assert REFUSED[override] in error
    assert error.count("\n") == 1


def test_the_run_refuses_the_same_batch_with_the_same_words() -> None:
    messages = []
    for act in (make_plan, launch):
        with pytest.raises(UserError) as caught:
            act(compose([*DIGITS, "batch.multipliers=[9,1]", "quiet=true"]))
        messages.append(str(caught.value))
    assert messages[0] == messages[1]


def test_text_and_json_of_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "scheduler=static", "--json", "compressor.levels=[2]"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["exact"] is True
    assert plan["calm"]["floats_per_worker"] == 82_260 * 98 * 300
    assert plan["rungs"][0]["floats_per_update"] == 82_260
    assert main(["plan", "compressor=none", "batch=accordion"]) == 0
    text = capsys.readouterr().out
    assert "level 1, batch x8: 11,173,962 floats per worker and update in 1 collective; an epoch of 12 sends" in text
    assert "if they never change fast:   59.4 G floats per worker, 5,320 updates in 300 epochs" in text
    assert max(map(len, text.splitlines())) <= 160
    assert list(Path().iterdir()) == []


def test_a_dry_run_shows_what_every_run_will_send(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sweep", "table=1", "--dry-run", "rows=resnet"]) == 0
    out = capsys.readouterr().out
    lines = [line.split("  ") for line in out.splitlines() if line.startswith("missing")]
    cells = [[cell.strip() for cell in line if cell.strip()] for line in lines]
    assert len(cells) == 9
    for seed in range(3):
        rank2, rank1, accordion = cells[3 * seed : 3 * seed + 3]
        assert rank2[1:5] == [f"ResNet-18/rank 2, seed {seed + 1}", "2.42 G", "29,400", "1 min 22 s"]
        assert rank1[2:5] == ["1.35 G", "29,400", "1 min 17 s"]
        assert accordion[2:5] == ["1.49 to 2.42 G", "29,400", "1 min 18 s to 1 min 22 s"]
    assert "9 runs: 9 missing · to do: 15.8 to 18.6 G floats per worker" in out.splitlines()[-1]


def test_a_dry_run_needs_no_data_and_says_what_has_no_plan() -> None:
    text = listing(table_jobs(load_table("fig11")))
    assert "no plan for 9 runs: wikitext2 is not in data (accordion-bench data wikitext2)" in text
    rows = (Row("Bad", "batch", "other", ("batch.per_worker=1000",)), Row("Good", "rank 1", "high", ()))
    table = Table("small", "Small", "digits", (1,), ("dataset=digits", "model=smallcnn", "scheduler=static"), rows)
    text = listing(table_jobs(table))
    assert "no plan for 1 run: batch.per_worker must be at most" in text
    assert text.splitlines()[-1].startswith("2 runs: 2 missing · to do: ")
    assert list(Path().iterdir()) == []


def test_a_table_shows_plans_where_nothing_was_run_and_never_as_measured(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tables", "3", "--plan"]) == 0
    lines = [[cell.strip() for cell in line.split("|")] for line in capsys.readouterr().out.splitlines()]
    sent = {cells[2]: cells[7:9] for cells in lines[4:7]}
    assert sent["K 99 %"] == ["2599.9 (plan)", "-"]
    assert sent["K 10 %"] == ["262.87 (plan)", "-"] or sent["K 10 %"] == ["262.9 (plan)", "-"]
    assert sent["Accordion"] == ["-", "-"]
    with Path("results/tables/3.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert {row["paper_floats"] for row in rows} == {""}
    assert [bool(row["planned_paper_floats"]) for row in rows] == [True, True, False] * 3
