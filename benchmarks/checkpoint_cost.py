"""What safety costs at the paper's settings: seconds and bytes of a checkpoint, time to resume, size of the records.

    python benchmarks/checkpoint_cost.py                      ResNet-18, PowerSGD, 4 workers x 128 images, this CPU
    python benchmarks/checkpoint_cost.py --device cuda --updates 20
    python benchmarks/checkpoint_cost.py model=vgg19bn compressor=topk

Images are random, of the shape of CIFAR-10, so that no data is needed; that changes no time and no size. An epoch of
the run has as few updates as asked for; what 98 updates (the paper's epoch) and 300 epochs take is computed from it.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

from accordion_bench.config.compose import compose_values
from accordion_bench.config.parsing import from_mapping
from accordion_bench.config.schema import DatasetConfig, RunConfig
from accordion_bench.runs import checkpoint
from accordion_bench.runs.environment import describe_environment
from accordion_bench.runs.persistence import resume, save
from accordion_bench.runs.pulse import COST_LIMIT
from accordion_bench.runs.records import RunDirectory, to_line
from accordion_bench.runs.run import Place, build_trainer
from accordion_bench.training.record import EpochRecord
from accordion_bench.training.trainer import Trainer
from accordion_bench.workloads.datasets.base import ImageData

PAPER_UPDATES = 98  # ceil(50,000 / 4 / 128)
PAPER_EPOCHS = 300
WORKERS, BATCH = 4, 128


def random_images(config: DatasetConfig, *, updates: int = 1) -> ImageData:
    """As many images as an epoch of so many updates needs."""
    draw = np.random.default_rng(0)
    count = WORKERS * BATCH * updates
    return ImageData(
        train_images=draw.integers(0, 256, (count, 3, 32, 32), dtype=np.uint8),
        train_labels=draw.integers(0, 10, count),
        test_images=draw.integers(0, 256, (64, 3, 32, 32), dtype=np.uint8),
        test_labels=draw.integers(0, 10, 64),
        classes=10,
        mean=(0.5, 0.5, 0.5),
        std=(0.25, 0.25, 0.25),
        augment=True,
    )


def configuration(overrides: list[str], updates: int) -> RunConfig:
    """The paper's setting on random images."""
    data = ["dataset=custom", "dataset.name=checkpoint_cost:random_images", "dataset.kind=image"]
    paper = ["recipe=paper_cifar10", f"workers={WORKERS}", f"batch.per_worker={BATCH}", f"epochs={PAPER_EPOCHS}"]
    return from_mapping(compose_values([*data, f"+dataset.updates={updates}", *paper, *overrides]))


def one_epoch(trainer: Trainer) -> EpochRecord:
    """The next epoch's record."""
    return next(trainer.epochs())


def measure(config: RunConfig, device: str, saves: int, folder: Path) -> None:
    """Train an epoch, save, resume; print what it took."""
    place = Place(0, 1, device)
    trainer = build_trainer(config, place)
    one_epoch(trainer)  # warms up
    record = one_epoch(trainer)
    seconds = sum(value for name, value in record.seconds.items() if name != "evaluate") / record.updates
    directory = RunDirectory(folder)
    records = [record, record]
    times = []
    for _ in range(saves):
        started = time.perf_counter()
        save(config, trainer, directory, records)
        times.append(time.perf_counter() - started)
    directory.write_epochs(records)
    size = (folder / checkpoint.NAMES[0]).stat().st_size

    started = time.perf_counter()
    other = build_trainer(config, place)
    built = time.perf_counter()
    resume(config, other, directory, lambda text: print(text, file=sys.stderr))
    resumed = time.perf_counter()

    report(trainer, seconds, times, size, built - started, resumed - built, len(to_line(record)), config)


def report(
    trainer: Trainer,
    update_seconds: float,
    save_seconds: list[float],
    size: int,
    build_seconds: float,
    resume_seconds: float,
    line: int,
    config: RunConfig,
) -> None:
    """The table."""
    save_middle = statistics.median(save_seconds)
    epoch = PAPER_UPDATES * update_seconds
    between = max(60 * config.checkpoint.minutes, save_middle / COST_LIMIT)
    lines = [
        ("parameters", f"{trainer.layout.size:,}"),
        ("update of 4 x 128 images", f"{update_seconds:.2f} s"),
        ("epoch of 98 updates", f"{epoch:.0f} s"),
        ("checkpoint", f"{size / 1e6:.0f} MB"),
        (
            "to save it",
            f"{save_middle:.2f} s (median of {len(save_seconds)}, {min(save_seconds):.2f} to {max(save_seconds):.2f})",
        ),
        (
            "checkpoints within an epoch",
            f"every {between:.0f} s, {save_middle / (save_middle + between):.2%} of the time",
        ),
        ("at the end of every epoch", f"{save_middle / epoch:.2%} of the time; left out where above {COST_LIMIT:.0%}"),
        ("to read, check and restore it", f"{resume_seconds:.2f} s (and {build_seconds:.2f} s for data and network)"),
        ("record of an epoch", f"{line:,} bytes"),
        ("records of 300 epochs", f"{PAPER_EPOCHS * line / 1e6:.2f} MB"),
    ]
    width = max(len(name) for name, _ in lines)
    print("\n".join(f"{name:<{width}}  {value}" for name, value in lines))


def main() -> None:
    """Read the arguments, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("overrides", nargs="*", help="of the configuration")
    parser.add_argument("--device", default="cpu", help="cpu (default) or cuda:0")
    parser.add_argument("--updates", type=int, default=1, help="of the epoch that is timed (default: 1)")
    parser.add_argument("--saves", type=int, default=5, help="checkpoints that are timed (default: 5)")
    parser.add_argument("--folder", help="where to write (default: the temporary directory)")
    options = parser.parse_args()
    sys.path.insert(0, str(Path(__file__).parent))
    config = configuration(options.overrides, options.updates)
    environment = describe_environment(torch.device(options.device), [])
    print(f"{config.title}")
    print(
        f"{environment['device']}, {environment['cores']} cores, {environment['threads']} threads, "
        f"torch {environment['packages']['torch']}, Python {environment['python']}, load {os.getloadavg()[0]:.1f}"
    )
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        measure(config, options.device, options.saves, Path(folder))


if __name__ == "__main__":
    main()
