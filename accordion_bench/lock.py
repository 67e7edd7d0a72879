"""One job per run directory, on one machine or several that share a file system. No torch.

The lock is a file made with O_EXCL that names its owner; the owner touches it every half minute. It is stale when its
owner was a process of this machine that is gone, or of another one that has not touched it for long.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from pathlib import Path
from types import TracebackType

from accordion_bench.errors import InProgress, UserError

HEARTBEAT_SECONDS = 30.0
STALE_SECONDS = 600.0  # for an owner on another machine


class Lock:
    """Holds `<directory>/lock` between `__enter__` and `__exit__`; makes the directory, removes it if left empty.

    Raises:
        InProgress: another job has it.
        UserError: the directory cannot be written.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.path = directory / "lock"
        self._stop = threading.Event()

    def __enter__(self) -> Lock:
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            self._acquire()
        except OSError as error:
            raise UserError(
                f"cannot write to {self.directory} ({error.strerror}); make it writable or set results=DIR"
            ) from None
        threading.Thread(target=self._beat, daemon=True).start()
        return self

    def __exit__(self, kind: type | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self._stop.set()
        self.path.unlink(missing_ok=True)
        for directory in (self.directory, self.directory.parent):
            try:
                directory.rmdir()  # only succeeds where nothing was left: no half-made run
            except OSError:
                break

    def _acquire(self) -> None:
        owner = json.dumps({"host": socket.gethostname(), "pid": os.getpid(), "time": time.time(), "start": _status(os.getpid())[1]})
        for _ in range(5):
            try:
                handle = os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
            except FileExistsError:
                self._remove_if_stale()
                continue
            try:
                with os.fdopen(handle, "w") as file:
                    file.write(owner)
                    file.flush()
                    os.fsync(file.fileno())
            except OSError:  # a full disk: an empty lock would keep others away for a while
                self.path.unlink(missing_ok=True)
                raise
            return
        raise InProgress(f"{self.directory} is fought over by several jobs; try again")

    def _remove_if_stale(self) -> None:
        """Take a dead owner's lock away, or raise UserError."""
        owner = read_owner(self.path)
        if owner is None:
            return
        if is_alive(self.path, owner):
            raise InProgress(
                f"this run is in progress on {owner.get('host')} (process {owner.get('pid')}, lock {self.path}); "
                "wait for it, choose another seed, or stop it first"
            )
        # Rename first: of two jobs that both see a stale lock only one succeeds in taking this very file away.
        grave = self.path.with_name(f"lock.stale-{socket.gethostname()}-{os.getpid()}")
        try:
            os.rename(self.path, grave)
            if read_owner(grave) != owner:  # someone else renewed it in between: give it back
                os.link(grave, self.path)
        except (FileNotFoundError, FileExistsError):
            pass
        finally:
            grave.unlink(missing_ok=True)

    def _beat(self) -> None:
        while not self._stop.wait(HEARTBEAT_SECONDS):
            try:
                os.utime(self.path)
            except FileNotFoundError:
                return
            except OSError:  # a file server that will be back
                continue


def read_owner(path: Path) -> dict[str, object] | None:
    """Who holds the lock; None where there is none; an empty mapping for one just being written."""
    try:
        text = path.read_text()
    except FileNotFoundError:
        return None
    try:
        owner = json.loads(text)
    except ValueError:
        owner = {}
    return owner if isinstance(owner, dict) else {}


def is_alive(path: Path, owner: dict[str, object]) -> bool:
    """Whether the owner of the lock is still at work."""
    try:
        age = time.time() - path.stat().st_mtime
    except FileNotFoundError:
        return False
    pid = owner.get("pid")
    if owner.get("host") != socket.gethostname() or not isinstance(pid, int):
        return age < (STALE_SECONDS if owner else HEARTBEAT_SECONDS)
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    state, start = _status(pid)
    if state in ("Z", "X"):  # killed, but nobody has asked how it ended (containers without an init)
        return False
    return owner.get("start") in (None, start)  # another process may have got the number


def _status(pid: int) -> tuple[str | None, str | None]:
    """A process's state (a letter) and when it began, in the kernel's ticks since boot; None where /proc does not say."""
    try:
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return words[0], words[19]
    except (OSError, IndexError):
        return None, None
