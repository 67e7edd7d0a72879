"""How a check says that a promise is broken."""

from __future__ import annotations


class Broken(Exception):
    """A claim does not hold; the message says where and by how much."""


def require(holds: bool, otherwise: str) -> None:
    """Raise Broken with that message unless it holds."""
    if not holds:
        raise Broken(otherwise)
