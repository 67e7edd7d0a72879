"""Every number of the schema has a range, and no bound is one that nothing can keep."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, get_type_hints

import pytest
import torch

from accordion_bench.commands.cli import main
from accordion_bench.compressors import COMPRESSORS
from accordion_bench.config.compose import compose_values
from accordion_bench.config.parsing import from_mapping
from accordion_bench.config.schema import RunConfig
from accordion_bench.config.section import MOST, MOST_SEED
from accordion_bench.errors import UserError
from accordion_bench.training.gradients import clip_
from accordion_bench.workloads.datasets.base import check_limit
from accordion_bench.workloads.tasks.images import images_per_worker

VALUES = compose_values(["dataset=digits", "model=smallcnn"])
HUGE = [10**400, -(10**400), 1e308, -1e308, math.inf, -math.inf, math.nan, 2**64, MOST + 1]


def _numbers(kind: type, prefix: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """Paths of all settings of the schema that may be numbers, or lists of them."""
    hints = get_type_hints(kind)
    found = []
    for field in dataclasses.fields(kind):
        hint = hints[field.name]
        if dataclasses.is_dataclass(hint):
            found += _numbers(hint, (*prefix, field.name))
        elif any(number in str(hint) for number in ("int", "float")):
            found.append((*prefix, field.name))
    return found


NUMBERS = _numbers(RunConfig)


def _with(path: tuple[str, ...], value: object) -> dict[str, Any]:
    *outer, last = path
    values = dict(VALUES)
    place = values
    for key in outer:
        place[key] = dict(place[key])
        place = place[key]
    place[last] = [value, 1] if last == "multipliers" else [value] if isinstance(place[last], list) else value
    return values


def test_the_schema_has_numbers() -> None:
    assert {("epochs",), ("seed",), ("optimizer", "weight_decay"), ("compressor", "levels")} <= set(NUMBERS)


@pytest.mark.parametrize("path", NUMBERS, ids=".".join)
@pytest.mark.parametrize("value", HUGE, ids=lambda value: "digits" if type(value) is int else str(value))
def test_no_number_is_without_bounds(path: tuple[str, ...], value: float) -> None:
    if path == ("seed",) and 0 <= value <= MOST_SEED:
        return
    with pytest.raises(UserError) as caught:
        from_mapping(_with(path, value))
    assert ".".join(path) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("key", ["scheduler.eta", "scheduler.interval", "optimizer.weight_decay", "compressor.levels"])
@pytest.mark.parametrize("value", ["9" * 400, "1e308", "inf", "nan", "9" * 5000, "x" * 5000])
def test_long_values_are_cut_and_the_setting_is_named(key: str, value: str, capsys: pytest.CaptureFixture[str]) -> None:
    given = f"[{value}]" if key == "compressor.levels" else value
    assert main(["plan", "dataset=digits", "model=smallcnn", f"{key}={given}"]) == 2
    said = capsys.readouterr().err
    assert key in said
    assert said.count("\n") == 1
    assert max(map(len, said.split())) <= 81


@pytest.mark.parametrize("name", COMPRESSORS)
def test_levels_have_bounds_in_every_ladder(name: str) -> None:
    for level in HUGE:
        with pytest.raises(UserError, match=r"compressor\.levels"):
            COMPRESSORS[name].ladder.check([level])


def test_no_remedy_is_impossible() -> None:
    with pytest.raises(UserError, match="workers must be at most 3, one for each training image, got 4"):
        images_per_worker(3, 4, 1)
    with pytest.raises(UserError, match=r"batch\.per_worker must be at most 1 "):
        images_per_worker(4, 4, 2)
    with pytest.raises(UserError, match="of which there are none"):
        check_limit("dataset.limit_train", 1, 0, "training images")


@pytest.mark.parametrize("size", [1.0, 1e10, 1e20, 1e30])
def test_huge_gradients_are_clipped_to_the_norm_and_not_to_zero(size: float) -> None:
    generator = torch.Generator().manual_seed(0)
    direction = torch.randn(3, 1000, generator=generator)
    expected = direction / torch.linalg.vector_norm(direction, dim=1, keepdim=True)
    rows = direction * size
    clip_(rows, 1.0, dim=1)
    torch.testing.assert_close(rows, expected)
    for row in range(3):
        one = direction[row] * size
        clip_(one, 1.0)
        torch.testing.assert_close(one, expected[row])


def test_clipping_leaves_small_gradients_and_shows_what_is_not_finite() -> None:
    small = torch.full((4,), 1e-3)
    clip_(small, 1.0)
    assert torch.equal(small, torch.full((4,), 1e-3))
    for bad in (math.inf, math.nan):
        row = torch.tensor([bad, 1.0])
        clip_(row, 1.0)
        assert not row.isfinite().all()
