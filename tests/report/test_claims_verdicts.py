"""Verdicts from stored runs, the paper's implied claims, the numbered statements, and the command."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from report_records import dense, gathered, table_of, write_run

from accordion_bench.commands import cli
from accordion_bench.report.claims.design import design_commit
from accordion_bench.report.claims.numbered import UNANSWERED, statements
from accordion_bench.report.claims.text import claim_text, render
from accordion_bench.report.claims.verdicts import (
    CONTRADICTED,
    NOT_RUN,
    SUPPORTED,
    UNDECIDED,
    Verdict,
    implied_claims,
    verdicts,
)
from accordion_bench.sweeps.claims import Claim
from accordion_bench.sweeps.table import Row, Table, load_table

GOOD = Claim("G", "as_good", "Accordion", "low", margin=1.0, paper=(26,))
LESS = Claim("G", "sends_less", "Accordion", "low", least=1.5)
BETTER = Claim("G", "better", "low", "high")
LOW = (70.0, 70.4, 69.8, 70.1, 70.3)


def judged(tmp_path: Path, claim: Claim, mine: Any, other: Any, **settings: Any) -> Verdict:
    """The verdict on one claim whose rows end at these values on seeds 1, 2, ..."""
    rows = []
    for label, finals in ((claim.row, mine), (claim.other, other)):
        directories = {seed: tmp_path / label / f"seed-{seed}" for seed in range(1, 6)}
        for seed, final in enumerate(finals, start=1):
            traffic = gathered if settings.get("sparse") == label else dense
            write_run(directories[seed], [10.0, final], traffic=traffic)
        rows.append((Row("G", label, "other", ()), directories))
    table, row_runs = table_of(rows, name="mine", scale="small", seeds=(1, 2, 3, 4, 5))
    object.__setattr__(table, "claims", (claim,))
    return verdicts(table, row_runs)[0]


def test_a_small_loss_is_supported_and_names_its_runs(tmp_path: Path) -> None:
    found = judged(tmp_path, GOOD, [69.8, 70.3, 69.5, 69.95, 70.1], LOW)
    assert found.word == SUPPORTED
    assert found.test is not None
    assert found.test.mean == pytest.approx(-0.19)
    assert {run.name for run in found.runs} == {"Accordion", "low"}
    assert found.seeds == (1, 2, 3, 4, 5)


def test_a_large_loss_is_contradicted(tmp_path: Path) -> None:
    assert judged(tmp_path, GOOD, [66.0, 66.5, 65.9, 66.0, 66.3], LOW).word == CONTRADICTED


def test_a_loss_about_the_margin_is_undecided_and_says_how_many_seeds_would_do(tmp_path: Path) -> None:
    found = judged(tmp_path, GOOD, [69.5, 68.9, 69.9, 68.8, 69.9], LOW)
    assert found.word == UNDECIDED
    assert found.needed is not None
    assert found.needed > 5


def test_the_seeds_are_paired(tmp_path: Path) -> None:
    """Two rows that vary by ten points from seed to seed but by a tenth from one another."""
    spread = [60.0, 65.0, 70.0, 75.0, 80.0]
    found = judged(tmp_path, BETTER, [value + 0.5 + value / 1000 for value in spread], spread)
    assert found.word == SUPPORTED


def test_no_verdict_before_all_seeds_are_there(tmp_path: Path) -> None:
    found = judged(tmp_path, GOOD, LOW[:3], LOW)
    assert found.word == UNDECIDED
    assert found.seeds == (1, 2, 3)
    assert "Accordion, seed 4: missing" in found.notes


@pytest.mark.parametrize("there", [0, 1])
def test_one_seed_is_as_good_as_none(tmp_path: Path, there: int) -> None:
    assert judged(tmp_path, GOOD, LOW[:there], LOW).word == NOT_RUN


def test_traffic_is_a_ratio_of_floats_sent(tmp_path: Path) -> None:
    found = judged(tmp_path, LESS, LOW, LOW, sparse="Accordion")
    expected = dense(0).floats_per_worker / gathered(0).floats_per_worker
    assert found.test is not None
    assert found.test.mean == pytest.approx(expected)
    assert found.word == (SUPPORTED if expected >= 1.5 else CONTRADICTED)


def test_the_paper_implies_three_claims_a_network_with_a_quarter_of_the_gap() -> None:
    claims = implied_claims(load_table("1"))
    assert [claim.kind for claim in claims] == ["as_good", "better", "sends_less"] * 3
    vgg = claims[3]
    assert (vgg.row, vgg.other, vgg.margin) == ("Accordion", "rank 4", pytest.approx((93.4 - 68.6) / 4))
    assert claims[0].margin == 0.5  # (94.5 - 94.1) / 4 is less
    assert claims[5].least == pytest.approx(0.9 * 6752.0 / 2945.1)


@pytest.mark.parametrize(("name", "count"), [*[(str(number), 9) for number in range(1, 7)], ("demo", 0)])
def test_every_table_of_the_paper_makes_claims(name: str, count: int) -> None:
    assert len(implied_claims(load_table(name))) == count


def test_every_numbered_statement_is_listed_with_its_answer(tmp_path: Path) -> None:
    good = judged(tmp_path, GOOD, LOW, LOW)
    listed = statements({"mine": [good]})
    assert [item.number for item in listed] == list(range(1, 46))
    by_number = {item.number: item for item in listed}
    assert by_number[26].answers == (("mine", good),)
    assert by_number[26].arithmetic == "yes"
    assert by_number[24].arithmetic == "no"
    assert set(map(int, UNANSWERED)) <= set(by_number)
    assert not any(item.reason and item.answers for item in listed)


def test_the_page_shows_verdicts_and_leaves_out_what_nothing_ran(tmp_path: Path) -> None:
    good = judged(tmp_path, GOOD, [66.0, 66.5, 65.9, 66.0, 66.3], LOW)
    table = Table("mine", "Mine", "small", (1, 2, 3, 4, 5), (), ())
    paper = load_table("1")
    empty = Verdict(implied_claims(paper)[0], NOT_RUN, (), 3, None, None, None, "", (), ())
    page = render({"mine": [good], "1": [empty]}, {"mine": table, "1": paper}, [], full=False)
    assert "Accordion loses less than 1 points to low" in page
    assert "contradicted" in page
    assert "seed-{1,2,3,4,5}`" in page
    assert "* Table 1: 1 claims, not run (`accordion-bench sweep table=1`)" in page


def test_words_of_each_kind() -> None:
    assert claim_text(GOOD, "perplexity") == "Accordion loses less than 1 of perplexity to low"
    assert claim_text(BETTER) == "low is better than high"
    assert claim_text(LESS) == "Accordion sends at least 1.5x less than low"


def test_the_command_writes_and_prints_the_same_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["claims", "1", "--results", str(tmp_path), "--output", str(tmp_path / "out")]) == 0
    printed = capsys.readouterr().out
    written = (tmp_path / "out" / "claims.md").read_text(encoding="utf-8")
    assert written.strip() in printed
    assert "9 not run" in printed


@pytest.mark.parametrize(
    ("names", "expected"),
    [(["demo"], "table demo makes no claims"), (["powersgd_smal"], "did you mean")],
)
def test_a_table_without_claims_is_refused(
    names: list[str], expected: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert cli.main(["claims", *names, "--results", str(tmp_path)]) == 2
    assert expected in capsys.readouterr().err


def test_the_design_is_a_commit_where_there_is_history(tmp_path: Path) -> None:
    import subprocess

    def git(*arguments: str) -> None:
        who = ["-c", "user.name=a", "-c", "user.email=a@b"]
        subprocess.run(["git", "-C", str(tmp_path), *who, *arguments], check=True, capture_output=True)

    assert design_commit("t", tmp_path) == ""
    git("init")
    file = tmp_path / "conf" / "table" / "t.yaml"
    file.parent.mkdir(parents=True)
    file.write_text("one")
    assert design_commit("t", tmp_path) == "none: the file is not committed"
    git("add", ".")
    git("commit", "-m", "design")
    assert " of 20" in design_commit("t", tmp_path)
    assert design_commit("other", tmp_path) == ""
