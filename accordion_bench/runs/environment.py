"""What a run ran on: versions, device, hosts, git state."""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

import torch

from accordion_bench import __version__

PACKAGES = ("torch", "torchvision", "numpy", "hydra-core", "omegaconf", "spacy", "scikit-learn")


def describe_environment(device: torch.device, hosts: list[Any]) -> dict[str, Any]:
    """Plain values for environment.json; `hosts` is one "host:device" per process."""
    return {
        "accordion_bench": __version__,
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in PACKAGES},
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else _processor(),
        "device_type": device.type,
        "instructions": torch.backends.cpu.get_cpu_capability(),  # processors of one name differ in them
        "cuda": torch.version.cuda if device.type == "cuda" else None,
        "threads": torch.get_num_threads(),
        "cores": os.cpu_count(),
        "platform": platform.platform(),
        "processes": hosts,
        "git": _git(),
    }


def with_history(now: dict[str, Any], before: dict[str, Any] | None, epochs: int) -> dict[str, Any]:
    """`now` with what was different while the epochs before number `epochs` (from 0) were trained; last entry last."""
    if before is None:
        return now
    changed = {key: before[key] for key in now if key in before and before[key] != now[key]}
    known = before.get("history")
    history = [*(known if isinstance(known, list) else []), *([{"before_epoch": epochs, **changed}] if changed else [])]
    return now | {"history": history} if history else now


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _git() -> dict[str, Any] | None:
    """Commit, whether files differ from it, and a hash of the difference; None outside a checkout."""
    folder = Path(__file__).parents[1]  # the package

    def git(*arguments: str) -> str:
        return subprocess.run(
            ["git", *arguments], cwd=folder, capture_output=True, text=True, check=True, timeout=10
        ).stdout

    try:
        tracked = git("ls-files", "--error-unmatch", "__init__.py")
        commit = git("rev-parse", "HEAD").strip()
        difference = git("diff", "HEAD", "--", ".")
    except (OSError, subprocess.SubprocessError):
        return None
    dirty = bool(tracked and difference)
    digest = hashlib.sha256(difference.encode()).hexdigest() if dirty else None
    return {"commit": commit, "dirty": dirty, "diff": digest}
