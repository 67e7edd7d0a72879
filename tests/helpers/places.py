"""Where things are: the repository, and this folder's files."""

from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
TESTS = REPOSITORY / "tests"
HELPERS = TESTS / "helpers"
