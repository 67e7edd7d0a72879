"""Everything that must survive, in one file, atomically.

A file is a magic word, the SHA-256 of what follows, and the bytes of torch.save; it is only ever read with
`weights_only=True`. The previous checkpoint is kept until the next one has been written and flushed.
"""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

MAGIC = b"accordion1\n"
NAMES = ("checkpoint.pt", "checkpoint.previous.pt")


class DamagedCheckpoint(Exception):
    """The file is truncated, altered or not a checkpoint."""


def save(directory: Path, state: dict[str, Any]) -> None:
    """Write checkpoint.pt; what was there becomes checkpoint.previous.pt. Raises OSError, and then both are as before."""
    buffer = io.BytesIO()
    torch.save(detached(state), buffer)
    payload = buffer.getbuffer()
    temporary = directory / ".checkpoint.new"
    try:
        with open(temporary, "wb") as file:
            file.write(MAGIC + hashlib.sha256(payload).digest())
            file.write(payload)
            file.flush()
            os.fsync(file.fileno())
        current, previous = (directory / name for name in NAMES)
        if current.exists():
            os.replace(current, previous)
        os.replace(temporary, current)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def load(path: Path) -> dict[str, Any]:
    """The state in one file, on the CPU. Raises FileNotFoundError or DamagedCheckpoint."""
    content = path.read_bytes()
    head = len(MAGIC) + hashlib.sha256().digest_size
    payload = memoryview(content)[head:]
    if content[: len(MAGIC)] != MAGIC or content[len(MAGIC) : head] != hashlib.sha256(payload).digest():
        raise DamagedCheckpoint(f"{path} is damaged or truncated")
    return torch.load(io.BytesIO(payload), map_location="cpu", weights_only=True)


def candidates(directory: Path) -> Iterator[Path]:
    """The checkpoint files that exist, newest first."""
    for name in NAMES:
        if (directory / name).exists():
            yield directory / name


def remove(directory: Path) -> None:
    """Delete all checkpoints."""
    for name in NAMES:
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
