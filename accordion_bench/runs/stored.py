"""Stored runs, read with distrust: one enters a report whole and consistent, or is named with what is wrong with it."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from functools import reduce
from operator import add
from pathlib import Path
from typing import Any

from accordion_bench.config.plain_yaml import NotYaml, load_yaml
from accordion_bench.errors import UserError
from accordion_bench.foreign import MEBIBYTE, read_text
from accordion_bench.plugins import closest
from accordion_bench.runs.records import SCHEMA, RunDirectory, Summary, digest
from accordion_bench.training.network import Network
from accordion_bench.training.network import seconds as network_seconds
from accordion_bench.training.record import EpochRecord
from accordion_bench.training.traffic import Traffic

STATES = ("missing", "unfinished", "incomplete", "diverged", "failed", "damaged", "incomparable")
TOLERANCE = 1e-6  # of sums of floats that were added in another order


@dataclass(frozen=True)
class Problem:
    """Why a seed of a row is not in its numbers.

    Attributes:
        seed: the run's seed.
        state: one of STATES.
        message: one line without paths of this machine; may be empty.
    """

    seed: int
    state: str
    message: str


@dataclass(frozen=True)
class FinishedRun:
    """A run that was read and found consistent.

    Attributes:
        name: <slug>-<hash>.
        seed: its seed.
        summary: its totals.
        epochs: its epochs, in order.
        config: config.yaml.
        layers: names of the layers that level_index_L counts; empty if environment.json does not say.
        replayed: how many of these epochs were trained again and found equal (verify --replay); 0 if none.
    """

    name: str
    seed: int
    summary: Summary
    epochs: tuple[EpochRecord, ...]
    config: Mapping[str, Any]
    layers: tuple[str, ...]
    replayed: int = 0

    @property
    def traffic(self) -> Traffic:
        """Of one worker over the whole run."""
        return reduce(add, (Traffic.from_dict(epoch.traffic) for epoch in self.epochs), Traffic())

    @property
    def levels(self) -> tuple[float, ...]:
        """The compressor's ladder, most compressed first."""
        return tuple(self.config["compressor"]["levels"])

    def measured(self, name: str) -> dict[int, float]:
        """Epoch -> what a probe measured at its end, under its name in EpochRecord.extra; without damaged values."""
        values = {epoch.epoch: epoch.extra.get(name) for epoch in self.epochs}
        return {
            epoch: float(value[0])
            for epoch, value in values.items()
            if isinstance(value, list) and value and isinstance(value[0], (int, float))
        }

    def metric(self, which: str) -> float | None:
        """The task's metric: "final", "best" or "last<k>" (mean of the last k epochs; None if there are fewer)."""
        if which == "final":
            return self.summary.final
        if which == "best":
            return self.summary.best
        count = int(which.removeprefix("last"))
        if count > len(self.epochs):
            return None
        return math.fsum(epoch.metrics[self.summary.metric] for epoch in self.epochs[-count:]) / count

    def seconds_in(self, section: str) -> float:
        """Measured seconds in one section (compute, compress, ...) over the whole run; 0 where none was recorded."""
        return math.fsum(epoch.seconds.get(section, 0.0) for epoch in self.epochs)

    def modelled_seconds(self, network: Network) -> float:
        """Measured seconds except those spent communicating, plus the recorded traffic's on `network`."""
        local = math.fsum(
            value
            for epoch in self.epochs
            for name, value in epoch.seconds.items()
            if name not in ("communicate", "evaluate")
        )
        return local + network_seconds(self.traffic, self.summary.workers, network)


def check_metric(which: str) -> str:
    """`which` itself if it is final, best or last<k>; else UserError."""
    if which in ("final", "best") or re.fullmatch(r"last[1-9][0-9]*", which):
        return which
    known = ("final", "best", "last10")
    raise UserError(
        "metric must be final, best or last<k> (the mean of the last k epochs, e.g. last10), "
        f"got {which!r}{closest(which, known)}"
    )


def read_run(directory: Path, seed: int) -> FinishedRun | Problem:
    """One run, or why it does not count."""
    run = RunDirectory(directory)
    if not directory.exists():
        return Problem(seed, "missing", "")
    try:
        written = run.read_json("summary.json")
        if written is None:
            return _not_finished(run, seed)
        summary = _summary(written)
        if not all(map(math.isfinite, (summary.final, summary.best, summary.loss))):
            return Problem(
                seed, "diverged", f"{summary.metric} {summary.final}, training loss {summary.loss} at the end"
            )
        epochs = tuple(run.read_epochs())
        if summary.epochs != len(epochs):
            return Problem(
                seed, "incomplete", f"summary.json counts {summary.epochs} epochs, epochs.jsonl has {len(epochs)}"
            )
        _check_sums(summary, epochs)
        config = _config(directory)
        _check_decisions(epochs, rungs=len(config["compressor"]["levels"]))
        return FinishedRun(run.name, seed, summary, epochs, config, _layers(run), _replayed(run))
    except (UserError, OSError, ValueError, OverflowError, RecursionError) as error:
        message = str(error).replace(f"{directory}/", "").splitlines()[0]
        return Problem(seed, "damaged", message)


def _not_finished(run: RunDirectory, seed: int) -> Problem:
    failure = run.read_json("failure.json")
    if failure is not None:
        state = "diverged" if failure.get("state") == "diverged" else "failed"
        return Problem(seed, state, failure_message(failure))
    count = len(run.read_epochs())
    return Problem(seed, "unfinished", f"{count} epoch{'s' * (count != 1)} recorded")


def failure_message(failure: Mapping[str, Any]) -> str:
    """The message of failure.json on one line, without the state that is shown beside it."""
    return " ".join(str(failure.get("message", "")).split()).removeprefix("diverged: ")


def _summary(written: Mapping[str, Any]) -> Summary:
    """Summary with every field of its type, else ValueError."""
    if written.get("schema") != SCHEMA:
        raise ValueError(f"summary.json has schema {written.get('schema')}, this program reads {SCHEMA}")
    known = {field.name: str(field.type) for field in fields(Summary)}
    if wrong := sorted(set(known) ^ set(written)):
        problem = "missing" if wrong[0] in known else "unknown"
        raise ValueError(f"summary.json must have the keys of a summary; {wrong[0]!r} is {problem}")
    for name, kind in known.items():
        if not _is(written[name], kind):
            raise ValueError(f"summary.json: {name} must be of type {kind}, got {written[name]!r}")
    return Summary(**written)


def _is(value: object, kind: str) -> bool:
    if kind == "bool" or isinstance(value, bool):
        return kind == "bool" and isinstance(value, bool)
    if kind == "str":
        return isinstance(value, str)
    return isinstance(value, int) or (kind == "float" and isinstance(value, float))


def _check_sums(summary: Summary, epochs: tuple[EpochRecord, ...]) -> None:
    """The totals are those of the epochs, else ValueError: somebody edited one of the files."""
    if not epochs:
        raise ValueError("epochs.jsonl is empty")
    try:
        traffic = reduce(add, (Traffic.from_dict(epoch.traffic) for epoch in epochs), Traffic())
        metrics = [epoch.metrics[summary.metric] for epoch in epochs]
        expected: dict[str, float] = {
            "updates": sum(epoch.updates for epoch in epochs),
            "skipped": sum(epoch.skipped for epoch in epochs),
            "floats_per_worker": traffic.floats_per_worker,
            "paper_floats": traffic.paper_floats(summary.workers),
            "bytes_per_worker": traffic.bytes_per_worker,
            "collectives": traffic.collectives,
            "final": metrics[-1],
            "best": max(metrics) if summary.higher_is_better else min(metrics),
            "loss": epochs[-1].loss,
            "training_seconds": math.fsum(
                value for epoch in epochs for name, value in epoch.seconds.items() if name != "evaluate"
            ),
        }
        for name, value in expected.items():
            if not math.isclose(getattr(summary, name), value, rel_tol=TOLERANCE, abs_tol=1e-9):
                raise ValueError(f"summary.json says {name} {getattr(summary, name)!r}, epochs.jsonl says {value!r}")
    except (TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"epochs.jsonl holds a record that is not one ({type(error).__name__}: {error})") from None


def _check_decisions(epochs: tuple[EpochRecord, ...], rungs: int) -> None:
    """Every epoch has an index into the ladder for each of the same layers, and a batch multiple, else ValueError."""
    for epoch in epochs:
        indices = all(type(index) is int and 0 <= index < rungs for index in epoch.level_index_L)
        multiple = type(epoch.batch_multiple) is int and epoch.batch_multiple >= 1
        if not indices or not multiple or len(epoch.level_index_L) != len(epochs[0].level_index_L):
            given = f"level_index_L {list(epoch.level_index_L)[:4]} and batch_multiple {epoch.batch_multiple!r}"
            raise ValueError(f"epochs.jsonl, epoch {epoch.epoch}: {given} do not fit a ladder of {rungs}")


def _config(directory: Path) -> Mapping[str, Any]:
    """config.yaml, with the keys that reports read; else ValueError."""
    try:
        config = load_yaml(read_text(directory / "config.yaml", MEBIBYTE))
    except FileNotFoundError:
        raise ValueError("config.yaml is missing") from None
    except NotYaml as error:
        raise ValueError(f"config.yaml is not valid YAML ({error})") from None
    try:
        levels = config["compressor"]["levels"]
        numbers = isinstance(levels, list) and levels and all(isinstance(level, (int, float)) for level in levels)
        if isinstance(config["epochs"], int) and config["dataset"]["name"] and numbers:
            return config
    except (TypeError, KeyError):
        pass
    raise ValueError("config.yaml is not a run's configuration (epochs, dataset.name, compressor.levels)")


def _layers(run: RunDirectory) -> tuple[str, ...]:
    """Names of the layers, as environment.json lists them."""
    try:
        return tuple(str(layer["name"]) for layer in (run.read_json("environment.json") or {})["model"]["layers"])
    except (KeyError, TypeError):
        return ()


def _replayed(run: RunDirectory) -> int:
    """Epochs that replay.json vouches for, if it speaks of these very records."""
    try:
        note = run.read_json("replay.json") or {}
        epochs = note.get("epochs")
        if type(epochs) is int and epochs > 0 and note.get("records") == digest(run.path):
            return epochs
    except (UserError, OSError):
        pass
    return 0


def replay_note(runs: Iterable[FinishedRun]) -> str:
    """How many of these runs were replayed, in words; empty if none was."""
    numbers = {(run.name, run.seed): run.replayed for run in runs}
    replayed = [epochs for epochs in numbers.values() if epochs]
    if not replayed:
        return ""
    least, most = min(replayed), max(replayed)
    span = f"{least}" if least == most else f"{least} to {most}"
    plural = "s" if most > 1 else ""
    return f"replayed: {span} epoch{plural} of {len(replayed)} of {len(numbers)} runs trained again and found equal"
