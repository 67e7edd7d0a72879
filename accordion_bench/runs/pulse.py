"""Between updates: signals, and checkpoints by the clock, agreed on by all processes.

SIGINT (Ctrl-C), SIGTERM (pre-emption), SIGUSR1 (SLURM's warning before a requeue) and SIGHUP (a closed terminal) ask
for a checkpoint and an end; a second SIGINT ends at once.
"""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

import torch

from accordion_bench.errors import Interrupted
from accordion_bench.training.communicator import Communicator

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP)
COST_LIMIT = 0.02  # the share of time that checkpoints may take, unless they are wanted after every update
AGREE_EVERY = 4  # updates between agreements of several processes; one small all-reduce each


class Pulse:
    """Called after every update and every epoch.

    Args:
        communicator: to agree with the other processes.
        save: writes a checkpoint; called on every process.
        minutes: least time between two checkpoints within an epoch, by process 0's monotonic clock; ends of epochs do
            not wait for it. Neither comes before the last one has cost less than COST_LIMIT of the time since; 0 saves
            always. None: never but for a signal.
        device: of the flags.
    """

    def __init__(
        self, communicator: Communicator, save: Callable[[], None], minutes: float | None, device: torch.device
    ) -> None:
        self._communicator = communicator
        self._save = save
        self._seconds = math.inf if minutes is None else 60 * minutes
        self._device = device
        self._saved = time.monotonic()
        self._cost = 0.0  # seconds that the last checkpoint took
        self._signal = 0

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Take the signals over while training; does nothing outside the main thread."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        wanted = [number for number in SIGNALS if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN]
        before = {number: signal.signal(number, self._receive) for number in wanted}  # nohup stays in force
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if self._signal and number == signal.SIGINT and self._communicator.processes == 1:
            raise KeyboardInterrupt  # several processes get every Ctrl-C twice, and their parent ends them
        self._signal = number

    def after_update(self, epoch: int, done: int, total: int) -> None:
        """Save if it is time; raise Interrupted, with everything saved, if any process was asked to stop."""
        if self._communicator.processes > 1 and done % AGREE_EVERY and done < total:
            return
        late = self._affordable() and self._elapsed() >= self._seconds
        own = done < total  # the end of an epoch has a checkpoint of its own
        self._act(late and own, f"in epoch {epoch + 1} after update {done} of {total}")

    def after_epoch(self, epoch: int) -> None:
        """The same, when the epoch is on record."""
        self._act(self._affordable(), f"after epoch {epoch + 1}")

    def _affordable(self) -> bool:
        return self._seconds == 0 or (self._seconds < math.inf and self._cost <= COST_LIMIT * self._elapsed())

    def _elapsed(self) -> float:
        return time.monotonic() - self._saved

    def _act(self, due: bool, where: str) -> None:
        stop, due = self._agree(due)
        if stop or due:
            started = time.monotonic()
            self._save()
            self._saved = time.monotonic()
            self._cost = self._saved - started
        if stop:
            raise Interrupted(stop, where)

    def _agree(self, due: bool) -> tuple[int, bool]:
        """(the signal that any process has had, or 0; whether process 0 finds it is time)."""
        if self._communicator.processes == 1:
            return self._signal, due
        first = self._communicator.process == 0
        flags = torch.zeros(self._communicator.processes + 1, device=self._device)
        flags[self._communicator.process] = self._signal
        flags[-1] = due and first
        numbers = self._communicator.total(flags).tolist()
        return int(max(numbers[:-1])), bool(numbers[-1])
