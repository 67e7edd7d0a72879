"""The audit of Data Sent against arithmetic on the paper's own shapes: what agrees, what is explained and how."""

from __future__ import annotations

import subprocess
import sys
from decimal import Decimal

import pytest
from audit_cases import changed, data_row

from accordion_bench.errors import UserError
from accordion_bench.report import published
from accordion_bench.report.audit.counting import Cell, layout, printed_form, published_cells
from accordion_bench.report.audit.report import AuditReport, audit
from accordion_bench.report.audit.text import render

VARIANT, STEPS_97, EPOCHS_249, ALL_KEPT = "variant", "97 steps", "249 epochs", "100 % kept"
# Ten-class SE-ResNet-18, 516 wide: 11,373,208 elements in matrices and 16,518 in vectors; sum of n + m 40,553.
SE_MATRICES, SE_VECTORS = 11_373_208, 16_518
# (table, network, level) -> (assumptions, words from the shape lists, supported by something independent)
EXPLAINED = {
    ("1", "SENet", "rank4"): ((VARIANT, EPOCHS_249), 178_730 * 98 * 249, True),
    ("1", "SENet", "rank1"): ((VARIANT, EPOCHS_249), 57_071 * 98 * 249, True),
    ("3", "ResNet-18", "k99"): ((ALL_KEPT,), (8 * 11_164_352 + 9_610) * 98 * 300, False),
    ("3", "SENet", "k99"): ((VARIANT,), None, True),
    ("3", "SENet", "k10"): ((VARIANT,), None, True),
    ("4", "ResNet-18", "k99"): ((ALL_KEPT,), (8 * 11_210_432 + 9_700) * 98 * 300, False),
    ("5", "ResNet-18", "512"): (("cell of Table 6",), 11_220_132 * 97 * 300, False),
    ("6", "ResNet-18", "512"): ((STEPS_97,), 11_220_132 * 97 * 300, True),
    ("6", "GoogLeNet", "512"): ((STEPS_97,), 6_258_500 * 97 * 300, True),
    ("6", "DenseNet", "512"): ((STEPS_97,), 1_035_268 * 97 * 300, True),
}


@pytest.fixture(scope="module")
def cells() -> tuple[Cell, ...]:
    return published_cells()


@pytest.fixture(scope="module")
def report(cells: tuple[Cell, ...]) -> AuditReport:
    return audit(cells)


def test_26_cells_agree_and_ten_are_explained(report: AuditReport) -> None:
    assert len(report.data_sent) == 36
    assert report.verdicts == {"agree": 26, "explained": 10}
    explained = {(r.table, r.network, r.level) for r in report.data_sent if r.verdict == "explained"}
    assert explained == set(EXPLAINED)


@pytest.mark.parametrize("key", EXPLAINED)
def test_arithmetic_of_an_explained_row(report: AuditReport, key: tuple[str, str, str]) -> None:
    row = data_row(report, *key)
    assumptions, words, supported = EXPLAINED[key]
    assert row.assumptions == assumptions
    assert row.supported is supported
    assert printed_form(Decimal(repr(row.predicted)), row.printed) is None  # not under the paper's own reading
    assert row.explained is not None
    assert printed_form(Decimal(repr(row.explained)), row.printed) == row.form
    if words is not None:
        assert row.explained == pytest.approx(words / published.UNITS[row.unit], rel=1e-12)


def test_topk_of_the_other_senet_is_within_the_truncation_of_k() -> None:
    """int(fraction n) loses less than one element per matrix, of which there are 37."""
    for level, fraction, printed in (("k99", 0.99, 2648.7), ("k10", 0.10, 267.9)):
        upper = (8 * fraction * SE_MATRICES + SE_VECTORS) * 98 * 300 / 1e9
        row = data_row(audit(), "3", "SENet", level)
        assert row.explained is not None
        assert upper - 8 * 37 * 98 * 300 / 1e9 <= row.explained <= upper + 1e-9
        assert row.explained == pytest.approx(printed, abs=0.1)


def test_networks_have_the_parameters_of_tables_8_and_9(cells: tuple[Cell, ...]) -> None:
    counts = published.data("parameters.csv").set_index(["dataset", "network"])["parameters_printed"]
    for dataset, network in {(c.dataset, c.network) for c in cells}:
        assert layout(network, dataset).size == int(counts[dataset, network])
    assert layout("SENet", "CIFAR-10", "post").size == 11_389_726 == SE_MATRICES + SE_VECTORS


def test_relative_difference_is_of_the_unexplained_prediction(report: AuditReport) -> None:
    row = data_row(report, "6", "DenseNet", "512")
    assert row.relative_difference == pytest.approx(1_035_268 * 98 * 300 / 30.126e9 - 1)


@pytest.mark.parametrize(
    ("key", "text"),
    [
        (("1", "ResNet-18", "rank2"), "2418.6"),  # agreed
        (("3", "GoogLeNet", "k10"), "145.3"),
        (("6", "DenseNet", "4096"), "3.74"),
        (("1", "SENet", "rank1"), "1392.8"),  # was explained
        (("4", "ResNet-18", "k99"), "2637.1"),
        (("5", "ResNet-18", "512"), "326.7"),
        (("6", "DenseNet", "512"), "30.128"),
    ],
)
def test_another_printed_value_flips_the_verdict(cells: tuple[Cell, ...], key: tuple[str, str, str], text: str) -> None:
    flipped = audit(changed(cells, *key, data_sent=text))
    assert data_row(flipped, *key).verdict != data_row(audit(cells), *key).verdict


def test_correct_count_would_agree(cells: tuple[Cell, ...]) -> None:
    """A cell that prints what the rules give is a match, not an explanation."""
    for key, text in ((("3", "ResNet-18", "k99"), "2599.8"), (("6", "ResNet-18", "512"), "329.9")):
        assert data_row(audit(changed(cells, *key, data_sent=text)), *key).verdict == "agree"


def test_copied_cell_needs_the_other_cell_to_be_accounted_for(cells: tuple[Cell, ...]) -> None:
    both = changed(
        changed(cells, "5", "ResNet-18", "512", data_sent="321.0"), "6", "ResNet-18", "512", data_sent="321.0"
    )
    assert data_row(audit(both), "5", "ResNet-18", "512").verdict == "unexplained"


def test_epochs_are_supported_by_time_only(cells: tuple[Cell, ...]) -> None:
    """249 epochs rest on the Time of another table's row; with 300 epochs' worth of it nothing independent is left."""
    slow = audit(changed(cells, "1", "SENet", "rank1", time_s="4990"))
    row = data_row(slow, "1", "SENet", "rank4")
    assert row.assumptions == (VARIANT, EPOCHS_249)
    assert not row.supported


def test_other_single_numbers_that_fit_are_named(report: AuditReport) -> None:
    assert data_row(report, "6", "ResNet-18", "512").also == ("297 epochs",)
    assert data_row(report, "6", "DenseNet", "512").also == ()


@pytest.mark.parametrize(
    ("value", "text", "form"),
    [
        ("1350.489", "1350.4", "truncated"),
        ("1350.45", "1350.5", "rounded"),
        ("1350.44", "1350.4", "rounded"),
        ("1350.51", "1350.4", None),
        ("7.9", "8", "rounded"),
    ],
)
def test_printed_form(value: str, text: str, form: str | None) -> None:
    assert printed_form(Decimal(value), text) == form


def test_json_round_trip(report: AuditReport) -> None:
    again = AuditReport.from_json(report.to_json())
    assert again == report
    assert render(again) == render(report)


def test_text_fits_a_terminal_and_says_what_is_what(report: AuditReport) -> None:
    text = render(report)
    assert max(map(len, text.splitlines())) <= 120
    assert "26 agree with the print, 10 are explained under an assumption, 0 unexplained" in text
    assert text.count("Nothing independent supports it.") == 2  # 100 % kept, and the copied cell
    assert "Rows used to fit" in text
    for row in report.data_sent:
        assert row.printed in text


def test_text_of_unexplained_cells(cells: tuple[Cell, ...]) -> None:
    text = render(audit(changed(cells, "1", "ResNet-18", "rank2", data_sent="9999.9")))
    assert "25 agree with the print, 10 are explained under an assumption, 1 unexplained" in text


@pytest.mark.parametrize(
    ("column", "text", "message"),
    [
        ("data_sent", "", "data_sent of Table 1 ResNet-18 rank2 must be a number above 0, got ''"),
        ("data_sent", "nan", "must be a number above 0, got 'nan'"),
        ("time_s", "-3", "time_s of Table 1 ResNet-18 rank2 must be a number above 0, got '-3'"),
        (
            "data_unit",
            "trillion",
            "data_unit of Table 1 ResNet-18 rank2 must be one of million, billion, got 'trillion'",
        ),
        ("network", "AlexNet", "network of Table 1 AlexNet rank2 must be one of ResNet-18"),
        ("role", "medium", "Table 1, CIFAR-10, ResNet-18 must have one row of role low, got 0"),
        ("data_sent", "1350.4", "must differ"),
    ],
)
def test_cells_that_cannot_be_computed_with_are_refused(
    cells: tuple[Cell, ...], column: str, text: str, message: str
) -> None:
    with pytest.raises(UserError, match=message.replace("(", r"\(")) as caught:
        audit(changed(cells, "1", "ResNet-18", "rank2", **{column: text}))
    assert "\n" not in str(caught.value)


def test_part_of_the_tables_is_refused(cells: tuple[Cell, ...]) -> None:
    with pytest.raises(UserError, match=r"Table 5, CIFAR-10, ResNet-18 must have one row of role low, got 0; give all"):
        audit([c for c in cells if c.table != "5"])
    with pytest.raises(UserError, match="the fit needs Table 5 CIFAR-10 GoogLeNet 4096"):
        audit([c for c in cells if (c.table, c.network) != ("5", "GoogLeNet")])


def test_importing_the_audit_loads_no_torch() -> None:
    code = "import sys, accordion_bench.report.audit.text; sys.exit('torch' in sys.modules or 'pandas' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
