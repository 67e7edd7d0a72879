"""The data sets, by name. No torch here; what is heavy is imported when it is used."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from accordion_bench.errors import UserError
from accordion_bench.plugins import closest, load_object, load_own
from accordion_bench.workloads.datasets.base import ImageData, TextData

if TYPE_CHECKING:
    from accordion_bench.config.schema import DatasetConfig

Loader = Callable[..., "ImageData | TextData"]


@dataclass(frozen=True)
class Entry:
    """Where a data set is.

    Attributes:
        path: "module:function" with the signature (config: DatasetConfig, *, own settings...) -> ImageData | TextData.
        kind: "image" or "text".
        files: "module:object" of its OfficialFiles; None if it needs no files.
    """

    path: str
    kind: str
    files: str | None = None


DATASETS: dict[str, Entry] = {
    "digits": Entry(f"{__name__}.digits:digits", "image"),
    "cifar10": Entry(f"{__name__}.cifar:cifar10", "image", f"{__name__}.cifar:CIFAR10_FILES"),
    "cifar100": Entry(f"{__name__}.cifar:cifar100", "image", f"{__name__}.cifar:CIFAR100_FILES"),
    "wikitext2": Entry(f"{__name__}.wikitext2:wikitext2", "text", f"{__name__}.wikitext2:WIKITEXT2_FILES"),
}


@dataclass(frozen=True)
class Description:
    """What of a data set is on this machine.

    Attributes:
        ready: whether a run can start without a download.
        state: one line for people.
    """

    name: str
    kind: str
    ready: bool
    state: str


def find_dataset(name: str, kind: str | None = None) -> Entry:
    """The entry of a registered name, or one for a user's own "module:function".

    Args:
        name: as in dataset.name.
        kind: of a user's own data set.

    Raises:
        UserError: if there is no such name, or an own data set comes without its kind.
    """
    if ":" in name:
        if kind not in ("image", "text"):
            raise UserError(f"dataset.kind must be image or text for your own data set {name}, got {kind}")
        return Entry(name, kind)
    if name not in DATASETS:
        known = ", ".join(DATASETS)
        raise UserError(f"no dataset {name!r}{closest(name, list(DATASETS)) or '.'} There are: {known}")
    return DATASETS[name]


def find_loader(name: str, kind: str | None = None) -> Loader:
    """The function that loads a data set. Raises UserError as `find_dataset`."""
    load = load_own if ":" in name else load_object
    loader: Loader = load(find_dataset(name, kind).path, "dataset.name")
    return loader


def is_here(dataset: DatasetConfig) -> bool:
    """Whether a data set can be read without a download. Looks at names only."""
    entry = find_dataset(dataset.name, dataset.kind)
    own_files = [value for key, value in dataset.settings.items() if key.endswith("_file")]
    if entry.files is None or (own_files and all(own_files)):
        return True
    files, root = load_object(entry.files, "dataset.name"), Path(dataset.root).expanduser()
    return not files.missing(root) or bool((root / files.archive).exists())


def prepare(name: str, root: str = "data", verify: bool = True) -> str:
    """Get a data set's files, check them, and say so in one line.

    Raises:
        UserError: if they cannot be had or, with verify, are not the official ones.
    """
    entry = find_dataset(name, "image")
    if entry.files is None:
        return f"{name}: needs no files"
    line: str = load_object(entry.files, "dataset.name").prepare(Path(root).expanduser(), verify)
    return line


def describe(root: str = "data") -> list[Description]:
    """What is there and what is missing, for every data set. Looks at names only; `prepare` checks contents."""
    folder = Path(root).expanduser()
    result = []
    for name, entry in DATASETS.items():
        if entry.files is None:
            result.append(Description(name, entry.kind, True, "ships with scikit-learn"))
            continue
        files = load_object(entry.files, "dataset.name")
        missing = files.missing(folder)
        if not missing:
            state = f"in {folder / files.folder}"
        elif (folder / files.archive).exists():
            state = f"archive {folder / files.archive}, unpacked when first used"
        else:
            state = f"not in {folder}; downloaded when first used (accordion-bench data {name})"
        result.append(Description(name, entry.kind, not missing or (folder / files.archive).exists(), state))
    return result
