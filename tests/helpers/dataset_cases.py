"""Data set configurations for tests that build no whole run."""

from __future__ import annotations

from typing import Any

from accordion_bench.config.schema import DatasetConfig


def dataset_config(name: str, kind: str, **changes: Any) -> DatasetConfig:
    """What conf/ has for every data set, with changes."""
    values = {"root": "data", "verify": True, "limit_train": None, "limit_test": None, "settings": {}} | changes
    return DatasetConfig(name=name, kind=kind, **values)
