"""Where the time of a training step goes, on the clock of the device that does the work."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

import torch

SECTIONS = ("data", "compute", "compress", "communicate", "evaluate", "other")


class Clock:
    """Exclusive seconds per section: time inside an inner section is not counted for the outer one.

    On CUDA it records events, which cost microseconds, and reads them when `read` is called.
    """

    def __init__(self, device: torch.device | str = "cpu") -> None:
        self._cuda = torch.device(device).type == "cuda"
        self._stack = ["other"]
        self._marks = [(self._now(), "other")]
        self._seconds: dict[str, float] = defaultdict(float)

    def _now(self) -> torch.cuda.Event | float:
        if not self._cuda:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    @contextmanager
    def section(self, name: str) -> Iterator[None]:
        """Count what happens inside as `name`."""
        self._enter(name)
        try:
            yield
        finally:
            self._stack.pop()
            self._mark(self._stack[-1])

    def _enter(self, name: str) -> None:
        self._stack.append(name)
        self._mark(name)

    def _mark(self, name: str) -> None:
        now = self._now()
        if self._cuda:
            self._marks.append((now, name))
            return
        before, section = self._marks[0]
        self._seconds[section] += now - before  # type: ignore[operator]
        self._marks[0] = (now, name)

    def read(self) -> dict[str, float]:
        """Seconds per section since the last call."""
        self._mark(self._stack[-1])
        if self._cuda:
            torch.cuda.synchronize()
            for (start, section), (stop, _) in zip(self._marks, self._marks[1:], strict=False):
                self._seconds[section] += start.elapsed_time(stop) / 1000  # type: ignore[union-attr, arg-type]
            self._marks = self._marks[-1:]
        seconds = {name: self._seconds.get(name, 0.0) for name in SECTIONS}
        self._seconds.clear()
        return seconds
