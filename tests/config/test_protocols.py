"""protocol=paper against protocol=authors_code: every difference is one named setting, and each does what it says."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from shared_data import shared
from torch import Tensor

from accordion_bench.config.compose import compose
from accordion_bench.config.schema import RunConfig, to_mapping
from accordion_bench.runs.run import Place, build_trainer
from accordion_bench.schedulers import build_scheduler
from accordion_bench.schedulers.accordion import Accordion
from accordion_bench.training.lr_schedule import LRSchedule
from accordion_bench.training.optimizer import build_optimizer
from accordion_bench.training.task import Task
from accordion_bench.workloads.tasks import build_task

BOTH = {  # setting -> (the paper's text, the published code)
    "protocol": ("paper", "authors_code"),
    "shuffle": ("every_epoch", "once"),
    "lr_schedule.warmup_delay": (0, 1),
}
IMAGES = BOTH | {
    "optimizer.kind": ("nesterov", "heavy_ball"),
    "lr_schedule.milestones": ([150, 250], [152, 252]),
}
CIFAR10 = IMAGES | {
    "dataset.mean": ([0.49, 0.48, 0.45], [125.3 / 255, 123.0 / 255, 113.9 / 255]),
    "dataset.std": ([0.25, 0.24, 0.26], [63.0 / 255, 62.1 / 255, 66.7 / 255]),
}
CIFAR100 = IMAGES | {
    "dataset.mean": ([0.49, 0.48, 0.45], [0.5070751592371323, 0.48654887331495095, 0.4409178433670343]),
    "dataset.std": ([0.25, 0.24, 0.26], [0.2673342858792401, 0.2564384629170883, 0.27615047132568404]),
    "dataset.rotate_degrees": (0, 15),
}
TEXT = BOTH | {
    "optimizer.kind": ("nesterov", "heavy_ball_plus_gradient"),
    "lr_schedule.milestones": ([60, 80], [62, 81]),
    "dataset.published_tokens": (False, True),
}
TOPK = {"aggregate": ("mean", "sum"), "compressor.error_feedback": (True, False)}
ACCORDION = {"scheduler.check": ("paper", "authors_code")}
EVERY_5 = {"scheduler.interval": (10, 5)}

CASES = [
    (["dataset=cifar10"], CIFAR10 | ACCORDION),
    (["dataset=cifar10", "scheduler=static"], CIFAR10),
    (["dataset=cifar10", "compressor=topk"], CIFAR10 | ACCORDION | TOPK),
    (["dataset=cifar10", "compressor=none", "batch=accordion"], CIFAR10 | ACCORDION),
    (["dataset=cifar10", "compressor=dgc", "scheduler=static"], CIFAR10 | {"optimizer.kind": None}),
    (["dataset=cifar100", "compressor=topk", "model=googlenet"], CIFAR100 | ACCORDION | TOPK),
    (["dataset=wikitext2", "model=lstm", "compressor=topk"], TEXT | ACCORDION | TOPK | EVERY_5),
    (["dataset=wikitext2", "model=lstm", "scheduler=static"], TEXT),
]


def flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Dotted keys."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        found |= flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return found


@pytest.mark.parametrize(("choices", "expected"), CASES)
def test_the_protocols_differ_in_these_settings_and_in_no_other(choices: list[str], expected: dict[str, Any]) -> None:
    paper, code = (flat(to_mapping(compose([*choices, f"protocol={name}"]))) for name in ("paper", "authors_code"))
    assert paper.keys() == code.keys()
    differ = {key: (paper[key], code[key]) for key in paper if paper[key] != code[key]}
    wanted = {key: values for key, values in expected.items() if values is not None}
    assert differ.keys() == wanted.keys()
    for key, values in wanted.items():
        for given, value in zip(differ[key], values, strict=True):
            assert given == (pytest.approx(value, rel=1e-12) if isinstance(value, list) else value), key


@pytest.mark.parametrize(("choices", "expected"), CASES)
def test_every_difference_can_be_set_by_its_name(choices: list[str], expected: dict[str, Any]) -> None:
    """The paper's protocol with all these settings given one by one is the other protocol."""
    code = compose([*choices, "protocol=authors_code"])
    values = flat(to_mapping(code))
    by_hand = [f"{key}={values[key]}".replace(" ", "") for key in expected if key != "protocol"]
    other = compose([*choices, *by_hand])
    assert {**to_mapping(other), "protocol": "authors_code"} == to_mapping(code)


# What the settings do


def task_of(config: RunConfig) -> Task:
    batch, workers = config.batch.per_worker, config.workers
    return build_task(
        config.dataset, batch_per_worker=batch, workers=workers, seed=1, device="cpu", shuffle=config.shuffle
    )


@pytest.fixture
def white(tmp_path: Path) -> list[str]:
    """Overrides for forty white images with numbered labels, in the layouts of both CIFAR sets."""
    for folder, names, key in (
        ("cifar-10-batches-py", [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"], "labels"),
        ("cifar-100-python", ["train", "test"], "fine_labels"),
    ):
        (tmp_path / folder).mkdir()
        for name in names:
            count = 40 // (len(names) - 1)
            record = {
                "data": np.full((count, 3072), 255, np.uint8),
                key: list(range(count)) if count < 10 else [0] * 40,
            }
            (tmp_path / folder / name).write_bytes(pickle.dumps(record))
    return [f"dataset.root={tmp_path}", "dataset.verify=false", "batch.per_worker=10", "dataset.crop_padding=0"]


@pytest.mark.filterwarnings("ignore:.*not the official files")
@pytest.mark.parametrize(("name", "settings"), [("cifar10", CIFAR10), ("cifar100", CIFAR100)])
@pytest.mark.parametrize("protocol", ["paper", "authors_code"])
def test_a_white_pixel_is_normalised_by_the_protocols_constants(
    name: str, settings: dict[str, Any], protocol: str, white: list[str]
) -> None:
    config = compose([f"dataset={name}", f"protocol={protocol}", *white, "dataset.rotate_degrees=0"])
    images, _ = next(iter(task_of(config).batches(0, 0)))
    which = protocol == "authors_code"
    mean, std = (np.array(settings[f"dataset.{key}"][which]) for key in ("mean", "std"))
    assert images.shape == (10, 3, 32, 32)
    expected = np.broadcast_to(((1 - mean) / std)[:, None, None], images.shape)
    np.testing.assert_allclose(images.numpy(), expected, rtol=1e-5)


@pytest.mark.filterwarnings("ignore:.*not the official files")
def test_only_the_published_code_turns_cifar100_and_never_beyond_15_degrees(white: list[str]) -> None:
    dark = {}
    for protocol in ("paper", "authors_code"):
        as_it_is = ["dataset.mean=[0,0,0]", "dataset.std=[1,1,1]"]
        config = compose(["dataset=cifar100", f"protocol={protocol}", *white, *as_it_is])
        images = torch.cat([images for images, _ in task_of(config).batches(0, 0)])
        dark[protocol] = (images[:, 0] == 0).float()
    assert dark["paper"].sum() == 0
    turned = dark["authors_code"]
    assert (turned.flatten(1).sum(1) > 0).sum() >= 7  # of ten; what is left turned by less than a pixel
    # Two squares of side s with one centre, turned by t against each other, share 2 s^2 / (1 + sin t + cos t).
    uncovered = 32**2 * (1 - 2 / (1 + np.sin(np.radians(15)) + np.cos(np.radians(15))))
    assert 0.5 * uncovered < turned.flatten(1).sum(1).max() < 1.1 * uncovered
    centre = turned[:, 8:24, 8:24]  # inside the circle that every angle keeps
    assert centre.sum() == 0


def test_one_permutation_for_the_whole_run_or_a_new_one_every_epoch() -> None:
    for protocol, same in (("paper", False), ("authors_code", True)):
        task = task_of(compose(["dataset=digits", "model=smallcnn", f"protocol={protocol}"]))
        first, second = (torch.cat([labels for _, labels in task.batches(epoch, 2)]) for epoch in (0, 1))
        assert torch.equal(first, second) == same


def test_topk_of_the_published_code_sums_and_forgets() -> None:
    updates, memories = {}, {}
    for protocol in ("paper", "authors_code"):
        digits = ["dataset=digits", "model=smallcnn", "compressor=topk", "scheduler=static", "compressor.levels=[0.1]"]
        trainer = build_trainer(compose([*digits, f"protocol={protocol}"]), Place(0, 1, "cpu"))
        trainer.aggregator.compressor.set_levels([0.1] * len(trainer.layout.layers))
        gradients = torch.randn(trainer.grads_HN.shape, generator=torch.Generator().manual_seed(0))
        update, finite = trainer.aggregator.reduce(gradients.clone(), trainer.communicator)
        assert finite
        updates[protocol], memories[protocol] = update.clone(), trainer.aggregator.memory_HN
        dense = trainer.layout.dense.start
    torch.testing.assert_close(updates["authors_code"][:dense], 4 * updates["paper"][:dense])
    torch.testing.assert_close(updates["authors_code"][dense:], updates["paper"][dense:])
    assert memories["authors_code"] is None
    remembered = memories["paper"]
    assert remembered is not None
    torch.testing.assert_close((gradients - remembered).mean(0)[:dense], updates["paper"][:dense])


@pytest.mark.parametrize(
    ("choices", "first", "second"),
    [
        # From rest, with gradients of 1 and momentum 0.9, the buffer is 1, then 1.9. Nesterov steps on g + 0.9 buffer,
        # heavy ball on the buffer, the published language model on g + buffer.
        (["dataset=cifar10", "protocol=paper"], 1.9, 1 + 0.9 * 1.9),
        (["dataset=cifar10", "protocol=authors_code"], 1.0, 1.9),
        (["dataset=wikitext2", "model=lstm", "protocol=paper"], 1.9, 1 + 0.9 * 1.9),
        (["dataset=wikitext2", "model=lstm", "protocol=authors_code"], 2.0, 2.9),
    ],
)
def test_steps_of_the_optimisers(choices: list[str], first: float, second: float) -> None:
    parameter = torch.nn.Parameter(torch.zeros(1, dtype=torch.float64))
    config = compose([*choices, "optimizer.weight_decay=0"])
    optimizer = build_optimizer([parameter], config.optimizer)
    taken = []
    for _ in range(2):
        optimizer.param_groups[0]["lr"] = 1.0
        before = parameter.item()
        parameter.grad = torch.ones_like(parameter)
        optimizer.step()
        taken.append(before - parameter.item())
    assert taken == pytest.approx([first, second])


@pytest.mark.parametrize(
    ("choices", "falls", "warm"),
    [
        (["protocol=paper"], [150, 250], 5),
        (["protocol=authors_code"], [152, 252], 6),
        (["protocol=paper", "dataset=wikitext2", "model=lstm"], [60, 80], 5),
        (["protocol=authors_code", "dataset=wikitext2", "model=lstm"], [62, 81], 6),
    ],
)
def test_epochs_at_which_the_learning_rate_falls_and_is_full(choices: list[str], falls: list[int], warm: int) -> None:
    config = compose(choices)
    schedule = LRSchedule(config.lr_schedule, config.workers)
    rates = [schedule.rate(epoch) for epoch in range(config.epochs)]
    assert [epoch for epoch in range(1, config.epochs) if rates[epoch] < rates[epoch - 1]] == falls
    assert rates[warm] == max(rates) == 4 * rates[0]
    assert rates[warm - 1] < rates[warm]


@pytest.mark.parametrize(
    ("choices", "compared"),
    [
        (["protocol=paper"], [9, 19, 29]),
        (["protocol=authors_code"], [0, 10, 20, 30]),
        (["protocol=paper", "dataset=wikitext2", "model=lstm"], [9, 19, 29]),
        (["protocol=authors_code", "dataset=wikitext2", "model=lstm"], [0, 5, 10, 15, 20, 25, 30]),
    ],
)
def test_epochs_after_which_accordion_compares(choices: list[str], compared: list[int]) -> None:
    config = compose(choices)
    scheduler = build_scheduler(config.scheduler.name, config.scheduler.settings, config.statistic)
    assert isinstance(scheduler, Accordion)
    assert [epoch for epoch in range(31) if scheduler.detector.compares(epoch)] == compared
    assert config.statistic == "local"  # worker 0's own gradient, before compression and without its memory


def text_of(tmp_path: Path, protocol: str) -> list[str]:
    """Overrides for real text."""
    train, test = (shared("data", "wikitext-2", f"wiki.{name}.tokens") for name in ("valid", "test"))
    lines = {"train": train, "valid": test, "test": test}
    for split, source in lines.items():
        text = source.read_text(encoding="utf-8").splitlines(keepends=True)
        cut = text[:400] if split == "train" else text[400:600]
        (tmp_path / f"{split}.txt").write_text("".join(cut), encoding="utf-8")
    files = [f"dataset.{split}_file={tmp_path / f'{split}.txt'}" for split in lines]
    return ["dataset=wikitext2", "model=lstm", f"protocol={protocol}", f"dataset.root={tmp_path}", *files]


@pytest.mark.parametrize("protocol", ["paper", "authors_code"])
def test_the_language_model_reads_30_steps_and_clips_to_04_before_compression(tmp_path: Path, protocol: str) -> None:
    small = ["model.hidden=16", "model.layers=1", "batch.per_worker=4", "workers=2", "compressor=topk", "epochs=1"]
    choices = [*text_of(tmp_path, protocol), *small, "dataset.limit_train=800", "dataset.limit_test=50"]
    norms: dict[str, list[float]] = {}
    for clipping in ("as the protocol has it", "none"):
        config = compose(choices if clipping != "none" else [*choices, "optimizer.clip_norm=null"])
        trainer = build_trainer(config, Place(0, 1, "cpu"))
        inputs, _ = next(iter(trainer.task.batches(0, 0)))
        assert inputs.shape == (30, 4)
        with torch.no_grad():
            for parameter in trainer.model.parameters():
                parameter.mul_(20)  # for gradients that are large enough
        reduce, seen = trainer.aggregator.reduce, norms.setdefault(clipping, [])

        def watching(grads_HN: Tensor, communicator: Any, reduce: Any = reduce, seen: list[float] = seen) -> Any:
            seen.extend(torch.linalg.vector_norm(grads_HN, dim=1).tolist())
            return reduce(grads_HN, communicator)

        trainer.aggregator.reduce = watching  # type: ignore[method-assign]
        next(trainer.epochs())
        assert len(seen) == 2 * trainer.task.batches_per_epoch
    free, clipped = norms["none"], norms["as the protocol has it"]
    assert min(free[:2]) > 0.4  # both workers in the first update
    assert clipped[:2] == pytest.approx([0.4, 0.4], rel=1e-4)
    assert max(clipped) < 0.4001


def test_the_published_tokens_have_the_blanks_at_the_beginning_of_lines(tmp_path: Path) -> None:
    vocabularies, tokens = {}, {}
    for protocol in ("paper", "authors_code"):
        config = compose([*text_of(tmp_path, protocol), "batch.per_worker=1", "workers=1"])
        task = task_of(config)
        vocabularies[protocol] = task.facts["vocabulary"]
        tokens[protocol] = sum(task.size(batch) for batch in task.batches(0, 0)) + 1
    text = (tmp_path / "train.txt").read_text(encoding="utf-8")
    assert vocabularies["authors_code"] >= vocabularies["paper"] + 2  # "<pad>" and the blank
    assert tokens["authors_code"] - tokens["paper"] == pytest.approx(text.count("\n"), rel=0.02)  # one a line
