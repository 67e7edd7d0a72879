"""Every compressor, every scheduler and one table, held to what they were: names of runs, records and text.

tests/golden/every_method.json holds what training tests/golden/every_method.yaml gave, times apart, the text of its
table, and the directory names of the runs of every table in conf/table. After a change that is meant to change results:

    python tests/test_golden.py --write
"""

from __future__ import annotations

import contextlib
import io
import json
import platform
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from places import REPOSITORY

TABLE = REPOSITORY / "tests" / "golden" / "every_method.yaml"
GOLDEN = REPOSITORY / "tests" / "golden" / "every_method.json"
TIMES = ("seconds", "time")
TOLERANCE = 0.01  # relative; between versions of torch and kinds of processor, where sums round differently


def _call(*arguments: str) -> str:
    from accordion_bench.__main__ import main

    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        assert main(list(arguments)) == 0, arguments
    return text.getvalue()


def machine() -> str:
    """What decides how floating-point sums round."""
    import torch

    return f"torch {torch.__version__.split('+')[0]}, {platform.machine()}, {torch.backends.cpu.get_cpu_capability()}"


def _without_times(record: dict[str, Any]) -> dict[str, Any]:
    return {
        name: _without_times(value) if isinstance(value, dict) else value
        for name, value in record.items()
        if not name.endswith(TIMES)
    }


def records(results: Path) -> dict[str, Any]:
    """Train the table below `results`: what each run's directory says, times and places apart."""
    _call("sweep", f"table={TABLE}", f"results={results}", "launch=cpu")
    found = {}
    for path in sorted(results.glob("runs/*/*/epochs.jsonl")):
        run = path.parent
        found[f"{run.parent.name}/{run.name}"] = {
            "config": (run / "config.yaml").read_text(encoding="utf-8").replace(str(results), "RESULTS"),
            "epochs": [_without_times(json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()],
            "summary": _without_times(json.loads((run / "summary.json").read_text(encoding="utf-8"))),
        }
    return found


def table_text(results: Path, copy: Path) -> str:
    """The table of the runs in `results` as Markdown, from a copy in which every second is 0.25 s."""
    shutil.copytree(results / "runs", copy / "runs")
    for path in copy.glob("runs/*/*/epochs.jsonl"):
        epochs = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        for epoch in epochs:
            epoch["seconds"] = dict.fromkeys(epoch["seconds"], 0.25)
        path.write_text("".join(json.dumps(epoch) + "\n" for epoch in epochs), encoding="utf-8")
        summary = json.loads((path.parent / "summary.json").read_text(encoding="utf-8"))
        summary["training_seconds"] = 0.25 * len(epochs) * (len(epochs[0]["seconds"]) - 1)  # without evaluation
        (path.parent / "summary.json").write_text(json.dumps(summary), encoding="utf-8")
    _call("tables", str(TABLE), "--results", str(copy), "--unverified")
    return (copy / "tables" / f"{TABLE.stem}.md").read_text(encoding="utf-8")


def names_of_runs() -> dict[str, list[str]]:
    """Table -> the directories of its runs; tests/sweeps/test_every_table.py compares them."""
    from accordion_bench.sweeps.jobs import resolve
    from accordion_bench.sweeps.table import load_table, table_names

    return {
        name: sorted(str(path) for row in resolve(load_table(name)) for path in row.directories.values())
        for name in table_names()
    }


def test_every_method_trains_as_it_did(tmp_path: Path) -> None:
    golden = json.loads(GOLDEN.read_text(encoding="utf-8"))
    found = records(tmp_path / "results")
    text = table_text(tmp_path / "results", tmp_path / "copy")
    assert found.keys() == golden["records"].keys()
    assert {run: kept["config"] for run, kept in found.items()} == {
        run: kept["config"] for run, kept in golden["records"].items()
    }
    if machine() == golden["machine"]:
        assert found == golden["records"]
        assert text == golden["table"]
    else:
        for run, kept in golden["records"].items():
            _about(found[run], kept, run)


def _about(found: Any, kept: Any, where: str) -> None:
    """Equal, but for numbers that may differ by TOLERANCE."""
    if isinstance(kept, dict):
        assert found.keys() == kept.keys(), where
        for name in kept:
            _about(found[name], kept[name], f"{where}: {name}")
    elif isinstance(kept, list):
        assert len(found) == len(kept), where
        for index, value in enumerate(kept):
            _about(found[index], value, f"{where}[{index}]")
    elif isinstance(kept, (int, float)) and not isinstance(kept, bool):
        assert found == pytest.approx(kept, rel=TOLERANCE, abs=TOLERANCE), where
    else:
        assert found == kept, where


def test_every_registered_method_is_in_it() -> None:
    from accordion_bench.compressors import COMPRESSORS
    from accordion_bench.schedulers import SCHEDULERS

    text = TABLE.read_text(encoding="utf-8")
    missing = [f"compressor={name}" for name in COMPRESSORS if f"compressor={name}," not in text]
    missing += [f"scheduler={name}" for name in SCHEDULERS if f"scheduler={name}" not in text]
    assert not missing, f"add a row to {TABLE.name}"


def _write() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        kept = {
            "machine": machine(),
            "records": records(folder / "results"),
            "table": table_text(folder / "results", folder / "copy"),
            "names": names_of_runs(),
        }
    GOLDEN.write_text(json.dumps(kept, indent=0, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    if sys.argv[1:] != ["--write"]:
        sys.exit("usage: python tests/test_golden.py --write")
    _write()
