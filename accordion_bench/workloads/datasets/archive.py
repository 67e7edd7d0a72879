"""Take named files out of a .tar.gz or .zip and nothing else; no archive can write outside the folder it is given."""

from __future__ import annotations

import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO

from accordion_bench.errors import UserError
from accordion_bench.workloads.datasets.base import first_line

MAX_MEMBER_BYTES = 1 << 29
CHUNK_BYTES = 1 << 20


@dataclass(frozen=True)
class _Member:
    name: str
    is_file: bool
    is_folder: bool
    open: Callable[[], IO[bytes] | None]


def extract(archive: Path, wanted: Mapping[str, Path]) -> None:
    """Copy the wanted members to the given paths. The archive chooses neither names nor places.

    Args:
        archive: a .zip, or a tar file with any compression.
        wanted: member name -> file to write (its folder exists).

    Raises:
        UserError: if the archive is damaged, lacks a wanted file, has a member that points outside, or a link.
    """
    missing = set(wanted)
    try:
        for member in _members(archive):
            _refuse_unsafe(archive, member)
            name = str(PurePosixPath(member.name))
            if member.is_file and name in missing:
                _copy(archive, member, wanted[name])
                missing.remove(name)
    except (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError) as error:
        raise UserError(f"{archive} is damaged ({first_line(error)}); delete it to download it again") from None
    if missing:
        raise UserError(f"{archive} does not contain {sorted(missing)[0]}; put the official archive there")


def _members(archive: Path) -> Iterator[_Member]:
    """In the archive's order, so that a compressed tar file is read once."""
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as zip_file:
            for entry in zip_file.infolist():
                link, folder = entry.external_attr >> 16 & 0o170000 == 0o120000, entry.is_dir()
                yield _Member(entry.filename, not link and not folder, folder, partial(zip_file.open, entry))
        return
    with tarfile.open(archive) as tar:
        for item in tar:
            yield _Member(item.name, item.isreg(), item.isdir(), partial(tar.extractfile, item))


def _refuse_unsafe(archive: Path, member: _Member) -> None:
    path = PurePosixPath(member.name)
    if path.is_absolute() or ".." in path.parts or "\\" in member.name or not (member.is_file or member.is_folder):
        raise UserError(
            f"{archive} has the unsafe member {member.name!r} and is not unpacked; put the official archive there"
        )


def _copy(archive: Path, member: _Member, target: Path) -> None:
    source = member.open()
    if source is None:
        raise UserError(f"{archive} has no data for {member.name}; put the official archive there")
    size = 0
    with source, open(target, "wb") as file:
        while chunk := source.read(CHUNK_BYTES):
            size += len(chunk)
            if size > MAX_MEMBER_BYTES:
                raise UserError(f"{member.name} in {archive} is larger than {MAX_MEMBER_BYTES} bytes; not unpacked")
            file.write(chunk)
