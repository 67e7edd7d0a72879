"""Which commit wrote a table's claims down: git's history shows that it came before the runs."""

from __future__ import annotations

import subprocess
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[3]


def design_commit(name: str, repository: Path = REPOSITORY) -> str:
    """Short hash and date of the last commit that changed conf/table/<name>.yaml.

    Empty where there is no git history to ask: an installed wheel, a shallow clone, no git; "not committed" if the file
    differs from what was committed.
    """
    path = f"conf/table/{name}.yaml"
    if not (repository / ".git").exists() or not (repository / path).is_file():
        return ""
    if _git(repository, "rev-parse", "--is-shallow-repository") != "false":
        return ""
    if _git(repository, "status", "--porcelain", "--", path):
        return "none: the file is not committed"
    return _git(repository, "log", "-1", "--format=%h of %cs", "--", path)


def _git(repository: Path, *arguments: str) -> str:
    try:
        done = subprocess.run(["git", "-C", str(repository), *arguments], capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
