"""Data sets: the official CIFAR layout, safe unpickling, digits, limits, the registry."""

from __future__ import annotations

import hashlib
import os
import pickle
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from dataset_cases import dataset_config
from hypothesis import given
from hypothesis import strategies as st
from places import REPOSITORY
from shared_data import write_real_cifar10

from accordion_bench.config.schema import DatasetConfig
from accordion_bench.errors import UserError
from accordion_bench.workloads import datasets
from accordion_bench.workloads.datasets.base import ImageData, TextData, balanced_order, checksums
from accordion_bench.workloads.datasets.cifar import CIFAR10, CIFAR100, Cifar, unpickle_arrays
from accordion_bench.workloads.datasets.digits import digits

RNG = np.random.default_rng(0)


def config(root: Path | str = "data", name: str = "cifar10", **values: object) -> DatasetConfig:
    return dataset_config(name, "image", root=str(root), **values)


def python2_pickle(pixels: np.ndarray, label_key: str, labels: list[int]) -> bytes:
    """A record as Python 2 and NumPy 1 wrote the official files: protocol 2, byte strings, old module names."""
    dtype = b"cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    raw = pixels.tobytes()
    shape = b"".join(b"J" + size.to_bytes(4, "little") for size in pixels.shape) + b"\x86"
    array = (
        b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
        + b"(K\x01" + shape + dtype + b"\x89T" + len(raw).to_bytes(4, "little") + raw + b"tb"
    )  # fmt: skip
    key = b"U" + bytes([len(label_key)]) + label_key.encode()
    return b"\x80\x02}(U\x04data" + array + key + b"](" + b"".join(b"K" + bytes([n]) for n in labels) + b"eu."


def write_small(root: Path, cifar: Cifar, images: int = 4) -> Cifar:
    """Small files in a data set's official layout and form, and the data set with their checksums."""
    folder = root / cifar.files.folder
    folder.mkdir(parents=True)
    digests = {}
    for name in cifar.files.digests:
        pixels = RNG.integers(0, 256, (images, 3072), dtype=np.uint8)
        content = python2_pickle(pixels, cifar.label, list(range(images)))
        (folder / name).write_bytes(content)
        digests[name] = hashlib.md5(content).hexdigest()
    return replace(cifar, files=replace(cifar.files, digests=digests, mirrors=()))


@pytest.mark.parametrize(("cifar", "train"), [(CIFAR10, 20), (CIFAR100, 4)])
def test_the_official_layout_is_read(tmp_path: Path, cifar: Cifar, train: int) -> None:
    small = write_small(tmp_path, cifar)
    data = small.load(config(tmp_path))
    assert data.train_images.shape == (train, 3, 32, 32)
    assert data.test_images.shape == (4, 3, 32, 32)
    assert data.test_labels.tolist() == [0, 1, 2, 3]
    assert data.classes == cifar.classes
    record = pickle.loads(
        (tmp_path / cifar.files.folder / list(cifar.files.digests)[-1]).read_bytes(), encoding="latin1"
    )
    assert (data.test_images.reshape(4, -1) == record["data"]).all()


def test_real_images_load_with_a_warning_only_when_asked(tmp_path: Path) -> None:
    write_real_cifar10(tmp_path, train=500, test=100)
    with pytest.raises(UserError, match=r"data_batch_1 is not the official file \(MD5 .*dataset\.verify=false"):
        datasets.find_loader("cifar10")(config(tmp_path))
    with pytest.warns(UserWarning, match=r"CIFAR-10: .* not the official files; accepted because"):
        data = datasets.find_loader("cifar10")(config(tmp_path, verify=False))
    assert data.train_images.shape == (500, 3, 32, 32)
    assert np.bincount(data.train_labels).min() > 20
    # The published normalisation constants are those of the real pixels.
    pixels = data.train_images / 255
    assert np.abs(pixels.mean((0, 2, 3)) - data.mean).max() < 0.03
    assert np.abs(pixels.std((0, 2, 3)) - data.std).max() < 0.02


class Malicious:
    """Pickles to a call of os.mkdir."""

    def __init__(self, folder: Path) -> None:
        self.folder = str(folder)

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (self.folder,)


@pytest.mark.parametrize("verify", [True, False])
def test_no_pickle_runs_code(tmp_path: Path, verify: bool) -> None:
    small = write_small(tmp_path, CIFAR10)
    path = tmp_path / small.files.folder / "data_batch_3"
    path.write_bytes(pickle.dumps({"data": Malicious(tmp_path / "made"), "labels": [1]}))
    with pytest.raises(UserError, match="not the official file" if verify else r"damaged \(it names posix\.mkdir"):
        small.load(config(tmp_path, verify=verify))
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_arrays_of_every_pickle_protocol_are_read(protocol: int) -> None:
    record = {"data": RNG.integers(0, 256, (3, 5), dtype=np.uint8), "labels": [1, 2], "label": np.int64(3)}
    read = unpickle_arrays(pickle.dumps(record, protocol=protocol))
    assert (read["data"] == record["data"]).all()
    assert read["labels"] == [1, 2]
    assert read["label"] == 3


def bad_record(**changes: object) -> bytes:
    record = {"data": np.zeros((2, 3072), np.uint8), "labels": [0, 1]} | changes
    return pickle.dumps({key: value for key, value in record.items() if value is not None}, protocol=4)


DAMAGED = {
    "empty": b"",
    "truncated": bad_record()[:-1000],
    "not a pickle": b"<html>service unavailable</html>",
    "a list": pickle.dumps([1]),
    "no labels": bad_record(labels=None),
    "label too large": bad_record(labels=[0, 10]),
    "negative label": bad_record(labels=[-1, 0]),
    "labels are words": bad_record(labels=["a", "b"]),
    "too few labels": bad_record(labels=[0]),
    "images too small": bad_record(data=np.zeros((2, 3000), np.uint8)),
    "images of floats": bad_record(data=np.zeros((2, 3072))),
    "no array": bad_record(data="x"),
}


@pytest.mark.parametrize("content", DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_file_is_one_clear_line(tmp_path: Path, content: bytes) -> None:
    small = write_small(tmp_path, CIFAR10)
    (tmp_path / small.files.folder / "test_batch").write_bytes(content)
    with pytest.raises(UserError, match=r"test_batch is damaged \(.+\); delete it") as error:
        small.load(config(tmp_path, verify=False))
    assert "\n" not in str(error.value)


def test_digits_are_real_stratified_and_normalised_by_their_own_statistics() -> None:
    from sklearn.datasets import load_digits

    data = digits(config(name="digits"))
    assert data.train_images.shape == (1437, 1, 8, 8)
    assert data.test_images.shape == (360, 1, 8, 8)
    both = np.concatenate([data.train_images, data.test_images]).reshape(1797, -1)
    originals = np.round(load_digits().data * 255 / 16).astype(np.uint8)
    assert sorted(map(bytes, both)) == sorted(map(bytes, originals))
    share = np.bincount(data.test_labels) / np.bincount(load_digits().target)
    assert np.abs(share - 360 / 1797).max() < 0.005
    pixels = data.train_images / 255
    assert data.mean[0] == pytest.approx(pixels.mean(), abs=5e-6)
    assert data.std[0] == pytest.approx(pixels.std(), abs=5e-6)


@given(st.lists(st.integers(0, 4), min_size=1, max_size=60), st.data())
def test_every_prefix_of_the_balanced_order_has_the_classes_in_proportion(
    labels: list[int], data: st.DataObject
) -> None:
    order = balanced_order(np.array(labels))
    assert sorted(order.tolist()) == list(range(len(labels)))
    size = data.draw(st.integers(1, len(labels)))
    counts = np.bincount(np.array(labels)[order[:size]], minlength=5)
    expected = np.bincount(labels, minlength=5) * size / len(labels)
    assert np.abs(counts - expected).max() < 2


@given(st.integers(1, 8), st.integers(1, 5), st.data())
def test_equally_large_classes_are_dealt_in_rounds(each: int, classes: int, data: st.DataObject) -> None:
    labels = data.draw(st.permutations(list(range(classes)) * each))
    order = balanced_order(np.array(labels))
    size = data.draw(st.integers(1, len(labels)))
    assert set(np.bincount(np.array(labels)[order[:size]], minlength=classes)) <= {size // classes, -(-size // classes)}


def test_limits_take_the_same_balanced_images_every_time() -> None:
    data = digits(config(name="digits"))
    small, larger = data.limited(100, 50), data.limited(200, None)
    assert np.ptp(np.bincount(small.train_labels)) <= 1
    assert (larger.train_images[:100] == small.train_images).all()
    assert len(small.test_labels) == 50
    assert len(larger.test_labels) == 360


@pytest.mark.parametrize(("train", "test", "message"), [
    (1438, None, r"dataset\.limit_train must be between 1 and 1437 .* got 1438"),
    (0, None, r"dataset\.limit_train must be between 1 and 1437 .* got 0"),
    (None, 361, r"dataset\.limit_test must be between 1 and 360 .* got 361"),
    (None, -5, r"dataset\.limit_test must be between 1 and 360 .* got -5"),
])  # fmt: skip
def test_impossible_limits_are_refused(train: int | None, test: int | None, message: str) -> None:
    with pytest.raises(UserError, match=message):
        digits(config(name="digits")).limited(train, test)


@pytest.mark.parametrize("change", [
    {"train_images": np.zeros((2, 8, 8), np.uint8)},
    {"train_images": np.zeros((0, 1, 8, 8), np.uint8)},
    {"train_images": np.zeros((2, 1, 8, 8), np.float32)},
    {"train_labels": np.zeros(3, np.int64)},
    {"train_labels": np.zeros(2, np.int32)},
    {"test_labels": np.array([0, 2])},
    {"test_labels": np.array([-1, 0])},
])  # fmt: skip
def test_images_that_do_not_fit_together_are_refused(change: dict[str, np.ndarray]) -> None:
    good = ImageData(
        train_images=np.zeros((2, 1, 8, 8), np.uint8), train_labels=np.zeros(2, np.int64),
        test_images=np.zeros((2, 1, 8, 8), np.uint8), test_labels=np.zeros(2, np.int64),
        classes=2, mean=(0.0,), std=(1.0,), augment=False,
    )  # fmt: skip
    with pytest.raises(UserError, match=next(iter(change))):
        replace(good, **change)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "tokens", [np.zeros(5), np.zeros((2, 2), np.int32), np.zeros(1, np.int32), np.array([0, 3], np.int32)]
)
def test_tokens_that_do_not_fit_are_refused(tokens: np.ndarray) -> None:
    good = np.array([0, 1, 2], np.int32)
    with pytest.raises(UserError, match="valid must"):
        TextData(train=good, valid=tokens, test=good, vocabulary=("a", "b", "c"))


def test_names_are_found_and_typos_answered() -> None:
    assert {name: entry.kind for name, entry in datasets.DATASETS.items()} == {
        "digits": "image", "cifar10": "image", "cifar100": "image", "wikitext2": "text",
    }  # fmt: skip
    for name in datasets.DATASETS:
        assert callable(datasets.find_loader(name))
    with pytest.raises(UserError, match=r"no dataset 'cifar1'; did you mean cifar10\? There are: digits, "):
        datasets.find_loader("cifar1")
    with pytest.raises(UserError, match="can be imported, got 'no_such_module:load'"):
        datasets.find_loader("no_such_module:load", "image")
    with pytest.raises(UserError, match=r"dataset\.kind must be image or text"):
        datasets.find_loader("module:load")


def test_describe_tells_what_is_there(tmp_path: Path) -> None:
    write_small(tmp_path, CIFAR10)
    (tmp_path / CIFAR100.files.archive).touch()
    ready = {
        description.name: (description.ready, description.state) for description in datasets.describe(str(tmp_path))
    }
    assert ready["digits"] == (True, "ships with scikit-learn")
    assert ready["cifar10"] == (True, f"in {tmp_path}/cifar-10-batches-py")
    assert ready["cifar100"][0]
    assert "unpacked when first used" in ready["cifar100"][1]
    assert not ready["wikitext2"][0]
    assert "downloaded when first used" in ready["wikitext2"][1]


def test_prepare_checks_and_says_so(tmp_path: Path) -> None:
    assert datasets.prepare("digits", str(tmp_path)) == "digits: needs no files"
    write_small(tmp_path, CIFAR10)
    with pytest.raises(UserError, match="data_batch_1 is not the official file"):
        datasets.prepare("cifar10", str(tmp_path))
    with pytest.warns(UserWarning, match="not the official files"):
        assert datasets.prepare("cifar10", str(tmp_path), verify=False).startswith("CIFAR-10: 6 files read in")


def test_data_sets_are_named_prepared_and_read_without_torch_or_spacy(tmp_path: Path) -> None:
    write_small(tmp_path, CIFAR10)
    script = (
        "import sys, warnings; warnings.simplefilter('ignore'); from accordion_bench.workloads import datasets\n"
        f"datasets.describe('{tmp_path}'); datasets.prepare('cifar10', '{tmp_path}', verify=False)\n"
        "print([name for name in ('torch', 'spacy', 'sklearn') if name in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", script], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    assert result.stdout == "[]\n"


def test_checksums_tell_data_apart() -> None:
    data = digits(config(name="digits"))
    whole = checksums(data)
    assert whole == checksums(digits(config(name="digits", limit_train=10)))  # the limit is not applied by the loader
    limited = checksums(data.limited(100, None))
    assert {name for name in whole if whole[name] != limited[name]} == {"train_images", "train_labels"}
    changed = data.train_images.copy()
    changed[0, 0, 0, 0] ^= 1
    assert checksums(replace(data, train_images=changed))["train_images"] != whole["train_images"]
