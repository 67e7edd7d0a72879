"""What docs/design.md names exists: files, and in the file named before them classes, functions and constants."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from places import REPOSITORY
from test_rooms import MOST_ROOMS, PACKAGE, ROOMS

PAGE = REPOSITORY / "docs" / "design.md"
WALKS = ("A gradient", "A level decision", "A checkpoint", "A table's cell", "A setting")


def names_in(text: str) -> Iterator[tuple[str, str]]:
    """(file, "") for each file that is named, (file, name) for each name that follows one; no placeholders."""
    file = ""
    for word in re.findall(r"`([^`\n]+)`", text):
        if re.fullmatch(r"[\w./<>-]+(\.py|\.yaml|/)", word):
            file = "" if "<" in word else word
            if file:
                yield file, ""
        elif file.endswith(".py") and re.fullmatch(r"[A-Za-z_]\w*(\.\w+)?", word):
            yield file, word


def place_of(file: str) -> Path:
    return next((path for path in (PACKAGE / file, REPOSITORY / file) if path.exists()), PACKAGE / file)


def defined_in(path: Path) -> set[str]:
    """Top-level functions, classes and constants, and Class.attribute."""
    found = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        own = _names(node)
        found |= own
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{name}" for part in node.body for name in _names(part)}
    return found


def _names(node: ast.stmt) -> set[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return {node.name}
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return {target.id for target in targets if isinstance(target, ast.Name)}


NAMES = sorted(set(names_in(PAGE.read_text(encoding="utf-8"))))


@pytest.mark.parametrize(("file", "name"), NAMES)
def test_what_the_page_names_exists(file: str, name: str) -> None:
    path = place_of(file)
    assert path.exists(), f"docs/design.md names {file}"
    assert not name or name in defined_in(path), f"docs/design.md names {name}, which is not defined in {file}"


def test_each_walk_names_where_it_goes() -> None:
    parts = re.split(r"^## (.*)\n", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    walks = dict(zip(parts[1::2], parts[2::2], strict=True))
    assert set(WALKS) <= set(walks)
    for walk in WALKS:
        assert len([name for _, name in names_in(walks[walk]) if name]) >= 5, walk


def test_the_picture_shows_the_rooms_and_no_import_upwards() -> None:
    picture = re.search(r"```mermaid\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert picture is not None
    arrows = re.findall(r'^\s*(\w+)(?:\["[^"]*"\])? --> (\w+)', picture[1], re.MULTILINE)
    floor = {room: depth for depth, floor in enumerate(ROOMS) for room in floor}
    shown = {name for arrow in arrows for name in arrow}
    rooms = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert rooms <= shown
    assert len(rooms) <= MOST_ROOMS
    assert not [arrow for arrow in arrows if floor[arrow[0]] >= floor[arrow[1]]]
