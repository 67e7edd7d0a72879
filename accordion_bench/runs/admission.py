"""May this run start, or continue, in its directory? No torch."""

from __future__ import annotations

from pathlib import Path

from accordion_bench.config.parsing import from_yaml
from accordion_bench.config.schema import RunConfig, differences
from accordion_bench.errors import UserError
from accordion_bench.foreign import MEBIBYTE, read_text
from accordion_bench.runs.records import RunDirectory, Summary
from accordion_bench.runs.stored import Problem, read_run


def finished_summary(config: RunConfig) -> Summary | None:
    """The summary of this very run if it has finished; UserError if the directory holds another configuration's run."""
    directory = RunDirectory(config.directory)
    check_configuration(config, directory.path / "config.yaml")
    if not directory.finished:
        return None
    read = read_run(directory.path, config.seed)
    if isinstance(read, Problem) and read.state != "diverged":
        raise UserError(
            f"{directory.path} finished, but is {read.state} ({read.message}); restore it, or delete it to run again"
        )
    return Summary(**(directory.read_json("summary.json") or {}))


def check_configuration(config: RunConfig, path: Path) -> None:
    """What made the records that are there is what would continue them."""
    try:
        stored = from_yaml(read_text(path, MEBIBYTE))
    except FileNotFoundError:
        return
    except OSError as error:
        raise UserError(f"cannot read {path} ({error.strerror}); make it readable or set results=DIR") from None
    except (UserError, UnicodeDecodeError) as error:
        raise UserError(f"{path} was edited: {error}; restore it, or delete the run's directory") from None
    found = differences(stored.identity, config.identity)
    if stored.seed != config.seed:
        found.append(f"seed {stored.seed}, not {config.seed}")
    if found:
        raise UserError(f"{path} is of another run: {'; '.join(found)}; restore it, or delete the run's directory")
