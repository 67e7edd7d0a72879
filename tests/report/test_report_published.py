"""The published values: unchanged facts, reachable by the keys that tables use."""

from __future__ import annotations

import pandas as pd
import pytest
from shared_data import shared

from accordion_bench.errors import UserError
from accordion_bench.report import published
from accordion_bench.report.tables.aggregate import published_of
from accordion_bench.sweeps.table import load_table, table_names

RESNET = {"table": 1, "dataset": "CIFAR-10", "network": "ResNet-18", "level": "rank2"}


def test_a_row_is_what_the_paper_prints():
    row = published.row(RESNET)
    assert (row.text, row.value, row.floats, row.floats_text, row.seconds) == ("94.5", 94.5, 2418.4e6, "2418.4", 3509)
    topk = published.row({"table": 4, "dataset": "CIFAR-100", "network": "SENet", "level": "accordion"})
    assert (topk.floats, topk.floats_text, topk.floats_unit) == (966.13e9, "966.13", 1e9)


def test_a_number_as_level_is_found_too():
    assert (
        published.row({"table": "Table 5", "dataset": "CIFAR-10", "network": "DenseNet", "level": 4096}).text == "93.1"
    )


def test_the_language_model_has_the_last_perplexity_of_its_log():
    row = published.row({"table": "fig11", "dataset": "WikiText-2", "network": "LSTM", "level": "k99"})
    assert (row.metric, row.text, row.floats, row.seconds) == ("perplexity", "97.62", None, None)


def test_every_printed_row_has_a_curve_that_ends_near_its_accuracy():
    rows = published.data("tables.csv")
    assert len(rows) == 54
    for _, line in rows.iterrows():
        keys = {key: line[key] for key in published.KEYS}
        curve = published.curve(keys)
        assert list(curve["epoch"]) == list(range(len(curve)))
        assert abs(curve["accuracy"].iloc[-1] - published.row(keys).value) < 1.7


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"network": "Resnet-18"}, "did you mean ResNet-18"),
        ({"table": 7}, "there are: "),
        ({"level": "rank3"}, "rank1, accordion|accordion, rank1|rank2"),
    ],
)
def test_unknown_keys_say_what_there_is(change: dict[str, object], message: str):
    with pytest.raises(UserError, match=message):
        published.row(RESNET | change)
    with pytest.raises(UserError, match=message):
        published.curve(RESNET | change)


def test_all_four_keys_are_needed():
    with pytest.raises(UserError, match="published must have the keys table, dataset, network, level"):
        published.row({"table": 1})


def test_a_caller_cannot_change_the_facts():
    mine = published.data("tables.csv")
    mine["accuracy_pct"] = "0"
    assert published.row(RESNET).text == "94.5"


@pytest.mark.parametrize("name", table_names())
def test_tables_of_the_configuration_point_at_something_published(name: str):
    table = load_table(name)
    assert table.rows
    for row in table.rows:
        published_of(row)


def test_the_package_holds_the_reference_files_numbers():
    original = pd.read_csv(shared("reference", "paper_tables.csv"), dtype=str, keep_default_na=False)
    pd.testing.assert_frame_equal(published.data("tables.csv"), original)
    curves = pd.read_csv(shared("reference", "published_curves.csv"), dtype=str, keep_default_na=False)
    pd.testing.assert_frame_equal(published.data("curves.csv.gz"), curves)
    claims = pd.read_csv(shared("reference", "paper_text_claims.csv"), dtype=str, keep_default_na=False)
    assert list(published.data("claims.csv")["value"]) == list(claims["value"])
    runs = pd.read_csv(shared("reference", "published_runs.csv"), dtype=str, keep_default_na=False)
    assert list(published.data("runs.csv")["source_log"]) == list(runs["source_log"])
    parameters = pd.read_csv(shared("reference", "paper_params.csv"), dtype=str, keep_default_na=False)
    assert list(published.data("parameters.csv")["parameters_printed"]) == list(parameters["params_printed"])
    hyperparameters = pd.read_csv(shared("reference", "paper_hparams.csv"), dtype=str, keep_default_na=False)
    assert list(published.data("hyperparameters.csv")["authors_code"]) == list(hyperparameters["in_authors_code"])
