"""What a run's directory holds is the same to every command; what is not needed to go on does not stop a run."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from faults import SMALL, content_of, directory_of

from accordion_bench.commands.cli import main
from accordion_bench.runs import checkpoint

RUN = ["run", *SMALL, "workers=2", "launch=cpu"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A results directory with one finished run, and its checkpoints, from which each test takes a copy."""
    folder = tmp_path_factory.mktemp("trained")
    assert main([*RUN, "checkpoint.minutes=0", "quiet=true", f"results={folder}/results"]) == 0
    return folder


@pytest.fixture
def folder(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy, which is the current directory."""
    shutil.copytree(trained / "results", tmp_path / "results")
    monkeypatch.chdir(tmp_path)
    words = [word for word in (*SMALL, "workers=2") if not word.startswith("checkpoint")]
    (tmp_path / "own.yaml").write_text(
        f"title: t\nscale: s\nseeds: [1]\nrows: [{{group: g, label: a, role: other, overrides: {json.dumps(words)}}}]\n"
    )
    return tmp_path


def _said(words: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    code = main(words)
    captured = capsys.readouterr()
    assert "Traceback" not in captured.err + captured.out
    return code, captured.out + captured.err


def _content(run: Path) -> dict[str, object]:
    """Without what was set aside."""
    content = content_of(run)
    return content | {"files": [name for name in content["files"] if not name.endswith(".damaged")]}


DAMAGE: dict[str, Callable[[Path], object]] = {
    "records gone": lambda run: (run / "epochs.jsonl").unlink(),
    "records are garbage": lambda run: (run / "epochs.jsonl").write_text("garbage\n" * 3),
    "one record gone": lambda run: (run / "epochs.jsonl").write_text(
        "".join((run / "epochs.jsonl").read_text().splitlines(keepends=True)[:-1])
    ),
    "summary is garbage": lambda run: (run / "summary.json").write_text("{"),
    "summary is a folder": lambda run: ((run / "summary.json").unlink(), (run / "summary.json").mkdir()),
    "summary is another's": lambda run: (run / "summary.json").write_text('{"schema": 1}'),
    "summary is edited": lambda run: (run / "summary.json").write_text(
        (run / "summary.json").read_text().replace('"collectives": ', '"collectives": 1')
    ),
    "configuration is garbage": lambda run: (run / "config.yaml").write_text("a: [1"),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=list(DAMAGE))
def test_damaged_is_damaged_to_every_command(
    folder: Path, damage: Callable[[Path], object], capsys: pytest.CaptureFixture[str]
) -> None:
    damage(directory_of(folder))
    code, said = _said(RUN, capsys)
    assert (code, said.count("\n")) == (2, 1)
    assert "already finished" not in said
    assert "delete" in said
    code, said = _said(["list"], capsys)
    assert " damaged " in said and "1 damaged" in said
    assert _said(["verify"], capsys)[0] == 1
    code, said = _said(["figures", "own.yaml"], capsys)
    assert code == 0
    assert "not drawn" in said
    assert not list(folder.glob("results/figures/*"))
    code, said = _said(["tables", "own.yaml"], capsys)
    assert "damaged" in said or "incomplete" in said


def _unfinished(folder: Path) -> Path:
    run = directory_of(folder)
    (run / "summary.json").unlink()
    return run


@pytest.mark.parametrize("damage", ["garbage", "folder", "list", "history"])
def test_a_damaged_environment_does_not_stop_a_run(
    folder: Path, trained: Path, damage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run = _unfinished(folder)
    path = run / "environment.json"
    texts = {"garbage": "{", "list": "[1]", "history": json.dumps(json.loads(path.read_text()) | {"history": 5})}
    path.unlink()
    path.mkdir() if damage == "folder" else path.write_text(texts[damage])
    code, said = _said(RUN, capsys)
    assert code == 0, said
    assert damage == "history" or "environment.json" in said
    assert json.loads(path.read_text())["model"]["parameters"] > 0
    assert _content(run) == _content(directory_of(trained))


@pytest.mark.parametrize("name", ["checkpoint.pt", "checkpoint.previous.pt"])
@pytest.mark.parametrize("kind", ["folder", "loop", "fifo"])
def test_a_checkpoint_that_is_no_file_leaves_the_other_one(
    folder: Path, trained: Path, name: str, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run = _unfinished(folder)
    (run / name).unlink()
    {"fifo": os.mkfifo, "folder": os.mkdir, "loop": lambda path: os.symlink(path, path)}[kind](run / name)
    code, said = _said(RUN, capsys)
    assert code == 0, said
    assert _content(run) == _content(directory_of(trained))


PARTS: dict[str, Callable[[dict[str, object]], object]] = {
    "identity": lambda state: state.update(identity=5),
    "identity's text": lambda state: state.update(identity="[" * 100_000),
    "data": lambda state: state.update(data=[1]),
    "records": lambda state: state.update(records=["{}"]),
    "shared": lambda state: state.update(shared={}),
    "workers": lambda state: state.update(workers=[{}, {}]),
    "one worker": lambda state: state.update(workers=state["workers"][:1]),  # type: ignore[index]
    "parameters": lambda state: state["shared"].update(parameters={}),  # type: ignore[attr-defined]
    "a parameter": lambda state: state["shared"]["parameters"].update(  # type: ignore[index]
        {name: torch.zeros(3) for name in state["shared"]["parameters"]}  # type: ignore[index]
    ),
    "decision": lambda state: state["shared"].update(decision=[]),  # type: ignore[attr-defined]
    "momenta": lambda state: state["shared"].update(momenta=None),  # type: ignore[attr-defined]
    "memory": lambda state: state["workers"][0].update(memory="x"),  # type: ignore[index]
    "last worker": lambda state: state["workers"][1].pop("buffers"),  # type: ignore[index]
}


@pytest.mark.parametrize("change", PARTS.values(), ids=list(PARTS))
def test_a_checkpoint_with_wrong_parts_is_damaged_and_the_one_before_serves(
    folder: Path, trained: Path, change: Callable[[dict[str, object]], object], capsys: pytest.CaptureFixture[str]
) -> None:
    run = _unfinished(folder)
    before = (run / "checkpoint.previous.pt").read_bytes()
    state = checkpoint.load(run / "checkpoint.pt")
    change(state)
    checkpoint.save(run, state)
    (run / "checkpoint.previous.pt").write_bytes(before)
    code, said = _said(RUN, capsys)
    assert code == 0, said
    assert "checkpoint.pt" in said and "continues from the checkpoint before it" in said
    assert _content(run) == _content(directory_of(trained))


def test_with_no_checkpoint_that_can_be_used_the_run_starts_afresh(
    folder: Path, trained: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = _unfinished(folder)
    for _ in range(2):
        state = checkpoint.load(run / "checkpoint.pt")
        state["shared"]["momenta"] = None
        checkpoint.save(run, state)
    code, said = _said(RUN, capsys)
    assert code == 0, said
    assert "the run starts afresh and repeats epochs 1 to 3" in said
    assert _content(run) == _content(directory_of(trained))


def test_a_run_that_was_killed_while_it_started_is_not_started(
    folder: Path, trained: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = directory_of(folder)
    for path in run.iterdir():
        path.unlink()
    (run / "lock").write_text(json.dumps({"host": "gone", "pid": 1}))
    os.utime(run / "lock", (0, 0))
    assert "1 not started" in _said(["list"], capsys)[1]
    assert _said(["verify"], capsys)[0] == 0
    assert _said(RUN, capsys)[0] == 0
    assert _content(run) == _content(directory_of(trained))


# Standard streams


def _shell(command: str, folder: Path) -> tuple[int, str, str]:
    done = subprocess.run(
        ["bash", "-c", command.replace("accordion-bench", f"{sys.executable} -m accordion_bench")],
        cwd=folder,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=120,
    )
    assert "Traceback" not in done.stdout + done.stderr, (command, done.stderr)
    assert "Exception ignored" not in done.stderr, (command, done.stderr)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("command", ["list", "tables own.yaml", "run --help"])
def test_standard_output_may_be_closed_or_full(folder: Path, command: str) -> None:
    for where, why in ((">&-", "it is closed"), (">/dev/full", "No space left on device")):
        code, _, said = _shell(f"accordion-bench {command} {where}", folder)
        assert code == 1, (where, said)
        assert "cannot write to standard output" in said and why in said
    code, _, said = _shell(f"accordion-bench {command} | true; exit ${{PIPESTATUS[0]}}", folder)
    assert (code, said) == (0, "")


@pytest.mark.parametrize("where", ["<&- >&- 2>&-"])
def test_a_run_needs_no_streams(folder: Path, trained: Path, where: str) -> None:
    shutil.rmtree(folder / "results")
    words = " ".join(f"'{word}'" for word in RUN)
    assert _shell(f"accordion-bench {words} {where}", folder)[0] == 0
    assert _content(directory_of(folder)) == _content(directory_of(trained))


def test_errors_have_their_code_where_nobody_can_read_them(folder: Path) -> None:
    for where in ("2>&-", "2>/dev/full", ">&- 2>&-"):
        assert _shell(f"accordion-bench list --wrong {where}", folder)[0] == 2
        assert _shell(f"accordion-bench run epochs=0 {where}", folder)[0] == 2


def test_other_encodings_are_no_error(folder: Path) -> None:
    for encoding in ("ascii", "latin-1", "cp1252"):
        code, said, _ = _shell(f"PYTHONIOENCODING={encoding} accordion-bench tables own.yaml", folder)
        assert code == 0
        assert "written to" in said
