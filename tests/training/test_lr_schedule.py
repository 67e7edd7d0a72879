"""The learning-rate schedule against Table 7 of the paper and against the rule of the published code."""

from __future__ import annotations

import csv
import re

import pytest
from shared_data import shared

from accordion_bench.config.schema import LRScheduleConfig
from accordion_bench.training.lr_schedule import LRSchedule


def schedule(workers: int = 4, **changes: object) -> LRSchedule:
    settings = {
        "base": 0.1,
        "scale_with_workers": True,
        "warmup_epochs": 5,
        "warmup_delay": 0,
        "milestones": (150, 250),
        "factor": 0.1,
    }
    return LRSchedule(LRScheduleConfig(**{**settings, **changes}), workers)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def hyperparameters() -> dict[str, dict[str, str]]:
    with shared("reference", "paper_hparams.csv").open(encoding="utf-8") as file:
        return {row["hyperparameter"]: row for row in csv.DictReader(file)}


def published_code(epoch: int, decays_after: tuple[int, int], base: float, workers: int) -> float:
    """What the authors' loop uses: `base` in the first epoch, then their rule on the index of the epoch before."""
    if epoch == 0:
        return base
    before = epoch - 1
    decays = sum(before > last for last in decays_after)
    return base * (1 + (workers - 1) * min(before / 5, 1)) / 10**decays


def test_the_text_warms_up_from_a_tenth_to_four_tenths_over_five_epochs() -> None:
    rates = [schedule().rate(epoch) for epoch in range(8)]
    assert rates == pytest.approx([0.1, 0.16, 0.22, 0.28, 0.34, 0.4, 0.4, 0.4])


def test_the_text_divides_by_ten_at_epochs_150_and_250() -> None:
    rates = [schedule().rate(epoch) for epoch in (149, 150, 249, 250, 299)]
    assert rates == pytest.approx([0.4, 0.04, 0.04, 0.004, 0.004])


def test_delayed_warm_up_and_milestones_are_the_published_code_for_cifar() -> None:
    ours = schedule(warmup_delay=1, milestones=(152, 252))
    for epoch in range(300):
        assert ours.rate(epoch) == pytest.approx(published_code(epoch, (150, 250), 0.1, 4)), epoch


def test_delayed_warm_up_and_milestones_are_the_published_code_for_the_language_model() -> None:
    ours = schedule(base=2.5, warmup_delay=1, milestones=(62, 81))
    for epoch in range(90):  # its second test is >= 80, hence 79 here
        assert ours.rate(epoch) == pytest.approx(published_code(epoch, (60, 79), 2.5, 4)), epoch


def test_reference_table_names_the_same_epochs(hyperparameters: dict[str, dict[str, str]]) -> None:
    decay = hyperparameters["LR Decay"]
    assert [int(n) for n in re.findall(r"epoch (\d+) and (\d+)", decay["cifar10_and_cifar100"])[0]] == [150, 250]
    in_code = decay["in_authors_code"]
    for base, milestones, pattern in [
        (0.1, (152, 252), r"first decayed epochs are (\d+) and (\d+)"),
        (2.5, (62, 81), r"\(LM: (\d+) and (\d+)\)"),
    ]:
        ours = schedule(base=base, warmup_delay=1, milestones=milestones)
        falls = [e for e in range(1, 300) if ours.rate(e) < ours.rate(e - 1)]
        assert falls == [int(n) for n in re.findall(pattern, in_code)[0]]
    warm_up = hyperparameters["LR warmup"]["in_authors_code"]
    low, also_low, full = (int(n) for n in re.findall(r"epochs (\d) and (\d) run at 0.1, epoch (\d)", warm_up)[0])
    ours = schedule(warmup_delay=1)
    assert ours.rate(low) == ours.rate(also_low) == 0.1
    assert ours.rate(full) == 0.4 > ours.rate(full - 1)


def test_without_warm_up_the_full_rate_holds_from_the_start() -> None:
    assert schedule(warmup_epochs=0).rate(0) == pytest.approx(0.4)
    assert schedule(warmup_epochs=0, warmup_delay=1).rate(0) == pytest.approx(0.4)


def test_one_worker_or_no_scaling_stays_at_the_base_rate() -> None:
    for ours in (schedule(workers=1), schedule(workers=8, scale_with_workers=False)):
        assert [ours.rate(epoch) for epoch in (0, 3, 100)] == [0.1, 0.1, 0.1]


def test_no_milestones_means_no_decay_and_repeated_ones_decay_twice() -> None:
    assert schedule(milestones=()).rate(10_000) == pytest.approx(0.4)
    assert schedule(milestones=(20, 20)).rate(20) == pytest.approx(0.004)


def test_the_rate_is_the_same_float_wherever_the_schedule_is_flat() -> None:
    """Schedulers call any strict decrease a fall, so rounding must not make one."""
    rates = [schedule(factor=0.3).rate(epoch) for epoch in range(300)]
    assert [e for e in range(1, 300) if rates[e] < rates[e - 1]] == [150, 250]
