"""Epochs of a stored run trained again and compared with its records: what no edit of the records survives.

With the versions, processor and its instructions, threads and one process as in the recording, every number has to be
the same, bit for bit. Elsewhere sums round differently and training amplifies that, so losses, metrics and norms may
differ by TOLERANCE, and comparing ends where an adaptive scheduler chose another level. Unlike verify.py and
verify_plan.py this imports whatever components the configuration names, a user's own too.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from accordion_bench.config.parsing import from_yaml
from accordion_bench.config.schema import RunConfig, differences
from accordion_bench.errors import Diverged, UserError
from accordion_bench.foreign import MEBIBYTE, read_text
from accordion_bench.runs.environment import describe_environment
from accordion_bench.runs.records import RunDirectory, digest
from accordion_bench.runs.run import Place, build_trainer
from accordion_bench.training.record import EpochRecord

TOLERANCE = 0.05  # relative; elsewhere than where the run was recorded
MACHINE = ("packages", "device", "instructions", "cuda", "threads")  # what of environment.json decides how sums round
COUNTED = ("updates", "skipped", "learning_rate", "batch_multiple", "traffic", "level_index_L", "critical")


@dataclass(frozen=True)
class Replay:
    """What training a run again showed.

    Attributes:
        epochs: how many were compared, from the first.
        of: how many are on record.
        exact: whether every bit was equal; else all was within TOLERANCE, if there are no problems.
        problems: one line for everything that differs, without the run's name.
    """

    epochs: int
    of: int
    exact: bool
    problems: tuple[str, ...]


def replay(directory: Path, count: int, root: str | None = None) -> Replay:
    """Train the first `count` epochs of a run again, in this process, and compare. Writes nothing.

    Args:
        directory: the run's; its files must be in order (verify.problems).
        count: epochs, >= 1; at most those on record are trained.
        root: where the data is, if not where the run's configuration says.

    Raises:
        UserError: if a component or the data is not here, or nothing is on record.
    """
    run = RunDirectory(directory)
    config = from_yaml(read_text(directory / "config.yaml", MEBIBYTE))
    environment = run.read_json("environment.json") or {}
    recorded = run.read_epochs()
    if not recorded:
        raise UserError("no epoch is on record")
    if root is not None:
        config = replace(config, dataset=replace(config.dataset, root=root))
    device = "cuda:0" if environment.get("device_type") == "cuda" and torch.cuda.is_available() else "cpu"
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(config.launch.threads)
        strict = _same_machine(environment, torch.device(device))
        return _compare(config, device, environment, recorded, count, strict)
    finally:
        torch.set_num_threads(threads)


def _same_machine(environment: Mapping[str, Any], device: torch.device) -> bool:
    here = describe_environment(device, [])
    single = len(environment.get("processes", ())) == 1
    return single and "history" not in environment and all(environment.get(key, "") == here[key] for key in MACHINE)


def _compare(
    config: RunConfig,
    device: str,
    environment: Mapping[str, Any],
    recorded: list[EpochRecord],
    count: int,
    strict: bool,
) -> Replay:
    trainer = build_trainer(config, Place(0, 1, device))
    if changed := differences(environment.get("data", {}), dict(trainer.task.checksums)):
        return Replay(0, len(recorded), False, (f"the data here is not what was trained on: {'; '.join(changed)}",))
    problems: list[str] = []
    compared, exact = 0, True
    epochs = trainer.epochs()
    for kept in recorded[:count]:
        try:
            again = next(epochs)
        except Diverged as error:
            problems.append(f"epoch {kept.epoch + 1}: on record, but training again diverges ({error})")
            break
        except StopIteration:
            problems.append(f"epoch {kept.epoch + 1}: on record, but training again ends before it")
            break
        if not (strict or exact) and kept.level_index_L != again.level_index_L:
            break  # a norm beside the threshold; from here on it is another run
        compared += 1
        different = list(_differences(kept, again, 0.0))
        exact = exact and not different
        if lines := different if strict else list(_differences(kept, again, TOLERANCE)):
            problems += lines
            break
    return Replay(compared, len(recorded), exact, tuple(problems))


def _differences(kept: EpochRecord, again: EpochRecord, tolerance: float) -> Iterator[str]:
    """What differs by more than `tolerance`, relative and absolute; one line each."""
    place = f"epoch {kept.epoch + 1}"
    counted = [name for name in COUNTED if getattr(kept, name) != getattr(again, name)]
    if not tolerance and kept.extra != json.loads(json.dumps(again.extra)):  # tuples are lists in JSON
        counted.append("extra")
    for name in counted:
        yield f"{place}: {name} on record is not what training again gives"
    before, now = _measured(kept), _measured(again)
    for name in {**before, **now}:
        old, new = before.get(name, math.nan), now.get(name, math.nan)
        same = old == new or (tolerance and math.isclose(old, new, rel_tol=tolerance, abs_tol=tolerance))
        if not same:
            yield f"{place}: {name} {old:.9g} on record, {new:.9g} when trained again"


def _measured(record: EpochRecord) -> dict[str, float]:
    """Name -> number of all that depends on how sums round."""
    norms = {f"norms_L[{index}]": value for index, value in enumerate(record.norms_L)}
    metrics = {f"test {name}": value for name, value in record.metrics.items()}
    return {"loss": record.loss, "norm": record.norm, **metrics, **norms}


def remember(directory: Path, result: Replay) -> None:
    """Note a replay without problems in the run's replay.json. Raises OSError where nothing can be written."""
    note = {"epochs": result.epochs, "of": result.of, "exact": result.exact, "records": digest(directory)}
    RunDirectory(directory).write_json("replay.json", note)
