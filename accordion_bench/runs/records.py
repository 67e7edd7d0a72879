"""What a run leaves behind, written so that a reader never sees half a file. No torch.

<results>/runs/<slug>-<hash>/seed-<n>/
    config.yaml        the whole configuration
    environment.json   versions, device, hosts, git state, and the model's layers
    epochs.jsonl       one line per finished epoch
    summary.json       written last: a run is finished when it exists
    failure.json       instead of it when the run diverged or failed
    replay.json        which of its epochs were trained again and found equal, by accordion-bench verify --replay
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from accordion_bench.errors import Diverged, UserError
from accordion_bench.foreign import append, create, make_way, read_bytes, read_text
from accordion_bench.training.record import EpochRecord

SCHEMA = 1
NAMES = ("config.yaml", "environment.json", "epochs.jsonl", "summary.json", "failure.json", "replay.json")


@dataclass(frozen=True)
class Summary:
    """summary.json: totals of a finished run.

    Attributes:
        epochs: finished epochs.
        updates: optimiser steps.
        metric: name of the task's metric.
        higher_is_better: its direction.
        final: its value after the last epoch.
        best: its best value.
        loss: training loss of the last epoch.
        floats_per_worker: 32-bit gradient words one worker sent.
        paper_floats: the same under the paper's convention.
        bytes_per_worker: bytes.
        collectives: gradient collectives.
        training_seconds: measured, without evaluation.
        skipped: updates left out.
        workers: A.
        parameters: of the model.
        schema: version of this format.
    """

    epochs: int
    updates: int
    metric: str
    higher_is_better: bool
    final: float
    best: float
    loss: float
    floats_per_worker: float
    paper_floats: float
    bytes_per_worker: int
    collectives: int
    training_seconds: float
    skipped: int
    workers: int
    parameters: int
    schema: int = SCHEMA


def write_atomically(path: Path, text: str) -> None:
    """Put text into path: write beside it, flush to disk, rename. Raises OSError; path is then as before."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        make_way(path)
        with open(create(temporary), "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    flush_names(path.parent)


def flush_names(directory: Path) -> None:
    """Make what was renamed survive a power cut; not every file system can be asked to."""
    with suppress(OSError):
        handle = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


@dataclass(frozen=True)
class RunDirectory:
    """Reads and writes the files of one run; `path` is .../<slug>-<hash>/seed-<n>."""

    path: Path

    @property
    def name(self) -> str:
        """<slug>-<hash>."""
        return self.path.parent.name

    @property
    def seed(self) -> int:
        """The run's seed."""
        return int(self.path.name.removeprefix("seed-"))

    @property
    def begun(self) -> bool:
        """Whether anything was recorded; a job that ended while it started leaves its lock at most."""
        return any(os.path.lexists(self.path / name) for name in NAMES)

    @property
    def finished(self) -> bool:
        """Whether summary.json exists."""
        return (self.path / "summary.json").exists()

    def write_json(self, name: str, value: Mapping[str, Any]) -> None:
        """Write one of the JSON files atomically."""
        write_atomically(self.path / name, json.dumps(value, indent=1) + "\n")

    def write_failure(self, error: Diverged) -> None:
        """Leave failure.json of a diverged run."""
        place = {"epoch": error.epoch, "step": error.step, "layer": error.layer}
        self.write_json("failure.json", {"state": "diverged", "message": str(error), **place})

    def remove_leftovers(self) -> None:
        """Half-written files of jobs that were killed; only the job that holds the lock may call this."""
        for name in NAMES:
            for path in self.path.glob(f".{name}.*"):
                path.unlink(missing_ok=True)

    def read_json(self, name: str) -> dict[str, Any] | None:
        """One of the JSON files, or None where it does not exist; UserError if it is damaged."""
        path = self.path / name
        try:
            value = json.loads(read_text(path))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise UserError(
                f"{path} cannot be read ({error.strerror}); restore it or delete the run's directory"
            ) from None
        except (ValueError, RecursionError) as error:
            raise UserError(f"{path} is not valid JSON ({error}); restore it or delete the run's directory") from None
        if not isinstance(value, dict):
            raise UserError(f"{path} must hold a JSON object; restore it or delete the run's directory")
        return value

    def write_epochs(self, records: Iterable[EpochRecord]) -> None:
        """Replace epochs.jsonl (resume: lines after the checkpoint are dropped)."""
        write_atomically(self.path / "epochs.jsonl", "".join(map(to_line, records)))

    def append_epoch(self, record: EpochRecord) -> None:
        """Add one line and flush it to disk."""
        with open(append(self.path / "epochs.jsonl"), "a", encoding="utf-8") as file:
            file.write(to_line(record))
            file.flush()
            os.fsync(file.fileno())

    def read_epochs(self) -> list[EpochRecord]:
        """All whole lines, in order; a torn last line (a crash while appending) is left out. UserError if damaged."""
        path = self.path / "epochs.jsonl"
        records: list[EpochRecord] = []
        try:
            lines = read_text(path, errors="replace").splitlines(keepends=True)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise UserError(f"{path} cannot be read ({error.strerror}); restore it or delete the run") from None
        for number, line in enumerate(lines):
            if number == len(lines) - 1 and not line.endswith("\n"):
                break
            try:
                record = from_line(line)
            except (ValueError, TypeError, KeyError, RecursionError) as error:
                raise UserError(
                    f"{path} line {number + 1} is not an epoch record ({error}); restore it or delete the run"
                ) from None
            if record.epoch != number:
                raise UserError(
                    f"{path} line {number + 1} must be epoch {number}, got {record.epoch}; restore it or delete the run"
                )
            records.append(record)
        return records


def digest(directory: Path) -> str:
    """SHA-256 of epochs.jsonl: a note about records holds as long as they have their bytes. Raises OSError."""
    return hashlib.sha256(read_bytes(directory / "epochs.jsonl")).hexdigest()


def to_line(record: EpochRecord) -> str:
    """The record as a line of epochs.jsonl."""
    return json.dumps(asdict(record), separators=(",", ":")) + "\n"


def from_line(line: str) -> EpochRecord:
    """The reverse of `to_line`. Raises ValueError, TypeError or KeyError."""
    values = json.loads(line)
    values["level_index_L"] = tuple(values["level_index_L"])
    values["norms_L"] = tuple(values["norms_L"])
    return EpochRecord(**values)
