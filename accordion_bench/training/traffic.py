"""What one worker hands to collectives. No torch: reports read it too.

`mean` and `gather` are the gradient traffic. `control` is everything else that training sends (a
scheduler's statistics); it is shown separately and is not part of `floats_per_worker`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

BYTES_PER_FLOAT = 4


@dataclass
class Count:
    """Calls, elements and bytes of one kind of collective, for one worker."""

    calls: int = 0
    elements: int = 0
    bytes: int = 0

    def add(self, elements: int, bytes: int, calls: int = 1) -> None:
        """Count `calls` collectives that together carry `elements` in `bytes`."""
        self.calls += calls
        self.elements += elements
        self.bytes += bytes


@dataclass
class Traffic:
    """A meter: `mean` and `gather` carry gradients, `control` the rest."""

    mean: Count = field(default_factory=Count)
    gather: Count = field(default_factory=Count)
    control: Count = field(default_factory=Count)

    @property
    def floats_per_worker(self) -> float:
        """32-bit words that one worker handed to gradient collectives."""
        return (self.mean.bytes + self.gather.bytes) / BYTES_PER_FLOAT

    @property
    def bytes_per_worker(self) -> int:
        """Bytes that one worker handed to gradient collectives."""
        return self.mean.bytes + self.gather.bytes

    @property
    def collectives(self) -> int:
        """Gradient collectives."""
        return self.mean.calls + self.gather.calls

    def paper_floats(self, workers: int) -> float:
        """The paper's Data Sent: gathered words count once per worker, averaged ones once."""
        return (self.mean.bytes + workers * self.gather.bytes) / BYTES_PER_FLOAT

    def __add__(self, other: Traffic) -> Traffic:
        total = Traffic()
        for name in ("mean", "gather", "control"):
            for part in (getattr(self, name), getattr(other, name)):
                getattr(total, name).add(part.elements, part.bytes, part.calls)
        return total

    def times(self, updates: int) -> Traffic:
        """The same traffic so many times over."""
        total = Traffic()
        for name in ("mean", "gather", "control"):
            part = getattr(self, name)
            getattr(total, name).add(updates * part.elements, updates * part.bytes, updates * part.calls)
        return total

    def as_dict(self) -> dict[str, dict[str, int]]:
        """Plain numbers, for a record."""
        return asdict(self)

    @classmethod
    def from_dict(cls, numbers: Mapping[str, Mapping[str, int]]) -> Traffic:
        """The reverse of `as_dict`."""
        return cls(**{name: Count(**numbers[name]) for name in ("mean", "gather", "control")})
