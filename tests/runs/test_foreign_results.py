"""A results folder of somebody else: looking at it runs nothing, follows no link, waits for no pipe, obeys no text."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from faults import SMALL, directory_of

from accordion_bench import foreign
from accordion_bench.commands.cli import main
from accordion_bench.config.compose import compose
from accordion_bench.config.parsing import from_yaml
from accordion_bench.plugins import names_only

NASTY = "\x1b[31mred\x1b[0m\x07\x1b]52;c;ZXZpbA==\x07\u202ekcab\x9b2J"


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A results directory with one finished run, from which each test takes a copy."""
    folder = tmp_path_factory.mktemp("trained")
    assert main(["run", *SMALL, "epochs=2", "workers=2", "quiet=true", f"results={folder}/results", "launch=cpu"]) == 0
    return folder


@pytest.fixture
def folder(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy, which is the current directory."""
    shutil.copytree(trained / "results", tmp_path / "results")
    monkeypatch.chdir(tmp_path)
    return tmp_path


LOOK = (["list"], ["verify"], ["verify", "--quick"], ["tables", "own.yaml"], ["figures", "own.yaml"])


def _own_table(folder: Path, **names: str) -> None:
    words = [word for word in (*SMALL, "epochs=2", "workers=2") if not word.startswith("checkpoint")]
    words += [f"{group}=custom {group}.name={name}" for group, name in names.items()]
    text = json.dumps([word for item in words for word in item.split(" ")])
    (folder / "own.yaml").write_text(
        f"title: t\nscale: s\nseeds: [1]\nrows: [{{group: g, label: a, role: other, overrides: {text}}}]\n"
    )


@pytest.mark.parametrize("key", ["compressor", "scheduler", "model", "dataset"])
@pytest.mark.parametrize("name", ["evilmod:C", ".evilmod:C", "evilmod.sub:C"])
def test_looking_at_results_imports_nothing_that_they_name(
    folder: Path, key: str, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "evilmod.py").write_text(f"open({str(folder / 'executed')!r}, 'w').close()\n")
    run = directory_of(folder)
    text = (run / "config.yaml").read_text()
    own = {"compressor": "powersgd", "scheduler": "accordion", "model": "smallcnn", "dataset": "digits"}[key]
    (run / "config.yaml").write_text(text.replace(f"name: {own}\n", f"name: {name}\n"))
    _own_table(folder, **({key: name} if key in ("compressor", "scheduler") else {}))
    for words in LOOK:
        assert main(words) in (0, 1, 2), words
        captured = capsys.readouterr()
        assert "Traceback" not in captured.err
    assert not (folder / "executed").exists()
    assert "evilmod" not in sys.modules


def test_a_run_of_an_own_method_is_verified_by_name_and_with_import_in_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    Path("ownmethod.py").write_text(
        "from accordion_bench.compressors.topk import TopK\n"
        "from accordion_bench.ladders import FRACTIONS\n"
        "from accordion_bench.schedulers.static import Static\n"
        "class Mine(TopK):\n    ladder = FRACTIONS\nclass Rule(Static):\n    pass\n"
    )
    words = ["compressor=custom", "compressor.name=ownmethod:Mine", "compressor.levels=[0.1,1]"]
    words += ["scheduler=custom", "scheduler.name=ownmethod:Rule", "epochs=1", "quiet=true"]
    assert main(["run", *SMALL[:2], *SMALL[3:6], *words]) == 0
    config = compose([*SMALL[:2], *SMALL[3:6], *words])
    with names_only():
        assert from_yaml((config.directory / "config.yaml").read_text()).hash == config.hash
    assert main(["verify"]) == 0
    assert "not imported, so checked only in part: ownmethod:Mine, ownmethod:Rule" in capsys.readouterr().out
    assert main(["verify", "--import"]) == 0
    assert "not imported" not in capsys.readouterr().out
    assert main(["verify", "--replay"]) == 0


def _link(name: str) -> Callable[[Path, Path], None]:
    def change(run: Path, outside: Path) -> None:
        (run / name).unlink(missing_ok=True)
        (run / name).symlink_to(outside)

    return change


@pytest.mark.parametrize(
    "name",
    ["lock", "epochs.jsonl", "summary.json", "environment.json", "config.yaml", "failure.json", ".checkpoint.new"],
)
def test_nothing_is_written_through_a_link(folder: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The run goes on, or one line says why not; what the link leads to keeps its bytes."""
    run = directory_of(folder)
    outside = folder / "outside"
    outside.write_bytes((run / name).read_bytes() if (run / name).exists() else b"precious")
    before = outside.read_bytes()
    (run / "summary.json").unlink()
    _link(name)(run, outside)
    code = main(["run", *SMALL, "epochs=2", "workers=2", "quiet=true", "launch=cpu"])
    said = capsys.readouterr().err
    assert code in (0, 2)
    assert "Traceback" not in said
    assert outside.read_bytes() == before
    if name == "lock":
        assert code == 2
        assert "is a link, which no run makes; remove it" in said


@pytest.mark.parametrize("kind", ["fifo", "folder", "loop"])
@pytest.mark.parametrize(
    "name", ["config.yaml", "summary.json", "epochs.jsonl", "failure.json", "environment.json", "lock"]
)
def test_what_is_no_file_is_a_line_and_never_waited_for(
    folder: Path, name: str, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run = directory_of(folder)
    if name in ("failure.json", "lock"):
        (run / "summary.json").unlink()
    (run / name).unlink(missing_ok=True)
    make = {"fifo": os.mkfifo, "folder": os.mkdir, "loop": lambda path: os.symlink(path, path)}[kind]
    make(run / name)
    _own_table(folder)
    for words in (*LOOK[:-1], ["run", *SMALL, "epochs=2", "workers=2", "quiet=true", "launch=cpu"]):
        assert main(list(words)) in (0, 1, 2), words
        captured = capsys.readouterr()
        assert "Traceback" not in captured.err + captured.out, words


DEEP = {"brackets": "[" * 100_000, "digits": "9" * 10_000, "blocks": "- " * 60_000, "json": '{"a":' * 100_000}


@pytest.mark.parametrize("text", DEEP.values(), ids=list(DEEP))
@pytest.mark.parametrize(
    "name", ["config.yaml", "summary.json", "epochs.jsonl", "environment.json", "failure.json", "lock"]
)
def test_what_is_too_deep_or_too_large_is_a_line(
    folder: Path, name: str, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run = directory_of(folder)
    if name in ("failure.json", "lock"):
        (run / "summary.json").unlink()
    (run / name).write_text(text + "\n")
    for words in (["list"], ["verify", "--quick"], ["verify"]):
        assert main(list(words)) in (0, 1)
        captured = capsys.readouterr()
        assert "Traceback" not in captured.err + captured.out
        assert len(captured.out) < 3000


def test_text_from_elsewhere_moves_no_cursor(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = directory_of(folder)
    (run / "summary.json").unlink()
    (run / "failure.json").write_text(json.dumps({"state": "failed", "message": NASTY}))
    shutil.copytree(run, run.parent.with_name(f"name{NASTY.replace('/', '')}") / "seed-1")
    _own_table(folder)
    for words in (["list"], ["verify"], ["tables", "own.yaml"], ["tables", NASTY], ["verify", NASTY], [NASTY]):
        main(words)
        captured = capsys.readouterr()
        for character in "\x1b\x07\x9b\u202e":
            assert character not in captured.out + captured.err, (words, captured)
    assert r"\x1b[31mred" in subprocess_list(folder)
    for path in (folder / "results").glob("tables/*"):
        assert not set("\x1b\x07\x9b\u202e") & set(path.read_text(encoding="utf-8")), path


def subprocess_list(folder: Path) -> str:
    """What `list` prints into a pipe."""
    done = subprocess.run([sys.executable, "-m", "accordion_bench", "list"], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0
    return done.stdout


def test_files_are_read_as_text_of_any_system(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_bytes(b"\xef\xbb\xbfone\r\ntwo\rthree\n")
    assert foreign.read_text(path) == "one\ntwo\nthree\n"
    with pytest.raises(OSError, match="more than 4"):
        foreign.read_bytes(path, 4)


@pytest.mark.parametrize("text", ["plain", "ä · ± ✓ 日本", "a\nb\tc", NASTY, "\ud800", "\u2028", "\x00"])
def test_escaped_text_is_printable_and_keeps_the_rest(text: str) -> None:
    shown = foreign.escape(text)
    assert shown.isprintable()
    assert shown.encode("utf-8")
    assert (shown == text) == text.isprintable()
