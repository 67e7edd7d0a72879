"""Each of the paper's thirteen networks in short real runs on real images and real text.

What a run's meter has counted must be what the reference description's shapes give in closed form, and what the plan
of the same settings has announced. The costly networks wait for ACCORDION_BENCH_LONG=1.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from model_cases import reference_sections
from shared_data import shared, write_cifar100_layout, write_real_cifar10

from accordion_bench.config.compose import compose
from accordion_bench.config.schema import RunConfig
from accordion_bench.runs.launch import launch
from accordion_bench.runs.records import RunDirectory
from accordion_bench.sweeps.plan import make_plan
from accordion_bench.training.traffic import Traffic
from accordion_bench.workloads.datasets.wikitext2 import wikitext2

Shapes = list[tuple[int, ...]]

CIFAR = {  # data set, network -> parameters (Tables 8 and 9; SENet on CIFAR-10 as in Tables 1 and 3)
    ("cifar10", "resnet18"): 11_173_962,
    ("cifar10", "vgg19bn"): 20_565_834,
    ("cifar10", "senet"): 11_389_726,
    ("cifar10", "wideresnet"): 36_489_290,
    ("cifar10", "densenet"): 1_000_618,
    ("cifar10", "googlenet"): 6_166_250,
    ("cifar100", "resnet18"): 11_220_132,
    ("cifar100", "vgg19bn"): 39_327_652,
    ("cifar100", "senet"): 11_436_256,
    ("cifar100", "wideresnet"): 36_546_980,
    ("cifar100", "densenet"): 1_035_268,
    ("cifar100", "googlenet"): 6_258_500,
}
CHEAP = {("cifar10", "resnet18"), ("cifar100", "densenet")}
NETWORKS = [pytest.param(*key, id="-".join(key), marks=() if key in CHEAP else pytest.mark.long) for key in CIFAR]
# Two epochs of two batches per worker: the first at the least, the second at the most compressed rung.
SHORT = [
    "workers=2",
    "batch.per_worker=2",
    "epochs=2",
    "lr_schedule.base=0.01",
    "scheduler=manual",
    "scheduler.index=0",
    "scheduler.ranges=[{from: 0, until: 1, index: -1}]",
    "quiet=true",
]


@dataclass(frozen=True)
class Way:
    """One way to communicate, and what it must cost.

    Attributes:
        overrides: that choose it.
        updates: of the two epochs.
        words: (shapes, epoch) -> (words averaged, words gathered) of one worker in one update.
        calls: collectives of an update.
    """

    overrides: tuple[str, ...]
    updates: tuple[int, int]
    words: Callable[[Shapes, int], tuple[int, int]]
    calls: int


def vectors(shapes: Shapes) -> int:
    """Elements of all 1-D tensors."""
    return sum(shape[0] for shape in shapes if len(shape) == 1)


def powersgd_words(shapes: Shapes, epoch: int) -> tuple[int, int]:
    """Rank 2, then 1: r (n + m) per matrix unless the matrix itself is not larger, and the 1-D tensors."""
    total = 0
    for n, *rest in (shape for shape in shapes if len(shape) > 1):
        m = math.prod(rest)
        total += min(min(2 - epoch, n, m) * (n + m), n * m)
    return total + vectors(shapes), 0


def topk_words(shapes: Shapes, epoch: int) -> tuple[int, int]:
    """99 %, then 10 %: a value and an index for every element kept; the 1-D tensors are averaged."""
    fraction = (0.99, 0.1)[epoch]
    sizes = [math.prod(shape) for shape in shapes if len(shape) > 1]
    return vectors(shapes), sum(2 * max(1, int(fraction * size)) for size in sizes)


WAYS = {
    "powersgd": Way(("compressor=powersgd", "compressor.levels=[1, 2]"), (2, 2), powersgd_words, 2),
    "topk": Way(("compressor=topk", "compressor.levels=[0.1, 0.99]"), (2, 2), topk_words, 2),
    "batch": Way(
        (
            "compressor=none",
            "batch.multipliers=[2, 1]",
            "scheduler.index=null",
            "scheduler.batch_index=0",
            "scheduler.ranges=[{from: 0, until: 1, batch_index: -1}]",
        ),
        (2, 1),
        lambda shapes, epoch: (sum(map(math.prod, shapes)), 0),
        1,
    ),
}


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Overrides for a few real images as either data set."""
    root = tmp_path_factory.mktemp("images")
    write_real_cifar10(root, train=10, test=4)
    write_cifar100_layout(root)
    return [f"dataset.root={root}", "dataset.verify=false", "dataset.limit_train=8", "dataset.limit_test=4"]


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Overrides for real text: WikiText-2's validation text as training text."""
    train, test = (shared("data", "wikitext-2", f"wiki.{name}.tokens") for name in ("valid", "test"))
    files = [f"dataset.train_file={train}", f"dataset.valid_file={test}", f"dataset.test_file={test}"]
    limits = ["dataset.limit_train=44", "dataset.limit_test=20", "dataset.bptt=5"]  # 4 streams of 11 tokens
    return [f"dataset.root={tmp_path_factory.mktemp('text')}", *files, *limits]


def cifar_shapes(parameters: int) -> Shapes:
    """Every tensor of the network with so many parameters, from the reference description."""
    counts = next(counts for heading, (counts, _) in reference_sections().items() if f"({parameters:,}" in heading)
    return list(counts.elements())


def lstm_shapes(vocabulary: int, layers: int, hidden: int = 650) -> Shapes:
    """The reference description's formula, spelt out; the output's weight is the embedding's."""
    per_layer: Shapes = [(4 * hidden, hidden), (4 * hidden, hidden), (4 * hidden,), (4 * hidden,)]
    return [(vocabulary, hidden), *per_layer * layers, (vocabulary,)]


def check_run(config: RunConfig, way: Way, shapes: Shapes) -> None:
    """A run from start to finish: its plan, its meter and the closed form agree to the last word."""
    plan = make_plan(config)
    summary = launch(config)
    records = RunDirectory(config.directory).read_epochs()
    for epoch, (record, updates) in enumerate(zip(records, way.updates, strict=True)):
        mean, gather = way.words(shapes, epoch)
        counted = Traffic.from_dict(record.traffic)
        assert record.updates == updates
        assert (counted.mean.elements, counted.gather.elements) == (updates * mean, updates * gather)
        assert counted.bytes_per_worker == 4 * updates * (mean + gather)
        assert counted.collectives == updates * way.calls
        assert math.isfinite(record.loss)
    assert summary.parameters == plan.parameters == sum(map(math.prod, shapes))
    total = sum((Traffic.from_dict(record.traffic) for record in records), Traffic())
    assert plan.exact
    assert plan.calm.traffic == {kind: total.as_dict()[kind] for kind in ("mean", "gather")}
    assert (plan.calm.updates, plan.calm.epochs) == (summary.updates, summary.epochs)
    assert (plan.calm.floats_per_worker, plan.calm.collectives) == (summary.floats_per_worker, summary.collectives)


@pytest.mark.filterwarnings("ignore:.*not the official files")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("dataset", "model"), NETWORKS)
def test_a_short_real_run_sends_the_closed_form_and_what_was_planned(
    dataset: str, model: str, way: str, images: list[str], tmp_path: Path
) -> None:
    choices = [f"dataset={dataset}", f"model={model}", *images, f"results={tmp_path}"]
    config = compose([*choices, *SHORT, *WAYS[way].overrides])
    check_run(config, WAYS[way], cifar_shapes(CIFAR[dataset, model]))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("layers", [pytest.param(2, marks=pytest.mark.long), 3])
def test_a_short_real_run_of_the_language_model_does_too(
    layers: int, way: str, text: list[str], tmp_path: Path
) -> None:
    choices = ["dataset=wikitext2", "model=lstm", f"model.layers={layers}", *text, f"results={tmp_path}"]
    config = compose([*choices, *SHORT, *WAYS[way].overrides])
    settings = {name: value for name, value in config.dataset.settings.items() if name.endswith("_file")}
    vocabulary = len(wikitext2(config.dataset, **settings).vocabulary)
    check_run(config, WAYS[way], lstm_shapes(vocabulary, layers))


LEARN = ["workers=2", "batch.per_worker=4", "epochs=6", "scheduler=static", "lr_schedule.warmup_epochs=0", "quiet=true"]


def losses(config: RunConfig) -> list[float]:
    """Of every epoch of the finished run; with one update per epoch that is before this update."""
    launch(config)
    return [record.loss for record in RunDirectory(config.directory).read_epochs()]


@pytest.mark.filterwarnings("ignore:.*not the official files")
@pytest.mark.parametrize(("dataset", "model"), NETWORKS)
def test_the_loss_falls_on_a_few_real_images(dataset: str, model: str, images: list[str], tmp_path: Path) -> None:
    """Six updates of PowerSGD on eight images; fifteen for VGG, whose dropout is noisy: its best loss counts."""
    choices = [f"dataset={dataset}", f"model={model}", *images, "dataset.augment=false", f"results={tmp_path}"]
    longer = ["epochs=15"] if model == "vgg19bn" else []
    falling = losses(compose([*choices, *LEARN, *longer, "lr_schedule.base=0.005"]))
    assert falling[0] == pytest.approx(math.log(int(dataset.removeprefix("cifar"))), rel=0.35)
    reached = min(falling) if model == "vgg19bn" else falling[-1]
    assert reached < 0.8 * falling[0], falling


@pytest.mark.parametrize("layers", [2, pytest.param(3, marks=pytest.mark.long)])
def test_the_loss_falls_on_a_little_real_text(layers: int, text: list[str], tmp_path: Path) -> None:
    """Six times two updates of PowerSGD on eight streams of text."""
    choices = ["dataset=wikitext2", "model=lstm", f"model.layers={layers}", *text, f"results={tmp_path}"]
    falling = losses(compose([*choices, "dataset.limit_train=88", *LEARN]))
    assert falling[-1] < 0.8 * falling[0], falling
