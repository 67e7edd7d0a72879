"""Standard output and error as they may be: closed, full, a broken pipe, of another encoding; and what may go there."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import Any, TextIO

from accordion_bench.foreign import escape


class Unwritable(Exception):
    """Standard output is full or closed; the message says which."""


class Shown:
    """Standard output on which text is shown and not obeyed: control characters are written out."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """As a text stream does; Unwritable where it can't, BrokenPipeError where nobody reads any more."""
        with _named():
            return self._stream.write(escape(text, keep="\n\t"))

    def flush(self) -> None:
        """The same."""
        with _named():
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class Closed:
    """Standard output that is not there: whatever is written to it is Unwritable."""

    encoding = "utf-8"

    def write(self, text: str) -> int:
        """Raises Unwritable."""
        raise Unwritable("it is closed")

    def flush(self) -> None:
        """Nothing to flush."""

    def isatty(self) -> bool:
        """No."""
        return False


@contextlib.contextmanager
def _named() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise
    except (OSError, ValueError) as error:
        raise Unwritable(getattr(error, "strerror", None) or str(error)) from None


def occupy() -> None:
    """Let descriptors 0, 1 and 2 lead nowhere where they are closed: the next file would take their place, and what
    libraries print would end up in it."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            handle = os.open(os.devnull, os.O_RDWR)
            if handle != descriptor:
                os.dup2(handle, descriptor)
                os.close(handle)


def styled(text: str) -> None:
    """Print what the program itself has coloured; foreign words in it must have been escaped."""
    with _named():
        print(text, file=getattr(sys.stdout, "_stream", sys.stdout))


@contextlib.contextmanager
def prepared() -> Iterator[None]:
    """Run a command with streams that can be written to, and with standard output shown, not obeyed."""
    before = sys.stdout, sys.stderr
    for stream in before:
        if hasattr(stream, "reconfigure"):
            with contextlib.suppress(OSError, ValueError):
                stream.reconfigure(errors="replace")
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - until the process ends
    sys.stdout = Shown(sys.stdout) if sys.stdout is not None else Closed()
    try:
        yield
    finally:
        sys.stdout = before[0]
