"""The figures of the paper: their runs send what the paper says, and what is drawn follows from the records."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from report_records import table_of, write_run

from accordion_bench.config.compose import compose_values
from accordion_bench.config.parsing import from_mapping
from accordion_bench.config.schema import RunConfig
from accordion_bench.errors import UserError
from accordion_bench.report.figures.paper import draw, figure_names
from accordion_bench.report.figures.rates import rates
from accordion_bench.report.figures.regimes import critical_by_eigenvalue, critical_by_norm
from accordion_bench.report.figures.shading import spans
from accordion_bench.runs.records import RunDirectory
from accordion_bench.runs.stored import FinishedRun, read_run
from accordion_bench.sweeps.plan import Plan, make_plan
from accordion_bench.sweeps.table import Row, RowRuns, Table, load_table, parse_text, table_names

FIGURES = [*map(str, range(1, 4)), "4a", "4b", *map(str, range(5, 21))]


def config_of(name: str, label: str, group: str = "") -> RunConfig:
    """The run of one row of a table."""
    table = load_table(name)
    (row,) = [row for row in table.rows if row.label == label and group in row.group]
    return from_mapping(compose_values([*table.base, *row.overrides]))


def plan_of(name: str, label: str) -> Plan:
    """What that row will send."""
    return make_plan(config_of(name, label))


def floats_of(plan: Plan) -> tuple[float, ...]:
    """Words of one worker and update at every level, most compressed first."""
    return tuple(sorted({rung.floats_per_update for rung in plan.rungs}))


# --- table files


def test_every_figure_of_the_paper_has_its_table():
    assert sorted(load_table(f"fig{figure}").figure for figure in FIGURES) == sorted(FIGURES)
    small = [*FIGURES[:11], "10"]
    assert {f"fig{figure}_digits" for figure in small} <= set(table_names())
    assert "fig11_small" in table_names()


def test_figures_12_to_17_are_the_rows_of_tables_1_to_6():
    for figure, number in zip(range(12, 18), range(1, 7), strict=True):
        borrowed, own = load_table(f"fig{figure}"), load_table(str(number))
        assert [row.id for row in borrowed.rows] == [row.id for row in own.rows]
        assert borrowed.rows[0].overrides == (*own.base, *own.rows[0].overrides)
        assert (borrowed.seeds, borrowed.scale) == (own.seeds, own.scale)


def test_rows_of_several_tables_keep_their_groups_apart():
    table = load_table("fig18")
    assert [row.group for row in table.rows][::9] == ["ResNet-18, CIFAR-10", "ResNet-18, CIFAR-100"]
    assert len({row.id for row in table.rows}) == 18


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{title: t, rows_of: 99}", "no table '99'"),
        ("{title: t, rows_of: mine}", "rows_of must name another table"),
        ("{title: t, rows_of: [1, 2]}", "rows_of must name another table"),
        ("{title: t, rows_of: {1: a, demo: b}}", "rows_of must name tables of the same seeds and scale"),
        ("{title: t, rows_of: {1: [a]}}", "rows_of: 1 must be one line of text"),
        ("{title: t, rows_of: {1: null, 2: null}}", "has the row 'ResNet-18/rank 2' twice"),
        ("{title: t, rows_of: 1, seeds: [1]}", "unknown key 'seeds'"),
        ("{title: t, rows_of: 1, draw: [curve]}", "draw must be a list of curves, levels, rates, regimes, overlap"),
        ("{title: t, rows_of: 1, draw: []}", "draw must be a list of"),
        ("{title: t, rows_of: 1, shade: rank 3}", "shade must be a row's label, got 'rank 3'"),
        ("{title: t, rows_of: 1, figure: [6]}", "figure must be the paper's number of it"),
    ],
)
def test_a_figure_that_says_something_wrong_is_refused(text: str, said: str):
    with pytest.raises(UserError, match=re.escape(said)):
        parse_text("mine", text)


def test_a_number_means_a_figure_of_the_paper():
    names = table_names()
    assert figure_names("6", names) == ["fig6"]
    assert figure_names("4", names) == ["fig4a", "fig4b"]
    assert figure_names("1", names) == ["fig1"]
    assert figure_names("fig3_digits", names) == ["fig3_digits"]
    assert figure_names("demo", names) == ["demo"]


# --- what the paper says its figures send


def test_figure_1_sends_what_the_paper_says():
    """Claims 10 and 12: 82,530 and 46,115 floats per step; low for 30 of 300 epochs sends 1462.8 M, 1.66 times less."""
    low, probe = plan_of("fig1", "rank 2"), plan_of("fig1", "low in critical regimes")
    assert floats_of(probe) == (46_115, 82_530)
    assert probe.exact
    assert probe.calm.floats_per_worker == pytest.approx(1462.8e6, rel=1e-4)
    assert low.calm.floats_per_worker / probe.calm.floats_per_worker == pytest.approx(1.66, abs=0.005)


def test_figure_2_is_uncompressed_outside_critical_regimes():
    plan = plan_of("fig2", "high in critical regimes, else uncompressed")
    assert floats_of(plan) == (46_115, plan.parameters)
    epochs = 300 * 98
    low_updates = 30 * 98
    assert plan.calm.floats_per_worker == low_updates * 46_115 + (epochs - low_updates) * plan.parameters


def test_figure_4b_uses_512_images_for_30_epochs():
    """98 updates in each of 30 epochs and 12 in the others."""
    plan = plan_of("fig4b", "512 in critical regimes")
    assert plan.exact
    assert plan.calm.updates == 30 * 98 + 270 * 12


def test_figure_7_cannot_be_reached_by_a_factor_of_ten_alone():
    """The paper prints 2.2 times less for Smith et al.; ten times the batch from epoch 150 gives 1.8."""
    base, smith = plan_of("fig7", "batch 512"), plan_of("fig7", "Smith et al.")
    assert smith.calm.updates == 150 * 98 + 150 * 9
    assert base.calm.updates / smith.calm.updates == pytest.approx(1.83, abs=0.01)
    twice = plan_of("fig7", "Smith et al., twice the initial rate")
    assert base.calm.updates / twice.calm.updates > 2.2


def test_figure_8_spends_the_floats_of_rank_2():
    """300 x 82,530 / 46,115 = 536.9 epochs."""
    low, budget = plan_of("fig8", "rank 2"), plan_of("fig8", "rank 1, 536 epochs")
    assert budget.calm.epochs == 536
    missing = low.calm.floats_per_worker - budget.calm.floats_per_worker
    assert 0 <= missing < 98 * 46_115


def test_figure_9_can_save_less_than_twice():
    """Claim 37 (2.3 times less than rank 4) is impossible: always rank 2 sends 159,714 of 294,624 floats per step."""
    plan = plan_of("fig9", "Accordion, 2 and 4")
    assert floats_of(plan) == (159_714, 294_624)


def test_figure_10_makes_three_updates_per_epoch():
    config = config_of("fig10", "Accordion, 512 and 16,384")
    assert config.batch.multipliers[0] * config.batch.per_worker * config.workers == 16_384
    assert 98 // config.batch.multipliers[0] == 3


# --- what is drawn


def measured_run(
    directory: Path,
    norms: Sequence[float],
    curvature: dict[int, float],
    *,
    rates: Sequence[float] | None = None,
    overlap: dict[int, float] | None = None,
    scheduler: dict[str, Any] | None = None,
) -> FinishedRun:
    """A run with these norms per epoch, and these measurements after some of them."""
    run = write_run(directory, [50.0] * len(norms))
    records = [
        replace(
            record,
            norm=norm,
            learning_rate=rates[record.epoch] if rates else 0.4,
            extra={
                **(
                    {"eigenvalue": [curvature[record.epoch]], "eigenvalue_products": [13], "eigenvalue_seconds": [0.5]}
                    if record.epoch in curvature
                    else {}
                ),
                **({"overlap": [overlap[record.epoch]]} if overlap and record.epoch in overlap else {}),
            },
        )
        for record, norm in zip(run.read_epochs(), norms, strict=True)
    ]
    RunDirectory(directory).write_epochs(records)
    text = (directory / "config.yaml").read_text()
    (directory / "config.yaml").write_text(f"{text}scheduler: {scheduler or {'interval': 2, 'eta': 0.5}}\n")
    found = read_run(directory, 1)
    assert isinstance(found, FinishedRun)
    return found


def test_both_quantities_are_put_to_the_test_of_algorithm_1(tmp_path: Path):
    """Compared after epochs 1, 3, 5, ...: critical until the first two are known, then where the change is >= half."""
    norms = [9.0, 8.0, 9.0, 7.0, 9.0, 2.0, 9.0, 2.0]  # 8, 7, 2, 2: calm, critical, calm
    curvature = {1: 1.0, 3: 3.0, 5: 3.0, 7: 3.1}  # critical, calm, calm
    run = measured_run(tmp_path / "seed-1", norms, curvature)
    assert critical_by_norm(run) == [True, True, True, True, False, False, True, True]
    assert critical_by_eigenvalue(run) == [True, True, True, True, True, True, False, False]
    assert run.measured("eigenvalue") == curvature


def test_a_falling_learning_rate_is_critical_for_both(tmp_path: Path):
    rates = [0.4, 0.4, 0.4, 0.4, 0.4, 0.04, 0.04, 0.04]
    run = measured_run(tmp_path / "seed-1", [8.0] * 8, dict.fromkeys(range(8), 3.0), rates=rates)
    expected = [True, True, True, True, False, True, False, False]
    assert critical_by_norm(run) == critical_by_eigenvalue(run) == expected


def test_an_eigenvalue_that_is_due_and_missing_is_the_one_before_it(tmp_path: Path):
    run = measured_run(tmp_path / "seed-1", [8.0] * 8, {0: 1.0, 2: 1.1, 4: 5.0})
    assert critical_by_eigenvalue(run) == [True, True, True, True, False, False, True, True]


def test_a_damaged_measurement_is_left_out(tmp_path: Path):
    run = measured_run(tmp_path / "seed-1", [8.0] * 4, {1: 1.0, 3: 2.0})
    broken = [
        replace(epoch, extra={"eigenvalue": value})
        for epoch, value in zip(run.epochs, ([1], 2.0, [], ["x"]), strict=True)
    ]
    assert replace(run, epochs=tuple(broken)).measured("eigenvalue") == {0: 1.0}


def _figure_table(runs: dict[str, FinishedRun], tmp_path: Path, **keys: Any) -> tuple[Table, list[RowRuns]]:
    rows = [(Row("PowerSGD", label, "accordion", ()), {1: tmp_path / label / "seed-1"}) for label in runs]
    table, found = table_of(rows)
    return replace(table, **keys), found


def test_regimes_and_overlap_are_drawn_where_they_were_measured(tmp_path: Path):
    runs = {
        "measured": measured_run(tmp_path / "measured" / "seed-1", [8.0] * 4, {1: 1.0, 3: 2.0}, overlap={1: 20.0}),
        "plain": measured_run(tmp_path / "plain" / "seed-1", [8.0] * 4, {}),
    }
    assert runs["measured"].measured("overlap") == {1: 20.0}
    table, rows = _figure_table(runs, tmp_path, figure="3", draw=("regimes", "overlap"), name="fig")
    first = draw(table, rows, output=tmp_path / "a")
    names = ["regimes-powersgd-measured.png", "regimes-powersgd-measured.svg", "overlap.png", "overlap.svg"]
    assert [path.name for path in first] == [f"fig-{name}" for name in names]
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in draw(table, rows, output=tmp_path)]
    assert "Figure 3. A small comparison" in _text(first[1])
    assert draw(table, rows[1:], output=tmp_path / "b") == []


def _text(svg: Path) -> str:
    """Matplotlib writes text as outlines and names it in a comment."""
    return svg.read_text()


def test_rates_are_means_over_seeds_where_all_of_them_report(tmp_path: Path):
    runs = [measured_run(tmp_path / name / "seed-1", [8.0] * 2, {}) for name in "ab"]
    reported = [
        replace(run, epochs=tuple(replace(epoch, extra={"sent_fraction_L": sent_L}) for epoch in run.epochs))
        for run, sent_L in zip(runs, ([0.01, 0.2, 0.0], [0.03, 0.4, 0.0]), strict=True)
    ]
    assert rates(reported) == [pytest.approx([2.0, 2.0]), pytest.approx([30.0, 30.0]), [0.0, 0.0]]
    assert rates([reported[0], runs[1]]) == []
    assert rates([]) == []


def test_rates_are_drawn_where_they_were_reported(tmp_path: Path):
    run = measured_run(tmp_path / "adacomp" / "seed-1", [8.0] * 3, {})
    table, rows = _figure_table({"adacomp": run}, tmp_path, draw=("rates",), name="fig")
    assert draw(table, rows, output=tmp_path / "a") == []
    told = [replace(epoch, extra={"sent_fraction_L": [0.01, 0.2, 0.0]}) for epoch in run.epochs]
    RunDirectory(tmp_path / "adacomp" / "seed-1").write_epochs(told)
    paths = draw(table, rows, output=tmp_path / "a")
    assert [path.name for path in paths] == ["fig-rates-powersgd-adacomp.png", "fig-rates-powersgd-adacomp.svg"]


def test_critical_epochs_are_merged_into_stripes():
    assert spans([True, True, False, True]) == [(0.5, 2.5), (3.5, 4.5)]
    assert spans([False, False]) == []
    assert spans([]) == []


def test_no_interval_reaches_beyond_100_percent(tmp_path: Path):
    """99.0 and 99.8: the interval of 12.706 x 0.4 would end at 104.5."""
    from matplotlib.figure import Figure

    from accordion_bench.report.figures.curves import draw_group
    from accordion_bench.report.tables.aggregate import read_rows

    directories = {seed: tmp_path / f"seed-{seed}" for seed in (1, 2)}
    write_run(directories[1], [60.0, 99.0])
    write_run(directories[2], [60.0, 99.8])
    left, right = Figure().subplots(1, 2)
    draw_group([left, right], read_rows(*table_of([(Row("net", "x", "low", ()), directories)])), overlay=False)
    (band,) = left.collections
    ends = [y for x, y in band.get_paths()[0].vertices if x == 2.0]
    assert max(ends) == 100.0
    assert min(ends) == pytest.approx(99.4 - 12.706 * 0.4, abs=1e-3)
    assert 100.0 < left.get_ylim()[1] < 101.0  # room for the markers


def test_the_critical_epochs_of_the_named_row_are_shaded(tmp_path: Path):
    from matplotlib.figure import Figure

    from accordion_bench.report.figures.curves import draw_group
    from accordion_bench.report.tables.aggregate import read_rows

    run = write_run(tmp_path / "seed-1", [50.0, 60.0, 70.0])
    RunDirectory(run.path).write_epochs([replace(one, critical=one.epoch != 1) for one in run.read_epochs()])
    records = read_rows(*table_of([(Row("net", "x", "low", ()), {1: run.path})]))
    left, right = Figure().subplots(1, 2)
    draw_group([left, right], records, overlay=False, shaded="x")
    assert [(patch.get_x(), patch.get_x() + patch.get_width()) for patch in left.patches] == [(0.5, 1.5), (2.5, 3.5)]
    assert "critical regimes" in [text.get_text() for text in right.get_legend().get_texts()]
    assert not right.patches
