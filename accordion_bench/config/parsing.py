"""The door: plain values in, a valid RunConfig out, or one UserError that says what to write instead. No torch.

Every check that needs neither data nor a device is made here. Whether a batch fits a worker's share of the data is
known only when the data is there, so tasks/ and datasets/ say that.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, get_type_hints

from accordion_bench.config.plain_yaml import NotYaml, load_yaml
from accordion_bench.config.schema import RunConfig
from accordion_bench.config.section import Section
from accordion_bench.errors import UserError
from accordion_bench.plugins import NotImported


def parse(values: Mapping[str, Any]) -> RunConfig:
    """The configuration of a run that is about to start here.

    Args:
        values: composed and resolved, in the shape of conf/config.yaml.

    Raises:
        UserError: on the first value that cannot be used, or when the results directory cannot be written.
    """
    config = from_mapping(values)
    _check_writable(config)
    return config


def from_mapping(values: Mapping[str, Any]) -> RunConfig:
    """The reverse of config.to_mapping; checks all that lies in the values (not the results directory)."""
    config = _read(RunConfig, Section(values))
    _check_together(config)
    return config


def _read(kind: type, section: Section) -> Any:
    """An instance of one of schema's dataclasses: each field by its rule, or a section of its own."""
    types = get_type_hints(kind)
    values = {}
    for field in fields(kind):
        if "read" in field.metadata:
            getter, bounds = field.metadata["read"]
            values[field.name] = getter(section, field.name, **bounds)
        else:
            values[field.name] = _read(types[field.name], section.section(field.name))
    section.done()
    return kind(**values)


def _check_together(config: RunConfig) -> None:
    """What no setting can be told alone."""
    from accordion_bench.schedulers import SCHEDULERS, build_scheduler
    from accordion_bench.schedulers.base import Problem
    from accordion_bench.workloads import models

    models.check_fit(config.model.name, config.dataset.kind, config.dataset.name)
    if config.optimizer.kind == "nesterov" and config.optimizer.momentum == 0:
        raise UserError("optimizer.momentum must be above 0 with optimizer.kind=nesterov, got 0.0; the paper has 0.9")
    workers, processes = config.workers, config.launch.processes
    if processes is not None and workers % processes:
        divisors = ", ".join(str(n) for n in range(1, workers + 1) if workers % n == 0)
        raise UserError(
            f"launch.processes must divide workers={workers} so that each process hosts equally many, got {processes}; "
            f"use one of {divisors}"
        )
    try:
        scheduler = build_scheduler(config.scheduler.name, config.scheduler.settings, config.statistic)
    except NotImported:
        return
    if config.scheduler.name in SCHEDULERS:  # a dry start on one layer of one word: places outside a ladder are refused
        rungs = len(config.compressor.levels)
        words = (1.0,) * rungs
        scheduler.start(Problem(("layer",), rungs, config.batch.multipliers, sys.maxsize, words, (words,), (1,)))


def _check_writable(config: RunConfig) -> None:
    """Refuse a results directory in which no run could be recorded, before anything is trained."""
    path = Path(config.results).absolute()
    while not path.exists() and not path.is_symlink() and path != path.parent:
        path = path.parent
    if not path.is_dir() or not os.access(path, os.W_OK | os.X_OK):
        why = "is not writable" if path.is_dir() else "is not a directory"
        raise UserError(
            f"results must be a directory that can be written, got {config.results!r} ({path} {why}); set results=DIR"
        )


def from_yaml(text: str) -> RunConfig:
    """The reverse of `to_yaml`, equal to what was written; UserError if the text was edited into something invalid."""
    try:
        values = load_yaml(text)
    except NotYaml as error:
        raise UserError(f"config.yaml is not valid YAML ({error}); restore it") from None
    if not isinstance(values, dict):
        raise UserError("config.yaml must hold a mapping of settings; restore it")
    return from_mapping(values)
