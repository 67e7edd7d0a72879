"""The typed configuration of a run, and for each setting what it may be: the one place that a new setting needs
beside its default in conf/. No torch.

Hydra composes conf/ and the command line (compose.py); parsing.py reads the result by the rules here and makes a
RunConfig of it or raises UserError. Everything below that door trusts it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from accordion_bench.config.plain_yaml import dump_yaml
from accordion_bench.config.section import MOST, MOST_SEED, Section, show
from accordion_bench.errors import UserError
from accordion_bench.plugins import NotImported

OPTIMIZERS = ("nesterov", "heavy_ball", "heavy_ball_plus_gradient")
PROTOCOLS = ("paper", "authors_code")


def rule(getter: Callable[..., Any], **bounds: Any) -> Any:
    """A field that is read as getter(section, key, **bounds), which raises UserError if the value can't be used."""
    return field(metadata={"read": (getter, bounds)})


def _network(section: Section, key: str) -> str:
    from accordion_bench.training.network import NETWORKS

    return section.known(key, NETWORKS, "network")


def _kind(section: Section, key: str) -> str:
    """A registered data set has one kind; for somebody's own both are possible."""
    from accordion_bench.workloads.datasets import DATASETS

    name = section.peek("name")
    return section.choice(key, (DATASETS[name].kind,) if name in DATASETS else ("image", "text"))


def _levels(section: Section, key: str) -> tuple[float, ...]:
    from accordion_bench.compressors import find_compressor
    from accordion_bench.compressors.ladders import ANY

    levels = section.list(key, "a list of numbers, most compressed first", example="[1, 2]")
    try:
        ladder = find_compressor(section.peek("name")).ladder
    except NotImported:
        ladder = ANY
    return ladder.check(levels)


def _multipliers(section: Section, key: str) -> tuple[int, ...]:
    multipliers = section.list(key, "a list of whole numbers that fall to 1", example="[8, 1]")
    whole = all(type(multiple) is int and 1 <= multiple <= MOST for multiple in multipliers)
    falling = whole and multipliers == sorted(set(multipliers), reverse=True)
    if not multipliers or not falling or multipliers[-1] != 1:
        remedy = "[" + ", ".join(map(str, sorted({1, *multipliers}, reverse=True))) + "]" if whole else "[8, 1]"
        raise UserError(
            f"batch.multipliers must be whole numbers that fall to 1, got {show(multipliers)}; write {remedy}"
        )
    return tuple(multipliers)


def _milestones(section: Section, key: str) -> tuple[int, ...]:
    milestones = section.list(key, "a list of epochs", example="[150, 250]")
    if not all(type(epoch) is int and 1 <= epoch <= MOST for epoch in milestones) or milestones != sorted(
        set(milestones)
    ):
        raise UserError(
            f"lr_schedule.milestones must be rising epochs >= 1, got {show(milestones)}; write e.g. [150, 250], "
            "or [] for a constant rate"
        )
    return tuple(milestones)


@dataclass(frozen=True, kw_only=True)
class DatasetConfig:
    """Where the data comes from. `settings` are the data set's own keys (augmentation, normalisation, ...)."""

    name: str = rule(Section.registered, what="dataset")
    kind: str = rule(_kind)  # image | text
    root: str = rule(Section.text)
    verify: bool = rule(Section.boolean)
    limit_train: int | None = rule(Section.optional_integer, least=1, remedy="null uses all of it")
    limit_test: int | None = rule(Section.optional_integer, least=1, remedy="null uses all of it")
    settings: Mapping[str, Any] = rule(Section.rest)


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """The network; `settings` are its own keys (layers, dropout, ...)."""

    name: str = rule(Section.registered, what="model")
    settings: Mapping[str, Any] = rule(Section.rest)


@dataclass(frozen=True, kw_only=True)
class CompressorConfig:
    """The compressor, its ladder (most compressed first) and its own keys."""

    name: str = rule(Section.registered, what="compressor")
    levels: tuple[float, ...] = rule(_levels)
    error_feedback: bool = rule(Section.boolean)
    settings: Mapping[str, Any] = rule(Section.rest)


@dataclass(frozen=True, kw_only=True)
class SchedulerConfig:
    """The scheduler and its own keys."""

    name: str = rule(Section.registered, what="scheduler")
    settings: Mapping[str, Any] = rule(Section.rest)


@dataclass(frozen=True, kw_only=True)
class BatchConfig:
    """Examples per worker and backward pass, and the batch ladder as multiples (largest first)."""

    per_worker: int = rule(Section.integer, least=1, remedy="the paper has 128")
    multipliers: tuple[int, ...] = rule(_multipliers)


@dataclass(frozen=True, kw_only=True)
class OptimizerConfig:
    """SGD; heavy_ball_plus_gradient is the step of the authors' language model."""

    kind: str = rule(Section.choice, allowed=OPTIMIZERS)
    momentum: float = rule(Section.number, least=0, below=1, remedy="the paper has 0.9")
    weight_decay: float = rule(Section.number, least=0, remedy="the paper has 1e-4 on CIFAR")
    clip_norm: float | None = rule(Section.optional_number, above=0, remedy="null does not clip")


@dataclass(frozen=True, kw_only=True)
class LRScheduleConfig:
    """Per epoch: warm-up from `base` to base x workers, then x factor at each milestone."""

    base: float = rule(Section.number, above=0, remedy="the paper has 0.1 on CIFAR and 2.5 on WikiText-2")
    scale_with_workers: bool = rule(Section.boolean)
    warmup_epochs: int = rule(Section.integer, least=0, remedy="0 starts at the full rate")
    warmup_delay: int = rule(Section.integer, least=0, remedy="the authors' code has 1")
    milestones: tuple[int, ...] = rule(_milestones)
    factor: float = rule(Section.number, above=0, most=1, remedy="0.1 divides by ten")


@dataclass(frozen=True, kw_only=True)
class LaunchConfig:
    """How the workers are placed; nothing here changes the result."""

    processes: int | None = rule(Section.optional_integer, least=1, remedy="null decides from the GPUs that are there")
    device: str = rule(Section.choice, allowed=("auto", "cpu", "cuda"))
    threads: int = rule(  # intra-op, of each process on the CPU
        Section.integer, least=1, remedy="1 per process suits several processes on one CPU"
    )
    timeout_s: float = rule(Section.number, above=0, remedy="600 gives a slow worker ten minutes")


@dataclass(frozen=True, kw_only=True)
class CheckpointConfig:
    """When checkpoints are written; nothing here changes the result."""

    enabled: bool = rule(Section.boolean)
    minutes: float = rule(  # at least this long between two
        Section.number, least=0, remedy="0 saves after every update; checkpoint.enabled=false never"
    )
    keep: bool = rule(Section.boolean)  # the last one, of a finished run


@dataclass(frozen=True, kw_only=True)
class ProbeConfig:
    """What is measured beside the training, every so many epochs; None never. It changes records, not results."""

    eigenvalue: int | None = rule(Section.optional_integer, least=1, remedy="1 measures after every epoch, null never")
    overlap: int | None = rule(Section.optional_integer, least=1, remedy="1 measures after every epoch, null never")


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """One run, whole and valid."""

    dataset: DatasetConfig
    model: ModelConfig
    compressor: CompressorConfig
    scheduler: SchedulerConfig
    batch: BatchConfig
    protocol: str = rule(Section.choice, allowed=PROTOCOLS)
    shuffle: str = rule(Section.choice, allowed=("every_epoch", "once"))
    aggregate: str = rule(Section.choice, allowed=("mean", "sum"))  # sum: the authors' Top-K
    optimizer: OptimizerConfig
    lr_schedule: LRScheduleConfig
    epochs: int = rule(Section.integer, least=1, remedy="the paper trains 300 on CIFAR")
    workers: int = rule(Section.integer, least=1, remedy="the paper has 4")
    seed: int = rule(Section.integer, least=0, most=MOST_SEED, remedy="sweep over several with -m seed=1,2,3")
    statistic: str = rule(Section.choice, allowed=("local", "aggregated"))
    on_nonfinite: str = rule(Section.choice, allowed=("stop", "skip"))
    probe: ProbeConfig
    launch: LaunchConfig
    checkpoint: CheckpointConfig
    network: str = rule(_network)
    results: str = rule(Section.text)
    quiet: bool = rule(Section.boolean)

    @property
    def identity(self) -> dict[str, Any]:
        """Everything that changes the result or what is measured, and nothing else."""
        values = asdict(self)
        for name in ("seed", "launch", "checkpoint", "network", "results", "quiet"):
            del values[name]
        for name in ("root", "verify"):
            del values["dataset"][name]
        if values["probe"] == {"eigenvalue": None, "overlap": None}:  # a run with a probe leaves other records
            del values["probe"]
        return values

    @property
    def hash(self) -> str:
        """Ten hexadecimal digits of the identity's SHA-256."""
        text = json.dumps(self.identity, sort_keys=True, default=list)
        return hashlib.sha256(text.encode()).hexdigest()[:10]

    @property
    def slug(self) -> str:
        """dataset-model-compressor-scheduler, for people."""
        parts = (self.dataset.name, self.model.name, self.compressor.name, self.scheduler.name)
        return "-".join(part.replace(":", ".").replace("/", ".") for part in parts)

    @property
    def directory(self) -> Path:
        """Where this run's records lie."""
        return Path(self.results) / "runs" / f"{self.slug}-{self.hash}" / f"seed-{self.seed}"

    @property
    def title(self) -> str:
        """One line that says what is run."""
        levels = ", ".join(f"{level:g}" for level in self.compressor.levels)
        what = f"{self.model.name} on {self.dataset.name} · {self.compressor.name} {{{levels}}}"
        return f"{what} · {self.scheduler.name} · {self.workers} workers"


def differences(stored: Mapping[str, Any], given: Mapping[str, Any], prefix: str = "") -> list[str]:
    """The keys in which two identities differ, dotted, with both values: "epochs 3, not 4"."""
    found = []
    for key in [*stored, *(key for key in given if key not in stored)]:
        before, after = _plain(stored.get(key)), _plain(given.get(key))
        if isinstance(before, dict) and isinstance(after, dict):
            found += differences(before, after, f"{prefix}{key}.")
        elif before != after:
            found.append(f"{prefix}{key} {before}, not {after}")
    return found


def to_mapping(config: RunConfig) -> dict[str, Any]:
    """The configuration as conf/ and the command line spell it: plain values, `settings` beside the section's keys."""
    values = {key: _plain(value) for key, value in asdict(config).items()}
    for section in ("dataset", "model", "compressor", "scheduler"):
        values[section] |= values[section].pop("settings")
    return values


def to_yaml(config: RunConfig) -> str:
    """`to_mapping` as the text of a run's config.yaml."""
    return dump_yaml(to_mapping(config))


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(inner) for key, inner in value.items()}
    return [_plain(inner) for inner in value] if isinstance(value, (list, tuple)) else value
