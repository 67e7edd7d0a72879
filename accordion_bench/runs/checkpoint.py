"""Everything that must survive, in one file, atomically.

A file is a magic word, the SHA-256 of what follows, and the bytes of torch.save; it is only ever read with
`weights_only=True`. A new one takes its place only when it has been written, flushed and read back; the one before it
is kept beside it.
"""

from __future__ import annotations

import errno
import hashlib
import io
import os
import pickle
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from accordion_bench.foreign import create, make_way, read_bytes
from accordion_bench.runs.records import flush_names

MAGIC = b"accordion1\n"
HEAD_BYTES = len(MAGIC) + hashlib.sha256().digest_size
NAMES = ("checkpoint.pt", "checkpoint.previous.pt")
TEMPORARY = ".checkpoint.new"
CHUNK_BYTES = 2**24


class DamagedCheckpoint(Exception):
    """The file is truncated, altered or not a checkpoint."""


def save(directory: Path, state: dict[str, Any]) -> None:
    """Write checkpoint.pt; what was there becomes checkpoint.previous.pt. Raises OSError; both are as before then."""
    buffer = io.BytesIO()
    torch.save(detached(state), buffer)
    payload = buffer.getbuffer()
    temporary = directory / TEMPORARY
    try:
        make_way(directory / NAMES[0])
        make_way(directory / NAMES[1])
        with open(create(temporary), "wb") as file:
            file.write(MAGIC + hashlib.sha256(payload).digest())
            file.write(payload)
            file.flush()
            os.fsync(file.fileno())
        _prove(temporary, payload)
        current, previous = (directory / name for name in NAMES)
        if current.exists():
            os.replace(current, previous)
        os.replace(temporary, current)
    except BaseException:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    flush_names(directory)


def _prove(path: Path, payload: memoryview) -> None:
    """Read the file back, where possible from the disk and not from memory. Raises OSError unless it is as written."""
    with open(path, "rb") as file:
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        file.seek(HEAD_BYTES)
        for start in range(0, len(payload), CHUNK_BYTES):
            if file.read(CHUNK_BYTES) != bytes(payload[start : start + CHUNK_BYTES]):
                raise OSError(errno.EIO, "what was read back is not what was written", str(path))


def load(path: Path) -> dict[str, Any]:
    """The state in one file, on the CPU. Raises FileNotFoundError or DamagedCheckpoint."""
    try:
        content = read_bytes(path, None)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise DamagedCheckpoint(f"{path} cannot be read ({error.strerror})") from None
    payload = memoryview(content)[HEAD_BYTES:]
    if content[: len(MAGIC)] != MAGIC or content[len(MAGIC) : HEAD_BYTES] != hashlib.sha256(payload).digest():
        raise DamagedCheckpoint(f"{path} is damaged or truncated")
    try:
        state = torch.load(io.BytesIO(payload), map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError, ValueError, KeyError) as error:
        raise DamagedCheckpoint(f"{path} holds something else ({type(error).__name__})") from None
    if not isinstance(state, dict):
        raise DamagedCheckpoint(f"{path} holds something else ({type(state).__name__})")
    return state


def candidates(directory: Path) -> Iterator[Path]:
    """The checkpoint files that exist, newest first."""
    for name in NAMES:
        if os.path.lexists(directory / name):
            yield directory / name


def remove(directory: Path) -> None:
    """Delete all checkpoints."""
    for name in (*NAMES, TEMPORARY):
        (directory / name).unlink(missing_ok=True)


def detached(value: Any) -> Any:
    """A copy with every tensor on the CPU in storage of its own (a view would drag its whole buffer along)."""
    if isinstance(value, Tensor):
        return value.detach().to("cpu", copy=True).contiguous()
    if isinstance(value, dict):
        return {key: detached(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [detached(item) for item in value]
    return value
