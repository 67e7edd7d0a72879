"""One process of a job that the user's own torchrun started:

    torchrun --nproc-per-node 4 -m accordion_bench.worker model=resnet18 compressor=powersgd

Takes the same overrides as `accordion-bench run`, on one machine or several.
"""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack

from accordion_bench.commands.streams import occupy
from accordion_bench.config.schema import RunConfig
from accordion_bench.errors import Interrupted, RunFailure, UserError
from accordion_bench.runs.members import in_collective
from accordion_bench.runs.progress import say


def main(overrides: list[str]) -> int:
    """Run this process's workers; the exit code."""
    from accordion_bench.config.compose import compose
    from accordion_bench.runs import outcome

    occupy()
    if "RANK" not in os.environ:
        say(
            "accordion-bench: this module is started by torchrun "
            "(torchrun --nproc-per-node 4 -m accordion_bench.worker ...); without it use accordion-bench run"
        )
        return 2
    process = os.environ["RANK"]
    name = f"accordion-bench: process {process}"
    try:
        config = compose(overrides)
        return _run(config)
    except (UserError, RunFailure) as error:
        say(f"{name}: {error}")
        return error.exit_code
    except Interrupted as stop:
        if process == "0":
            say(f"accordion-bench: {stop}")
        return stop.exit_code
    except Exception as error:
        if in_collective(error):  # whoever has gone says why itself, if it still can
            say(f"{name}: lost another process ({str(error).strip().splitlines()[0]})")
        else:
            say(f"{name}: {outcome.failed(config, error, f'in process {process}')}")
        return RunFailure.exit_code


def _run(config: RunConfig) -> int:
    from accordion_bench.runs.launch import join_group, leave_group, place_workers
    from accordion_bench.runs.run import Place, execute
    from accordion_bench.training.communicator import Communicator

    _, kind = place_workers(config)
    place = Place(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), join_group(config, kind))
    with ExitStack() as held:
        answer = _admit(config, held) if place.process == 0 else None
        everyone = Communicator(config.workers // place.processes, place.process, place.processes)
        agreed = everyone.objects(answer)[0]
        assert isinstance(agreed, tuple)
        code, text = agreed
        if text:
            if place.process == 0:
                say(text)
            return int(code)
        execute(config, place)
    leave_group()
    return 0


def _admit(config: RunConfig, held: ExitStack) -> tuple[int, str]:
    """Take the lock, for all processes: (an exit code, why there is nothing to do or an empty text)."""
    from accordion_bench.runs.admission import finished_summary
    from accordion_bench.runs.lock import Lock

    try:
        held.enter_context(Lock(config.directory))
        if finished_summary(config) is not None:
            return 0, f"already finished: {config.directory} (delete it to run again)"
    except UserError as error:
        return error.exit_code, f"accordion-bench: {error}"
    return 0, ""


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stdout.flush()
    if code:
        os._exit(code)  # no clean-up that waits for other processes
