"""Writing a run's records: only by the job that holds it, and a full disk ends that in one line. No torch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from accordion_bench.errors import RunFailure
from accordion_bench.foreign import MEBIBYTE, read_text

CONTINUES = "and the same command continues from the last checkpoint"


class Guard:
    """Made when the job begins, while its lock (lock.py) is held by this process or its parent.

    Args:
        directory: of the run.
        writes: whether this process is the one that writes; the others are let through.
    """

    def __init__(self, directory: Path, writes: bool) -> None:
        self.directory = directory
        self.writes = writes
        self._owner = self._lock() if writes else None

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Around whatever writes to the directory.

        Raises:
            RunFailure: it cannot be written; or the job was asleep for so long that another one has taken the run over.
        """
        try:
            owner = self._lock() if self.writes else None
            if owner != self._owner:
                self._refuse(owner)
            yield
        except OSError as error:
            if self.writes and not self.directory.exists():  # it went while we were writing
                self._refuse(None)
            what = error.filename or self.directory
            raise RunFailure(f"cannot write {what} ({error.strerror or error}); correct that, {CONTINUES}") from error

    def _lock(self) -> str | None:
        try:
            return read_text(self.directory / "lock", MEBIBYTE, errors="replace")
        except FileNotFoundError:
            return None

    def _refuse(self, owner: str | None) -> None:
        if owner is None:
            raise RunFailure(f"{self.directory} has vanished; bring it back, {CONTINUES}, or start it again")
        raise RunFailure(f"another job has taken {self.directory} over ({owner.strip()}); it is left to that one")
