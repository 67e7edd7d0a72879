"""A real Trainer on scikit-learn's digits, small enough to run many times, in float64."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import Any

import torch
import yaml
from dataset_cases import dataset_config
from places import REPOSITORY
from torch import Tensor, nn

from accordion_bench.compressors import build_compressor
from accordion_bench.config.schema import LRScheduleConfig, OptimizerConfig
from accordion_bench.schedulers import build_scheduler
from accordion_bench.schedulers.base import Problem
from accordion_bench.training.aggregator import Aggregator
from accordion_bench.training.communicator import Communicator
from accordion_bench.training.compressor import Compressor
from accordion_bench.training.gradients import Layout
from accordion_bench.training.lr_schedule import LRSchedule
from accordion_bench.training.optimizer import build_optimizer
from accordion_bench.training.probes import Probes
from accordion_bench.training.seeds import private_randomness, seed_for
from accordion_bench.training.statistics import GradientSum
from accordion_bench.training.trainer import Trainer
from accordion_bench.workloads.datasets.base import ImageData
from accordion_bench.workloads.datasets.digits import digits
from accordion_bench.workloads.tasks.evaluation import Share
from accordion_bench.workloads.tasks.images import ImageClassification

CONF = REPOSITORY / "conf"
TEST_IMAGES = 60


class SmallNet(nn.Module):
    """Convolutions (two of one shape), BatchNorm, dropout and a linear layer on 1 x 8 x 8 images, in float64."""

    def __init__(self, plain: bool = False) -> None:
        super().__init__()
        normal = (lambda n: nn.Identity()) if plain else nn.BatchNorm2d
        self.features = nn.Sequential(
            nn.Conv2d(1, 6, 3, bias=plain),
            normal(6),
            nn.ReLU(),
            nn.Conv2d(6, 6, 3, padding=1, bias=plain),
            normal(6),
            nn.ReLU(),
            nn.Conv2d(6, 6, 3, stride=2, bias=plain),
            nn.Tanh(),
        )
        self.dropout = nn.Dropout(0.0 if plain else 0.2)
        self.head = nn.Linear(24, 10)
        self.double()

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.dropout(self.features(images.double()).flatten(1)))


@dataclass(frozen=True)
class Setting:
    """What differs between the runs of the tests; the rest is in make_trainer."""

    compressor: str = "powersgd"
    levels: tuple[float, ...] = (1, 2)
    error_feedback: bool = True
    compressor_settings: dict[str, Any] = field(default_factory=dict)
    scheduler: str = "static"
    scheduler_settings: dict[str, Any] = field(default_factory=dict)
    statistic: str = "local"
    multiples: tuple[int, ...] = (1,)
    workers: int = 4
    batch: int = 8
    images: int = 160
    epochs: int = 2
    seed: int = 7
    rate: float = 0.1
    clip_norm: float | None = None
    skip_nonfinite: bool = False
    plain: bool = False
    optimizer: str = "nesterov"


def setting_of(name: str, **changes: Any) -> Setting:
    """A registered compressor with the levels and settings of its configuration file."""
    own = yaml.safe_load((CONF / "compressor" / f"{name}.yaml").read_text())
    own.pop("name")
    levels, feedback = tuple(own.pop("levels")), own.pop("error_feedback")
    return Setting(name, levels, feedback, own, **changes)


@functools.cache
def data(images: int) -> ImageData:
    """The first digits, with the mean and deviation of all."""
    config = dataset_config("digits", "image")
    return digits(config).limited(images, TEST_IMAGES)


def make_trainer(setting: Setting, process: int = 0, processes: int = 1) -> Trainer:
    """A trainer of this process's workers."""
    communicator = Communicator(setting.workers // processes, process, processes)
    share = Share(setting.batch, setting.workers, setting.seed, "every_epoch", torch.device("cpu"))
    with private_randomness(seed_for(setting.seed, "model"), torch.device("cpu")):
        model = SmallNet(setting.plain)
    layout = Layout.of(model)

    def make_compressor() -> Compressor:
        return build_compressor(
            setting.compressor,
            layout,
            setting.seed,
            error_feedback=setting.error_feedback,
            settings=setting.compressor_settings,
        )

    compressor = make_compressor()
    parameters = dict(model.named_parameters())
    return Trainer(
        task=ImageClassification(data(setting.images), share),
        model=model,
        layout=layout,
        aggregator=Aggregator(compressor, error_feedback=setting.error_feedback),
        scheduler=build_scheduler(setting.scheduler, setting.scheduler_settings, setting.statistic),
        problem=_problem(setting, layout, compressor),
        levels=setting.levels,
        lr_schedule=LRSchedule(
            LRScheduleConfig(
                base=setting.rate,
                scale_with_workers=False,
                warmup_epochs=0,
                warmup_delay=0,
                milestones=(3,),
                factor=0.1,
            ),
            setting.workers,
        ),
        optimizer=build_optimizer(
            [parameters[slot.name] for slot in layout.slots],
            OptimizerConfig(kind=setting.optimizer, momentum=0.9, weight_decay=1e-4, clip_norm=setting.clip_norm),
        ),
        communicator=communicator,
        seed=setting.seed,
        statistic=GradientSum(
            layout, setting.statistic == "local", communicator, torch.zeros(layout.size, dtype=torch.float64)
        ),
        probes=Probes(make_compressor),
        clip_norm=setting.clip_norm,
        skip_nonfinite=setting.skip_nonfinite,
    )


def _problem(setting: Setting, layout: Layout, compressor: Compressor) -> Problem:
    def uniform(level: float) -> list[float]:
        return [level] * len(layout.layers)

    return Problem(
        layers=tuple(slot.name for slot in layout.layers),
        rungs=len(setting.levels),
        multiples=setting.multiples,
        epochs=setting.epochs,
        floats_per_step=tuple(compressor.cost(uniform(level)).floats_per_worker for level in setting.levels),
        words_LK=tuple(
            tuple(float(compressor.layer_words(slot, level)) for level in setting.levels) for slot in layout.layers
        ),
        sizes_L=tuple(slot.size for slot in layout.layers),
    )


def parameters_of(trainer: Trainer) -> Tensor:
    """All parameters, in the layout's order, in one vector."""
    return torch.cat([parameter.detach().flatten() for parameter in trainer.binding.parameters])
