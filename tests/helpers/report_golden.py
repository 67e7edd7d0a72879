"""The stored records behind tests/golden; python tests/helpers/report_golden.py makes its files anew (read them)."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

from places import TESTS
from report_records import dense, edit_json, gathered, table_of, write_run

from accordion_bench.report.tables.make import make_tables
from accordion_bench.sweeps.table import Row, RowRuns, Table
from accordion_bench.training.traffic import Count, Traffic

GOLDEN = TESTS / "golden"
STEPS, EPOCHS = 98, 300
RANK_1, RANK_2 = 45_935, 82_260  # floats per step of ResNet-18


def golden_tables(runs: Path) -> list[tuple[Table, list[RowRuns]]]:
    """A table at paper scale in which nearly everything goes wrong, and one at reduced scale in which nothing does."""
    return [paper_table(runs / "paper"), reduced_table(runs / "reduced")]


def paper_table(runs: Path) -> tuple[Table, list[RowRuns]]:
    rank_2 = {seed: runs / "rank-2" / f"seed-{seed}" for seed in (1, 2, 3)}
    for seed, final in zip((1, 2, 3), (94.2, 94.5, 94.9), strict=True):
        _paper_run(rank_2[seed], final, lambda epoch: RANK_2, seconds=11.5 + seed / 10)
    rank_1 = {seed: runs / "rank-1" / f"seed-{seed}" for seed in (1, 2, 3)}
    for seed, final in zip((1, 3), (93.9, 94.2), strict=True):
        _paper_run(rank_1[seed], final, lambda epoch: RANK_1, seconds=11.2)
    message = "diverged: gradient became non-finite in epoch 1, step 7, layer conv1.weight"
    write_run(rank_1[2], [10.0], finished=False, failure={"state": "diverged", "message": message})
    accordion = {seed: runs / "accordion" / f"seed-{seed}" for seed in (1, 2, 3)}
    for seed, final in zip((1, 2, 3), (94.3, 94.6, 94.5), strict=True):
        words = partial(_words, low_epochs=60 + 10 * seed)
        _paper_run(accordion[seed], final, words, seconds=11.3, skipped=2 if seed == 3 else 0)

    nothing = {seed: runs / "vgg-4" / f"seed-{seed}" for seed in (1, 2, 3)}
    trouble = {seed: runs / "vgg-1" / f"seed-{seed}" for seed in (1, 2, 3)}
    write_run(trouble[1], [10.0, 11.0], finished=False)
    write_run(trouble[2], [10.0], finished=False, failure={"state": "failed", "message": "worker 3 was killed"})
    _paper_run(trouble[3], 70.0, lambda epoch: 70_000)
    edit_json(trouble[3] / "summary.json", final=93.4)
    one = {seed: runs / "vgg-accordion" / f"seed-{seed}" for seed in (1, 2, 3)}
    _paper_run(one[1], 92.9, lambda epoch: 100_000)
    rows = [
        (Row("ResNet-18", "rank 2", "low", (), _published("ResNet-18", "rank2")), rank_2),
        (Row("ResNet-18", "rank 1", "high", (), _published("ResNet-18", "rank1")), rank_1),
        (Row("ResNet-18", "Accordion", "accordion", (), _published("ResNet-18", "accordion")), accordion),
        (Row("VGG-19bn", "rank 4", "low", (), _published("VGG-19bn", "rank4")), nothing),
        (Row("VGG-19bn", "rank 1", "high", (), _published("VGG-19bn", "rank1")), trouble),
        (Row("VGG-19bn", "Accordion", "accordion", (), _published("VGG-19bn", "accordion")), one),
    ]
    return table_of(rows, name="paper", title="Accordion with PowerSGD on CIFAR-10", number=1, scale="paper")


def reduced_table(runs: Path) -> tuple[Table, list[RowRuns]]:
    finals = {"none": (97.0, 97.5), "Top-K 10 %": (95.0, 96.0), "long | other": (96.0, 96.1)}
    directories = {label: {seed: runs / label[:4] / f"seed-{seed}" for seed in (1, 2)} for label in finals}
    for label, values in finals.items():
        for seed, final in zip((1, 2), values, strict=True):
            traffic = gathered if label.startswith("Top-K") else dense
            length = [50.0, 60.0] if label.startswith("long") else [50.0]
            write_run(directories[label][seed], [*length, final], traffic=traffic, seconds=0.5 + seed / 4)
    roles = dict(zip(finals, ("low", "high", "other"), strict=True))
    rows = [(Row("smallcnn", label, roles[label], ()), directories[label]) for label in finals]
    return table_of(rows, name="reduced", title="Top-K on digits", scale="digits, 2 epochs")


def _words(epoch: int, low_epochs: int) -> int:
    """Floats of a step: rank 2 at first, then rank 1."""
    return RANK_2 if epoch < low_epochs else RANK_1


def _paper_run(
    directory: Path, final: float, words: Callable[[int], int], seconds: float = 11.0, skipped: int = 0
) -> None:
    values = [final - 40 * (EPOCHS - 1 - epoch) / EPOCHS for epoch in range(EPOCHS)]

    def traffic(epoch: int) -> Traffic:
        return Traffic(mean=Count(2 * STEPS, words(epoch) * STEPS, 4 * words(epoch) * STEPS))

    write_run(directory, values, traffic=traffic, seconds=seconds, skipped=skipped, dataset={"name": "cifar10"})


def _published(network: str, level: str) -> dict[str, str | int]:
    return {"table": 1, "dataset": "CIFAR-10", "network": network, "level": level}


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        make_tables(golden_tables(Path(folder)), output=GOLDEN)
