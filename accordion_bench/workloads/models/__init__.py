"""The networks, by name. No torch until one is built."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from accordion_bench.errors import UserError
from accordion_bench.plugins import check_settings, closest, load_object, load_own

if TYPE_CHECKING:
    from torch import nn

# What a builder is told about the data, by kind of data (training/task.py, Task.facts).
FACTS: dict[str, tuple[str, ...]] = {"image": ("channels", "size", "classes"), "text": ("vocabulary",)}
_PLURAL = {"image": "images", "text": "text"}


@dataclass(frozen=True)
class Entry:
    """Where a network's builder is and what it reads.

    Attributes:
        path: "module:function". For images build(*, channels, size, classes), for text build(*, vocabulary), each with
            its settings as further keyword-only arguments; it returns an nn.Module and draws from torch's global
            generator only.
        kind: "image" or "text".
    """

    path: str
    kind: str


MODELS: dict[str, Entry] = {
    "densenet": Entry("accordion_bench.workloads.models.densenet:build", "image"),
    "googlenet": Entry("accordion_bench.workloads.models.googlenet:build", "image"),
    "lstm": Entry("accordion_bench.workloads.models.lstm:build", "text"),
    "resnet18": Entry("accordion_bench.workloads.models.resnet:build_resnet18", "image"),
    "resnet8": Entry("accordion_bench.workloads.models.resnet:build_resnet8", "image"),
    "senet": Entry("accordion_bench.workloads.models.senet:build", "image"),
    "smallcnn": Entry("accordion_bench.workloads.models.smallcnn:build", "image"),
    "vgg19bn": Entry("accordion_bench.workloads.models.vgg:build", "image"),
    "vgg9": Entry("accordion_bench.workloads.models.vgg:build_vgg9", "image"),
    "wideresnet": Entry("accordion_bench.workloads.models.wideresnet:build", "image"),
}


def check_fit(name: str, kind: str, dataset: str | None = None) -> None:
    """Refuse a network that does not exist or does not read this kind of data. No torch.

    Args:
        name: a key of MODELS, or "module:callable" of the user's own, whose kind is not known and not checked.
        kind: "image" or "text".
        dataset: the data set's name, for the message.

    Raises:
        UserError: no such network, or one of the other kind.
    """
    if ":" in name:
        return
    if name not in MODELS:
        raise UserError(f"no model '{name}'{closest(name, list(MODELS)) or ';'} There are: {', '.join(MODELS)}")
    reads = MODELS[name].kind
    if reads != kind:
        subject = f"dataset '{dataset}'" if dataset else "the dataset"
        fitting = ", ".join(sorted(other for other, entry in MODELS.items() if entry.kind == kind))
        raise UserError(
            f"model '{name}' reads {_PLURAL[reads]}, {subject} has {_PLURAL[kind]}; choose one of: {fitting}"
        )


def build_model(name: str, facts: Mapping[str, Any], settings: Mapping[str, Any]) -> nn.Module:
    """A freshly initialised network; initial values come from torch's global generator, which the caller seeds.

    Args:
        name: a key of MODELS, or "module:callable" of the user's own: a builder as in Entry, or a Module class.
        facts: Task.facts: {"kind": "image", "channels", "size", "classes"} or {"kind": "text", "vocabulary"}.
        settings: the network's own keys; those left out have the builder's defaults.

    Raises:
        UserError: no such network, one of the other kind, a wrong setting, or an image too small for the network.
    """
    check_fit(name, facts["kind"])
    builder = load_object(MODELS[name].path, "model.name") if name in MODELS else load_own(name, "model.name")
    if not callable(builder):
        raise UserError(f"model '{name}' must be a callable that builds a network, got {type(builder).__name__}")
    known = {key: facts[key] for key in FACTS[facts["kind"]]}
    arguments = known | check_settings(builder, settings, "model", skip=tuple(known))
    try:
        inspect.signature(builder).bind(**arguments)
    except TypeError as error:
        raise UserError(
            f"model '{name}' must take {', '.join(known)} and its settings by keyword, but {error}; "
            "change its arguments, or give the missing ones as model.<name>=<value>"
        ) from None
    model: nn.Module = builder(**arguments)
    if not callable(getattr(model, "named_parameters", None)):
        raise UserError(f"model '{name}' must return a torch.nn.Module, got {type(model).__name__}; return the network")
    return model
