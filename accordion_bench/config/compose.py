"""Overrides -> composed configuration -> RunConfig, by Hydra; its messages become one line that says what to write.

Hydra is imported when something is composed, so that --help and reading records do not wait for it.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from accordion_bench.config.parsing import parse
from accordion_bench.config.schema import RunConfig
from accordion_bench.config.section import unknown
from accordion_bench.errors import UserError
from accordion_bench.plugins import closest

if TYPE_CHECKING:
    from omegaconf import DictConfig

CONFIG_NAME = "config"
VERSION_BASE = "1.3"
SEED = re.compile(r"seed=(0|[1-9][0-9]*)")
NOT_CHOICES = ("table", "recipe", "adjust")  # groups that follow from others, or that `run` does not take


@cache
def conf_directory() -> Path:
    """The folder of the groups: installed as accordion_bench.conf, or beside the package in a checkout."""
    spec = find_spec("accordion_bench.conf")
    if spec is not None and spec.origin is not None:
        return Path(spec.origin).parent
    return Path(__file__).resolve().parents[2] / "conf"


@cache
def groups() -> dict[str, tuple[str, ...]]:
    """The groups that a run chooses from, and their choices."""
    folders = (folder for folder in sorted(conf_directory().iterdir()) if folder.is_dir())
    found = {folder.name: tuple(sorted(file.stem for file in folder.glob("*.yaml"))) for folder in folders}
    return {name: choices for name, choices in found.items() if choices and name not in NOT_CHOICES}


def compose(overrides: Sequence[str] = ()) -> RunConfig:
    """The run that these overrides of conf/config.yaml describe, ready to start here.

    Raises:
        UserError: an override that does not exist, or a value that cannot be used.
    """
    return parse(compose_values(overrides))


def compose_values(overrides: Sequence[str] = ()) -> dict[str, Any]:
    """The same, composed and resolved but not checked."""
    with explained(overrides):
        return as_values(compose_tree(overrides))


def compose_all(
    jobs: Sequence[Sequence[str]], check: Callable[[Mapping[str, Any]], RunConfig] = parse
) -> list[RunConfig]:
    """Many runs. Those that differ only in seed=n are composed once (Hydra needs a tenth of a second for each)."""
    trees: dict[tuple[str, ...], DictConfig] = {}
    configs = []
    for job in jobs:
        seeds = [int(found[1]) for override in job if (found := SEED.fullmatch(override))]
        rest = tuple(override for override in job if not SEED.fullmatch(override))
        with explained(job):
            if rest not in trees:
                trees[rest] = compose_tree(rest)
            values = _with_seed(trees[rest], seeds[-1]) if seeds else as_values(trees[rest])
        configs.append(check(values))
    return configs


def compose_seeds(
    overrides: Sequence[str], seeds: Sequence[int], check: Callable[[Mapping[str, Any]], RunConfig] = parse
) -> list[RunConfig]:
    """The run of these overrides with each of the seeds. What interpolates the seed sees the run's own."""
    return compose_all([[*overrides, f"seed={seed}"] for seed in seeds], check)


def _with_seed(tree: DictConfig, seed: int) -> dict[str, Any]:
    """The values of a composed tree with another seed; the tree keeps its own."""
    own = tree.seed
    tree.seed = seed
    try:
        return as_values(tree)
    finally:
        tree.seed = own


def as_values(config: DictConfig) -> dict[str, Any]:
    """The composed configuration as plain values, interpolations resolved."""
    from omegaconf import OmegaConf

    values = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    assert isinstance(values, dict)
    return {str(key): value for key, value in values.items()}


def expand(overrides: Sequence[str]) -> list[list[str]]:
    """The jobs of a sweep, as Hydra's own sweeper makes them: the last key varies fastest, a repeated key counts once.

    Raises:
        UserError: an override that cannot be read, or a sweep without end (a continuous interval).
    """
    from hydra.core.override_parser.overrides_parser import OverridesParser

    lists: dict[str, list[str]] = {}
    with explained(overrides):
        for override in OverridesParser.create().parse_overrides(list(overrides)):
            key = override.get_key_element()
            if override.is_discrete_sweep():
                lists[key] = [f"{key}={value}" for value in override.sweep_string_iterator()]
            elif override.is_sweep_override():
                raise UserError(f"{override.input_line} is a range without steps; list the values: {key}=1,2,3")
            else:
                value = f"={override.get_value_element_as_str()}" if "=" in (override.input_line or "") else ""
                lists[key] = [f"{key}{value}"]
    return [list(job) for job in product(*lists.values())]


def once(overrides: Sequence[str]) -> list[str]:
    """The same overrides with each value of a comma-separated list once: a seed given twice is one run."""
    from hydra.core.override_parser.overrides_parser import OverridesParser

    kept = []
    with explained(overrides):
        for text, override in zip(overrides, OverridesParser.create().parse_overrides(list(overrides)), strict=True):
            if override.is_choice_sweep() and "," in text:
                values = list(override.sweep_string_iterator())
                if len(set(values)) < len(values):
                    head = text.partition("=")[0]
                    text = f"{head}={','.join(map(str, dict.fromkeys(values)))}"
            kept.append(text)
    return kept


def compose_tree(overrides: Sequence[str]) -> DictConfig:
    """What Hydra composes, interpolations unresolved; raises its exceptions."""
    from hydra import compose as hydra_compose
    from hydra import initialize_config_dir
    from hydra.core.global_hydra import GlobalHydra

    if GlobalHydra.instance().is_initialized():  # inside a Hydra application
        return hydra_compose(CONFIG_NAME, list(overrides))
    with initialize_config_dir(str(conf_directory()), version_base=VERSION_BASE):
        return hydra_compose(CONFIG_NAME, list(overrides))


@contextmanager
def explained(overrides: Sequence[str], kinds: tuple[type[Exception], ...] = (Exception,)) -> Iterator[None]:
    """Turn what Hydra and OmegaConf raise into a UserError of one line.

    Args:
        overrides: what they were given.
        kinds: exceptions to turn. By default all: on odd input the two also raise TypeError, ValueError and others.
    """
    try:
        yield
    except UserError:
        raise
    except kinds as error:
        raise _explain(error, overrides) from None


def _explain(error: Exception, overrides: Sequence[str]) -> UserError:
    for key, _, choice in (override.partition("=") for override in overrides):
        if key == "table":
            return UserError(f"table is not a setting of a run; write accordion-bench sweep table={choice}")
        if key in groups() and isinstance(error, (TypeError, ValueError)) and choice not in groups()[key]:
            return unknown(key, choice, groups()[key])
    missing, options = getattr(error, "missing_cfg_file", None), getattr(error, "options", None)
    if missing and options:
        group, _, choice = missing.rpartition("/")
        return unknown(group or "configuration", choice, list(options))
    text = str(error)
    if missing:
        return UserError(f"no configuration {missing!r} for these choices; add conf/{missing}.yaml or choose others")
    patterns = (
        (r"Could not override '([^']+)'", lambda key: _no_such_key(key, overrides)),
        (r"Could not delete from (?:config|defaults)[^']*'([^']+)'", lambda key: _no_such_key(key, overrides)),
        (
            r"An item is already at '([^']+)'",
            lambda key: UserError(f"{key} exists already; write {key}=... without the +"),
        ),
        (
            r"Ambiguous value for argument '([^']+)'",
            lambda given: UserError(
                f"{given} names several values; add -m to sweep over them, or write {_listed(given)}"
            ),
        ),
    )
    for pattern, answer in patterns:
        if found := re.search(pattern, text):
            return answer(found[1])
    if type(error).__name__ == "OverrideParseException" or "Error parsing override" in text:
        given = getattr(error, "override", "") or " ".join(overrides)
        return UserError(
            f"cannot read the override {given!r}; write key=value, and quote brackets and spaces for the shell: "
            "'compressor.levels=[1, 2]'"
        )
    if type(error).__name__ == "MissingMandatoryValue":
        key = getattr(error, "full_key", None) or text
        return UserError(f"{key} is missing; give it a value: {key}=...")
    if found := re.search(r"Interpolation key '([^']+)' not found", text):
        return UserError(
            f"${{{found[1]}}} refers to a setting that does not exist{closest(found[1], _keys(overrides))}; correct it"
        )
    first = text.strip().splitlines()[0] if text.strip() else type(error).__name__
    return UserError(f"cannot compose {' '.join(overrides)!r}: {first.rstrip('.')}; see accordion-bench run --help")


def _listed(given: str) -> str:
    key, _, values = given.partition("=")
    return f"'{key}=[{values}]' for a list"


def _no_such_key(key: str, overrides: Sequence[str]) -> UserError:
    """What exists near a key that does not: a group, or a setting of the same or another section."""
    choice = next((override.partition("=")[2] for override in overrides if override.partition("=")[0] == key), "")
    if key in groups() and choice:  # a mapping where the name of a choice belongs
        return unknown(key, choice, groups()[key])
    keys = _keys(overrides)
    leaf = {name.rpartition(".")[2]: name for name in keys}
    near = difflib.get_close_matches(key, keys, n=1) or [
        leaf[name] for name in difflib.get_close_matches(key.rpartition(".")[2], list(leaf), n=1)
    ]
    section = key.partition(".")[0]
    siblings = [name for name in keys if name.startswith(f"{section}.")] if "." in key else []
    there = siblings or [name for name in keys if "." not in name]
    meant = f"did you mean {near[0]}? " if near else ""
    return UserError(f"no setting {key!r}; {meant}There are: {', '.join(there)} (accordion-bench run --cfg job)")


def _keys(overrides: Sequence[str]) -> list[str]:
    """Every group and every setting of the run with these choices, dotted, in the order of the files."""

    def walk(values: Mapping[Any, Any], prefix: str) -> Iterator[str]:
        for key, value in values.items():
            yield f"{prefix}{key}"
            if isinstance(value, dict):
                yield from walk(value, f"{prefix}{key}.")

    from omegaconf import OmegaConf

    pairs = [override.partition("=") for override in overrides]
    choices = [f"{group}={choice}" for group, _, choice in pairs if choice in groups().get(group, ())]
    values = OmegaConf.to_container(compose_tree(choices), resolve=False)
    assert isinstance(values, dict)
    return list(dict.fromkeys([*groups(), *walk(values, "")]))
