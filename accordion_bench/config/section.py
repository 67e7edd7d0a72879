"""Takes typed values out of a mapping one by one; whatever does not fit becomes one line for the user."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Any

from accordion_bench.errors import UserError
from accordion_bench.plugins import closest

MOST = 10**9  # of a number where nothing says otherwise: no setting needs more, and float32 has room above it
MOST_SEED = 2**63 - 1


class Section:
    """The values of one part of the configuration. Every getter removes its key; `done` refuses what is left.

    Args:
        values: the mapping; it is copied.
        path: how the user spells this part ("optimizer"), empty for the top.
    """

    def __init__(self, values: Mapping[str, Any], path: str = "") -> None:
        self._all = values
        self._values = dict(values)
        self._known = list(values)
        self._path = path

    def section(self, key: str) -> Section:
        """A nested part."""
        values = self._take(key)
        if not isinstance(values, Mapping):
            raise self._wrong(
                key, "a group of settings", values, f"choose one with {key}=NAME (accordion-bench run --help)"
            )
        return Section(values, self._full(key))

    def integer(self, key: str, *, least: int, remedy: str, most: int = MOST) -> int:
        """A whole number >= least, and not above most."""
        value = self._take(key)
        if type(value) is not int or not least <= value <= most:
            raise self._wrong(key, _whole(least, most, value), value, remedy)
        return value

    def optional_integer(self, key: str, *, least: int, remedy: str) -> int | None:
        """A whole number >= least, or null."""
        value = self._take(key)
        if value is not None and (type(value) is not int or not least <= value <= MOST):
            raise self._wrong(key, f"{_whole(least, MOST, value)} or null", value, remedy)
        return value

    def number(
        self,
        key: str,
        *,
        least: float | None = None,
        above: float | None = None,
        most: float | None = None,
        below: float | None = None,
        remedy: str,
    ) -> float:
        """A finite number within the bounds that are given (least and most included, above and below not)."""
        value = self._take(key)
        is_number = type(value) in (int, float)
        bounds = (
            (least, ">=", lambda bound: value >= bound),
            (above, ">", lambda bound: value > bound),
            (most, "<=", lambda bound: value <= bound),
            (below, "<", lambda bound: value < bound),
        )
        given = [(sign, bound, holds) for bound, sign, holds in bounds if bound is not None]
        if is_number and MOST < abs(value) < math.inf:
            raise self._wrong(key, f"a number of at most {MOST:,}", value, remedy)
        finite = is_number and abs(value) <= MOST  # NaN compares false
        if not finite or not all(holds(bound) for _, bound, holds in given):
            words = " and ".join(f"{sign} {bound:g}" for sign, bound, _ in given)
            raise self._wrong(key, f"a number {words}", value, remedy)
        return float(value)

    def optional_number(self, key: str, *, above: float, remedy: str) -> float | None:
        """A finite number above a bound, or null."""
        if self._values.get(key, 0) is None:
            return self._take(key)
        return self.number(key, above=above, remedy=remedy)

    def boolean(self, key: str) -> bool:
        """true or false."""
        value = self._take(key)
        if type(value) is not bool:
            raise self._wrong(key, "true or false", value, f"write {self._full(key)}=true or {self._full(key)}=false")
        return value

    def text(self, key: str) -> str:
        """A string that is not empty."""
        value = self._take(key)
        if type(value) in (int, float):  # a folder called 2024
            value = str(value)
        if type(value) is not str or not value.strip():
            raise self._wrong(key, "a name or path", value, f"write {self._full(key)}=NAME")
        return value

    def choice(self, key: str, allowed: Collection[str]) -> str:
        """One of a few words."""
        value = self._take(key)
        if type(value) is not str or value not in allowed:
            hint = (
                closest(str(value), list(allowed)).removeprefix("; ")
                or f"write {self._full(key)}={next(iter(allowed))}"
            )
            raise self._wrong(key, "one of " + ", ".join(allowed), value, hint)
        return value

    def known(self, key: str, registry: Collection[str], what: str, custom: bool = False) -> str:
        """A name in a registry or, where the user may bring their own, "module:object"."""
        value = self._take(key)
        own = custom and type(value) is str and all(value.partition(":"))
        if not own and (type(value) is not str or value not in registry):
            raise unknown(what, value, registry, "; or your own as module:object" if custom else "")
        return value

    def list(self, key: str, what: str, example: str) -> list[Any]:
        """A list; numbers in it that are whole become ints, so that 1 and 1.0 are the same configuration."""
        value = self._take(key)
        if not isinstance(value, (list, tuple)):
            raise self._wrong(key, what, value, f"write '{self._full(key)}={example}'")
        return [_canonical(item) for item in value]

    def registered(self, key: str, what: str) -> str:
        """The name of a dataset, model, compressor or scheduler, or somebody's own as "module:object"."""
        from accordion_bench.compressors import COMPRESSORS
        from accordion_bench.schedulers import SCHEDULERS
        from accordion_bench.workloads.datasets import DATASETS
        from accordion_bench.workloads.models import MODELS

        registries: dict[str, Collection[str]] = {
            "dataset": DATASETS,
            "model": MODELS,
            "compressor": COMPRESSORS,
            "scheduler": SCHEDULERS,
        }
        return self.known(key, registries[what], what, custom=True)

    def peek(self, key: str) -> Any:
        """A value that was taken before, or is still there."""
        return self._all[key]

    def rest(self, key: str = "") -> dict[str, Any]:
        """What no getter took: a component's own settings."""
        values, self._values = self._values, {}
        return {key: _canonical(value) for key, value in values.items()}

    def done(self) -> None:
        """UserError if a key is left."""
        for key in self._values:
            known = [name for name in self._known if name not in self._values]
            raise UserError(f"there is no setting {self._full(key)!r}{closest(key, known)}; remove it")

    def _take(self, key: str) -> Any:
        if key not in self._values:
            raise UserError(f"{self._full(key)} is missing; give it a value: {self._full(key)}=...")
        return self._values.pop(key)

    def _full(self, key: str) -> str:
        return f"{self._path}.{key}" if self._path else key

    def _wrong(self, key: str, allowed: str, value: object, remedy: str) -> UserError:
        return UserError(f"{self._full(key)} must be {allowed}, got {show(value)}; {remedy}")


def _whole(least: int, most: int, value: object) -> str:
    above = f" and <= {most:,}" if type(value) is int and value > most else ""
    return f"a whole number >= {least}{above}"


def unknown(what: str, given: object, names: Collection[str], more: str = "") -> UserError:
    """A name that does not exist: what is close, and what there is."""
    hint = closest(str(given), list(names)) or "."
    return UserError(f"no {what} {show(given)}{hint} There are: {', '.join(names)}{more} (accordion-bench run --help)")


def show(value: object) -> str:
    """A value as the command line spells it, on one line."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_item, value)) + "]"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_item(key)}: {_item(item)}" for key, item in value.items()) + "}"
    return repr(value)


def _item(value: object) -> str:
    return value if isinstance(value, str) and value.isprintable() else show(value)


def _canonical(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, Mapping):
        return {key: _canonical(inner) for key, inner in value.items()}
    return [_canonical(inner) for inner in value] if isinstance(value, (list, tuple)) else value
