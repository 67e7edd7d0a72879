"""What the README shows is run, so that it stays true."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from places import REPOSITORY

from accordion_bench.commands.cli import COMMANDS, main

README = (REPOSITORY / "README.md").read_text(encoding="utf-8")


@pytest.fixture
def own_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The README's example as my_methods.py in the current directory."""
    code = re.search(r"```python\n(# my_methods.py\n.*?)```", README, re.DOTALL)
    assert code is not None
    (tmp_path / "my_methods.py").write_text(code[1])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, "my_methods", raising=False)


@pytest.mark.usefixtures("own_file")
@pytest.mark.parametrize("arguments", [["my_methods:LeadingPart"], ["my_methods:Alternate", "period=3"]])
def test_own_methods_keep_their_promises(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", *arguments]) == 0
    assert "keeps all" in capsys.readouterr().out


@pytest.mark.usefixtures("own_file")
def test_own_methods_train(tmp_path: Path) -> None:
    words = ["run", "dataset=digits", "model=smallcnn", "epochs=2", "dataset.limit_train=256", "dataset.limit_test=64"]
    words += ["compressor=custom", "compressor.name=my_methods:LeadingPart", "compressor.levels=[0.1, 0.5]"]
    words += ["scheduler=custom", "scheduler.name=my_methods:Alternate", "+scheduler.period=1", "quiet=true"]
    assert main(words) == 0
    assert len(list(tmp_path.glob("results/runs/*/seed-1/summary.json"))) == 1


def test_a_broken_compressor_fails_the_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "leaky.py").write_text(
        "from accordion_bench.compressors.none import Uncompressed\n"
        "from accordion_bench.compressors.ladders import FRACTIONS\n"
        "class Leaky(Uncompressed):\n"
        "    ladder = FRACTIONS\n"
        "    def reduce(self, grads_HN, communicator):\n"
        "        return 0.5 * super().reduce(grads_HN, communicator)\n"
    )
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    assert main(["check", "leaky:Leaky"]) == 1
    assert "FAILED  with one worker, update + residual equals the gradient" in capsys.readouterr().out


def test_every_command_that_the_readme_shows_exists() -> None:
    shown = set(re.findall(r"accordion-bench ([a-z]+)", README))
    assert shown <= set(COMMANDS), shown - set(COMMANDS)
