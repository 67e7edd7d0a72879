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
    claims:                         # optional: what the rows are to show, written down before they run
      - {group: ResNet-18, as_good: [Accordion, rank 2], margin: 0.5}

A figure of the paper is such a file too, with any of these keys:

    figure: 6                       # its number, or 4a
    draw: [curves, levels]          # what `accordion-bench figures` makes of it; curves, levels, rates by default
    shade: low in critical regimes  # the label of the row whose critical epochs are shaded in the curves
    rows_of: 1                      # instead of seeds, scale and rows: those of another table, or of several, each
                                    # with what is added to its groups' names: {1: CIFAR-10, 2: CIFAR-100}
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from accordion_bench.config.plain_yaml import NotYaml, load_yaml
from accordion_bench.errors import UserError
from accordion_bench.foreign import MEBIBYTE, read_text
from accordion_bench.plugins import closest
from accordion_bench.sweeps.claims import Claim, parse_claims
from accordion_bench.sweeps.fields import choices, keys_of, overrides, seeds, shown, text

if TYPE_CHECKING:
    from importlib.abc import Traversable

FIGURE_KEYS = ("figure", "draw", "shade", "rows_of")
TABLE_KEYS = ("title", "number", "scale", "seeds", "base", "rows", "claims", *FIGURE_KEYS)
DRAWINGS = ("curves", "levels", "rates", "regimes", "overlap")
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
    """A whole table.

    Attributes:
        name: the file's stem.
        base: overrides of every row.
        number: the paper's table, or None.
        given: the path by which a user named their own file, or empty.
        figure: the paper's figure ("6", "4a"), or empty.
        draw: what is drawn of it, any of DRAWINGS.
        shade: label of the row whose critical epochs are shaded in the curves, or empty.
        rows_of: the tables from which it has its rows; empty where they are its own.
        claims: what its rows are to show.
    """

    name: str
    title: str
    scale: str
    seeds: tuple[int, ...]
    base: tuple[str, ...]
    rows: tuple[Row, ...]
    number: int | None = None
    given: str = ""
    figure: str = ""
    draw: tuple[str, ...] = ("curves", "levels", "rates")
    shade: str = ""
    rows_of: tuple[str, ...] = ()
    claims: tuple[Claim, ...] = ()


@dataclass(frozen=True)
class RowRuns:
    """A row with the run directories that its overrides lead to: seed -> .../seed-<n> (which may not exist)."""

    row: Row
    directories: dict[int, Path]


def table_names() -> list[str]:
    """Names of the tables in conf/table, numbered ones first."""
    names = [file.name.removesuffix(".yaml") for file in _folder().iterdir() if file.name.endswith(".yaml")]
    return sorted(names, key=lambda name: (not name.isdigit(), *_natural(name)))


def _natural(name: str) -> list[str | int]:
    """For sorting: fig2 comes before fig10."""
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)]


def load_table(name_or_path: str | Path) -> Table:
    """The table of that name in conf/table ("1", "demo"), or of a user's own .yaml file.

    Raises:
        UserError: if there is no such table, the file cannot be read, or something in it is wrong.
    """
    given = str(name_or_path)
    if given.endswith((".yaml", ".yml")):
        path = Path(given)
        try:
            return replace(parse_text(path.stem, read_text(path, 16 * MEBIBYTE)), given=given)
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
    try:
        mapping = load_yaml(text)
    except NotYaml as error:
        raise UserError(f"table {name} is not valid YAML: {error}") from None
    return parse_table(name, mapping)


def parse_table(name: str, mapping: object) -> Table:
    """The table that a mapping (YAML or a user's program) describes; UserError names the first thing that is wrong."""
    where = f"table {name}"
    if isinstance(mapping, Mapping) and "rows_of" in mapping:
        return _table_of_others(name, mapping, where)
    keys = keys_of(mapping, TABLE_KEYS, ("title", "scale", "seeds", "rows"), where)
    number = keys.get("number")
    if number is not None and (not isinstance(number, int) or isinstance(number, bool)):
        raise UserError(f"{where}: number must be a whole number or null, got {number!r}")
    rows = keys["rows"]
    if not isinstance(rows, list) or not rows:
        raise UserError(f"{where}: rows must be a list of one row or more, got {shown(rows)}")
    table = Table(
        name=name,
        title=text(keys["title"], f"{where}: title"),
        scale=text(keys["scale"], f"{where}: scale"),
        seeds=seeds(keys["seeds"], where),
        base=overrides(keys.get("base", []), f"{where}: base"),
        rows=tuple(_row(row, f"{where} row {index + 1}") for index, row in enumerate(rows)),
        number=number,
        **_figure(keys, where),
    )
    _check_rows(table, where)
    places = [(row.group, row.label) for row in table.rows]
    return replace(table, claims=parse_claims(keys.get("claims", []), places, f"{where}: claims"))


def _figure(keys: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The keys that a figure adds, as fields of Table."""
    figure = keys.get("figure", "")
    if not isinstance(figure, (int, str)) or isinstance(figure, bool):
        raise UserError(f"{where}: figure must be the paper's number of it, got {shown(figure)}; write 6 or 4a")
    return {
        "figure": str(figure),
        "draw": choices(keys.get("draw", list(Table.draw)), DRAWINGS, f"{where}: draw"),
        "shade": text(keys["shade"], f"{where}: shade") if "shade" in keys else "",
    }


def _table_of_others(name: str, mapping: Mapping[str, Any], where: str) -> Table:
    """A table without rows of its own: those of one other table or of several."""
    keys = keys_of(mapping, ("title", *FIGURE_KEYS), ("title", "rows_of"), where)
    sources = _sources(keys["rows_of"], name, f"{where}: rows_of")
    tables = [load_table(source) for source in sources]
    if any((table.seeds, table.scale) != (tables[0].seeds, tables[0].scale) for table in tables):
        raise UserError(f"{where}: rows_of must name tables of the same seeds and scale, got {', '.join(sources)}")
    rows = [
        replace(row, group=", ".join(filter(None, (row.group, added))), overrides=(*table.base, *row.overrides))
        for table, added in zip(tables, sources.values(), strict=True)
        for row in table.rows
    ]
    made = Table(
        name=name,
        title=text(keys["title"], f"{where}: title"),
        scale=tables[0].scale,
        seeds=tables[0].seeds,
        base=(),
        rows=tuple(rows),
        rows_of=tuple(sources),
        **_figure(keys, where),
    )
    _check_rows(made, where)
    return made


def _folder() -> Traversable:
    """conf/table: inside the installed package, or beside the package in a source tree that is not installed."""
    try:
        return files("accordion_bench.conf") / "table"
    except ModuleNotFoundError:
        return Path(__file__).resolve().parents[2] / "conf" / "table"


def _sources(given: object, name: str, where: str) -> dict[str, str]:
    """Names of tables -> what is added to the names of their groups."""
    pairs = given if isinstance(given, Mapping) else {given: ""} if isinstance(given, (str, int)) else {}
    sources = {str(key): text(added, f"{where}: {key}") if added else "" for key, added in pairs.items()}
    if not sources or name in sources:
        raise UserError(f"{where} must name another table, or several, got {shown(given)}; write e.g. 1")
    return sources


def _row(row: object, where: str) -> Row:
    keys = keys_of(row, ROW_KEYS, ("group", "label", "role", "overrides"), where)
    role = text(keys["role"], f"{where}: role")
    if role not in ROLES:
        raise UserError(f"{where}: role must be one of {', '.join(ROLES)}, got {role!r}{closest(role, ROLES)}")
    published = keys.get("published") or {}
    if published:
        keys_of(published, PUBLISHED_KEYS, PUBLISHED_KEYS, f"{where}: published")
    for key, value in published.items():
        if not isinstance(value, (str, int)) or isinstance(value, bool):
            raise UserError(f"{where}: published.{key} must be text or a whole number, got {value!r}")
    return Row(
        group=text(keys["group"], f"{where}: group"),
        label=text(keys["label"], f"{where}: label"),
        role=role,
        overrides=overrides(keys["overrides"], f"{where}: overrides"),
        published=dict(published),
    )


def _check_rows(table: Table, where: str) -> None:
    """No row twice, no two baselines in a group, and a row to shade where one is named."""
    labels = [row.label for row in table.rows]
    if table.shade and table.shade not in labels:
        raise UserError(f"{where}: shade must be a row's label, got {table.shade!r}{closest(table.shade, labels)}")
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
