"""What a data set hands over: NumPy arrays, whole and checked. No torch."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from accordion_bench.errors import UserError


@dataclass(frozen=True)
class ImageData:
    """Labelled images in two splits.

    Attributes:
        train_images, test_images: (n, channels, height, width) uint8.
        train_labels, test_labels: (n,) int64 in 0 .. classes - 1.
        classes: number of classes.
        mean, std: one number per channel, of pixels scaled to 0 .. 1; for normalisation.
        augment: whether random crops and flips suit these images unless the user says otherwise.

    Raises:
        UserError: if shapes, types or labels do not fit together.
    """

    train_images: NDArray[np.uint8]
    train_labels: NDArray[np.int64]
    test_images: NDArray[np.uint8]
    test_labels: NDArray[np.int64]
    classes: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    augment: bool

    def __post_init__(self) -> None:
        for split in ("train", "test"):
            images, labels = getattr(self, f"{split}_images"), getattr(self, f"{split}_labels")
            if images.dtype != np.uint8 or images.ndim != 4 or len(images) == 0:
                raise UserError(
                    f"{split}_images must be (n, channels, height, width) of uint8 with n >= 1, "
                    f"got {images.shape} of {images.dtype}"
                )
            if labels.dtype != np.int64 or labels.shape != images.shape[:1]:
                raise UserError(
                    f"{split}_labels must be ({len(images)},) of int64, got {labels.shape} of {labels.dtype}"
                )
            if labels.min() < 0 or labels.max() >= self.classes:
                raise UserError(
                    f"{split}_labels must lie in 0 .. {self.classes - 1}, got {labels.min()} .. {labels.max()}"
                )

    def limited(self, train: int | None, test: int | None) -> ImageData:
        """The first `train` and `test` images in `balanced_order`; None keeps a split whole.

        Raises:
            UserError: if a limit is below 1 or above the split.
        """
        kept = {}
        for split, limit in (("train", train), ("test", test)):
            labels = getattr(self, f"{split}_labels")
            if limit is None:
                continue
            check_limit(f"dataset.limit_{split}", limit, len(labels), "images")
            rows = balanced_order(labels)[:limit]
            kept[f"{split}_images"] = getattr(self, f"{split}_images")[rows]
            kept[f"{split}_labels"] = labels[rows]
        return replace(self, **kept) if kept else self


@dataclass(frozen=True)
class TextData:
    """Text as token numbers in three splits.

    Attributes:
        train, valid, test: (tokens,) int32, indices into the vocabulary.
        vocabulary: the tokens of the training split, most frequent first after the reserved ones.

    Raises:
        UserError: if a split is not of that form.
    """

    train: NDArray[np.int32]
    valid: NDArray[np.int32]
    test: NDArray[np.int32]
    vocabulary: tuple[str, ...]

    def __post_init__(self) -> None:
        for split in ("train", "valid", "test"):
            tokens = getattr(self, split)
            if tokens.dtype != np.int32 or tokens.ndim != 1 or len(tokens) < 2:
                raise UserError(
                    f"{split} must be (tokens,) of int32 with at least 2 tokens, got {tokens.shape} of {tokens.dtype}"
                )
            if tokens.min() < 0 or tokens.max() >= len(self.vocabulary):
                raise UserError(
                    f"{split} must have tokens in 0 .. {len(self.vocabulary) - 1} (the vocabulary), "
                    f"got {tokens.min()} .. {tokens.max()}"
                )

    def limited(self, train: int | None, test: int | None) -> TextData:
        """The first `train` tokens for training and `test` tokens of each of the others; the vocabulary stays whole.

        Raises:
            UserError: if a limit is below 1 or above its split.
        """
        for split, limit in (("train", train), ("valid", test), ("test", test)):
            if limit is not None:
                name = "train" if split == "train" else "test"
                check_limit(f"dataset.limit_{name}", limit, len(getattr(self, split)), f"tokens of the {split} split")
        return replace(self, train=self.train[:train], valid=self.valid[:test], test=self.test[:test])


def checksums(data: ImageData | TextData) -> dict[str, str]:
    """Part of the data -> 16 hexadecimal digits of the SHA-256 of its type, shape and values."""
    digests = {}
    for name, value in vars(data).items():
        if isinstance(value, np.ndarray):
            digest = hashlib.sha256(f"{value.dtype.str} {value.shape}".encode())
            digest.update(np.ascontiguousarray(value).data)
        else:
            digest = hashlib.sha256(repr(value).encode())
        digests[name] = digest.hexdigest()[:16]
    return digests


def first_line(error: Exception) -> str:
    """What an exception of another library says, fit for a message of one line."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def check_limit(setting: str, limit: int, available: int, what: str) -> None:
    """Raise UserError unless 1 <= limit <= available."""
    if available < 1:
        raise UserError(f"{setting} limits {what}, of which there are none; take data that has some")
    if not 1 <= limit <= available:
        raise UserError(f"{setting} must be between 1 and {available} ({what}) or null for all, got {limit}")


def balanced_order(labels: NDArray[np.int64]) -> NDArray[np.int64]:
    """A fixed order of n examples in which every prefix holds the classes in the proportions of the whole.

    The examples are shuffled once and for all (no run's seed enters) and dealt class by class, so the first k of a set
    with equally large classes hold floor(k / classes) or one more of each.

    Args:
        labels: (n,).

    Returns:
        (n,) indices. The legacy RandomState is used because its stream is frozen across NumPy versions.
    """
    shuffled = np.random.RandomState(0).permutation(len(labels))
    by_class = shuffled[np.argsort(labels[shuffled], kind="stable")]
    sorted_labels = labels[by_class]
    starts = np.searchsorted(sorted_labels, sorted_labels, side="left")
    stops = np.searchsorted(sorted_labels, sorted_labels, side="right")
    quantiles = (np.arange(len(labels)) - starts + 0.5) / (stops - starts)
    return by_class[np.argsort(quantiles, kind="stable")].astype(np.int64)
