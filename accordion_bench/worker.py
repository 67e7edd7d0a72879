"""One process of a job that the user's own torchrun started:

    torchrun --nproc-per-node 4 -m accordion_bench.worker model=resnet18 compressor=powersgd

Takes the same overrides as `accordion-bench run`, on one machine or several.
"""

from __future__ import annotations

import os
import sys
from contextlib import nullcontext

from accordion_bench.errors import Interrupted, RunFailure, UserError


def main(overrides: list[str]) -> int:
    """Run this process's workers; the exit code."""
    from accordion_bench.compose import compose
    from accordion_bench.launch import finished_summary, place_workers, run_member
    from accordion_bench.lock import Lock

    if "RANK" not in os.environ:
        print(
            "accordion-bench: this module is started by torchrun (torchrun --nproc-per-node 4 -m accordion_bench.worker ...); "
            "without it use accordion-bench run",
            file=sys.stderr,
        )
        return 2
    first = os.environ["RANK"] == "0"
    try:
        config = compose(overrides)
        if finished_summary(config) is not None:
            if first:
                print(f"already finished: {config.directory} (delete it to run again)", file=sys.stderr)
            return 0
        _, device = place_workers(config)
        with Lock(config.directory) if first else nullcontext():
            run_member(config, device)
    except (UserError, RunFailure, Interrupted) as error:
        if first or not isinstance(error, Interrupted):
            print(f"accordion-bench: process {os.environ['RANK']}: {error}", file=sys.stderr, flush=True)
        sys.stdout.flush()
        return error.exit_code
    return 0


if __name__ == "__main__":
    code = main(sys.argv[1:])
    if code:
        os._exit(code)  # no clean-up that waits for other processes
