"""A table: a declarative list of rows, each a set of overrides; a row's runs are its seeds. No torch, no Hydra.

conf/table/<name>.yaml:

    title: Accordion with PowerSGD on CIFAR-10
    number: 1                       # the paper's table, or null
    scale: paper                    # or what is reduced, in words: "digits, 20 epochs"
    seeds: [1, 2, 3]
    base: [dataset=cifar10]         # overrides of every row
    rows:
      - group: ResNet-18            # rows of one group are compared with its baseline
        label: rank 2
        role: low                   # low (the group's baseline) | high | accordion | other
        overrides: [model=resnet18, compressor=powersgd, scheduler=static, "compressor.levels=[2]"]
        published: {table: 1, dataset: CIFAR-10, network: ResNet-18, level: rank2}   # optional
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from accordion_bench.errors import UserError
from accordion_bench.settings import closest

if TYPE_CHECKING:
    from importlib.abc import Traversable

TABLE_KEYS = ("title", "number", "scale", "seeds", "base", "rows")
ROW_KEYS = ("group", "label", "role", "overrides", "published")
PUBLISHED_KEYS = ("table", "dataset", "network", "level")
ROLES = ("low", "high", "accordion", "other")


@dataclass(frozen=True)
class Row:
    """One line of a table.

    Attributes:
        group: rows of one group are compared with the group's baseline (the row whose role is "low").
        label: what the row shows ("rank 2").
        role: low | high | accordion | other.
        overrides: of this row alone.
        published: keys into the published values (table, dataset, network, level), or empty.
    """

    group: str
    label: str
    role: str
    overrides: tuple[str, ...]
    published: dict[str, str | int] = field(default_factory=dict)

    @property
    def id(self) -> str:
        """Unique in the table: "ResNet-18/rank 2"."""
        return f"{self.group}/{self.label}"


@dataclass(frozen=True)
class Table:
    """A whole table; `name` is the file's stem, `given` the path by which a user named their own file, or empty."""

    name: str
    title: str
    scale: str
    seeds: tuple[int, ...]
    base: tuple[str, ...]
    rows: tuple[Row, ...]
    number: int | None = None
    given: str = ""


@dataclass(frozen=True)
class RowRuns:
    """A row with the run directories that its overrides lead to: seed -> .../seed-<n> (which may not exist)."""

    row: Row
    directories: dict[int, Path]


def table_names() -> list[str]:
    """Names of the tables in conf/table, numbered ones first."""
    names = [file.name.removesuffix(".yaml") for file in _folder().iterdir() if file.name.endswith(".yaml")]
    return sorted(names, key=lambda name: (not name.isdigit(), int(name) if name.isdigit() else 0, name))


def load_table(name_or_path: str | Path) -> Table:
    """The table of that name in conf/table ("1", "demo"), or of a user's own .yaml file.

    Raises:
        UserError: if there is no such table, the file cannot be read, or something in it is wrong.
    """
    given = str(name_or_path)
    if given.endswith((".yaml", ".yml")):
        path = Path(given)
        try:
            return replace(parse_text(path.stem, path.read_text(encoding="utf-8")), given=given)
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
            raise UserError(f"table file {given} cannot be read: {reason}") from None
    names = table_names()
    if given not in names:
        known = ", ".join(names) or "none"
        raise UserError(
            f"no table {given!r}{closest(given, names) or ';'} there are: {known}, or a path to your own .yaml"
        )
    return parse_text(given, (_folder() / f"{given}.yaml").read_text(encoding="utf-8"))


def parse_text(name: str, text: str) -> Table:
    """The table written in YAML text; UserError if it is not YAML or says something wrong."""
    import yaml

    try:
        mapping = yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f" line {mark.line + 1}" if mark else ""
        problem = getattr(error, "problem", None) or "unreadable characters"
        raise UserError(f"table {name}{place} is not valid YAML: {problem}") from None
    except (ValueError, RecursionError) as error:
        raise UserError(f"table {name} is not valid YAML: {error}".splitlines()[0]) from None
    return parse_table(name, mapping)


def parse_table(name: str, mapping: object) -> Table:
    """The table that a mapping (YAML or a user's program) describes; UserError names the first thing that is wrong."""
    where = f"table {name}"
    keys = _keys(mapping, TABLE_KEYS, ("title", "scale", "seeds", "rows"), where)
    number = keys.get("number")
    if number is not None and (not isinstance(number, int) or isinstance(number, bool)):
        raise UserError(f"{where}: number must be a whole number or null, got {number!r}")
    rows = keys["rows"]
    if not isinstance(rows, list) or not rows:
        raise UserError(f"{where}: rows must be a list of one row or more, got {_shown(rows)}")
    table = Table(
        name=name,
        title=_text(keys["title"], f"{where}: title"),
        scale=_text(keys["scale"], f"{where}: scale"),
        seeds=_seeds(keys["seeds"], where),
        base=_overrides(keys.get("base", []), f"{where}: base"),
        rows=tuple(_row(row, f"{where} row {index + 1}") for index, row in enumerate(rows)),
        number=number,
    )
    _check_rows(table, where)
    return table


def _folder() -> Traversable:
    """conf/table: inside the installed package, or beside the package in a source tree that is not installed."""
    try:
        return files("accordion_bench.conf") / "table"
    except ModuleNotFoundError:
        return Path(__file__).resolve().parent.parent / "conf" / "table"


def _row(row: object, where: str) -> Row:
    keys = _keys(row, ROW_KEYS, ("group", "label", "role", "overrides"), where)
    role = _text(keys["role"], f"{where}: role")
    if role not in ROLES:
        raise UserError(f"{where}: role must be one of {', '.join(ROLES)}, got {role!r}{closest(role, ROLES)}")
    published = keys.get("published") or {}
    if published:
        _keys(published, PUBLISHED_KEYS, PUBLISHED_KEYS, f"{where}: published")
    for key, value in published.items():
        if not isinstance(value, (str, int)) or isinstance(value, bool):
            raise UserError(f"{where}: published.{key} must be text or a whole number, got {value!r}")
    return Row(
        group=_text(keys["group"], f"{where}: group"),
        label=_text(keys["label"], f"{where}: label"),
        role=role,
        overrides=_overrides(keys["overrides"], f"{where}: overrides"),
        published=dict(published),
    )


def _check_rows(table: Table, where: str) -> None:
    """No row twice, no two baselines in a group."""
    seen: dict[object, str] = {}
    for row in table.rows:
        same_runs = (row.group, tuple(sorted(row.overrides)))
        baseline = (row.group, "low") if row.role == "low" else None
        if row.id in seen:
            raise UserError(f"{where} has the row {row.id!r} twice; give each row of a group its own label")
        if same_runs in seen:
            raise UserError(f"{where} rows {seen[same_runs]!r} and {row.id!r} have the same overrides; leave one out")
        if baseline in seen:
            raise UserError(
                f"{where} group {row.group!r} has two rows with role low ({seen[baseline]!r}, {row.id!r}); keep one"
            )
        seen |= dict.fromkeys((row.id, same_runs) + ((baseline,) if baseline else ()), row.id)


def _keys(mapping: object, allowed: tuple[str, ...], required: tuple[str, ...], where: str) -> Mapping[str, Any]:
    if not isinstance(mapping, Mapping):
        raise UserError(f"{where} must be a mapping with the keys {', '.join(allowed)}, got {_shown(mapping)}")
    for key in mapping:
        if key not in allowed:
            raise UserError(
                f"{where} has an unknown key {key!r}{closest(str(key), allowed) or ';'} there are: {', '.join(allowed)}"
            )
    for key in required:
        if key not in mapping:
            raise UserError(f"{where} lacks the key {key!r}; it must have {', '.join(required)}")
    return mapping


def _text(value: object, where: str) -> str:
    if not isinstance(value, str) or len(value.strip().splitlines()) != 1:
        raise UserError(f"{where} must be one line of text, got {_shown(value)}; put it in quotation marks")
    return value.strip()


def _seeds(value: object, where: str) -> tuple[int, ...]:
    if not isinstance(value, list) or not value:
        raise UserError(
            f"{where}: seeds must be a list of one whole number or more, got {_shown(value)}; write [1, 2, 3]"
        )
    for seed in value:
        if not isinstance(seed, int) or isinstance(seed, bool) or seed < 0:
            raise UserError(f"{where}: seeds must be whole numbers >= 0, got {seed!r}; write [1, 2, 3]")
    if len(set(value)) != len(value):
        raise UserError(f"{where}: seeds must differ from one another, got {_shown(value)}")
    return tuple(value)


def _overrides(value: object, where: str) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise UserError(
            f"{where} must be a list of overrides, got {_shown(value)}; write [model=resnet18, 'compressor.levels=[2]']"
        )
    for override in value:
        if not isinstance(override, str) or not ("=" in override or override.startswith("~")):
            raise UserError(
                f"{where} must hold overrides like key=value, got {_shown(override)}; put it in quotation marks"
            )
        if override.lstrip("+").partition("=")[0] == "seed":
            raise UserError(f"{where} must not set the seed, got {override!r}; the table's seeds do that")
    return tuple(value)


def _shown(value: object) -> str:
    """A value for a message, on one line and not long."""
    text = " ".join(repr(value).split())
    return text if len(text) <= 60 else text[:57] + "..."
