"""One job per run directory, on one machine or several that share a file system. No torch.

The lock is a file that names its owner, who holds an flock on it and touches it every half minute. The flock makes sure
that of all jobs that look at the file only one may write to it. The text counts where an flock says nothing: on another
machine, if the file system keeps flocks to each machine or has none. By it a lock is stale when its owner was a process
of this machine (and container) that is gone, or of another one that has not touched it for long.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
import stat
import threading
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from accordion_bench.errors import InProgress, UserError
from accordion_bench.foreign import MEBIBYTE, NO_FOLLOW, read_text

HEARTBEAT_SECONDS = 30.0
STALE_SECONDS = 600.0  # for an owner on another machine
BIRTH_SECONDS = 2.0  # from making a lock to having written the owner into it, at most
SETTLE_SECONDS = 1.0  # after taking a lock over that an flock may not have guarded
PAUSE_SECONDS = 0.05
NO_FLOCK = {errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK, errno.EINVAL}


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
        self._handle = -1
        self._owner: dict[str, object] = {}

    def __enter__(self) -> Lock:
        try:
            self._acquire()
        except OSError as error:
            if self.path.is_symlink():
                raise UserError(f"{self.path} is a link, which no run makes; remove it or set results=DIR") from None
            raise UserError(
                f"cannot write to {self.directory} ({error.strerror}); make it writable or set results=DIR"
            ) from None
        threading.Thread(target=self._beat, daemon=True).start()
        return self

    def __exit__(self, kind: type | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self._stop.set()
        with suppress(OSError):  # the disk may be gone
            if read_owner(self.path) == self._owner:  # else another machine has taken it over
                self.path.unlink(missing_ok=True)
            for directory in (self.directory, self.directory.parent):
                directory.rmdir()  # only succeeds where nothing was left: no half-made run
        os.close(self._handle)

    def _acquire(self) -> None:
        until = time.monotonic() + 2 * BIRTH_SECONDS
        while time.monotonic() < until:
            try:
                handle, made = self._open()
            except FileNotFoundError:  # an owner has left, and the empty directory with it
                continue
            try:
                if self._claim(handle, made):
                    self._handle, handle = handle, -1
                    return
            finally:
                if handle >= 0:
                    os.close(handle)
            time.sleep(PAUSE_SECONDS)
        raise InProgress(f"{self.directory} is fought over by several jobs; try again")

    def _open(self) -> tuple[int, bool]:
        """The lock file, and whether we have made it."""
        with suppress(FileExistsError):  # removed in between, or not a directory: opening the file will tell
            self.directory.mkdir(parents=True, exist_ok=True)
        try:
            return os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_RDWR | NO_FOLLOW, 0o644), True
        except FileExistsError:
            handle = os.open(self.path, os.O_RDWR | os.O_NONBLOCK | NO_FOLLOW)
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            os.close(handle)
            raise OSError(errno.EINVAL, "its lock is not a file")
        return handle, False

    def _claim(self, handle: int, made: bool) -> bool:
        """Whether the lock is ours now; False if it is about to change hands, InProgress if it is another job's."""
        held = _flock(handle, BIRTH_SECONDS if made else 0.0)  # others look at a new lock only for a moment
        owner = {} if made else read_owner(self.path)
        if owner is None or not _same_file(handle, self.path):  # its owner has left in between
            return False
        if not made and is_alive(self.path, owner):
            if not owner:  # being written
                return False
            raise InProgress(
                f"this run is in progress on {owner.get('host')} (process {owner.get('pid')}, lock {self.path}); "
                "wait for it, choose another seed, or stop it first"
            )
        if held is False:
            return False
        self._write(handle)
        if not made and (held is None or owner.get("host") != socket.gethostname()):
            time.sleep(SETTLE_SECONDS)  # a job of another machine may be writing too: the last one has it
        return read_owner(self.path) == self._owner

    def _write(self, handle: int) -> None:
        pid = os.getpid()
        self._owner = {
            "host": socket.gethostname(),
            "space": _space(),
            "pid": pid,
            "time": time.time(),
            "start": _status(pid)[1],
        }
        try:
            os.ftruncate(handle, 0)
            os.pwrite(handle, json.dumps(self._owner).encode(), 0)
            os.fsync(handle)
        except OSError:  # a full disk: an empty lock would keep others away for a while
            self.path.unlink(missing_ok=True)
            raise

    def _beat(self) -> None:
        while not self._stop.wait(HEARTBEAT_SECONDS):
            try:
                os.utime(self.path)
            except FileNotFoundError:
                return
            except OSError:  # a file server that will be back
                continue


def _read(path: Path) -> str | None:
    try:
        return read_text(path, MEBIBYTE, errors="replace")
    except FileNotFoundError:
        return None


def _parse(text: str) -> dict[str, object]:
    try:
        owner = json.loads(text)
    except (ValueError, RecursionError):
        owner = {}
    return owner if isinstance(owner, dict) else {}


def read_owner(path: Path) -> dict[str, object] | None:
    """Who holds the lock; None where there is none; an empty mapping for one just being written."""
    text = _read(path)
    return None if text is None else _parse(text)


def is_alive(path: Path, owner: dict[str, object]) -> bool:
    """Whether the owner of the lock is still at work."""
    try:
        age = time.time() - path.stat().st_mtime
    except FileNotFoundError:
        return False
    pid = owner.get("pid")
    here = owner.get("host") == socket.gethostname() and owner.get("space", _space()) == _space()
    if not here or type(pid) is not int or not 0 < pid < 2**31:
        return age < (STALE_SECONDS if owner else BIRTH_SECONDS)
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
    """A process's state (a letter) and when it began (the kernel's ticks since boot); None where /proc does not say."""
    try:
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return words[0], words[19]
    except (OSError, IndexError):
        return None, None


def _space() -> str | None:
    """Where process numbers mean what they mean here: this boot and this container; None if unknown."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return None


def _flock(handle: int, patience_s: float) -> bool | None:
    """Whether we hold the flock; None where the file system has none."""
    until = time.monotonic() + patience_s
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() >= until:
                return False
            time.sleep(PAUSE_SECONDS / 5)
        except OSError as error:
            if error.errno in NO_FLOCK:
                return None
            raise


def _same_file(handle: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), path.stat())
    except FileNotFoundError:
        return False
