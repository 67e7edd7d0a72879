"""Records of runs that never happened, written by closed formulas so that reports have something exact to read."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

import yaml

from accordion_bench.report.tables.aggregate import RowResult, aggregate
from accordion_bench.runs.records import RunDirectory, Summary
from accordion_bench.sweeps.table import Row, RowRuns, Table
from accordion_bench.training.network import NETWORKS
from accordion_bench.training.record import EpochRecord
from accordion_bench.training.traffic import Count, Traffic

LAYERS = ("features.0.weight", "features.3.weight", "head.weight")
UPDATES = 10
ROW = Row("net", "rank 1", "low", ())


def dense(epoch: int) -> Traffic:
    """1,000 floats in 2 all-reduces per update."""
    return Traffic(mean=Count(2 * UPDATES, 1000 * UPDATES, 4000 * UPDATES))


def gathered(epoch: int) -> Traffic:
    """200 floats in 1 all-gather and 50 in 1 all-reduce per update."""
    return Traffic(
        mean=Count(UPDATES, 50 * UPDATES, 200 * UPDATES), gather=Count(UPDATES, 200 * UPDATES, 800 * UPDATES)
    )


def write_run(
    directory: Path,
    values: Sequence[float],
    *,
    traffic: Callable[[int], Traffic] = dense,
    levels: Callable[[int], tuple[int, ...]] = lambda epoch: (0, 0, 0),
    multiple: Callable[[int], int] = lambda epoch: 1,
    seconds: float = 2.0,
    skipped: int = 0,
    ladder: Sequence[float] = (1, 2),
    planned_epochs: int | None = None,
    dataset: dict[str, object] | None = None,
    metric: str = "accuracy",
    finished: bool = True,
    failure: dict[str, object] | None = None,
) -> RunDirectory:
    """One run whose metric after epoch i is values[i]; `seconds` is the training time of an epoch."""
    directory.mkdir(parents=True)
    run = RunDirectory(directory)
    config = {
        "dataset": {"name": "digits", "limit_train": None, "limit_test": None, **(dataset or {})},
        "compressor": {"name": "powersgd", "levels": list(ladder)},
        "epochs": planned_epochs or len(values),
        "workers": 4,
    }
    (directory / "config.yaml").write_text(yaml.safe_dump(config))
    run.write_json("environment.json", {"model": {"layers": [{"name": name} for name in LAYERS]}})
    parts = {"data": 0.1, "compute": 0.5, "compress": 0.1, "communicate": 0.25, "other": 0.05}
    records = [
        EpochRecord(
            epoch=epoch,
            updates=UPDATES,
            learning_rate=0.4,
            batch_multiple=multiple(epoch),
            loss=2.0 / (epoch + 1),
            metrics={"loss": 2.1 / (epoch + 1), metric: value},
            traffic=traffic(epoch).as_dict(),
            seconds={name: seconds * part for name, part in parts.items()} | {"evaluate": 9.0},
            level_index_L=levels(epoch),
            norms_L=(1.0, 1.0, 1.0),
            norm=1.7,
            skipped=skipped if epoch == 0 else 0,
            time=1.7e9 + 60 * epoch,
        )
        for epoch, value in enumerate(values)
    ]
    run.write_epochs(records)
    if finished:
        run.write_json("summary.json", asdict(summary_of(records, metric)))
    if failure:
        run.write_json("failure.json", failure)
    return run


def summary_of(records: Sequence[EpochRecord], metric: str) -> Summary:
    """The totals of these epochs."""
    total = Traffic()
    for record in records:
        total = total + Traffic.from_dict(record.traffic)
    values = [record.metrics[metric] for record in records]
    higher = metric == "accuracy"
    return Summary(
        epochs=len(records),
        updates=sum(record.updates for record in records),
        metric=metric,
        higher_is_better=higher,
        final=values[-1],
        best=max(values) if higher else min(values),
        loss=records[-1].loss,
        floats_per_worker=total.floats_per_worker,
        paper_floats=total.paper_floats(4),
        bytes_per_worker=total.bytes_per_worker,
        collectives=total.collectives,
        training_seconds=sum(
            value for record in records for name, value in record.seconds.items() if name != "evaluate"
        ),
        skipped=sum(record.skipped for record in records),
        workers=4,
        parameters=5000,
    )


def edit_json(path: Path, **changes: object) -> None:
    """Change keys of a JSON file by hand, as a person would."""
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def table_of(
    rows: Sequence[tuple[Row, dict[int, Path]]], *, scale: str = "3 epochs", **keys: object
) -> tuple[Table, list[RowRuns]]:
    """A table of these rows and their run directories."""
    seeds = tuple(next(iter(rows))[1])
    made = Table(
        name=str(keys.get("name", "small")),
        title=str(keys.get("title", "A small comparison")),
        scale=scale,
        seeds=seeds,
        base=(),
        rows=tuple(row for row, _ in rows),
        number=keys.get("number"),  # type: ignore[arg-type]
    )
    return made, [RowRuns(row, directories) for row, directories in rows]


def one_row(
    folder: Path, values_of_seeds: list[list[float]], row: Row = ROW, **keys: object
) -> tuple[Table, list[RowRuns]]:
    """A table of one row with these metrics per seed and epoch; `keys` go to write_run."""
    directories = {seed: folder / "runs" / "run" / f"seed-{seed}" for seed in range(1, len(values_of_seeds) + 1)}
    for directory, values in zip(directories.values(), values_of_seeds, strict=True):
        write_run(directory, values, **keys)  # type: ignore[arg-type]
    return table_of([(row, directories)])


def results(table: Table, rows: list[RowRuns], **keys: object) -> list[RowResult]:
    """The rows with their numbers; `keys` go to aggregate."""
    return aggregate(table, rows, network=NETWORKS["paper"], **keys)  # type: ignore[arg-type]
