"""Imports go downwards only, and what people wait for does not wait for torch."""

from __future__ import annotations

import ast
import graphlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "accordion_bench"
FOUNDATION = {"errors", "settings", "ladders", "traffic", "clock", "seeds", "records", "network", "gradients"}

# A room (a module or package) -> all others it may import, wherever in its code. Rooms not named here are free.
MAY_IMPORT = {
    "errors": set[str](),
    "clock": set[str](),
    "seeds": set[str](),
    "traffic": set[str](),
    "gradients": set[str](),
    "settings": {"errors"},
    "ladders": {"errors"},
    "records": {"errors"},
    "network": {"errors", "settings", "traffic"},
    "lock": {"errors"},
    "communicator": {"clock", "traffic", "errors"},
    "schedulers": {"errors", "settings"},
    "compressors": {"communicator", "errors", "gradients", "ladders", "seeds", "settings", "traffic"},
    "models": {"errors", "settings"},
    "datasets": {"config", "errors", "settings"},
    "tasks": {"communicator", "config", "datasets", "errors", "seeds", "settings"},
    "aggregator": {"communicator", "compressors", "gradients"},
    "trainer": {
        *FOUNDATION,
        *("aggregator", "communicator", "compressors", "lr_schedule", "probes", "schedulers", "statistics", "tasks"),
    },
}
# A room near the top -> the only ones that may import it.
IMPORTED_BY = {
    "cli": {"__main__"},
    "commands": {"cli"},
    "launch": {"commands", "sweep_run", "worker"},
    "run": {"launch", "worker", "plan", "verify_plan"},
    "trainer": {"run", "state", "persistence", "progress", "probes"},
    "torch.distributed": {"communicator", "launch"},
}
# What may look upwards, but only when it is called.
LATE = {
    ("config", "parsing"),
    ("conformance", "compressor_claims"),
    ("conformance", "scheduler_claims"),
}
# Never loads torch when it is imported. A package's name stands for all that is in it, with a dot for itself alone.
WITHOUT_TORCH = [
    *("cli", "commands", "compose", "parsing", "section", "config", "settings", "lr_schedule", "ladders", "errors"),
    *("traffic", "records", "network", "lock", "seeds", "admission", "launch", "sweep", "tablespec", "tablefields"),
    *("schedulers", "report", "compressors.", "models.", "tasks.", "datasets.", "datasets.base", "datasets.cifar"),
]
HEAVY = ("torch", "torchvision", "pandas", "matplotlib", "scipy", "sklearn", "spacy")


def _modules() -> Iterator[tuple[str, Path]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        name = ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
        yield name.removesuffix(".__init__").removesuffix("__init__"), path


NAMES = {name for name, _ in _modules()}


class _Imports(ast.NodeVisitor):
    """The modules of this package, and torch.distributed, that a file imports; what is only for type checkers aside."""

    def __init__(self, tree: ast.AST) -> None:
        self.found: set[tuple[str, bool]] = set()  # (module, at once)
        self._inside = 0
        self.visit(tree)

    def visit_If(self, node: ast.If) -> None:
        if "TYPE_CHECKING" not in ast.dump(node.test):
            self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._inside += 1
        self.generic_visit(node)
        self._inside -= 1

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            self._add(alias.name)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        assert node.level == 0, "imports are absolute"
        for name in (node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)):
            self._add(name)

    def _add(self, name: str) -> None:
        own = name.removeprefix("accordion_bench.")
        if own != name and own in NAMES:
            self.found.add((own, not self._inside))
        if name.startswith("torch.distributed"):
            self.found.add(("torch.distributed", not self._inside))


GRAPH = {name: _Imports(ast.parse(path.read_text(encoding="utf-8"))).found for name, path in _modules()}


def _room(module: str) -> str:
    return module if module == "torch.distributed" else module.split(".")[0]


@pytest.mark.parametrize("room", MAY_IMPORT)
def test_a_room_imports_only_what_is_below_it(room: str) -> None:
    used = {_room(module) for name, found in GRAPH.items() if _room(name) == room for module, _ in found}
    assert used - {room, "torch.distributed"} <= MAY_IMPORT[room]


@pytest.mark.parametrize("room", IMPORTED_BY)
def test_a_room_is_imported_only_from_above(room: str) -> None:
    users = {_room(name) for name, found in GRAPH.items() for module, _ in found if _room(module) == room}
    assert users - {room} <= IMPORTED_BY[room]


def test_no_module_imports_itself_through_others() -> None:
    below = {
        name: {module for module, _ in found if (name, module) not in LATE and module != name}
        for name, found in GRAPH.items()
    }
    try:
        list(graphlib.TopologicalSorter(below).static_order())
    except graphlib.CycleError as error:
        pytest.fail(f"a circle of imports: {' -> '.join(error.args[1])}")
    for name, module in LATE:
        assert (module, True) not in GRAPH[name], f"{name} may import {module} inside functions only"


def test_what_people_wait_for_loads_no_torch() -> None:
    names = [
        name
        for name in sorted(NAMES - {""})
        for allowed in WITHOUT_TORCH
        if name == allowed.rstrip(".") or (not allowed.endswith(".") and name.startswith(f"{allowed}."))
    ]
    assert {"cli", "report.runs", "schedulers.accordion", "compressors", "datasets.cifar"} <= set(names)
    code = (
        "import importlib, sys\n"
        f"for name in {names}:\n"
        "    importlib.import_module(f'accordion_bench.{name}')\n"
        "    if 'torch' in sys.modules:\n"
        "        sys.exit(f'{name} imports torch')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import atexit, sys\n"
        f"atexit.register(lambda: print('loaded:', [name for name in {HEAVY} if name in sys.modules]))\n"
        "from accordion_bench.cli import main\n"
        "sys.exit(main(['--help']))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "loaded: []" in done.stdout
