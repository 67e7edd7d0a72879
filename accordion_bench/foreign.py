"""Files and words that may be somebody else's: read and written without being led astray, shown without being obeyed.

A results directory may have been downloaded. What lies in it is data: a link must not lead a write out of it, a pipe
must not hold a reader for ever, and what is printed from it must not move the terminal's cursor. No torch.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import unicodedata
from pathlib import Path

LONGEST = 80  # characters of a word in a message; the parts of a path are words
MEBIBYTE = 2**20
LARGEST = 1024 * MEBIBYTE  # of a file of records; 300 epochs of a network of 60 layers are one or two
NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)


def read_bytes(path: Path, largest: int | None = LARGEST) -> bytes:
    """The content of a regular file. OSError says why not: it is not there, no file (a pipe, a folder), too large."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | getattr(os, "O_CLOEXEC", 0))
    with open(handle, "rb") as file:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "it is not a file", str(path))
        if largest is not None and status.st_size > largest:
            raise OSError(errno.EFBIG, f"it has {status.st_size} bytes, more than {largest}", str(path))
        return file.read()


def read_text(path: Path, largest: int | None = LARGEST, errors: str = "strict") -> str:
    """The same as text: UTF-8 with or without a byte-order mark, any line ends. Also raises UnicodeDecodeError."""
    return as_text(read_bytes(path, largest), errors)


def as_text(content: bytes, errors: str = "strict") -> str:
    """UTF-8 with or without a byte-order mark; the line ends of Windows and old Macs become "\\n"."""
    return content.decode("utf-8-sig", errors).replace("\r\n", "\n").replace("\r", "\n")


def create(path: Path) -> int:
    """A handle to write a new file, in the place of whatever file or link is there. Raises OSError."""
    path.unlink(missing_ok=True)
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | NO_FOLLOW, 0o644)


def append(path: Path) -> int:
    """A handle to write at the end of a file, which is made if it is not there; a link is not followed: OSError."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK | NO_FOLLOW, 0o644)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, "it is not a file", str(path))
    return handle


def make_way(path: Path) -> None:
    """Set a folder aside that stands where a file belongs: it becomes <name>.damaged. Raises OSError."""
    if path.is_dir() and not path.is_symlink():
        aside, number = path.with_name(f"{path.name}.damaged"), 2
        while os.path.lexists(aside):
            aside, number = path.with_name(f"{path.name}.damaged-{number}"), number + 1
        path.rename(aside)


def escape(text: str, keep: str = "") -> str:
    r"""The text with every control character (and what turns or hides text) written out, like \x1b, but for `keep`."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        character
        if character in keep or unicodedata.category(character) not in ("Cc", "Cf", "Cs", "Zl", "Zp", "Co")
        else character.encode("unicode_escape").decode("ascii")
        for character in text
    )


def one_line(text: object) -> str:
    """For messages: blanks and line ends become one blank, the rest is escaped, and no word is longer than LONGEST."""
    words = escape(" ".join(str(text).split()))
    return re.sub(rf"[^\s/]{{{LONGEST + 1},}}", lambda word: word[0][: LONGEST - 3] + "...", words)
