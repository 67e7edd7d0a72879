"""The audit's Accordion brackets, ratios, claims and times: closed forms, and what another printed number changes."""

from __future__ import annotations

import pytest
from audit_cases import changed, time_row

from accordion_bench.report import published
from accordion_bench.report.audit.accordion import transpositions
from accordion_bench.report.audit.counting import Cell, published_cells
from accordion_bench.report.audit.report import AuditReport, audit
from accordion_bench.report.audit.time import FIT


@pytest.fixture(scope="module")
def cells() -> tuple[Cell, ...]:
    return published_cells()


@pytest.fixture(scope="module")
def report(cells: tuple[Cell, ...]) -> AuditReport:
    return audit(cells)


def test_accordion_rows_lie_between_their_static_rows(report: AuditReport) -> None:
    assert len(report.accordion) == 18
    for row in report.accordion:
        assert row.inside
        assert 0 < row.low_share < 1
        assert row.low_share < row.low_traffic_share < 1  # a step at the low level sends more
        mixture = row.low_share * float(row.low) + (1 - row.low_share) * float(row.high)
        assert mixture == pytest.approx(float(row.printed))


def test_a_row_above_its_low_row_is_not_inside(cells: tuple[Cell, ...]) -> None:
    above = audit(changed(cells, "2", "DenseNet", "accordion", data_sent="3387.5"))
    (row,) = (r for r in above.accordion if (r.table, r.network) == ("2", "DenseNet"))
    assert not row.inside
    assert row.low_share > 1


def test_batch_size_rows_imply_20_epochs(report: AuditReport) -> None:
    rows = [row for row in report.accordion if row.method == "batch_size"]
    words = {"ResNet-18": 11_173_962, "GoogLeNet": 6_166_250, "DenseNet": 1_000_618}
    for row in rows:
        if row.verdict == "agree":
            assert row.low_epochs == pytest.approx(20, abs=0.3)
        if row.table == "5":
            assert row.predicted == pytest.approx(words[row.network] * (20 * 97 + 280 * 12) / 1e9)
    assert [row.verdict for row in rows] == ["agree"] * 3 + ["explained"] + ["agree"] * 2


def test_the_swapped_digits_are_explained_not_matched(cells: tuple[Cell, ...], report: AuditReport) -> None:
    (row,) = (r for r in report.accordion if r.verdict == "explained")
    assert (row.table, row.network, row.printed) == ("6", "ResNet-18", "54.96")
    assert "59.46" in row.says
    assert [item.supports for item in row.evidence] == [True]
    other = audit(changed(cells, "6", "ResNet-18", "accordion", data_sent="54.95"))
    assert [r.verdict for r in other.accordion if (r.table, r.network) == ("6", "ResNet-18")] == ["unexplained"]


def test_transpositions() -> None:
    assert transpositions("54.96") == ["45.96", "59.46", "54.69"]
    assert transpositions("11.2") == ["12.1"]


def test_ratios_that_do_not_follow(cells: tuple[Cell, ...], report: AuditReport) -> None:
    wrong = {(r.table, r.network, r.level, r.quantity) for r in report.ratios if r.agrees is False}
    assert wrong == {
        ("2", "ResNet-18", "accordion", "data"),
        ("3", "ResNet-18", "accordion", "data"),
        ("5", "ResNet-18", "accordion", "data"),
        ("6", "ResNet-18", "accordion", "data"),
    }
    assert [(r.table, r.network) for r in report.ratios if r.agrees is None] == [("5", "DenseNet")]
    assert len(report.ratios) == 2 * 36
    right = audit(changed(cells, "2", "ResNet-18", "accordion", data_ratio="1.5"))
    assert sum(r.agrees is False for r in right.ratios) == 3
    worse = audit(changed(cells, "3", "GoogLeNet", "k10", time_ratio="2.3"))
    assert sum(r.agrees is False for r in worse.ratios) == 5


def test_claims_agree_with_the_hand_made_cross_check(cells: tuple[Cell, ...], report: AuditReport) -> None:
    by_hand = published.data("claims.csv").set_index("id")["consistent"]
    assert len(report.claims) >= 20
    for claim in report.claims:
        if by_hand[claim.id]:
            assert claim.holds == by_hand[claim.id].split(" ")[0], claim
    faster = audit(changed(cells, "6", "DenseNet", "accordion", time_s="3390"))
    assert {c.id: c.holds for c in faster.claims}["8"] == "yes"  # 14928 / 3390 = 4.40
    assert {c.id: c.holds for c in faster.claims}["2"] == "partly"  # up to 4.1 is reached, by Table 5, and exceeded


def test_fit_reproduces_the_rows_it_used(report: AuditReport) -> None:
    used = [row for row in report.time.rows if row.fitted]
    assert len(used) == len(FIT) == len(report.time.unknowns) == 10
    for row in used:
        assert row.predicted == pytest.approx(row.printed, rel=1e-9)
    assert len(report.time.rows) == 54


def test_fit_of_the_batch_size_runs_is_the_closed_form(report: AuditReport) -> None:
    """T(512) = 98*300*(c + x), T(4096) = 98*300*c + 3600*x, for ResNet-18 of Table 5; x: 62 messages and 44.7 MB."""
    x = (5009 - 1721) / (98 * 300 - 3600)
    compute = 5009 / (98 * 300) - x
    ring_seconds = 1.5 * 4 * 11_173_962 * 8 / 1e10  # 2 (A-1)/A of 4 bytes a parameter, 10 Gbit/s
    assert report.time.unknowns["compute ResNet-18"] == pytest.approx(compute)
    assert report.time.unknowns["latency batch-size runs"] == pytest.approx((x - ring_seconds) / 62)
    assert report.time.unknowns["latency batch-size runs"] == pytest.approx(1.2e-3, rel=0.02)


def test_predicted_times_are_reported_good_and_bad(report: AuditReport) -> None:
    errors = {(r.table, r.network, r.level): r.error for r in report.time.rows if not r.fitted}
    assert len(errors) == 44
    assert max(abs(e) for (table, _, _), e in errors.items() if table in "12") < 0.05
    assert errors["6", "GoogLeNet", "4096"] < -0.4  # 1.7 times Table 5's for the same work
    assert errors["4", "ResNet-18", "k25"] > 0.9
    assert report.time.common_latency_error > 0.2


def test_time_follows_the_printed_times(cells: tuple[Cell, ...], report: AuditReport) -> None:
    slower = audit(changed(cells, "5", "ResNet-18", "512", time_s="6009"))
    name = "latency batch-size runs"
    assert slower.time.unknowns[name] > report.time.unknowns[name]
    assert time_row(slower, "5", "DenseNet", "512").predicted > time_row(report, "5", "DenseNet", "512").predicted


def test_messages_and_our_step(report: AuditReport) -> None:
    """ResNet-18 has 21 matrices and 41 vectors: 2 messages per matrix under compression, else 1; ours: 2 and 1."""
    for key, published_count, ours in (
        (("1", "ResNet-18", "rank2"), 2 * 21 + 41, 2),
        (("3", "ResNet-18", "k10"), 2 * 21 + 41, 2),
        (("5", "ResNet-18", "512"), 21 + 41, 1),
    ):
        row = time_row(report, *key)
        assert (row.collectives, row.fused_collectives) == (published_count, ours)
    row = time_row(report, "5", "ResNet-18", "512")
    saved = 61 * report.time.unknowns["latency batch-size runs"] * 98 * 300
    assert row.fused == pytest.approx(5009 - saved)
    assert all(row.speedup > 1 for row in report.time.rows if row.speedup is not None)


def test_contradictory_times_are_named(report: AuditReport) -> None:
    assert len(report.time.contradictions) == 3
    assert all("k25" in item and "Table 3 k10" in item for item in report.time.contradictions)
