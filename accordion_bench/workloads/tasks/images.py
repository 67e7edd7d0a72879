"""Image classification: the whole data set lives on the device, and a batch is a few tensor operations away."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from accordion_bench.errors import UserError
from accordion_bench.training.communicator import Communicator
from accordion_bench.training.seeds import generator_for
from accordion_bench.training.task import Carry, Task
from accordion_bench.workloads.datasets.augment import Augmentation, normalise
from accordion_bench.workloads.datasets.base import ImageData
from accordion_bench.workloads.tasks.evaluation import Share, evaluating, sum_units

EVALUATION_BATCH = 500

ImageBatch = tuple[Tensor, Tensor]  # images (B, C, H, W), labels (B,)


class ImageClassification(Task):
    """Cross-entropy on labelled images; accuracy in percent on the test split.

    The training set is permuted, the remainder of n / A images is left out (other ones in every order), and each
    worker takes an equal share in batches of B, the last of which may be smaller. `model(images)` gives (B, classes).

    Args:
        data: the images.
        share: how they are divided.
        augment: random crops, flips and rotations of training images; null: as the data set says.
        crop_padding: pixels of padding before the random crop, 0 for no crop.
        flip: random horizontal flips.
        rotate_degrees: random rotations up to this angle.
        mean, std: normalisation per channel of pixels scaled to 0 .. 1; null: the data set's own.

    Raises:
        UserError: if a share is smaller than a batch, or a setting is out of range.
    """

    metric = "accuracy"
    higher_is_better = True

    def __init__(
        self,
        data: ImageData,
        share: Share,
        *,
        augment: bool | None = None,
        crop_padding: int = 4,
        flip: bool = True,
        rotate_degrees: float = 0.0,
        mean: tuple[float, ...] | None = None,
        std: tuple[float, ...] | None = None,
    ) -> None:
        channels, height, width = data.train_images.shape[1:]
        self._share = share
        self._mean = _per_channel("mean", data.mean if mean is None else mean, channels)
        self._std = _per_channel("std", data.std if std is None else std, channels)
        if min(self._std) <= 0:
            raise UserError(f"dataset.std must be > 0 for every channel, got {list(self._std)}")
        self._augmentation = None
        if data.augment if augment is None else augment:
            _check_augmentation(crop_padding, rotate_degrees, min(height, width))
            self._augmentation = Augmentation(crop_padding=crop_padding, flip=flip, rotate_degrees=rotate_degrees)
        self.facts = {"kind": "image", "channels": channels, "size": height, "classes": data.classes}

        self._train_images, self._train_labels = _on_device(data.train_images, data.train_labels, share.device)
        self._test_images, self._test_labels = _on_device(data.test_images, data.test_labels, share.device)
        self._per_worker = images_per_worker(len(self._train_images), share.workers, share.batch_per_worker)

    @property
    def batches_per_epoch(self) -> int:
        """ceil(floor(n / A) / B)."""
        return -(-self._per_worker // self._share.batch_per_worker)

    def batches(self, epoch: int, worker: int) -> Iterator[ImageBatch]:
        """Augmented and normalised (images, labels); the draws depend on (seed, epoch, batch, worker) only."""
        for number, rows_B in enumerate(self._rows(epoch, worker).split(self._share.batch_per_worker)):
            images = self._train_images.index_select(0, rows_B)
            if self._augmentation is not None:
                images = self._augmentation(images, generator_for(self._share.seed, "augment", epoch, number, worker))
            yield normalise(images, self._mean, self._std), self._train_labels.index_select(0, rows_B)

    def _rows(self, epoch: int, worker: int) -> Tensor:
        """The worker's share of this epoch's order: (floor(n / A),) indices on the device."""
        drawn = 0 if self._share.shuffle == "once" else epoch
        order = torch.randperm(len(self._train_images), generator=generator_for(self._share.seed, "shuffle", drawn))
        return order[worker * self._per_worker : (worker + 1) * self._per_worker].to(self._share.device)

    def size(self, batch: ImageBatch) -> int:
        """Number of images."""
        return len(batch[1])

    def loss(self, model: nn.Module, batch: ImageBatch, carry: Carry) -> tuple[Tensor, Carry]:
        """Mean cross-entropy; no carry."""
        images, labels = batch
        return F.cross_entropy(model(images), labels), None

    def evaluate(self, model: nn.Module, communicator: Communicator) -> dict[str, float]:
        """Accuracy in percent and mean loss on the test split, in fixed batches of 500."""
        images = self._test_images.split(EVALUATION_BATCH)
        labels = self._test_labels.split(EVALUATION_BATCH)

        def measure(unit: int) -> Tensor:
            logits = model(normalise(images[unit], self._mean, self._std)).double()
            right = (logits.argmax(1) == labels[unit]).sum().double()
            return torch.stack([right, F.cross_entropy(logits, labels[unit], reduction="sum")])

        with evaluating(model):
            right, loss = sum_units(len(images), measure, 2, communicator, self._share.device)
        count = len(self._test_labels)
        return {"accuracy": 100 * right / count, "loss": loss / count}


def images_per_worker(images: int, workers: int, batch_per_worker: int) -> int:
    """floor(n / A): every worker's share of n training images; UserError if it is smaller than a batch."""
    share = images // workers
    if share < 1:
        raise UserError(f"workers must be at most {images}, one for each training image, got {workers}")
    if batch_per_worker > share:
        raise UserError(
            f"batch.per_worker must be at most {share} ({images} training images over {workers} workers), "
            f"got {batch_per_worker}"
        )
    return share


def _on_device(images: NDArray[np.uint8], labels: NDArray[np.int64], device: torch.device) -> tuple[Tensor, Tensor]:
    images, labels = np.ascontiguousarray(images), np.ascontiguousarray(labels)
    return torch.from_numpy(images).to(device), torch.from_numpy(labels).to(device)


def _per_channel(name: str, values: tuple[float, ...], channels: int) -> tuple[float, ...]:
    if len(values) != channels or not all(isinstance(value, (int, float)) for value in values):
        raise UserError(f"dataset.{name} must be {channels} numbers, one per channel, got {list(values)}")
    return tuple(values)


def _check_augmentation(crop_padding: int, rotate_degrees: float, size: int) -> None:
    if not 0 <= crop_padding <= size:
        raise UserError(f"dataset.crop_padding must be between 0 and {size} pixels (the image), got {crop_padding}")
    if not 0 <= rotate_degrees <= 180:
        raise UserError(f"dataset.rotate_degrees must be between 0 and 180, got {rotate_degrees}")
