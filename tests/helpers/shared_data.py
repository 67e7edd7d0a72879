"""Real data that lies beside the repository and never in it. Whoever lacks it skips the tests that need it, loudly."""

from __future__ import annotations

import io
import os
import pickle
import warnings
from pathlib import Path

import numpy as np
import pytest
from places import REPOSITORY

SHARED = Path(os.environ.get("ACCORDION_BENCH_SHARED", REPOSITORY.parent / "shared"))


def shared(*parts: str) -> Path:
    """SHARED / parts; the test is skipped, with a warning, if it is not there."""
    path = SHARED.joinpath(*parts)
    if not path.exists():
        warnings.warn(f"SHARED DATA MISSING: {path}; set ACCORDION_BENCH_SHARED to test on real data", stacklevel=2)
        pytest.skip(f"shared data missing: {path}; set ACCORDION_BENCH_SHARED")
    return path


def write_real_cifar10(root: Path, train: int, test: int) -> None:
    """Some of the real CIFAR-10 images under root/cifar-10-batches-py, in the official layout.

    Args:
        train: number of training images, a multiple of 5 (the files data_batch_1 .. 5).
        test: number of test images.
    """
    from PIL import Image

    folder = shared("data", "cifar10")
    blob = (folder / "cifar10_jpeg.bin").read_bytes()
    index = np.load(folder / "cifar10_index.npz")
    offsets, labels, is_test = index["offsets"], index["labels"], index["is_test"]
    header = index["jpeg_header"].tobytes()
    order = np.random.default_rng(0).permutation(np.flatnonzero(~is_test))[:train]
    batches = {f"data_batch_{i + 1}": rows for i, rows in enumerate(np.split(order, 5))}
    batches["test_batch"] = np.flatnonzero(is_test)[:test]
    out = root / "cifar-10-batches-py"
    out.mkdir(parents=True)
    for name, rows in batches.items():
        pictures = [Image.open(io.BytesIO(header + blob[offsets[r] : offsets[r + 1]])).convert("RGB") for r in rows]
        pixels = np.stack([np.asarray(picture).transpose(2, 0, 1).reshape(-1) for picture in pictures])
        (out / name).write_bytes(pickle.dumps({"data": pixels, "labels": labels[rows].tolist()}, protocol=4))


def write_cifar100_layout(root: Path) -> None:
    """The images that `write_real_cifar10` has put there, in CIFAR-100's layout and with invented labels 0 .. 99."""
    source, out = root / "cifar-10-batches-py", root / "cifar-100-python"
    out.mkdir()
    for name, parts in {"train": [f"data_batch_{i + 1}" for i in range(5)], "test": ["test_batch"]}.items():
        pixels = np.concatenate([pickle.loads((source / part).read_bytes())["data"] for part in parts])
        labels = [number * 7 % 100 for number in range(len(pixels))]
        (out / name).write_bytes(pickle.dumps({"data": pixels, "fine_labels": labels}, protocol=4))
