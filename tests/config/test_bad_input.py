"""Wrong files through the whole program: exit code 2, one line that names the file, and no run left behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from accordion_bench.commands.cli import main

TABLE = """\
title: Mine
scale: digits
seeds: [1]
base: [dataset=digits, model=smallcnn, scheduler=static, compressor=powersgd]
rows:
  - {group: PowerSGD, label: rank 2, role: low, overrides: ["compressor.levels=[2]"]}
"""
TABLES = {
    "unknown row key": (TABLE.replace("label:", "lable:"), "row 1 has an unknown key 'lable'; did you mean label?"),
    "duplicate rows": (TABLE + TABLE.splitlines()[-1] + "\n", "has the row 'PowerSGD/rank 2' twice"),
    "the same runs twice": (
        TABLE + TABLE.splitlines()[-1].replace("rank 2", "again").replace("low", "other") + "\n",
        "have the same overrides",
    ),
    "empty seed list": (TABLE.replace("seeds: [1]", "seeds: []"), "seeds must be a list of one whole number or more"),
    "not YAML": (TABLE + "  - [", "is not valid YAML"),
    "row that is no run": (
        TABLE.replace("levels=[2]", "levels=[0]"),
        "row 'PowerSGD/rank 2': compressor.levels must be",
    ),
}
TEXT = "the cat sat on the mat .\n" * 40
TEXTS = {
    "empty": ("", "is empty"),
    "not UTF-8": (b"caf\xe9\n", "must be UTF-8 text, byte 3 is not"),
    "a token longer than a line": ("fine\n" + "x" * 5000 + "\n", "line 2 has one of 5000"),
    "vocabulary of the test split": ("a dog ran .\n" * 30, "the vocabulary and the model must not see it"),
}


@pytest.fixture(autouse=True)
def _empty_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def refused(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert nothing_left()


def nothing_left() -> bool:
    """No record and no run directory."""
    return not list(Path("results").glob("runs/*/*"))


@pytest.mark.parametrize("command", [["sweep", "table=mine.yaml", "--dry-run"], ["tables", "mine.yaml"]])
@pytest.mark.parametrize("case", TABLES)
def test_a_wrong_table_file(case: str, command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    content, message = TABLES[case]
    Path("mine.yaml").write_text(content)
    refused(command, message, capsys)


@pytest.mark.parametrize("case", TEXTS)
def test_a_wrong_text(case: str, capsys: pytest.CaptureFixture[str]) -> None:
    content, message = TEXTS[case]
    for name, text in {"valid": "a bird sang .\n", "test": "a dog ran .\n" * 30, "train": content}.items():
        Path(f"{name}.txt").write_bytes(text if isinstance(text, bytes) else text.encode())
    files = [f"dataset.{split}_file={split}.txt" for split in ("train", "valid", "test")]
    refused(["run", "dataset=wikitext2", "model=lstm", *files, "launch.device=cpu", "quiet=true"], message, capsys)


def test_official_text_with_the_wrong_checksum(capsys: pytest.CaptureFixture[str]) -> None:
    Path("data/wikitext-2").mkdir(parents=True)
    for name in ("train", "valid", "test"):
        Path(f"data/wikitext-2/wiki.{name}.tokens").write_text(TEXT + name)
    message = "data/wikitext-2/wiki.train.tokens is not the official file (SHA1"
    refused(["run", "dataset=wikitext2", "model=lstm", "launch.device=cpu", "quiet=true"], message, capsys)


@pytest.mark.parametrize(
    ("dataset", "model", "remedy"),
    [("wikitext2", "lstm", "name your own texts"), ("cifar100", "densenet", "try dataset=digits")],
)
def test_all_mirrors_dead(
    dataset: str, model: str, remedy: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")  # nothing listens on the discard port
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    for command in (["run", f"dataset={dataset}", f"model={model}", "launch.device=cpu"], ["data", dataset]):
        assert main([*command, *(["quiet=true"] if command[0] == "run" else [])]) == 2
        error = capsys.readouterr().err
        assert "cannot be downloaded (" in error
        assert remedy in error
        assert error.count("\n") == 1
    assert nothing_left()
