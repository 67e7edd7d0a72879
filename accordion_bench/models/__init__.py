"""The networks, by name. No torch until one is built."""

from __future__ import annotations

import difflib
import importlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from accordion_bench.errors import UserError

if TYPE_CHECKING:
    from torch import nn

# What a builder is told about the data, by kind of data (tasks/base.py, Task.facts).
FACTS: dict[str, tuple[str, ...]] = {"image": ("channels", "size", "classes"), "text": ("vocabulary",)}
_PLURAL = {"image": "images", "text": "text"}


@dataclass(frozen=True)
class Entry:
    """Where a network's builder is and what it reads.

    Attributes:
        path: "module:function". For images build(*, channels, size, classes, **settings), for text
            build(*, vocabulary, **settings); both return an nn.Module and draw from torch's global generator only.
        kind: "image" or "text".
    """

    path: str
    kind: str


MODELS: dict[str, Entry] = {
    "densenet": Entry("accordion_bench.models.densenet:build", "image"),
    "googlenet": Entry("accordion_bench.models.googlenet:build", "image"),
    "lstm": Entry("accordion_bench.models.lstm:build", "text"),
    "resnet18": Entry("accordion_bench.models.resnet:build_resnet18", "image"),
    "resnet8": Entry("accordion_bench.models.resnet:build_resnet8", "image"),
    "senet": Entry("accordion_bench.models.senet:build", "image"),
    "smallcnn": Entry("accordion_bench.models.smallcnn:build", "image"),
    "vgg19bn": Entry("accordion_bench.models.vgg:build", "image"),
    "wideresnet": Entry("accordion_bench.models.wideresnet:build", "image"),
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
        raise UserError(f"no model '{name}'; {_suggest(name, MODELS)}")
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
        name: a key of MODELS, or "module:callable" of the user's own (a builder as in Entry.path; a Module class will do).
        facts: Task.facts: {"kind": "image", "channels", "size", "classes"} or {"kind": "text", "vocabulary"}.
        settings: the network's own keys; those left out have the builder's defaults.

    Raises:
        UserError: no such network, one of the other kind, a wrong setting, or an image too small for the network.
    """
    check_fit(name, facts["kind"])
    builder = _load(name)
    known = {key: facts[key] for key in FACTS[facts["kind"]]}
    _check_settings(name, builder, known, settings)
    model: nn.Module = builder(**known, **settings)
    if not callable(getattr(model, "named_parameters", None)):
        raise UserError(f"model '{name}' must return a torch.nn.Module, got {type(model).__name__}; return the network")
    return model


def _load(name: str) -> Callable[..., Any]:
    module, _, attribute = (MODELS[name].path if name in MODELS else name).partition(":")
    try:
        builder = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise UserError(
            f"model '{name}' cannot be loaded ({error}); write module:callable, with the module on the Python path"
        ) from error
    if not callable(builder):
        raise UserError(f"model '{name}' must be a callable that builds a network, got {type(builder).__name__}")
    return builder  # type: ignore[no-any-return]


# How a setting's annotation is checked: the types that pass, and the words for a message.
_CHECKS: dict[str, tuple[tuple[type, ...], str]] = {
    "int": ((int,), "a whole number"),
    "float": ((int, float), "a number"),
    "str": ((str,), "a word"),
    "bool": ((bool,), "true or false"),
}


def _check_settings(
    name: str, builder: Callable[..., Any], known: Mapping[str, Any], settings: Mapping[str, Any]
) -> None:
    """Compare facts and settings with the builder's signature before it is called."""
    parameters = inspect.signature(builder).parameters
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    named = {key: p for key, p in parameters.items() if p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD)}
    own = {key: p for key, p in named.items() if key not in known}
    for fact in known:
        if fact not in named and not takes_any:
            wanted = ", ".join(known)
            raise UserError(
                f"model '{name}' must take {wanted}, but takes no '{fact}'; add it to its keyword arguments"
            )
    for key, value in settings.items():
        if key in own:
            _check_type(key, value, own[key])
        elif not takes_any or key in known:
            raise UserError(f"model '{name}' has no setting '{key}'; {_suggest(key, own)}")
    for key, parameter in own.items():
        if key not in settings and parameter.default is parameter.empty:
            raise UserError(f"model '{name}' needs the setting '{key}'; write model.{key}=...")


def _check_type(key: str, value: object, parameter: inspect.Parameter) -> None:
    annotation = parameter.annotation
    check = _CHECKS.get(annotation if isinstance(annotation, str) else getattr(annotation, "__name__", ""))
    if check is None:
        return
    types, words = check
    if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
        remedy = "" if parameter.default is parameter.empty else f"; the default is {parameter.default}"
        raise UserError(f"model.{key} must be {words}, got {value!r}{remedy}")


def _suggest(word: str, existing: Mapping[str, Any]) -> str:
    close = difflib.get_close_matches(word, list(existing), n=1)
    meant = f"did you mean {close[0]}? " if close else ""
    return f"{meant}There are: {', '.join(sorted(existing))}" if existing else "it has none; leave it out"
