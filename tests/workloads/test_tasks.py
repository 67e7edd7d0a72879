"""Tasks: equal shares, reproducible augmentation equal to torchvision's, streams of text, exact evaluation."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
import torch
import torchvision.transforms.functional as reference
from dataset_cases import dataset_config
from processes import run_processes
from shared_data import shared, write_real_cifar10
from torch import Tensor, nn
from torchvision.transforms import InterpolationMode

from accordion_bench.config.schema import DatasetConfig
from accordion_bench.errors import UserError
from accordion_bench.training.communicator import Communicator
from accordion_bench.workloads.datasets.augment import Augmentation, crop, flip, normalise, rotate
from accordion_bench.workloads.datasets.base import ImageData, TextData
from accordion_bench.workloads.tasks import build_task
from accordion_bench.workloads.tasks.evaluation import Share
from accordion_bench.workloads.tasks.images import ImageClassification
from accordion_bench.workloads.tasks.language import LanguageModelling


def numbered_images(n: int, size: int = 4, classes: int = 7) -> ImageData:
    """Image i is filled with the digits of i in base 256, one per channel; its label is i modulo the classes."""
    numbers = np.arange(n)
    digits = np.stack([numbers % 256, numbers // 256, np.zeros(n, np.int64)], axis=1).astype(np.uint8)
    images = np.broadcast_to(digits[:, :, None, None], (n, 3, size, size)).copy()
    return ImageData(
        train_images=images, train_labels=numbers % classes,
        test_images=images[:50], test_labels=numbers[:50] % classes,
        classes=classes, mean=(0.0,) * 3, std=(1.0,) * 3, augment=False,
    )  # fmt: skip


def share(batch: int = 8, workers: int = 4, seed: int = 1, shuffle: str = "every_epoch") -> Share:
    return Share(batch_per_worker=batch, workers=workers, seed=seed, shuffle=shuffle, device=torch.device("cpu"))


def numbers_of(task: ImageClassification, epoch: int, worker: int) -> list[int]:
    """Which images of `numbered_images` a worker sees, in order."""
    numbers = []
    for images, labels in task.batches(epoch, worker):
        digits = (images[:, :, 0, 0] * 255).round().long()
        numbers += (digits[:, 0] + 256 * digits[:, 1]).tolist()
        assert labels.tolist() == [number % 7 for number in numbers[-len(labels) :]]
    return numbers


@pytest.mark.parametrize(
    ("images", "workers", "batch", "expected"),
    [(50_000, 4, 128, 98), (50_000, 4, 12_500, 1), (1437, 4, 32, 12), (10, 3, 3, 1), (10, 3, 2, 2), (7, 7, 1, 1)],
)
def test_batches_per_epoch_is_the_shares_ceiling(images: int, workers: int, batch: int, expected: int) -> None:
    data = numbered_images(images, size=1)
    task = ImageClassification(data, share(batch, workers))
    assert task.batches_per_epoch == expected
    sizes = [task.size(batch) for batch in task.batches(0, workers - 1)]
    assert len(sizes) == expected
    assert sum(sizes) == images // workers
    assert set(sizes[:-1]) <= {batch}


def test_workers_shares_are_equal_disjoint_and_new_every_epoch() -> None:
    task = ImageClassification(numbered_images(1003), share())
    epochs = [[numbers_of(task, epoch, worker) for worker in range(4)] for epoch in (0, 1)]
    for shares in epochs:
        assert [len(numbers) for numbers in shares] == [250] * 4
        assert len(set(chain(*shares))) == 1000
    assert epochs[0] != epochs[1]
    assert set(chain(*epochs[0])) != set(chain(*epochs[1]))  # the three that are left out differ


def test_shuffling_once_keeps_the_order_but_not_the_crops() -> None:
    task = ImageClassification(numbered_images(100), share(shuffle="once"))
    assert numbers_of(task, 0, 2) == numbers_of(task, 5, 2)
    augmented = ImageClassification(numbered_images(100), share(shuffle="once"), augment=True)
    first, later = (next(augmented.batches(epoch, 2)) for epoch in (0, 5))
    assert (first[1] == later[1]).all()
    assert not torch.equal(first[0], later[0])


def test_batches_are_a_function_of_seed_epoch_and_worker() -> None:
    data = numbered_images(200)

    def batch(seed: int = 1, epoch: int = 3, worker: int = 1, number: int = 2) -> tuple[Tensor, Tensor]:
        task = ImageClassification(data, share(seed=seed), augment=True)
        return list(task.batches(epoch, worker))[number]

    torch.manual_seed(0)
    expected = batch()
    torch.rand(100)
    task = ImageClassification(data, share(), augment=True)
    together = list(zip(*(task.batches(3, worker) for worker in range(4)), strict=True))  # interleaved with others
    assert torch.equal(together[2][1][0], expected[0])
    assert torch.equal(together[2][1][1], expected[1])
    for other in (batch(seed=2), batch(epoch=4), batch(worker=2), batch(number=1)):
        assert not torch.equal(other[0], expected[0])


IMAGES = torch.randint(0, 256, (40, 3, 20, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("padding", [1, 4, 20])
def test_crop_is_torchvisions(padding: int) -> None:
    offsets = torch.randint(0, 2 * padding + 1, (40, 2), generator=torch.Generator().manual_seed(1))
    expected = [
        reference.crop(reference.pad(image, [padding] * 4), int(top), int(left), 20, 32)
        for image, (top, left) in zip(IMAGES, offsets, strict=True)
    ]
    assert torch.equal(crop(IMAGES, offsets, padding), torch.stack(expected))


def test_flip_is_torchvisions() -> None:
    flips = torch.arange(40) % 3 == 0
    expected = [reference.hflip(image) if turned else image for image, turned in zip(IMAGES, flips, strict=True)]
    assert torch.equal(flip(IMAGES, flips), torch.stack(expected))


def test_rotation_is_torchvisions() -> None:
    degrees = torch.linspace(-15, 15, 40)
    expected = [
        reference.rotate(image, float(angle), InterpolationMode.NEAREST)
        for image, angle in zip(IMAGES, degrees, strict=True)
    ]
    assert (rotate(IMAGES, degrees) != torch.stack(expected)).float().mean() < 1e-3  # ties may round either way


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_normalisation_is_torchvisions_in_the_default_type(dtype: torch.dtype, default_dtype: Callable) -> None:
    default_dtype(dtype)
    mean, std = [0.4, 0.5, 0.6], [0.2, 0.25, 0.3]
    expected = torch.stack([reference.normalize(reference.convert_image_dtype(x, dtype), mean, std) for x in IMAGES])
    assert torch.equal(normalise(IMAGES, mean, std), expected)


@pytest.fixture
def default_dtype() -> Iterator[Callable[[torch.dtype], None]]:
    yield torch.set_default_dtype
    torch.set_default_dtype(torch.float32)


def test_augmentation_crops_evenly_and_flips_half() -> None:
    position = torch.arange(1, 17, dtype=torch.uint8).view(1, 1, 4, 4).expand(8000, 1, 4, 4)
    augment = Augmentation(crop_padding=1, flip=True, rotate_degrees=0.0)
    result = augment(position, torch.Generator().manual_seed(0))
    centre = result[:, 0, 1:3, 1:3].long()
    flipped = centre[:, 0, 0] > centre[:, 0, 1]
    top_left = torch.where(flipped, centre[:, 0, 1], centre[:, 0, 0])
    counts = torch.unique(top_left, return_counts=True)[1]
    assert abs(flipped.double().mean() - 0.5) < 0.025  # 4.5 standard deviations
    assert len(counts) == 9
    assert (counts - 8000 / 9).abs().max() < 130


def test_draws_do_not_depend_on_which_augmentations_are_on() -> None:
    def augmented(**settings: object) -> Tensor:
        values = {"crop_padding": 0, "flip": False, "rotate_degrees": 0.0} | settings
        return Augmentation(**values)(IMAGES, torch.Generator().manual_seed(3))  # type: ignore[arg-type]

    both, cropped = augmented(crop_padding=4, flip=True), augmented(crop_padding=4)
    same = (both == cropped).flatten(1).all(1)
    assert 5 < same.sum() < 35
    assert torch.equal(both, torch.where(same[:, None, None, None], cropped, cropped.flip(-1)))
    rotated = augmented(rotate_degrees=15.0)
    assert (rotated != IMAGES).flatten(1).any(1).sum() > 30  # not those turned by less than a pixel


class Reading(nn.Module):
    """Reads the class off a numbered image, wrongly for the first `wrong` numbers; has a BatchNorm to spoil."""

    def __init__(self, wrong: int) -> None:
        super().__init__()
        self.wrong, self.norm = wrong, nn.BatchNorm2d(3)

    def forward(self, images: Tensor) -> Tensor:
        self.norm(images)
        number = (images[:, 0, 0, 0] * 255).round().long()
        return nn.functional.one_hot((number + (number < self.wrong).long()) % 7, 7).to(images.dtype)


def test_evaluation_is_exact_and_leaves_no_trace() -> None:
    model = Reading(wrong=13)
    model.norm.eval()  # one module in another mode than the rest
    metrics = ImageClassification(numbered_images(60), share()).evaluate(model, Communicator(4))
    assert metrics["accuracy"] == 100 * 37 / 50
    normaliser = np.log(np.e + 6)
    assert metrics["loss"] == pytest.approx(normaliser - 37 / 50, rel=1e-12)
    assert model.training
    assert not model.norm.training
    assert model.norm.num_batches_tracked == 0


BAD_SETTINGS = [
    ({"batch": 16}, {}, r"batch\.per_worker must be at most 15 \(60 training images over 4 workers\), got 16"),
    ({"workers": 61}, {}, "workers must be at most 60, one for each training image, got 61"),
    ({}, {"mean": (0.5,)}, r"dataset\.mean must be 3 numbers, one per channel, got \[0\.5\]"),
    ({}, {"std": (0.5, 0.0, 1.0)}, r"dataset\.std must be > 0"),
    ({}, {"augment": True, "crop_padding": -1}, r"dataset\.crop_padding must be between 0 and 4"),
    ({}, {"augment": True, "rotate_degrees": 200.0}, r"dataset\.rotate_degrees must be between 0 and 180"),
]


@pytest.mark.parametrize(("sharing", "settings", "message"), BAD_SETTINGS)
def test_bad_image_settings_are_refused(sharing: dict[str, int], settings: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        ImageClassification(numbered_images(60), share(**sharing), **settings)  # type: ignore[arg-type]


# Text


def text_data(tokens: int, vocabulary: int = 11) -> TextData:
    """A walk of successive numbers, jumping now and then."""
    steps = 1 + (np.random.default_rng(0).random(tokens) < 0.2)
    walk = (np.cumsum(steps) % vocabulary).astype(np.int32)
    return TextData(train=walk, valid=walk[::-1][:301], test=walk[:467], vocabulary=tuple(map(str, range(vocabulary))))


@pytest.mark.parametrize(("tokens", "batch", "workers", "bptt"), [(1000, 3, 2, 7), (100, 1, 1, 99), (64, 8, 4, 30)])
def test_streams_are_contiguous_and_owned_by_workers(tokens: int, batch: int, workers: int, bptt: int) -> None:
    data = text_data(tokens)
    task = LanguageModelling(data, share(batch, workers), bptt=bptt)
    length = tokens // (batch * workers)
    assert task.batches_per_epoch == -(-(length - 1) // bptt)
    for worker in range(workers):
        batches = list(task.batches(3, worker))
        assert len(batches) == task.batches_per_epoch
        assert sum(task.size(batch) for batch in batches) == (length - 1) * batch
        inputs, targets = (torch.cat(parts) for parts in zip(*batches, strict=True))
        for column in range(batch):
            first = (worker * batch + column) * length
            assert inputs[:, column].tolist() == data.train[first : first + length - 1].tolist()
            assert targets[:, column].tolist() == data.train[first + 1 : first + length].tolist()


class Bigram(nn.Module):
    """Logits are a table's row of the last token; the carry counts steps."""

    def __init__(self, table: Tensor) -> None:
        super().__init__()
        self.table = nn.Parameter(table)

    def forward(self, tokens_TB: Tensor, carry: int | None) -> tuple[Tensor, int]:
        return self.table[tokens_TB], (carry or 0) + len(tokens_TB)


def test_evaluation_predicts_every_token_once() -> None:
    data = text_data(1000)
    table = torch.randn(11, 11, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    metrics = LanguageModelling(data, share(), bptt=3).evaluate(Bigram(table), Communicator(4))
    log_probabilities = np.log(np.exp(table.numpy()) / np.exp(table.numpy()).sum(1, keepdims=True))
    for split, prefix in ((data.test, ""), (data.valid, "valid_")):
        expected = -log_probabilities[split[:-1], split[1:]].mean()
        assert metrics[f"{prefix}loss"] == pytest.approx(expected, rel=1e-12)
        assert metrics[f"{prefix}perplexity"] == pytest.approx(np.exp(expected), rel=1e-12)


def test_a_hopeless_model_has_infinite_perplexity() -> None:
    data = text_data(100)
    table = torch.full((11, 11), -1e4)
    table[:, 0] = 0
    metrics = LanguageModelling(data, share(2, 2)).evaluate(Bigram(table), Communicator(2))
    assert metrics["perplexity"] == float("inf")
    assert metrics["loss"] > 1000


def test_the_carry_continues_the_text_without_its_graph() -> None:
    torch.manual_seed(0)
    embedding, lstm = nn.Embedding(11, 6), nn.LSTM(6, 11)

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.parts = nn.ModuleList([embedding, lstm])

        def forward(self, tokens_TB: Tensor, carry: object) -> tuple[Tensor, object]:
            return lstm(embedding(tokens_TB), carry)

    model, task = Model(), LanguageModelling(text_data(400), share(4, 1), bptt=10)
    carry, outputs = task.first_carry(), []
    for batch in task.batches(0, 0):
        outputs.append(model(batch[0], carry)[0])
        loss, carry = task.loss(model, batch, carry)
        loss.backward()  # fails if the graph of an earlier batch were still attached
        assert not any(part.requires_grad for part in carry)
    whole = torch.cat([inputs for inputs, _ in task.batches(0, 0)])
    assert torch.allclose(torch.cat(outputs), model(whole, None)[0], atol=1e-6)


@pytest.mark.parametrize(("batch", "bptt", "message"), [
    (26, 30, r"batch\.per_worker must be at most 25 \(200 training tokens in streams of two or more over 4 workers\)"),
    (1, 0, r"dataset\.bptt must be at least 1 step, got 0"),
])  # fmt: skip
def test_bad_text_settings_are_refused(batch: int, bptt: int, message: str) -> None:
    with pytest.raises(UserError, match=message):
        LanguageModelling(text_data(200), share(batch), bptt=bptt)


# Any number of processes


def evaluations(process: int, processes: int) -> list[float]:
    """Both tasks' metrics in float32, whose sums would show another order of adding."""
    communicator = Communicator(2, process, processes)
    generator = torch.Generator().manual_seed(0)
    images = np.random.default_rng(0).integers(0, 256, (3100, 1, 4, 4), dtype=np.uint8)
    labels = np.arange(3100) % 5
    data = ImageData(images, labels, images, labels, 5, (0.5,), (0.25,), False)
    linear = nn.Sequential(nn.Flatten(), nn.Linear(16, 5))
    for parameter in linear.parameters():
        nn.init.normal_(parameter, generator=generator)
    metrics = ImageClassification(data, share()).evaluate(linear, communicator)
    metrics |= LanguageModelling(text_data(5000), share()).evaluate(
        Bigram(torch.randn(11, 11, generator=generator)), communicator
    )
    return list(metrics.values())


def test_metrics_are_bit_for_bit_those_of_one_process() -> None:
    alone = evaluations(0, 1)
    assert run_processes(3, evaluations) == [alone] * 3


# From a configuration


def config(name: str, kind: str, **values: object) -> DatasetConfig:
    return dataset_config(name, kind, **values)


def build(dataset: DatasetConfig, batch: int = 8):
    return build_task(dataset, batch_per_worker=batch, workers=4, seed=1, device="cpu", shuffle="every_epoch")


def test_settings_reach_the_task_and_typos_are_answered() -> None:
    task = build(config("digits", "image", settings={"mean": [0.25], "std": [0.5]}, limit_train=100, limit_test=20))
    assert task.facts == {"kind": "image", "channels": 1, "size": 8, "classes": 10}
    assert task.batches_per_epoch == 4
    images, _ = next(task.batches(0, 0))
    assert images.min() == -0.5
    assert images.max() == 1.5
    with pytest.raises(UserError, match=r"no setting 'filp'; did you mean flip\? There are: augment, crop_padding"):
        build(config("digits", "image", settings={"filp": True}))
    with pytest.raises(UserError, match=r"dataset\.flip must be true or false, got 3"):
        build(config("digits", "image", settings={"flip": 3}))


def test_a_users_own_data_set_has_settings_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_data.py").write_text(
        "import numpy as np\n"
        "from accordion_bench.workloads.datasets.base import TextData\n"
        "def load(config, *, length: int = 10):\n"
        "    part = (np.arange(length) % 3).astype(np.int32)\n"
        "    return TextData(train=part, valid=part, test=part, vocabulary=('a', 'b', 'c'))\n"
        "def broken(config):\n"
        "    return 1\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    task = build(config("my_data:load", "text", settings={"length": 700, "bptt": 5}))
    assert task.facts == {"kind": "text", "vocabulary": 3}
    assert task.batches_per_epoch == 4
    with pytest.raises(UserError, match=r"no setting 'lenght'; did you mean length\? There are: bptt, length"):
        build(config("my_data:load", "text", settings={"lenght": 7}))
    with pytest.raises(UserError, match="my_data:broken must return TextData, got int"):
        build(config("my_data:broken", "text"))
    del sys.modules["my_data"]


def test_real_images_can_be_learned(tmp_path: Path) -> None:
    write_real_cifar10(tmp_path, train=500, test=100)
    with pytest.warns(UserWarning, match="not the official files"):
        task = build(config("cifar10", "image", root=str(tmp_path), verify=False), batch=125)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(3072, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    before = task.evaluate(model, Communicator(4))
    for epoch in range(20):
        for worker in range(4):
            for batch in task.batches(epoch, worker):
                optimizer.zero_grad()
                task.loss(model, batch, None)[0].backward()
                optimizer.step()
    after = task.evaluate(model, Communicator(4))
    assert after["loss"] < before["loss"]
    assert after["accuracy"] > 15 > before["accuracy"] - 10


@pytest.mark.thorough
def test_real_text_becomes_a_task(tmp_path: Path) -> None:
    files = {
        "train_file": str(shared("data", "wikitext-2", "wiki.valid.tokens")),
        "valid_file": str(shared("data", "wikitext-2", "wiki.test.tokens")),
        "test_file": str(shared("data", "wikitext-2", "wiki.test.tokens")),
    }
    task = build(config("wikitext2", "text", root=str(tmp_path), settings=files | {"bptt": 20}, limit_test=1000))
    assert 11_000 < task.facts["vocabulary"] < 13_000
    assert task.batches_per_epoch == -(-(217_846 // 32 - 1) // 20)
    metrics = task.evaluate(Bigram(torch.zeros(1, task.facts["vocabulary"]).expand(20_000, -1)), Communicator(4))
    assert metrics["perplexity"] == pytest.approx(task.facts["vocabulary"], rel=1e-5)
