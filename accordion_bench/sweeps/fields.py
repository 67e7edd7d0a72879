"""What may stand in the fields of a table file, each checked with a message that says where it is. No torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from accordion_bench.errors import UserError
from accordion_bench.plugins import closest


def keys_of(mapping: object, allowed: tuple[str, ...], required: tuple[str, ...], where: str) -> Mapping[str, Any]:
    """The mapping, with no other keys than allowed and all that are required; UserError if not."""
    if not isinstance(mapping, Mapping):
        raise UserError(f"{where} must be a mapping with the keys {', '.join(allowed)}, got {shown(mapping)}")
    for key in mapping:
        if key not in allowed:
            raise UserError(
                f"{where} has an unknown key {key!r}{closest(str(key), allowed) or ';'} there are: {', '.join(allowed)}"
            )
    for key in required:
        if key not in mapping:
            raise UserError(f"{where} lacks the key {key!r}; it must have {', '.join(required)}")
    return mapping


def text(value: object, where: str) -> str:
    """One line of text, without blanks around it; UserError if it is not that."""
    if not isinstance(value, str) or len(value.strip().splitlines()) != 1:
        raise UserError(f"{where} must be one line of text, got {shown(value)}; put it in quotation marks")
    return value.strip()


def seeds(value: object, where: str) -> tuple[int, ...]:
    """Whole numbers >= 0, each once; UserError if they are not that."""
    if not isinstance(value, list) or not value:
        raise UserError(
            f"{where}: seeds must be a list of one whole number or more, got {shown(value)}; write [1, 2, 3]"
        )
    for seed in value:
        if not isinstance(seed, int) or isinstance(seed, bool) or seed < 0:
            raise UserError(f"{where}: seeds must be whole numbers >= 0, got {seed!r}; write [1, 2, 3]")
    return tuple(dict.fromkeys(value))


def overrides(value: object, where: str) -> tuple[str, ...]:
    """Overrides like key=value, none of which is the seed; UserError if they are not that."""
    if not isinstance(value, list):
        raise UserError(
            f"{where} must be a list of overrides, got {shown(value)}; write [model=resnet18, 'compressor.levels=[2]']"
        )
    for override in value:
        if not isinstance(override, str) or not ("=" in override or override.startswith("~")):
            raise UserError(
                f"{where} must hold overrides like key=value, got {shown(override)}; put it in quotation marks"
            )
        if override.lstrip("+").partition("=")[0] == "seed":
            raise UserError(f"{where} must not set the seed, got {override!r}; the table's seeds do that")
    return tuple(value)


def choices(value: object, allowed: tuple[str, ...], where: str) -> tuple[str, ...]:
    """A list of one or more of the allowed words; UserError if it is not that."""
    if not isinstance(value, list) or not value or not all(item in allowed for item in value):
        raise UserError(f"{where} must be a list of {', '.join(allowed)}, got {shown(value)}; write [{allowed[0]}]")
    return tuple(value)


def shown(value: object) -> str:
    """A value for a message, on one line and not long."""
    text = " ".join(repr(value).split())
    return text if len(text) <= 60 else text[:57] + "..."
