"""Reports of numbers that no run should have and diverging ones do: tiny, huge, infinite, none."""

from __future__ import annotations

import math
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from report_records import one_row, results, table_of, write_run

from accordion_bench.report.claims.statistics import holm, ratio_test, seeds_needed, t_test
from accordion_bench.report.claims.text import render
from accordion_bench.report.claims.verdicts import verdicts
from accordion_bench.report.estimates import KINDS, Estimate, estimate, mean_and_deviation
from accordion_bench.report.figures.charts import make_curves
from accordion_bench.report.numbers import decimals_for, number, plain, ratio, signed, unit_for, with_interval
from accordion_bench.report.tables.make import make_tables
from accordion_bench.sweeps.claims import Claim
from accordion_bench.sweeps.table import Row, RowRuns, Table

EXTREMES = (0.0, -0.0, 5e-324, 1e-300, 1.0, 48.4, 1e12, 1e163, 1e308, -1e308, math.inf, -math.inf, math.nan)
LISTS = st.lists(st.sampled_from(EXTREMES) | st.floats(), max_size=6)


@given(LISTS, st.sampled_from(list(KINDS)))
def test_every_list_has_an_estimate_that_can_be_written(values: list[float], kind: str) -> None:
    found = estimate(values, kind)
    assert (found is None) == (not values)
    if found is None:
        return
    if all(map(math.isfinite, values)):
        assert min(values) <= found.mean * (1 + 1e-15) + 5e-324 or found.mean >= min(values)
        assert found.half_width is None or found.half_width >= 0
    decimals = decimals_for([found, None, Estimate(48.4, 0.3, 3)], digits=4, least=1)
    assert 0 <= decimals <= 4
    for text in (with_interval(found, decimals), number(found.mean, 1), signed(found.mean, 1), plain(found.mean)):
        assert 0 < len(text) < 60


@given(LISTS, st.sampled_from(EXTREMES), st.sampled_from(EXTREMES))
def test_every_list_has_a_test_or_none(values: list[float], threshold: float, effect: float) -> None:
    found = t_test(values, threshold)
    if found is not None and not math.isnan(threshold):
        assert 0 <= found.p_for <= 1 and 0 <= found.p_against <= 1
        assert found.low <= found.mean <= found.high
        assert holm([found.p_for, found.p_against])
        seeds_needed(found.effect, 3)
    ratio_test(values, list(reversed(values)), 1.5)
    assert seeds_needed(effect, 2) is None or seeds_needed(effect, 2) >= 2


@pytest.mark.parametrize("scale", [5e-324, 1e-200, 1.0, 1e163, 1e300])
def test_the_interval_keeps_its_share_of_the_mean_at_every_size(scale: float) -> None:
    mean, deviation = mean_and_deviation([1.0, 2.0, 6.0], 2)
    if scale > 1e-300:
        assert mean_and_deviation([scale, 2 * scale, 6 * scale], 2) == pytest.approx((scale * mean, scale * deviation))
    assert t_test([0.0, 0.0, scale], 0.0).effect == pytest.approx(t_test([0.0, 0.0, 1.0], 0.0).effect)  # type: ignore[union-attr]


def test_the_ratio_of_the_largest_and_the_smallest_is_a_number() -> None:
    found = ratio_test([1e308, 1e308], [5e-324, 1e-323], 1.5)
    assert found is not None and found.p_for < 0.05


@pytest.mark.parametrize("value", [math.inf, 1e308, 1e163, 0.0, math.nan])
def test_a_column_keeps_its_decimals_beside_any_value(value: float) -> None:
    usual = [Estimate(48.4, 0.31, 3), Estimate(101.2, 0.5, 3)]
    assert decimals_for([*usual, Estimate(value, None, 1)], digits=4) == decimals_for(usual, digits=4)
    assert unit_for([2e7, value]) in {(1e6, "M"), unit_for([value])}
    assert len(ratio(value)) < 12


def two_rows(folder: Path, values: list[float]) -> tuple[Table, list[RowRuns]]:
    """A sound row and one with these last perplexities."""
    paths = {name: {seed: folder / name / f"seed-{seed}" for seed in (1, 2, 3)} for name in ("sound", "strange")}
    for seed, value in zip((1, 2, 3), values, strict=True):
        write_run(paths["sound"][seed], [60.0, 50.0 + seed], metric="perplexity")
        write_run(paths["strange"][seed], [60.0, value], metric="perplexity")
    rows = (Row("net", "low", "low", ()), Row("net", "strange", "high", ()))
    return table_of([(rows[0], paths["sound"]), (rows[1], paths["strange"])])


@pytest.mark.parametrize(
    "values",
    [[8e163, 3e150, 1e20], [1e308, 1e308, 0.0], [5e-324, 0.0, 0.0], [8e163] * 3, [1e155, 1e160, 48.0]],
    ids=str,
)
def test_a_diverging_row_leaves_the_others_as_they_are(tmp_path: Path, values: list[float]) -> None:
    table, rows = two_rows(tmp_path, values)
    for metric, ci in product(("final", "best", "last2"), KINDS):
        (text,) = make_tables([(table, rows)], output=tmp_path / "out", metric=metric, ci=ci)
        assert len(text.paths) == 4
        for line in text.text.splitlines():
            assert len(line) < 300
    (text,) = make_tables([(table, rows)], output=tmp_path / "out")
    assert "52.0 ± 2.5" in text.text or "52.00 ± 2.48" in text.text or "52.000 ± 2.484" in text.text, text.text
    assert all(path.stat().st_size for path in make_curves(table, rows, output=tmp_path / "figures"))


def test_claims_about_a_diverging_row_have_verdicts(tmp_path: Path) -> None:
    table, rows = two_rows(tmp_path, [8e163, 3e150, 1e20])
    claims = (
        Claim("net", "as_good", "strange", "low", margin=0.5),
        Claim("net", "better", "low", "strange"),
        Claim("net", "sends_less", "strange", "low", least=1.5),
    )
    table = Table(**{**table.__dict__, "claims": claims})
    found = verdicts(table, rows)
    assert [verdict.test is not None for verdict in found] == [True, True, True]
    page = render({"small": found}, {"small": table}, [], full=True)
    assert max(len(line) for line in page.splitlines() if line.startswith("|")) < 200


def test_an_infinite_metric_is_diverged_and_the_table_stands(tmp_path: Path) -> None:
    table, rows = one_row(tmp_path, [[60.0, math.inf], [60.0, 50.0]], metric="perplexity")
    (result,) = results(table, rows)
    assert [problem.state for problem in result.problems] == ["diverged"]
    assert result.estimates["metric"].mean == 50.0
