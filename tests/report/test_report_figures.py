"""Figures: that they are drawn from the records, from nothing else, and the same every time."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from report_records import LAYERS, UPDATES, dense, gathered, table_of, write_run

from accordion_bench.errors import UserError
from accordion_bench.report.figures import style
from accordion_bench.report.figures.charts import make_curves, make_levels
from accordion_bench.report.figures.curves import draw_group, running_mean
from accordion_bench.report.figures.heatmap import changes
from accordion_bench.report.tables.aggregate import read_rows
from accordion_bench.runs.stored import FinishedRun, read_run
from accordion_bench.sweeps.table import Row, RowRuns, Table

PUBLISHED: dict[str, str | int] = {"table": 1, "dataset": "CIFAR-10", "network": "ResNet-18", "level": "rank2"}


def _levels(epoch: int, seed: int) -> tuple[int, int, int]:
    """The first layer stays least compressed, the second is so for `seed` epochs, the third never."""
    return 1, int(epoch < seed), 0


def small_table(folder: Path) -> tuple[Table, list[RowRuns]]:
    """Two rows of two seeds, one row that was never run."""
    low = {seed: folder / "low" / f"seed-{seed}" for seed in (1, 2)}
    adaptive = {seed: folder / "adaptive" / f"seed-{seed}" for seed in (1, 2)}
    for seed in (1, 2):
        write_run(low[seed], [50.0 + seed, 60.0 + 2 * seed, 70.0])
        write_run(
            adaptive[seed],
            [40.0, 50.0, 60.0],
            levels=partial(_levels, seed=seed),
            multiple=lambda epoch: 1 + epoch // 2,
        )
    return table_of(
        [
            (Row("net", "rank 2", "low", ()), low),
            (Row("net", "Accordion", "accordion", ()), adaptive),
            (Row("net", "rank 1", "high", ()), {seed: folder / "never" / f"seed-{seed}" for seed in (1, 2)}),
        ]
    )


def test_curves_are_written_and_the_same_every_time(tmp_path: Path):
    table, rows = small_table(tmp_path)
    first = make_curves(table, rows, output=tmp_path / "a")
    second = make_curves(table, rows, output=tmp_path / "b")
    assert [path.name for path in first] == ["small-curves.png", "small-curves.svg"]
    for one, other in zip(first, second, strict=True):
        assert one.read_bytes() == other.read_bytes()
    assert first[0].read_bytes().startswith(b"\x89PNG")
    assert "<dc:date>" not in first[1].read_text()


def test_levels_are_written_for_the_rows_in_which_something_changes(tmp_path: Path):
    table, rows = small_table(tmp_path)
    first = make_levels(table, rows, output=tmp_path / "a")
    assert [path.name for path in first] == ["small-levels-net-accordion.png", "small-levels-net-accordion.svg"]
    second = make_levels(table, rows, output=tmp_path / "b")
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]


def test_lines_are_means_over_seeds_against_epochs_and_words_sent(tmp_path: Path):
    from matplotlib.figure import Figure

    table, rows = small_table(tmp_path)
    left, right = Figure().subplots(1, 2)
    draw_group([left, right], read_rows(table, rows), overlay=False)
    low, adaptive = left.get_lines()
    assert list(low.get_xdata()) == [1, 2, 3]
    assert list(low.get_ydata()) == [51.5, 63.0, 70.0]
    assert list(adaptive.get_ydata()) == [40.0, 50.0, 60.0]
    words = right.get_lines()[0].get_xdata()
    assert list(words) == [1000 * UPDATES * (epoch + 1) / 1e3 for epoch in range(3)]
    assert right.get_xlabel() == "floats sent per worker (k)"
    names = [text.get_text() for text in right.get_legend().get_texts()]
    assert names == ["rank 2", "Accordion", "95 % CI over seeds"]


def test_bands_are_student_intervals(tmp_path: Path):
    """Two seeds, 51 and 52: 12.706 s / sqrt(2) = 12.706 * 0.5."""
    from matplotlib.figure import Figure

    table, rows = small_table(tmp_path)
    left, right = Figure().subplots(1, 2)
    draw_group([left, right], read_rows(table, rows)[:1], overlay=False)
    (band,) = left.collections
    at_first_epoch = [y for x, y in band.get_paths()[0].vertices if x == 1.0]
    assert min(at_first_epoch) == pytest.approx(51.5 - 6.3531, abs=1e-3)
    assert max(at_first_epoch) == pytest.approx(51.5 + 6.3531, abs=1e-3)


def test_the_published_curve_is_dashed_and_only_beside_paper_scale(tmp_path: Path):
    from matplotlib.figure import Figure

    directories = {1: tmp_path / "seed-1"}
    write_run(directories[1], [94.0] * 300, dataset={"name": "cifar10"})
    table, rows = table_of([(Row("ResNet-18", "rank 2", "low", (), PUBLISHED), directories)], scale="paper")
    left, right = Figure().subplots(1, 2)
    draw_group([left, right], read_rows(table, rows), overlay=True)
    measured, published = left.get_lines()
    assert measured.get_linestyle() == "-"
    assert published.get_linestyle() == "--"
    assert len(published.get_xdata()) == 300
    assert len(right.get_lines()) == 1
    drawn = make_curves(table, rows, output=tmp_path / "a")
    bare = make_curves(table, rows, output=tmp_path / "b", overlay_published=False)
    assert drawn[1].read_bytes() != bare[1].read_bytes()


def test_perplexity_leaves_out_its_highest_values(tmp_path: Path):
    from matplotlib.figure import Figure

    directories = {1: tmp_path / "seed-1"}
    write_run(directories[1], [5000.0, *[200.0 - epoch for epoch in range(39)]], metric="perplexity")
    table, rows = table_of([(Row("LSTM", "none", "low", ()), directories)])
    left, right = Figure().subplots(1, 2)
    draw_group([left, right], read_rows(table, rows), overlay=False)
    assert left.get_ylim()[1] < 300
    assert left.get_ylabel() == "test perplexity"


def test_floats_get_a_logarithmic_axis_when_they_differ_widely(tmp_path: Path):
    from matplotlib.figure import Figure

    rows = []
    for label, role, traffic in (("all", "low", dense), ("few", "high", lambda epoch: gathered(0).from_dict(NOTHING))):
        directories = {1: tmp_path / label / "seed-1"}
        write_run(directories[1], [50.0, 60.0], traffic=traffic)
        rows.append((Row("net", label, role, ()), directories))
    left, right = Figure().subplots(1, 2)
    draw_group([left, right], read_rows(*table_of(rows)), overlay=False)
    assert (left.get_xscale(), right.get_xscale()) == ("linear", "log")


NOTHING = {
    "mean": {"calls": UPDATES, "elements": 10, "bytes": 40},
    "gather": {"calls": 0, "elements": 0, "bytes": 0},
    "control": {"calls": 0, "elements": 0, "bytes": 0},
}


def test_more_than_three_groups_go_on_several_figures(tmp_path: Path):
    rows = []
    for group in "abcd":
        directories = {1: tmp_path / group / "seed-1"}
        write_run(directories[1], [50.0, 60.0])
        rows.append((Row(group, "x", "low", ()), directories))
    names = [path.name for path in make_curves(*table_of(rows), output=tmp_path / "out") if path.suffix == ".png"]
    assert names == ["small-curves-1.png", "small-curves-2.png"]


def test_nothing_is_drawn_from_nothing(tmp_path: Path):
    table, rows = table_of([(Row("net", "x", "low", (), PUBLISHED), {1: tmp_path / "seed-1"})])
    assert make_curves(table, rows, output=tmp_path / "out") == []
    assert make_levels(table, rows, output=tmp_path / "out") == []
    assert not (tmp_path / "out").exists()


def test_changes_are_averages_over_seeds(tmp_path: Path):
    _, rows = small_table(tmp_path)
    runs = [read_run(directory, seed) for seed, directory in rows[1].directories.items()]
    found = changes([run for run in runs if isinstance(run, FinishedRun)])
    assert found is not None
    assert found.level_LE == [[1, 1, 1], [1, 0.5, 0], [0, 0, 0]]
    assert found.multiple_E == [1, 1, 2]
    assert found.layers == list(LAYERS)
    assert found.levels == (1, 2)


def test_a_static_row_changes_nothing(tmp_path: Path):
    _, rows = small_table(tmp_path)
    run = read_run(rows[0].directories[1], 1)
    assert isinstance(run, FinishedRun)
    assert changes([run]) is None
    assert changes([]) is None


def test_a_running_mean_begins_with_what_there_is():
    assert running_mean([1.0, 2.0, 3.0, 10.0], 1) == [1.0, 2.0, 3.0, 10.0]
    assert running_mean([1.0, 2.0, 3.0, 10.0], 3) == [1.0, 1.5, 2.0, 5.0]


def test_no_two_rows_of_a_group_look_alike():
    looks = style.styles(["low", "high", "accordion", *["other"] * 20, "accordion"])
    assert len(set(looks)) == len(looks)
    assert looks[:3] == [style.OF_ROLE[role] for role in ("low", "high", "accordion")]


def test_an_output_that_cannot_be_written_is_named(tmp_path: Path):
    table, rows = small_table(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot write figures to"):
        make_curves(table, rows, output=tmp_path / "file" / "out")
