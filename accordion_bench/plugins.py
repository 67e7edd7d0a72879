"""A component's own settings, checked against its constructor. No torch."""

from __future__ import annotations

import collections.abc
import difflib
import importlib
import inspect
import os
import sys
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from accordion_bench.errors import UserError


class NotImported(UserError):
    """A component of somebody's own is asked for where names are only looked at."""


MOST = 1e15  # of a number among a component's own settings; inf and nan are none
refused: set[str] = set()  # components that were not imported, for whoever wants to say so
_names_only = ContextVar("names_only", default=False)


@contextmanager
def names_only(only: bool = True) -> Iterator[None]:
    """Within it nothing is imported that a configuration names: it may come with results that somebody else made."""
    token = _names_only.set(only)
    try:
        yield
    finally:
        _names_only.reset(token)


def load_own(path: str, what: str) -> Any:
    """The object at a user's "module:name"; NotImported within `names_only`, UserError if it is not there."""
    if _names_only.get():
        refused.add(path)
        raise NotImported(f"{what} is {path!r}, somebody's own, which this command does not import")
    return load_object(path, what)


def load_object(path: str, what: str) -> Any:
    """The object at "module:name", a part of this package or a user's own; UserError if it is not there."""
    module, _, name = path.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())  # a user's own file beside which the command is given
    try:
        return getattr(importlib.import_module(module), name)
    except Exception as error:  # a user's module may raise anything
        why = str(error) if isinstance(error, (ImportError, AttributeError)) else f"{type(error).__name__}: {error}"
        raise UserError(f"{what} must be a name or module:object that can be imported, got {path!r} ({why})") from None


def closest(word: str, words: list[str] | tuple[str, ...]) -> str:
    """'; did you mean x?' or nothing."""
    near = difflib.get_close_matches(word, words, n=1)
    return f"; did you mean {near[0]}?" if near else ""


def check_settings(
    component: Callable[..., Any], settings: Mapping[str, Any], where: str, skip: tuple[str, ...] = ()
) -> dict[str, Any]:
    """Settings that fit the component's keyword-only arguments, lists turned into tuples.

    Args:
        component: a class or function whose keyword-only arguments are its settings.
        settings: what the user gave.
        where: prefix for messages, "compressor" for compressor.rank.
        skip: keyword-only arguments that are not settings.

    Raises:
        UserError: on an unknown key or a value of another type.
    """
    target = component.__init__ if inspect.isclass(component) else component
    parameters = inspect.signature(component).parameters
    allowed = [
        name for name, parameter in parameters.items() if parameter.kind is parameter.KEYWORD_ONLY and name not in skip
    ]
    # Only these: what other arguments are may be known to type checkers alone.
    own = types.SimpleNamespace(__annotations__={name: parameters[name].annotation for name in allowed})
    hints = typing.get_type_hints(own, getattr(target, "__globals__", {}))
    checked = {}
    for key, value in settings.items():
        if key not in allowed:
            known = ", ".join(allowed) or "none"
            raise UserError(f"{where} has no setting {key!r}{closest(key, allowed) or ';'} there are: {known}")
        value = tuple(value) if isinstance(value, list) else value
        if not _fits(value, hints.get(key, Any)):
            raise UserError(f"{where}.{key} must be {_words(hints.get(key, Any))}, got {value!r}")
        if any(
            isinstance(x, (int, float)) and not abs(x) <= MOST for x in (value if isinstance(value, tuple) else [value])
        ):
            raise UserError(f"{where}.{key} must be finite and at most {MOST:.0e} in size, got {_short(value)}")
        checked[key] = value
    return checked


def _short(value: object) -> str:
    try:
        text = repr(value)
    except ValueError:  # an integer of thousands of digits
        return "a number of thousands of digits"
    return text if len(text) <= 60 else text[:57] + "..."


def _words(hint: Any) -> str:
    """A type as a person would say it."""
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(_words(option) for option in typing.get_args(hint))
    if origin is typing.Literal:
        return " or ".join(str(option) for option in typing.get_args(hint))
    names = {int: "a whole number", float: "a number", bool: "true or false", str: "a text", type(None): "null"}
    return names.get(hint, "a list" if origin in (tuple, list, collections.abc.Sequence) else str(hint))


def _fits(value: object, hint: Any) -> bool:
    """Whether a value is of a type; an int is a float, but a bool is neither."""
    if hint is Any or (hint is None.__class__ and value is None):
        return True
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        return any(_fits(value, option) for option in typing.get_args(hint))
    if origin is typing.Literal:
        return value in typing.get_args(hint)
    if origin is not None:
        return isinstance(value, origin) or (isinstance(value, tuple) and issubclass(tuple, origin))
    if isinstance(value, bool):
        return hint is bool
    if hint is float:
        return isinstance(value, (int, float))
    return isinstance(value, hint)
