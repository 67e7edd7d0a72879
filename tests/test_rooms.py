"""The rooms of accordion_bench: imports go downwards only, and what people wait for does not wait for torch."""

from __future__ import annotations

import ast
import graphlib
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from places import REPOSITORY

PACKAGE = REPOSITORY / "accordion_bench"

# From the top down. A file may import from its own line or a lower one, nowhere in its code from a higher one.
ROOMS = [
    ["__main__", "worker"],
    ["commands"],
    ["report"],
    ["sweeps"],
    ["runs"],
    ["config"],
    ["workloads", "ladders"],
    ["compressors"],
    ["training"],
    ["schedulers"],
    ["plugins"],
    ["foreign", "errors", ""],  # "" is accordion_bench/__init__.py
]
MOST_ROOMS = 9  # folders
# What annotations alone may name from above, since it is only data: the dataclasses of a configuration.
ANNOTATIONS = "config.schema"
# A module near the top -> the only rooms that may import it.
IMPORTED_BY = {
    "commands.cli": {"__main__"},
    "runs.launch": {"commands", "sweeps", "worker"},
    "torch.distributed": {"training", "runs"},
}
# Never loads torch when it is imported. A dot at the end stands for the package's own __init__ alone.
WITHOUT_TORCH = [
    *("commands", "config", "schedulers", "report", "sweeps.table", "sweeps.fields", "sweeps.jobs", "sweeps.runner"),
    *("errors", "plugins", "ladders", "compressors.", "compressors.ladders", "compressors.conformance."),
    *("training.", "training.lr_schedule", "training.traffic", "training.record", "training.network", "training.seeds"),
    *("runs.", "runs.records", "runs.stored", "runs.lock", "runs.admission", "runs.launch"),
    *("workloads.", "workloads.models.", "workloads.tasks.", "workloads.datasets.", "workloads.datasets.base"),
    "workloads.datasets.cifar",
]
HEAVY = ("torch", "torchvision", "pandas", "matplotlib", "scipy", "sklearn", "spacy")


@dataclass(frozen=True)
class Import:
    """One imported module of this package (or torch.distributed) and where it is written."""

    module: str
    line: int
    annotation: bool  # under `if TYPE_CHECKING`


def _modules() -> Iterator[tuple[str, Path]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        name = ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
        yield name.removesuffix(".__init__").removesuffix("__init__"), path


PATHS = dict(_modules())


class _Imports(ast.NodeVisitor):
    def __init__(self, tree: ast.AST) -> None:
        self.found: list[Import] = []
        self._annotation = False
        self.visit(tree)

    def visit_If(self, node: ast.If) -> None:
        self._annotation = "TYPE_CHECKING" in ast.dump(node.test)
        for inner in node.body:
            self.visit(inner)
        self._annotation = False
        for inner in node.orelse:
            self.visit(inner)

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            self._add(alias.name, node.lineno)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        assert node.level == 0, "imports are absolute"
        inner = [f"{node.module}.{alias.name}" for alias in node.names]
        modules = [name for name in inner if name.removeprefix("accordion_bench.") in PATHS]
        for name in [*modules, node.module or ""] if len(modules) < len(inner) else modules:
            self._add(name, node.lineno)

    def _add(self, name: str, line: int) -> None:
        own = "" if name == "accordion_bench" else name.removeprefix("accordion_bench.")
        if own != name and own in PATHS:
            self.found.append(Import(own, line, self._annotation))
        if name.startswith("torch.distributed"):
            self.found.append(Import("torch.distributed", line, self._annotation))


GRAPH = {name: _Imports(ast.parse(path.read_text(encoding="utf-8"))).found for name, path in PATHS.items()}
FLOOR = {room: floor for floor, rooms in enumerate(reversed(ROOMS)) for room in rooms}


def _room(module: str) -> str:
    return module if module == "torch.distributed" else module.split(".")[0]


def _where(name: str, line: int) -> str:
    return f"{PATHS[name].relative_to(REPOSITORY)}:{line}"


def test_every_file_is_in_a_room() -> None:
    assert {_room(name) for name in PATHS} == set(FLOOR)
    folders = {name.split(".")[0] for name, path in PATHS.items() if path.parent != PACKAGE}
    assert len(folders) <= MOST_ROOMS, folders


@pytest.mark.parametrize("room", [room for rooms in ROOMS for room in rooms])
def test_imports_go_downwards(room: str) -> None:
    offending = [
        f"{_where(name, found.line)} imports {found.module} from above"
        for name, imports in GRAPH.items()
        if _room(name) == room
        for found in imports
        if found.module != "torch.distributed" and FLOOR[_room(found.module)] > FLOOR[room]
        if not (found.annotation and found.module == ANNOTATIONS)
    ]
    assert not offending, "\n".join(offending)


@pytest.mark.parametrize("module", IMPORTED_BY)
def test_what_is_near_the_top_is_imported_only_from_there(module: str) -> None:
    offending = [
        f"{_where(name, found.line)} imports {module}"
        for name, imports in GRAPH.items()
        for found in imports
        if found.module == module and _room(name) not in IMPORTED_BY[module] | {_room(module)}
    ]
    assert not offending, "\n".join(offending)


def test_no_module_imports_itself_through_others() -> None:
    below = {
        name: {found.module for found in imports if found.module != name and not found.annotation}
        for name, imports in GRAPH.items()
    }
    try:
        list(graphlib.TopologicalSorter(below).static_order())
    except graphlib.CycleError as error:
        pytest.fail(f"a circle of imports: {' -> '.join(error.args[1])}")


def test_every_room_says_what_lives_there() -> None:
    for room in (name for name, path in PATHS.items() if path.name == "__init__.py" and "." not in name and name):
        text = ast.get_docstring(ast.parse(PATHS[room].read_text(encoding="utf-8"))) or ""
        assert "May import" in text and len(text) > 150, room


def test_what_people_wait_for_loads_no_torch() -> None:
    names = [
        name
        for name in sorted(set(PATHS) - {""})
        for allowed in WITHOUT_TORCH
        if name == allowed.rstrip(".") or (not allowed.endswith(".") and name.startswith(f"{allowed}."))
    ]
    assert all(any(name == allowed.rstrip(".") for name in names) for allowed in WITHOUT_TORCH)
    code = (
        "import importlib, sys\n"
        f"for name in {names}:\n"
        "    importlib.import_module(f'accordion_bench.{name}')\n"
        "    if 'torch' in sys.modules:\n"
        "        sys.exit(f'{name} imports torch')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, cwd=REPOSITORY)
    assert done.returncode == 0, done.stderr


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import atexit, sys\n"
        f"atexit.register(lambda: print('loaded:', [name for name in {HEAVY} if name in sys.modules]))\n"
        "from accordion_bench.commands.cli import main\n"
        "sys.exit(main(['--help']))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, cwd=REPOSITORY)
    assert done.returncode == 0, done.stderr
    assert "loaded: []" in done.stdout


def test_the_quick_tests_cover_every_room() -> None:
    from conftest import THOROUGH

    tests = REPOSITORY / "tests"
    rooms = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    quick = {path.parent.name for path in tests.glob("*/test_*.py") if path.stem not in THOROUGH}
    assert rooms <= quick
    assert {path.stem for path in tests.rglob("test_*.py")} >= THOROUGH, "a file that is not there any more"
