"""The official files of a data set: found, unpacked or downloaded, and checked before anyone parses them."""

from __future__ import annotations

import hashlib
import os
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from accordion_bench.errors import UserError
from accordion_bench.workloads.datasets.archive import extract
from accordion_bench.workloads.datasets.download import Unavailable, download, locked


@dataclass(frozen=True)
class OfficialFiles:
    """A folder of files with known checksums, and the archive they come in.

    Attributes:
        title: for people, "CIFAR-10".
        folder: its name below the data root, and inside the archive.
        digests: file name -> checksum in hexadecimal.
        algorithm: of all checksums, "md5" or "sha1".
        archive: the archive's file name below the data root.
        archive_digest: its checksum; None where mirrors pack the same files differently, then only the files count.
        mirrors: URLs of the archive.
        instead: what else a user can do who has neither files nor network.
    """

    title: str
    folder: str
    digests: Mapping[str, str]
    algorithm: str
    archive: str
    archive_digest: str | None
    mirrors: tuple[str, ...]
    instead: str

    def ensure(self, root: Path, verify: bool) -> Path:
        """Make all files be there and return their folder: unpack the archive, or download it first.

        One process works, others wait for it. Files that are there already are not read.

        Args:
            root: the data root.
            verify: refuse an archive with another checksum. A download is always checked.

        Raises:
            UserError: if the files are not there and cannot be had, or the archive is not the official one.
        """
        if not self.missing(root):
            return root / self.folder
        with locked(root, self.folder):
            if self.missing(root):
                self._unpack(root, verify)
        return root / self.folder

    def missing(self, root: Path) -> list[str]:
        """Names of the files that are not in the folder."""
        return [name for name in self.digests if not (root / self.folder / name).is_file()]

    def contents(self, root: Path, verify: bool) -> Iterator[tuple[str, bytes]]:
        """Every file's name and bytes, one after the other, checked; only what this yields may be parsed.

        With verify=False other checksums are a warning at the end.

        Raises:
            UserError: if a file cannot be read or, with verify, has another checksum.
        """
        different = []
        for name, digest in self.digests.items():
            path = root / self.folder / name
            content = _bytes_of(path)
            if wrong := self._wrong(content, digest):
                different.append(name)
                if verify:
                    raise UserError(
                        f"{path} is not the official file ({wrong}); delete it to get it again, "
                        "or set dataset.verify=false to accept it"
                    )
            yield name, content
        if different:
            warnings.warn(
                f"{self.title}: {', '.join(different)} in {root / self.folder} are not the official files; "
                "accepted because dataset.verify=false",
                stacklevel=3,
            )

    def prepare(self, root: Path, verify: bool) -> str:
        """Get and check every file; one line that says so. Raises UserError as `ensure` and `contents`."""
        folder = self.ensure(root, verify)
        size = sum(len(content) for _, content in self.contents(root, verify))
        state = "verified" if verify else "read"
        return f"{self.title}: {len(self.digests)} files {state} in {folder} ({size / 1e6:.0f} MB)"

    def _unpack(self, root: Path, verify: bool) -> None:
        archive = root / self.archive
        if not archive.exists():
            self._download(archive)
        elif wrong := self._wrong_archive(archive):
            if verify:
                raise UserError(
                    f"{archive} is not the official archive ({wrong}); delete it to download it again, "
                    "or set dataset.verify=false to accept it"
                )
            warnings.warn(f"{archive} is accepted without verification ({wrong})", stacklevel=3)
        with tempfile.TemporaryDirectory(dir=root, prefix=f".{self.folder}-") as scratch:
            missing = self.missing(root)  # whatever is there is its owner's
            extract(archive, {f"{self.folder}/{name}": Path(scratch, name) for name in missing})
            folder = root / self.folder
            folder.mkdir(exist_ok=True)
            for name in missing:
                os.replace(Path(scratch, name), folder / name)

    def _download(self, archive: Path) -> None:
        try:
            download(archive, self.mirrors, self._wrong_archive)
        except Unavailable as reason:
            root = archive.parent
            raise UserError(
                f"{self.title} is not in {root}{os.sep} and cannot be downloaded ({reason}). "
                f"Put the official archive {archive.name} there, set dataset.root=DIR, or {self.instead}."
            ) from None

    def _wrong_archive(self, archive: Path) -> str | None:
        """What is wrong with an archive, or None: by its own checksum, else by those of the files in it."""
        if self.archive_digest is not None:
            return self._wrong(_bytes_of(archive), self.archive_digest)
        with tempfile.TemporaryDirectory(dir=archive.parent) as scratch:
            places = {f"{self.folder}/{name}": Path(scratch, name) for name in self.digests}
            try:
                extract(archive, places)
            except UserError:
                return "not an archive of the right files"
            found = [self._wrong(_bytes_of(Path(scratch, name)), digest) for name, digest in self.digests.items()]
        return next(filter(None, found), None)

    def _wrong(self, content: bytes, expected: str) -> str | None:
        got = hashlib.new(self.algorithm, content, usedforsecurity=False).hexdigest()
        return None if got == expected else f"{self.algorithm.upper()} {got}, expected {expected}"


def _bytes_of(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UserError(f"cannot read {path} ({error.strerror}); make it readable or set dataset.root=DIR") from None
