"""Between updates: signals, and checkpoints by the clock, agreed on by all processes.

SIGINT (Ctrl-C), SIGTERM (pre-emption), SIGUSR1 (SLURM's warning before a requeue) ask for a checkpoint and an end; a second
SIGINT ends at once.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

import torch

from accordion_bench.communicator import Communicator
from accordion_bench.errors import Interrupted

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)
AGREE_EVERY = 4  # updates between agreements of several processes; one small all-reduce each


class Pulse:
    """Called after every update and every epoch.

    Args:
        communicator: to agree with the other processes.
        save: writes a checkpoint; called on every process.
        minutes: least time between two checkpoints, by process 0's monotonic clock; None: no checkpoints by the clock.
        device: of the flags.
    """

    def __init__(
        self, communicator: Communicator, save: Callable[[], None], minutes: float | None, device: torch.device
    ) -> None:
        self._communicator = communicator
        self._save = save
        self._seconds = None if minutes is None else 60 * minutes
        self._device = device
        self._saved = time.monotonic()
        self._signal = 0

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Take the signals over while training; does nothing outside the main thread."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self._receive) for number in SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if self._signal and number == signal.SIGINT:
            raise KeyboardInterrupt
        self._signal = number

    def after_update(self, epoch: int, done: int, total: int) -> None:
        """Save if it is time; raise Interrupted, with everything saved, if any process was asked to stop."""
        if done == total or (self._communicator.processes > 1 and done % AGREE_EVERY):
            return  # the end of an epoch has its own checkpoint
        self._act(f"in epoch {epoch + 1} after update {done} of {total}")

    def after_epoch(self, epoch: int) -> None:
        """The same, when the epoch is on record."""
        self._act(f"after epoch {epoch + 1}")

    def _act(self, where: str) -> None:
        stop, due = self._agree()
        if stop or due:
            self._save()
            self._saved = time.monotonic()
        if stop:
            raise Interrupted(stop, where)

    def _agree(self) -> tuple[int, bool]:
        due = self._seconds is not None and time.monotonic() - self._saved >= self._seconds
        if self._communicator.processes == 1:
            return self._signal, due
        first = self._communicator.process == 0
        flags = torch.zeros(self._communicator.processes + 1, device=self._device)
        flags[self._communicator.process] = self._signal
        flags[-1] = due and first
        numbers = self._communicator.total(flags).tolist()
        return int(max(numbers[:-1])), bool(numbers[-1])
