"""The 1,797 handwritten digits (Alpaydin and Kaynak 1998) that scikit-learn ships: real data without a download."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from accordion_bench.workloads.datasets.base import ImageData, balanced_order

if TYPE_CHECKING:
    from accordion_bench.config.schema import DatasetConfig

TRAIN_IMAGES = 1437  # 80 %
BRIGHTEST = 16  # grey levels 0 .. 16


def digits(config: DatasetConfig) -> ImageData:
    """1,437 training and 360 test images of 1 x 8 x 8 in ten classes; the split is fixed and stratified.

    Mean and standard deviation are those of the training pixels. No crops or flips by default: the images have no
    margin and a mirrored digit is another sign.
    """
    from sklearn.datasets import load_digits

    bunch = load_digits()
    images = np.round(bunch.images[:, None] * (255 / BRIGHTEST)).astype(np.uint8)  # (1797, 1, 8, 8)
    labels = bunch.target.astype(np.int64)
    order = balanced_order(labels)
    train, test = order[:TRAIN_IMAGES], order[TRAIN_IMAGES:]
    return ImageData(
        train_images=images[train],
        train_labels=labels[train],
        test_images=images[test],
        test_labels=labels[test],
        classes=10,
        mean=(0.30504,),
        std=(0.37563,),
        augment=False,
    )
