"""From a data set's configuration to a task."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from accordion_bench.errors import UserError
from accordion_bench.plugins import check_settings, closest
from accordion_bench.workloads.datasets import find_dataset, find_loader
from accordion_bench.workloads.datasets.base import ImageData, TextData, checksums

if TYPE_CHECKING:
    import torch

    from accordion_bench.config.schema import DatasetConfig
    from accordion_bench.training.task import Task


def build_task(
    dataset: DatasetConfig,
    *,
    batch_per_worker: int,
    workers: int,
    seed: int,
    device: torch.device | str,
    shuffle: str,
) -> Task:
    """Load a data set (downloading it if need be) and put it on the device.

    `dataset.settings` are keyword-only arguments of the data set's loader and of its task; a user's own data set may
    have settings of its own that way.

    Args:
        batch_per_worker: images, or streams of text, per worker and batch.
        workers: A, all of them.
        shuffle: "every_epoch" or "once".

    Raises:
        UserError: if the data cannot be had or is damaged, or a setting does not fit.
    """
    import torch

    from accordion_bench.workloads.tasks.evaluation import Share
    from accordion_bench.workloads.tasks.images import ImageClassification
    from accordion_bench.workloads.tasks.language import LanguageModelling

    entry = find_dataset(dataset.name, dataset.kind)
    loader = find_loader(dataset.name, dataset.kind)
    task, type_of_data = {
        "image": (ImageClassification, ImageData),
        "text": (LanguageModelling, TextData),
    }[entry.kind]
    for_loader, for_task = _divide(dataset.settings, loader, task)
    data = loader(dataset, **for_loader)
    if not isinstance(data, type_of_data):
        raise UserError(f"{dataset.name} must return {type_of_data.__name__}, got {type(data).__name__}")
    share = Share(
        batch_per_worker=batch_per_worker, workers=workers, seed=seed, shuffle=shuffle, device=torch.device(device)
    )
    kept = data.limited(dataset.limit_train, dataset.limit_test)
    built: Task = task(kept, share, **for_task)
    built.checksums = checksums(kept)
    return built


def _divide(
    settings: Mapping[str, Any], loader: Callable[..., Any], task: Callable[..., Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The settings of the loader and those of the task, checked."""
    loaders, tasks = _keywords(loader), _keywords(task)
    for key in settings:
        if key not in loaders and key not in tasks:
            known = [*tasks, *loaders]
            near = closest(key, known) or "."
            raise UserError(f"dataset has no setting {key!r}{near} There are: {', '.join(known)}")
    return (
        check_settings(loader, {key: value for key, value in settings.items() if key in loaders}, "dataset"),
        check_settings(task, {key: value for key, value in settings.items() if key not in loaders}, "dataset"),
    )


def _keywords(function: Callable[..., Any]) -> list[str]:
    parameters = inspect.signature(function).parameters.values()
    return [parameter.name for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY]
