"""Fetch one file: several mirrors, resumable, checked before it gets its name. Standard library only."""

from __future__ import annotations

import fcntl
import http.client
import os
import ssl
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from accordion_bench.errors import UserError

Check = Callable[[Path], "str | None"]  # what is wrong with a file, or None

TIMEOUT_S = 20.0  # for one network operation, not for the whole file
CONNECTIONS = 5  # to one mirror, as long as each brings something new
CHUNK_BYTES = 1 << 18
MAX_BYTES = 1 << 30
AGENT = "Mozilla/5.0 (compatible; accordion-bench)"  # one WikiText mirror refuses urllib's own name


class Unavailable(Exception):
    """No mirror gave the right file. The message is a short reason; "no network" if no host could be reached."""


class _Broken(Exception):
    """One connection failed."""

    def __init__(self, reason: str, reached: bool) -> None:
        self.reached = reached
        super().__init__(reason)


def download(target: Path, mirrors: Sequence[str], check: Check, timeout_s: float = TIMEOUT_S) -> None:
    """Put the file at `target`, from the first mirror that has it.

    It grows under `<target>.part`, survives interruption there and is continued by the next call (from whichever
    mirror: the check decides in the end), and is renamed only after `check` has passed.

    Args:
        target: where the file goes; its folder exists and is locked by the caller (see `locked`).
        mirrors: URLs, tried in order.
        check: what is wrong with the finished file, or None.
        timeout_s: how long one network operation may take.

    Raises:
        Unavailable: if every mirror failed.
        UserError: if the file cannot be written.
    """
    part = target.with_name(target.name + ".part")
    reasons, reached = [], False
    for url in mirrors:
        host = urlsplit(url).netloc
        try:
            _from_mirror(url, part, check, timeout_s)
        except _Broken as broken:
            reasons.append(f"{host}: {broken}")
            reached = reached or broken.reached
        else:
            os.replace(part, target)
            return
    raise Unavailable("; ".join(reasons) if reached else "no network")


@contextmanager
def locked(folder: Path, name: str) -> Iterator[None]:
    """Let one process at a time into the block; the lock dies with its process.

    Raises:
        UserError: if the folder cannot be made, written or locked.
    """
    with ExitStack() as stack:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            file = stack.enter_context(open(folder / f".{name}.lock", "a"))
            fcntl.flock(file, fcntl.LOCK_EX)
        except OSError as error:
            raise UserError(
                f"dataset.root={folder} must be a folder that can be written ({error.strerror}); set dataset.root=DIR"
            ) from None
        yield


def _from_mirror(url: str, part: Path, check: Check, timeout_s: float) -> None:
    """Fill `part` from one mirror until `check` passes; raises _Broken."""
    for connection in range(CONNECTIONS):
        before = _size(part)
        last = connection == CONNECTIONS - 1
        try:
            _transfer(url, part, timeout_s)
        except _Broken:
            if last or _size(part) <= before:
                raise
            continue
        wrong = check(part)
        if wrong is None:
            return
        part.unlink(missing_ok=True)
        if before == 0 or last:  # a file that was fetched in one piece would be as wrong the next time
            raise _Broken(wrong, reached=True)


def _transfer(url: str, part: Path, timeout_s: float) -> None:
    """One connection: append to `part`, or start it anew if the server cannot continue. Raises _Broken."""
    start = _size(part)
    headers = {"User-Agent": AGENT, **({"Range": f"bytes={start}-"} if start else {})}
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=timeout_s) as response:
            continues = response.status == 206 and str(response.headers.get("Content-Range")).startswith(
                f"bytes {start}-"
            )
            start = start if continues else 0
            length = response.headers.get("Content-Length")
            expected = None if length is None else start + int(length)
            size = "" if expected is None else f" ({expected / 1e6:.0f} MB{', continued' if start else ''})"
            print(f"downloading {part.stem} from {urlsplit(url).netloc}{size}", file=sys.stderr, flush=True)
            received = _write(response, part, start)
    except urllib.error.HTTPError as error:
        if error.code == 416 and start:
            return  # nothing is left to send: the check says whether the part is whole
        raise _Broken(f"HTTP {error.code}", reached=True) from None
    except urllib.error.URLError as error:
        raise _Broken(str(error.reason), reached=isinstance(error.reason, ssl.SSLError)) from None
    except TimeoutError:
        raise _Broken(f"stalled for {timeout_s:g} s", reached=True) from None
    except (OSError, http.client.HTTPException) as error:
        raise _Broken(f"broke off ({type(error).__name__})", reached=True) from None
    if expected is not None and received < expected:
        raise _Broken(f"broke off after {received} of {expected} bytes", reached=True)


def _write(response: http.client.HTTPResponse, part: Path, start: int) -> int:
    """Write the body from position `start` on; the size reached. Raises UserError if the disk refuses."""
    with ExitStack() as stack:
        with _writing(part):
            file = stack.enter_context(open(part, "ab", buffering=0))
            file.truncate(start)
        size = start
        while chunk := response.read1(CHUNK_BYTES):  # what has arrived: a stall loses nothing
            size += len(chunk)
            if size > MAX_BYTES:
                raise _Broken(f"sent more than {MAX_BYTES} bytes", reached=True)
            with _writing(part):
                file.write(chunk)
        with _writing(part):
            os.fsync(file.fileno())
    return size


@contextmanager
def _writing(part: Path) -> Iterator[None]:
    """Tell the disk's errors from the network's, which are OSErrors too."""
    try:
        yield
    except OSError as error:
        raise UserError(f"cannot write {part} ({error.strerror}); make room there or set dataset.root=DIR") from None


def _size(part: Path) -> int:
    return part.stat().st_size if part.exists() else 0
