"""The configuration: the paper's defaults, both protocols, round trips, and what the hash covers."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from accordion_bench.compressors import COMPRESSORS
from accordion_bench.config.compose import compose, conf_directory, expand, groups
from accordion_bench.config.parsing import from_mapping, from_yaml
from accordion_bench.config.schema import RunConfig, to_mapping, to_yaml
from accordion_bench.errors import UserError
from accordion_bench.schedulers import SCHEDULERS
from accordion_bench.training import network
from accordion_bench.training.lr_schedule import LRSchedule
from accordion_bench.workloads.datasets import DATASETS
from accordion_bench.workloads.models import MODELS

UNSEEN = {"seed", "launch", "checkpoint", "network", "results", "quiet"}  # changes no result


@pytest.fixture(scope="module")
def default() -> RunConfig:
    return compose()


def rates(config: RunConfig) -> list[float]:
    schedule = LRSchedule(config.lr_schedule, config.workers)
    return [schedule.rate(epoch) for epoch in range(config.epochs)]


def test_the_defaults_are_the_papers_setting(default: RunConfig) -> None:
    """Section 5.1 and Table 7 of the paper."""
    assert (default.dataset.name, default.model.name) == ("cifar10", "resnet18")
    assert (default.workers, default.batch.per_worker, default.batch.multipliers) == (4, 128, (1,))
    assert default.epochs == 300
    assert (default.optimizer.kind, default.optimizer.momentum, default.optimizer.weight_decay) == (
        "nesterov",
        0.9,
        1e-4,
    )
    assert default.optimizer.clip_norm is None
    assert (default.compressor.name, default.compressor.levels, default.compressor.error_feedback) == (
        "powersgd",
        (1, 2),
        True,
    )
    assert default.scheduler.name == "accordion"
    assert (default.scheduler.settings["eta"], default.scheduler.settings["interval"]) == (0.5, 10)
    by_epoch = rates(default)
    assert by_epoch[:6] == pytest.approx([0.1, 0.16, 0.22, 0.28, 0.34, 0.4])
    assert (by_epoch[149], by_epoch[150], by_epoch[250]) == pytest.approx((0.4, 0.04, 0.004))


def test_the_authors_code_differs_where_design_section_7_says_so() -> None:
    config = compose(["protocol=authors_code", "compressor=topk"])
    assert config.optimizer.kind == "heavy_ball"
    assert config.shuffle == "once"
    assert (config.aggregate, config.compressor.error_feedback) == ("sum", False)
    by_epoch = rates(config)
    assert by_epoch[:3] == pytest.approx([0.1, 0.1, 0.16])
    assert (by_epoch[5], by_epoch[6]) == pytest.approx((0.34, 0.4))
    assert [epoch for epoch in range(1, 300) if by_epoch[epoch] < by_epoch[epoch - 1]] == [152, 252]
    assert config.scheduler.settings["check"] == "authors_code"
    with_powersgd = compose(["protocol=authors_code"])
    assert (with_powersgd.aggregate, with_powersgd.compressor.error_feedback) == ("mean", True)


def test_the_language_model_of_both_protocols() -> None:
    paper = compose(["dataset=wikitext2", "model=lstm"])
    code = compose(["dataset=wikitext2", "model=lstm", "protocol=authors_code"])
    for config in (paper, code):
        assert (config.epochs, config.lr_schedule.base, config.optimizer.weight_decay) == (90, 2.5, 0)
        assert config.dataset.settings["bptt"] == 30
    assert [epoch for epoch in range(1, 90) if rates(paper)[epoch] < rates(paper)[epoch - 1]] == [60, 80]
    assert [epoch for epoch in range(1, 90) if rates(code)[epoch] < rates(code)[epoch - 1]] == [62, 81]
    assert (code.optimizer.kind, code.optimizer.clip_norm) == ("heavy_ball_plus_gradient", 0.4)
    assert (paper.scheduler.settings["interval"], code.scheduler.settings["interval"]) == (10, 5)


def test_cifar100_is_rotated_by_the_authors_code_only() -> None:
    assert compose(["dataset=cifar100"]).dataset.settings["rotate_degrees"] == 0
    assert compose(["dataset=cifar100", "protocol=authors_code"]).dataset.settings["rotate_degrees"] == 15


def test_a_setting_on_the_command_line_beats_the_protocol() -> None:
    config = compose(
        ["protocol=authors_code", "compressor=topk", "compressor.error_feedback=true", "shuffle=every_epoch"]
    )
    assert (config.compressor.error_feedback, config.shuffle) == (True, "every_epoch")


@pytest.mark.parametrize(
    ("group", "registry"),
    [("compressor", COMPRESSORS), ("scheduler", SCHEDULERS), ("model", MODELS), ("dataset", DATASETS)],
)
def test_every_registered_name_has_its_file(group: str, registry: dict[str, Any]) -> None:
    assert set(groups()[group]) >= {*registry, "custom"}
    for name in registry:
        assert yaml.safe_load((conf_directory() / group / f"{name}.yaml").read_text())["name"] == name


def test_every_network_has_its_file() -> None:
    assert set(groups()["network"]) == set(network.NETWORKS)


@pytest.mark.parametrize("name", sorted(COMPRESSORS))
def test_every_compressors_defaults_are_its_files(name: str) -> None:
    """The file spells the constructor's settings out, with the same defaults: reading one is reading the other."""
    import inspect

    from accordion_bench.plugins import load_object

    parameters = inspect.signature(load_object(COMPRESSORS[name].path, "compressor")).parameters
    own = {
        key: parameter.default
        for key, parameter in parameters.items()
        if parameter.kind is parameter.KEYWORD_ONLY and key != "error_feedback"
    }
    assert set(compose([f"compressor={name}"]).compressor.settings) == set(own)


@pytest.mark.parametrize("protocol", ["paper", "authors_code"])
@pytest.mark.parametrize("dataset", sorted(DATASETS))
def test_every_protocol_has_a_recipe_for_every_data_set(protocol: str, dataset: str) -> None:
    model = "lstm" if DATASETS[dataset].kind == "text" else "resnet8"
    assert compose([f"protocol={protocol}", f"dataset={dataset}", f"model={model}"]).protocol == protocol


def test_whole_numbers_are_the_same_configuration_however_they_are_written() -> None:
    a = compose(["compressor.levels=[1,2]", "scheduler.eta=1", "lr_schedule.base=1"])
    b = compose(["compressor.levels=[1.0,2.0]", "scheduler.eta=1.0", "lr_schedule.base=1.0"])
    assert a == b
    assert a.hash == b.hash


def test_yaml_round_trip_keeps_configuration_and_hash() -> None:
    for overrides in (
        [],
        ["compressor=topk", "batch=accordion", "protocol=authors_code", "optimizer.weight_decay=1e-5"],
        ["scheduler=manual", "scheduler.ranges=[{from: 0, until: 20, index: -1}]", "scheduler.index=0"],
        ["dataset=wikitext2", "model=lstm", "dataset.root='a b: c'"],
    ):
        config = compose(overrides)
        again = from_yaml(to_yaml(config))
        assert again == config
        assert again.hash == config.hash


@pytest.mark.parametrize("text", ["", "[1]", "epochs: [", "epochs: 3", "\0"])
def test_an_edited_config_yaml_is_refused(text: str) -> None:
    with pytest.raises(UserError):
        from_yaml(text)


def changed(value: Any) -> Any:
    """Another value of the same kind."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, (int, float)):
        return value + 1
    if isinstance(value, str):
        return value + "x"
    if isinstance(value, tuple):
        return (*value, 99)
    if isinstance(value, dict):
        return {**value, "another": 1}
    return 1 if value is None else None


def leaves(config: Any, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """Every field, nested ones too, as a path."""
    found = []
    for field in fields(config):
        value = getattr(config, field.name)
        found += leaves(value, (*path, field.name)) if is_dataclass(value) else [(*path, field.name)]
    return found


def with_change(config: Any, path: tuple[str, ...]) -> Any:
    """A copy in which the field at this path has another value."""
    value = getattr(config, path[0])
    return replace(config, **{path[0]: with_change(value, path[1:]) if path[1:] else changed(value)})


def test_the_hash_changes_with_everything_that_changes_the_result_and_nothing_else(default: RunConfig) -> None:
    paths = leaves(default)
    assert len(paths) > 30
    for path in paths:
        same = path[0] in UNSEEN or path in {("dataset", "root"), ("dataset", "verify")}
        assert (with_change(default, path).hash == default.hash) == same, path


def test_two_changes_never_give_the_same_hash(default: RunConfig) -> None:
    seen = [with_change(default, path) for path in leaves(default)]
    by_hash = {config.hash: config.identity for config in seen}
    assert len(by_hash) == len({str(identity) for identity in by_hash.values()})


def test_runs_lie_under_slug_hash_and_seed(default: RunConfig) -> None:
    name = f"cifar10-resnet18-powersgd-accordion-{default.hash}"
    assert default.directory == Path("results/runs") / name / "seed-1"
    assert replace(default, seed=2).directory.parent == default.directory.parent


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=4,
)


@given(data=st.data())
def test_any_value_anywhere_is_accepted_or_refused_in_one_line(data: st.DataObject) -> None:
    """No value that YAML can hold gets past the door as a crash."""
    mapping = to_mapping(compose_cached())
    section = data.draw(st.sampled_from([None, *(key for key, value in mapping.items() if isinstance(value, dict))]))
    target = mapping if section is None else mapping[section]
    target[data.draw(st.sampled_from(sorted(target)))] = data.draw(values)
    try:
        config = from_mapping(mapping)
    except UserError as error:
        assert "\n" not in str(error)
    else:
        assert from_mapping(to_mapping(config)).hash == config.hash


keys = st.sampled_from(
    ["epochs", "compressor", "compressor.levels", "seed", "model.name", "~epochs", "+x", "table", "hydra.run.dir", ""]
)
texts = st.text(max_size=12) | st.sampled_from(
    [
        "[0]",
        "[1,2]",
        "{a: 1}",
        "${epochs}",
        "${foo:1}",
        "null",
        "range(1,4)",
        "interval(0,1)",
        "1,2",
        "${",
        "\\",
        "1e400",
    ]
)


@pytest.mark.thorough
@settings(max_examples=60)
@given(key=keys, sign=st.sampled_from(["", "="]), text=texts)
def test_any_text_as_an_override_is_composed_or_refused(key: str, sign: str, text: str) -> None:
    for read in (compose, expand):
        try:
            read([f"{key}{sign}{text}"])
        except UserError as error:
            assert str(error)


_composed: list[RunConfig] = []


def compose_cached() -> RunConfig:
    if not _composed:
        _composed.append(compose())
    return _composed[0]
