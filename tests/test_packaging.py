"""The package as a wheel: complete, and at home in any directory."""

from __future__ import annotations

import configparser
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from places import REPOSITORY

SETUP = configparser.ConfigParser()
SETUP.read(REPOSITORY / "setup.cfg")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from what would be committed (not from build/, which may be old)."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    source.mkdir()
    for name in ("setup.cfg", "pyproject.toml", "LICENSE", "README.md"):
        if (REPOSITORY / name).exists():
            (source / name).write_bytes((REPOSITORY / name).read_bytes())
    for name in ("accordion_bench", "conf"):
        for path in (REPOSITORY / name).rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                target = source / path.relative_to(REPOSITORY)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(path.read_bytes())
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder)]
    command = [sys.executable, "-m", "pip", "wheel", *options, str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return next(folder.glob("*.whl"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that holds the installed wheel and nothing else; its dependencies are this environment's."""
    folder = tmp_path_factory.mktemp("site")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


def run(installed: Path, directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The installed program, in a directory that has nothing to do with the repository."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    environment |= {"PYTHONPATH": str(installed), "PYTHONSAFEPATH": "1"}
    command = [sys.executable, "-m", "accordion_bench", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=directory, env=environment, check=False)


def test_every_package_folder_is_declared() -> None:
    declared = set(SETUP["options"]["packages"].split())
    folders = {path.parent.relative_to(REPOSITORY) for path in (REPOSITORY / "accordion_bench").rglob("__init__.py")}
    assert declared == {".".join(folder.parts) for folder in folders} | {"accordion_bench.conf"}


def test_wheel_holds_every_module_configuration_and_published_value(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    for folder, suffixes in (("accordion_bench", (".py", ".csv", ".gz", ".typed")), ("conf", (".py", ".yaml"))):
        for path in (REPOSITORY / folder).rglob("*"):
            if path.suffix in suffixes and "__pycache__" not in path.parts:
                inside = path.relative_to(REPOSITORY).as_posix()
                assert (f"accordion_bench/{inside}" if folder == "conf" else inside) in names


def test_wheel_holds_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0].split("-")[0] for name in names} == {"accordion_bench"}
    assert not [name for name in names if "test" in name or "__pycache__" in name]


def test_dependencies_are_ranges_and_the_program_has_its_name(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    info = next(name.split("/")[0] for name in archive.namelist() if ".dist-info/" in name)
    metadata = archive.read(f"{info}/METADATA").decode()
    required = [line.split(": ", 1)[1] for line in metadata.splitlines() if line.startswith("Requires-Dist")]
    assert {line.split(">")[0].split("<")[0] for line in required if ";" not in line} == {
        "hydra-core", "matplotlib", "numpy", "omegaconf", "pandas", "pyyaml", "rich", "scikit-learn", "scipy", "spacy",
        "tabulate", "torch", "torchvision",
    }  # fmt: skip
    assert not [line for line in required if "==" in line.split(";")[0]]
    assert "accordion-bench = accordion_bench.commands.cli:main" in archive.read(f"{info}/entry_points.txt").decode()
    assert "License-File: LICENSE" in metadata


def test_installed_program_finds_its_configuration_from_any_directory(installed: Path, tmp_path: Path) -> None:
    done = run(installed, tmp_path, "run", "--cfg", "job", "dataset=digits", "model=smallcnn")
    assert done.returncode == 0, done.stderr
    assert "name: smallcnn" in done.stdout
    done = run(installed, tmp_path, "sweep", "table=demo", "--dry-run")
    assert done.returncode == 0, done.stderr
    assert "21 runs: 21 missing" in done.stdout
    done = run(installed, tmp_path, "run", "compressor=powersdg")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert list(tmp_path.iterdir()) == []
    where = "import accordion_bench, accordion_bench.conf as conf; print(accordion_bench.__file__, conf.__file__)"
    environment = os.environ | {"PYTHONPATH": str(installed), "PYTHONSAFEPATH": "1"}
    done = subprocess.run(
        [sys.executable, "-c", where], capture_output=True, text=True, cwd=tmp_path, env=environment, check=False
    )
    assert all(path.startswith(str(installed)) for path in done.stdout.split()), done.stdout


def test_make_help_and_the_ci_script_agree_with_the_readmes_command() -> None:
    done = subprocess.run(["make", "help"], capture_output=True, text=True, cwd=REPOSITORY, check=False)
    assert done.returncode == 0, done.stderr
    for target in ("demo", "test", "lint", "tables", "figures", "bench", "clean"):
        assert f"make {target} " in done.stdout
    assert "make test" in (REPOSITORY / ".ci" / "run").read_text()


@pytest.mark.parametrize("script", sorted((REPOSITORY / "scripts").iterdir()), ids=lambda path: path.name)
def test_scripts_are_executable_and_parse(script: Path) -> None:
    assert os.access(script, os.X_OK)
    assert subprocess.run(["bash", "-n", str(script)], capture_output=True, check=False).returncode == 0


def test_sweep_seeds_script_needs_seeds_and_passes_the_exit_code_on(tmp_path: Path) -> None:
    script = str(REPOSITORY / "scripts" / "sweep_seeds.sh")
    assert subprocess.run([script], capture_output=True, check=False).returncode == 2
    program = tmp_path / "accordion-bench"
    program.write_text('#!/bin/sh\necho "$@" >> calls\ncase "$2" in seed=2) exit 1;; esac\n')
    program.chmod(0o755)
    environment = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(
        [script, "1 2 3", "epochs=1"], capture_output=True, text=True, cwd=tmp_path, env=environment, check=False
    )
    assert done.returncode == 1
    assert "failed: seeds 2" in done.stderr
    assert (tmp_path / "calls").read_text().splitlines() == [f"run seed={seed} epochs=1" for seed in (1, 2, 3)]
