"""A table or a grid of settings -> the runs it is made of, and how far each of them is. runner.py runs them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from accordion_bench.config.compose import compose_all, compose_seeds, expand
from accordion_bench.config.parsing import from_mapping
from accordion_bench.config.schema import RunConfig
from accordion_bench.errors import UserError
from accordion_bench.runs.lock import is_alive, read_owner
from accordion_bench.runs.records import RunDirectory
from accordion_bench.sweeps.table import RowRuns, Table


@dataclass(frozen=True)
class Job:
    """One run of a sweep.

    Attributes:
        label: what people call it: a row and a seed, or the overrides of a grid.
        overrides: what makes it, for `accordion-bench run`.
        config: the same, composed.
    """

    label: str
    overrides: tuple[str, ...]
    config: RunConfig


def resolve(table: Table, results: str = "results") -> list[RowRuns]:
    """Every row with the run directories of its seeds, whether they exist or not. Nothing is written or trained.

    Raises:
        UserError: if a row's overrides do not make a configuration.
    """
    configs = _row_configs(table, table.seeds, [f"results={_quoted(results)}"], from_mapping)
    return [
        RowRuns(row, {seed: config.directory for seed, config in zip(table.seeds, own, strict=True)})
        for row, own in zip(table.rows, configs, strict=True)
    ]


def table_jobs(table: Table, seeds: Sequence[int] = (), rows: str = "", extra: Sequence[str] = ()) -> list[Job]:
    """The runs of a table, all rows of the first seed first, so that an interrupted sweep leaves whole comparisons.

    Args:
        table: the table.
        seeds: instead of the table's own.
        rows: keep rows whose name or overrides contain this, in any case.
        extra: overrides of every row that do not change its result (results, launch, dataset.root, ...).

    Raises:
        UserError: if no row is left, or an extra override would make other runs than the table's.
    """
    kept = [row for row in table.rows if rows.lower() in f"{row.id} {' '.join(row.overrides)}".lower()]
    if not kept:
        names = ", ".join(row.id for row in table.rows)
        raise UserError(
            f"rows must be part of a row's name or overrides in table {table.name}, got {rows!r}; there are: {names}"
        )
    table = replace(table, rows=tuple(kept))
    seeds = tuple(dict.fromkeys(seeds or table.seeds))
    configs = _row_configs(table, seeds, extra)
    for row, before, after in zip(
        kept, _row_configs(table, seeds, [], from_mapping) if extra else configs, configs, strict=True
    ):
        if [config.hash for config in before] != [config.hash for config in after]:
            raise UserError(
                f"{' '.join(extra)} changes the result of row {row.id!r}, which would no longer be "
                f"table {table.name}'s; leave it out, or sweep without table="
            )
    return [
        Job(f"{row.id}, seed {seed}", (*table.base, *row.overrides, *extra, f"seed={seed}"), own[place])
        for place, seed in enumerate(seeds)
        for row, own in zip(kept, configs, strict=True)
    ]


def grid_jobs(overrides: Sequence[str]) -> list[Job]:
    """The runs of overrides with comma-separated values; each once, however many ways lead to it."""
    combinations = expand(overrides)
    configs = compose_all(combinations)
    jobs = {
        config.directory: Job(" ".join(combination) or "the defaults", tuple(combination), config)
        for combination, config in zip(combinations, configs, strict=True)
    }
    return list(jobs.values())


def _row_configs(
    table: Table, seeds: Sequence[int], extra: Sequence[str], *check: Callable[..., RunConfig]
) -> list[list[RunConfig]]:
    """For each row, its configuration with each seed."""
    configs = []
    for row in table.rows:
        try:
            configs.append(compose_seeds([*table.base, *row.overrides, *extra], seeds, *check))
        except UserError as error:
            raise UserError(f"table {table.name}, row {row.id!r}: {error}") from None
    return configs


def _quoted(text: str) -> str:
    """A value that Hydra's grammar reads as this text, whatever is in it."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def state_of(config: RunConfig) -> str:
    """finished | running | diverged | failed | interrupted | missing."""
    directory = RunDirectory(config.directory)
    if directory.finished:
        return "finished"
    lock = directory.path / "lock"
    owner = read_owner(lock)
    if owner is not None and is_alive(lock, owner):
        return "running"
    failure = directory.read_json("failure.json")
    if failure is not None:
        return "diverged" if failure.get("state") == "diverged" else "failed"
    return "interrupted" if directory.path.exists() else "missing"
