"""The typed configuration of a run. No torch.

Hydra composes conf/ and the command line (compose.py), parsing.py checks the result and makes a RunConfig of it or
raises UserError. Everything below that door trusts it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True, kw_only=True)
class DatasetConfig:
    """Where the data comes from. `settings` are the data set's own keys (augmentation, normalisation, ...)."""

    name: str
    kind: str  # "image" or "text"
    root: str = "data"
    verify: bool = True
    limit_train: int | None = None
    limit_test: int | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """The network; `settings` are its own keys (layers, dropout, ...)."""

    name: str
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class CompressorConfig:
    """The compressor, its ladder (most compressed first) and its own keys."""

    name: str
    levels: tuple[float, ...]
    error_feedback: bool
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class SchedulerConfig:
    """The scheduler and its own keys."""

    name: str
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class BatchConfig:
    """Examples per worker and backward pass, and the batch ladder as multiples (largest first)."""

    per_worker: int
    multipliers: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class OptimizerConfig:
    """SGD: kind is nesterov | heavy_ball | heavy_ball_plus_gradient (the authors' language-model step)."""

    kind: str
    momentum: float
    weight_decay: float
    clip_norm: float | None


@dataclass(frozen=True, kw_only=True)
class LRScheduleConfig:
    """Per epoch: warm-up from `base` to base x workers, then x factor at each milestone."""

    base: float
    scale_with_workers: bool
    warmup_epochs: int
    warmup_delay: int
    milestones: tuple[int, ...]
    factor: float


@dataclass(frozen=True, kw_only=True)
class LaunchConfig:
    """How the workers are placed; nothing here changes the result."""

    processes: int | None  # None: decided from the GPUs that are there
    device: str  # auto | cpu | cuda
    threads: int  # intra-op threads per process on the CPU
    timeout_s: float


@dataclass(frozen=True, kw_only=True)
class CheckpointConfig:
    """When checkpoints are written; nothing here changes the result."""

    enabled: bool
    minutes: float  # at least this long between two checkpoints
    keep: bool  # keep the last checkpoint of a finished run


@dataclass(frozen=True, kw_only=True)
class ProbeConfig:
    """What is measured beside the training, every so many epochs; None never. It changes records, not results."""

    eigenvalue: int | None
    overlap: int | None


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """One run, whole and valid."""

    dataset: DatasetConfig
    model: ModelConfig
    compressor: CompressorConfig
    scheduler: SchedulerConfig
    batch: BatchConfig
    protocol: str
    shuffle: str  # every_epoch | once
    aggregate: str  # mean | sum (the authors' Top-K)
    optimizer: OptimizerConfig
    lr_schedule: LRScheduleConfig
    epochs: int
    workers: int
    seed: int
    statistic: str  # local | aggregated
    on_nonfinite: str  # stop | skip
    probe: ProbeConfig
    launch: LaunchConfig
    checkpoint: CheckpointConfig
    network: str
    results: str
    quiet: bool

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
    import yaml

    return yaml.safe_dump(to_mapping(config), sort_keys=False, allow_unicode=True)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(inner) for key, inner in value.items()}
    return [_plain(inner) for inner in value] if isinstance(value, (list, tuple)) else value
