"""Checkpoints of a whole job: collect every worker's state, write; read the newest that is whole, and continue.

A checkpoint holds the records of all epochs before it, so that epochs.jsonl can be checked against it, or restored.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from accordion_bench.config.schema import RunConfig, differences
from accordion_bench.errors import UserError
from accordion_bench.foreign import read_text
from accordion_bench.runs import checkpoint
from accordion_bench.runs.records import RunDirectory, from_line, to_line
from accordion_bench.training.record import EpochRecord
from accordion_bench.training.state import restore, shared_state, worker_state
from accordion_bench.training.trainer import Trainer

KEYS = {"identity", "data", "records", "shared", "workers"}
Warn = Callable[[str], None]


def save(config: RunConfig, trainer: Trainer, directory: RunDirectory, records: Sequence[EpochRecord]) -> None:
    """Write the job's checkpoint on process 0; every process calls this between two updates. Raises OSError.

    Args:
        records: of all finished epochs.
    """
    own = [checkpoint.detached(worker_state(trainer, h)) for h in range(trainer.communicator.hosted)]
    everyone = trainer.communicator.collect(own)
    shared = shared_state(trainer)  # on every process: it reads the clock
    if everyone is not None:
        workers = [state for part in everyone for state in part]  # type: ignore[attr-defined]
        checkpoint.save(
            directory.path,
            {
                "identity": _text(config.identity | {"seed": config.seed}),
                "data": dict(trainer.task.checksums),
                "records": [to_line(record) for record in records],
                "shared": shared,
                "workers": workers,
            },
        )


class Unusable(Exception):
    """A checkpoint is whole but for what is in it; the trainer has taken some of it and must be made anew."""

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(f"{path} holds something else ({why})")
        self.path = path


def resume(
    config: RunConfig, trainer: Trainer, directory: RunDirectory, warn: Warn, unusable: Sequence[Unusable] = ()
) -> list[EpochRecord]:
    """Load the newest checkpoint that is whole, if any; the records of the epochs before it.

    Args:
        unusable: checkpoints that were tried before, with this as the reason.

    Raises:
        Unusable: on every process of the job, if one of them cannot take what the checkpoint holds.
        UserError: the checkpoint or the records are of another configuration or other data, or were edited; or the
            processes of the job do not see the same files.
    """
    path, state = _newest(config, trainer, directory, warn, unusable)
    seen = trainer.communicator.objects(None if state is None else _summary(state))
    if any(other != seen[0] for other in seen):
        raise UserError(
            f"the processes of this job see different checkpoints in {directory.path}; "
            "put results on a file system that all machines share"
        )
    if state is None:
        return []
    why = None
    try:
        restore(trainer, state["shared"], [state["workers"][worker] for worker in trainer.communicator.hosted_workers])
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, RuntimeError) as error:
        why = f"{type(error).__name__}: {error}".partition("\n")[0]
    if whys := [other for other in trainer.communicator.objects(why) if other is not None]:
        raise Unusable(path, str(whys[0]))
    return [from_line(line) for line in state["records"]]


def check_parts(state: dict[str, Any], path: Path) -> None:
    """Raise DamagedCheckpoint unless these are a checkpoint's parts, as far as can be said without a trainer."""
    if set(state) != KEYS:
        raise checkpoint.DamagedCheckpoint(f"{path} is of another version of this program")
    kinds = {"identity": str, "data": dict, "records": list, "shared": dict, "workers": list}
    wrong = [key for key, kind in kinds.items() if not isinstance(state[key], kind)]
    try:
        identity = {} if wrong else json.loads(state["identity"])
        if not wrong and not (isinstance(identity, dict) and len(state["workers"]) == identity.get("workers")):
            wrong.append("workers")
        if not wrong and not all(isinstance(worker, dict) for worker in state["workers"]):
            wrong.append("workers")
        if not wrong:
            for line in state["records"]:
                from_line(line)
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        wrong.append(f"identity or records, {type(error).__name__}")
    if wrong:
        raise checkpoint.DamagedCheckpoint(f"{path} holds something else ({wrong[0]})")


def _newest(
    config: RunConfig, trainer: Trainer, directory: RunDirectory, warn: Warn, unusable: Sequence[Unusable]
) -> tuple[Path, dict[str, Any] | None]:
    """The newest checkpoint that is whole and of this very run; says what has to be repeated, and why."""
    on_file, damaged = _records_on_file(directory), [str(error) for error in unusable]
    for path in checkpoint.candidates(directory.path):
        if path in [error.path for error in unusable]:
            continue
        try:
            state = checkpoint.load(path)
            check_parts(state, path)
        except checkpoint.DamagedCheckpoint as error:
            damaged.append(str(error))
            continue
        _check_identity(config, state, path)
        _check_data(trainer, state, path)
        _check_records(on_file, state, directory)
        _report(damaged, len(on_file), state, warn)
        return path, state
    if damaged or on_file:
        why = "; ".join(damaged) or f"{directory.path} has no checkpoint"
        lost = f" and repeats {_epochs(0, len(on_file))}" if on_file else ""
        warn(f"warning: {why}; the run starts afresh{lost}")
    return directory.path, None


def _records_on_file(directory: RunDirectory) -> list[EpochRecord | None]:
    """The epochs in epochs.jsonl; None for a line that is not a record."""
    try:
        text = read_text(directory.path / "epochs.jsonl", errors="replace")
    except OSError:  # not there, or nothing that can be read: the checkpoint has the records too
        return []
    records: list[EpochRecord | None] = []
    for line in text.splitlines(keepends=True):
        try:
            records.append(from_line(line) if line.endswith("\n") else None)
        except (ValueError, TypeError, KeyError, RecursionError):
            records.append(None)
    while records and records[-1] is None:  # torn by a crash
        records.pop()
    return records


def _check_identity(config: RunConfig, state: dict[str, Any], path: Path) -> None:
    stored = json.loads(state["identity"])
    if found := differences(stored, json.loads(_text(config.identity | {"seed": config.seed}))):
        raise UserError(f"{path} is of another run: {'; '.join(found)}; restore it, or delete the run's directory")


def _check_data(trainer: Trainer, state: dict[str, Any], path: Path) -> None:
    if found := differences(state["data"], trainer.task.checksums):
        raise UserError(
            f"the data is not what {path} was trained on ({'; '.join(found)}); "
            "restore the data, or delete the run's directory to start again"
        )


def _check_records(on_file: list[EpochRecord | None], state: dict[str, Any], directory: RunDirectory) -> None:
    """Every record in the file is the checkpoint's; missing and damaged ones will be restored from it."""
    for line, record in zip(state["records"], on_file, strict=False):
        stored = from_line(line)
        if record is not None and to_line(record) != line:
            keys = [key for key, value in vars(stored).items() if repr(value) != repr(getattr(record, key))]
            raise UserError(
                f"{directory.path}/epochs.jsonl was edited: epoch {stored.epoch + 1} differs from the checkpoint's in "
                f"{', '.join(keys)}; restore it, or delete it to have the checkpoint's"
            )


def _report(damaged: list[str], on_file: int, state: dict[str, Any], warn: Warn) -> None:
    """What a person should know about how the run continues."""
    position = len(state["records"])
    lost = f"{_epochs(position, on_file)} will be repeated" if on_file > position else "no finished epoch is lost"
    if damaged:
        warn(f"warning: {'; '.join(damaged)}; continues from the checkpoint before it, {lost}")
    elif on_file > position:
        warn(f"{_epochs(position, on_file)} after the last checkpoint will be repeated")
    if on_file < position:
        warn(f"warning: epochs.jsonl lacks {_epochs(on_file, position)}; restored from the checkpoint")


def _epochs(start: int, stop: int) -> str:
    """Those from start to stop - 1, as people count them."""
    return f"epoch {stop}" if stop - start == 1 else f"epochs {start + 1} to {stop}"


def _text(identity: dict[str, Any]) -> str:
    return json.dumps(identity, sort_keys=True, default=list)


def _summary(state: dict[str, Any]) -> tuple[Any, ...]:
    """Enough to tell two checkpoints of a run apart."""
    epoch = state["shared"].get("epoch")
    step = epoch.get("step") if isinstance(epoch, dict) else None
    return len(state["records"]), step if isinstance(step, int) else None, state["records"][-1:]
