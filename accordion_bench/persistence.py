"""Checkpoints of a whole job: collect every worker's state, write; read the newest that is whole, and continue."""

from __future__ import annotations

from collections.abc import Callable

from accordion_bench import checkpoint
from accordion_bench.config import RunConfig
from accordion_bench.records import EpochRecord, RunDirectory
from accordion_bench.state import restore, shared_state, worker_state
from accordion_bench.trainer import Trainer


def save(config: RunConfig, trainer: Trainer, directory: RunDirectory) -> None:
    """Write the job's checkpoint on process 0; every process calls this between two updates. Raises OSError."""
    own = [checkpoint.detached(worker_state(trainer, h)) for h in range(trainer.communicator.hosted)]
    everyone = trainer.communicator.collect(own)
    shared = shared_state(trainer)  # on every process: it reads the clock
    if everyone is not None:
        workers = [state for part in everyone for state in part]  # type: ignore[attr-defined]
        checkpoint.save(
            directory.path, {"hash": config.hash, "seed": config.seed, "shared": shared, "workers": workers}
        )


def resume(
    config: RunConfig, trainer: Trainer, directory: RunDirectory, warn: Callable[[str], None]
) -> list[EpochRecord]:
    """Load the newest checkpoint that is whole, if any; the records of the epochs before it."""
    if not config.checkpoint.enabled:
        return []
    for path in checkpoint.candidates(directory.path):
        try:
            state = checkpoint.load(path)
        except checkpoint.DamagedCheckpoint as error:
            warn(f"warning: {error}; trying the one before it")
            continue
        if (state["hash"], state["seed"]) != (config.hash, config.seed):
            warn(f"warning: {path} belongs to another configuration; not used")
            continue
        position = state["shared"]["position"]
        records = directory.read_epochs()
        if len(records) < position:
            warn(f"warning: {path} is at epoch {position} but {len(records)} epochs are on record; not used")
            continue
        if len(records) > position:
            warn(f"warning: epochs {position + 1} to {len(records)} are after the checkpoint and will be repeated")
        hosted = trainer.communicator.hosted_workers
        restore(trainer, state["shared"], [state["workers"][worker] for worker in hosted])
        return records[:position]
    return []
