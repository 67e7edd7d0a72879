"""Stored records -> tables: golden files byte for byte, and what happens to records that are not as they should be."""

from __future__ import annotations

import csv
import io
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
from places import HELPERS, REPOSITORY
from report_golden import GOLDEN, golden_tables
from report_records import ROW, UPDATES, dense, gathered, one_row, results, table_of, write_run

from accordion_bench.errors import UserError
from accordion_bench.report.tables.make import make_tables
from accordion_bench.runs.stored import Problem
from accordion_bench.sweeps.row_records import any_run
from accordion_bench.sweeps.table import Row
from accordion_bench.training.network import NETWORKS, seconds


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The golden tables, made from stored records."""
    folder = tmp_path_factory.mktemp("golden")
    make_tables(golden_tables(folder / "runs"), output=folder / "out")
    return folder / "out"


@pytest.mark.parametrize("name", ["paper", "reduced"])
@pytest.mark.parametrize("kind", ["md", "csv", "tex", "html"])
def test_stored_records_give_the_golden_table_byte_for_byte(written: Path, name: str, kind: str):
    assert (written / f"{name}.{kind}").read_bytes() == (GOLDEN / f"{name}.{kind}").read_bytes()


def test_the_terminal_shows_the_markdown_file(tmp_path: Path):
    table, rows = one_row(tmp_path, [[50.0]])
    (text,) = make_tables([(table, rows)], output=tmp_path / "out", formats=("md", "csv"))
    assert text.text == (tmp_path / "out" / "small.md").read_text()
    assert [path.name for path in text.paths] == ["small.md", "small.csv"]
    assert (text.finished, text.planned) == (1, 1)


def test_the_page_is_whole_and_needs_nothing_else(written: Path):
    page = (written / "paper.html").read_text()
    open_tags: list[str] = []

    class Reader(HTMLParser):
        def handle_starttag(self, tag: str, attrs: object) -> None:
            if tag not in ("meta", "br"):
                open_tags.append(tag)

        def handle_endtag(self, tag: str) -> None:
            assert open_tags.pop() == tag

    Reader().feed(page)
    assert not open_tags
    assert not any(word in page for word in ("http:", "https:", "src=", "<script", "@import"))


def test_metric_is_final_best_or_a_mean_of_the_last(tmp_path: Path):
    table, rows = one_row(tmp_path, [[50.0, 90.0, 80.0, 70.0], [50.0, 60.0, 70.0, 60.0]])
    means = {
        which: results(table, rows, metric=which)[0].estimates["metric"].mean for which in ("final", "best", "last2")
    }
    assert means == {"final": 65.0, "best": 80.0, "last2": 70.0}


def test_a_run_too_short_for_the_mean_has_no_metric_and_is_named(tmp_path: Path):
    table, rows = one_row(tmp_path, [[50.0, 90.0]])
    (text,) = make_tables([(table, rows)], output=tmp_path / "out", metric="last10")
    assert "metric" not in results(table, rows, metric="last10")[0].estimates
    assert "too few epochs for last10: net rank 1 (seed 1)" in text.text


def test_perplexity_is_best_when_lowest(tmp_path: Path):
    table, rows = one_row(tmp_path, [[300.0, 90.0, 100.0]], metric="perplexity")
    assert results(table, rows, metric="best")[0].estimates["metric"].mean == 90.0


def test_data_sent_follows_three_conventions(tmp_path: Path):
    """Per update 50 averaged and 200 gathered words of 4 bytes, 4 workers, 2 epochs."""
    (result,) = results(*one_row(tmp_path, [[1.0, 2.0]], traffic=gathered))
    assert result.estimates["floats_per_worker"].mean == 2 * UPDATES * 250
    assert result.estimates["paper_floats"].mean == 2 * UPDATES * (50 + 4 * 200)
    assert result.estimates["bytes_per_worker"].mean == 2 * UPDATES * 1000


def test_modelled_time_is_measured_work_and_modelled_communication(tmp_path: Path):
    """Of the 2 s of an epoch 25 % are communication, and evaluation is extra."""
    (result,) = results(*one_row(tmp_path, [[1.0, 2.0]], seconds=2.0))
    traffic = dense(0) + dense(1)
    assert result.estimates["training_seconds"].mean == pytest.approx(4.0)
    assert result.estimates["modelled_seconds"].mean == pytest.approx(3.0 + seconds(traffic, 4, NETWORKS["paper"]))


def test_ratios_are_baseline_mean_over_row_mean(tmp_path: Path):
    low = {seed: tmp_path / "low" / f"seed-{seed}" for seed in (1, 2)}
    high = {seed: tmp_path / "high" / f"seed-{seed}" for seed in (1, 2)}
    for seed in (1, 2):
        write_run(low[seed], [50.0], seconds=float(seed))
        write_run(high[seed], [50.0], seconds=seed / 4, traffic=lambda epoch: gathered(epoch))
    table, rows = table_of([(ROW, low), (Row("net", "rank 2", "high", ()), high)])
    first, second = results(table, rows)
    assert first.ratios["training_seconds"] == 1.0
    assert second.ratios["training_seconds"] == pytest.approx(4.0)
    assert second.ratios["floats_per_worker"] == pytest.approx(1000 / 250)


def test_one_seed_has_a_dash_for_an_interval(tmp_path: Path):
    (text,) = make_tables([one_row(tmp_path, [[50.0]])], output=tmp_path / "out")
    assert "50.0 ± -" in text.text
    assert "1 seed, no interval" in text.text
    (line,) = csv.DictReader(io.StringIO((tmp_path / "out" / "small.csv").read_text()))
    assert (line["accuracy_percent"], line["accuracy_percent_ci95"]) == ("50", "")


def test_a_table_without_any_run_is_all_dashes(tmp_path: Path):
    table, rows = table_of([(ROW, {seed: tmp_path / f"seed-{seed}" for seed in (1, 2)})])
    assert not any_run(rows)
    (text,) = make_tables([(table, rows)], output=tmp_path / "out")
    assert "missing: net (2 runs) · run them: accordion-bench sweep table=small" in text.text
    assert "0/2" in text.text
    assert "0.0" not in text.text
    assert (text.finished, text.planned) == (0, 2)


def test_a_diverged_row_says_so_in_place_of_a_number(tmp_path: Path):
    directories = {seed: tmp_path / f"seed-{seed}" for seed in (1, 2)}
    for directory in directories.values():
        write_run(directory, [50.0], finished=False, failure={"state": "diverged", "message": "diverged: loss, step 3"})
    (text,) = make_tables([table_of([(ROW, directories)])], output=tmp_path / "out")
    assert "| diverged (2 of 2 seeds) |" in text.text
    assert "- diverged: net rank 1 seed 1 (loss, step 3); net rank 1 seed 2 (loss, step 3)" in text.text


def test_skipped_updates_are_marked(tmp_path: Path):
    (text,) = make_tables([one_row(tmp_path, [[50.0]], skipped=3)], output=tmp_path / "out")
    assert "50.0 ± - †" in text.text
    assert f"seed 1 (3 of {UPDATES + 3})" in text.text


def test_runs_of_another_scale_are_never_mixed(tmp_path: Path):
    low, high = {1: tmp_path / "low" / "seed-1"}, {1: tmp_path / "high" / "seed-1"}
    write_run(low[1], [50.0, 60.0])
    write_run(high[1], [50.0], dataset={"limit_train": 500})
    table, rows = table_of([(ROW, low), (Row("net", "rank 2", "high", ()), high)])
    _, second = results(table, rows)
    assert not second.estimates
    message = "another scale: dataset.limit_train 500, not None, epochs 1, not 2"
    assert second.problems == (Problem(1, "incomparable", message),)


def test_a_row_with_another_length_on_purpose_is_kept(tmp_path: Path):
    low, longer = {1: tmp_path / "low" / "seed-1"}, {1: tmp_path / "longer" / "seed-1"}
    write_run(low[1], [50.0, 60.0])
    write_run(longer[1], [50.0, 55.0, 60.0, 62.0])
    table, rows = table_of([(ROW, low), (Row("net", "equal budget", "other", ()), longer)])
    assert results(table, rows)[1].estimates["metric"].mean == 62.0


def test_a_short_run_does_not_enter_a_paper_scale_table(tmp_path: Path):
    published: dict[str, str | int] = {"table": 1, "dataset": "CIFAR-10", "network": "ResNet-18", "level": "rank2"}
    _, rows = one_row(tmp_path, [[50.0, 60.0]], Row("ResNet-18", "rank 2", "low", (), published))
    table, _ = table_of([(rows[0].row, rows[0].directories)], scale="paper")
    (result,) = results(table, rows)
    assert result.problems == (Problem(1, "incomparable", "another scale: epochs 2, not 300"),)


def test_a_reduced_table_shows_no_difference_to_the_paper(tmp_path: Path):
    published: dict[str, str | int] = {"table": 1, "dataset": "CIFAR-10", "network": "ResNet-18", "level": "rank2"}
    row = Row("ResNet-18", "rank 2", "low", (), published)
    (text,) = make_tables([one_row(tmp_path, [[50.0, 60.0]], row)], output=tmp_path / "out")
    assert "| paper |" in text.text
    assert "difference |" not in text.text
    assert "reduced scale: 3 epochs" in text.text
    assert "no difference is shown" in text.text


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"metric": "last"}, r"metric must be final, best or last<k> .*, got 'last'"),
        ({"metric": "last0"}, "got 'last0'"),
        ({"ci": "t"}, "ci must be one of student, normal, got 't'"),
        ({"network": "papre"}, "no network 'papre'; did you mean paper"),
        ({"formats": ("pdf",)}, "no table format 'pdf'; .*md, csv, tex, html"),
    ],
)
def test_a_wrong_argument_is_refused(tmp_path: Path, keys: dict[str, object], message: str):
    with pytest.raises(UserError, match=message):
        make_tables([one_row(tmp_path, [[50.0]])], output=tmp_path / "out", **keys)  # type: ignore[arg-type]


def test_published_keys_that_match_nothing_are_refused(tmp_path: Path):
    row = Row("net", "rank 1", "low", (), {"table": 1, "dataset": "CIFAR-10", "network": "ResNet-18", "level": "rank9"})
    with pytest.raises(UserError, match=r"published\.level 'rank9' with table 1, dataset CIFAR-10, network ResNet-18"):
        make_tables([one_row(tmp_path, [[50.0]], row)], output=tmp_path / "out")


def test_an_output_that_cannot_be_written_is_named(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"cannot write tables to .*file/out"):
        make_tables([one_row(tmp_path, [[50.0]])], output=tmp_path / "file" / "out")


@pytest.mark.thorough
def test_reports_never_load_torch(tmp_path: Path):
    code = (
        "import sys; from pathlib import Path\n"
        "from accordion_bench.report import listing, published\n"
        "from accordion_bench.report.figures.charts import make_curves\n"
        "from accordion_bench.report.tables.make import make_tables\n"
        "from report_golden import reduced_table\n"
        f"made = reduced_table(Path({str(tmp_path)!r}))\n"
        f"out = Path({str(tmp_path / 'out')!r})\n"
        "make_tables([made], output=out); make_curves(*made, output=out)\n"
        f"listing.render_runs(listing.list_runs(Path({str(tmp_path)!r})))\n"
        "assert 'torch' not in sys.modules, 'torch was imported'"
    )
    environment = {"PYTHONPATH": f"{REPOSITORY}:{HELPERS}", "PATH": "/usr/bin:/bin"}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)
