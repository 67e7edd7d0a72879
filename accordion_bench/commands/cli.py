"""accordion-bench COMMAND ...: choose a command, and turn what goes wrong into one line and an exit code.

Nothing heavy is imported here: a command loads what it needs when it is called.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module

from accordion_bench import __version__
from accordion_bench.commands.streams import Unwritable, occupy, prepared
from accordion_bench.errors import Interrupted, RunFailure, UserError
from accordion_bench.foreign import one_line
from accordion_bench.plugins import closest, names_only

COMMANDS = {
    "run": "train one configuration, or several with -m",
    "sweep": "train what is missing of a table, or of a grid of settings",
    "tables": "print and write tables of finished runs, with the paper's numbers beside them",
    "figures": "draw curves and levels of finished runs",
    "claims": "say which claims the runs support, which they contradict, and which are open",
    "list": "show every run with its state, progress and last metric",
    "verify": "check that stored runs are whole and are what they say they are",
    "audit": "explain the paper's own columns without training anything",
    "plan": "say what a run will send and how long that takes on a network, before it starts",
    "check": "test a compressor or scheduler, yours or a registered one, against its promises",
    "data": "show which data sets are here; download or check one",
}

# These look at what is there, which may be somebody else's: they import no component that it names.
LOOKING = ("tables", "figures", "claims", "list", "verify", "audit", "data")

HELP = """\
usage: accordion-bench COMMAND ...

Adaptive gradient communication: reproduces, and lets you extend, the experiments of
Accordion (Agarwal et al., MLSys 2021).

commands:
{commands}

Start here (no download, under a minute):
  accordion-bench run dataset=digits model=smallcnn
The paper's first experiment, and its table:
  accordion-bench run model=resnet18 compressor=powersgd
  accordion-bench sweep table=1 --dry-run
  accordion-bench tables 1

'accordion-bench COMMAND --help' explains a command; 'accordion-bench run --help' lists every choice.
exit codes: 0 done, 1 a run failed or diverged, 2 wrong input, 130 interrupted
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    warnings.formatwarning = _warning
    if argv is None:
        occupy()
    with prepared():
        return _answered(arguments)


def _answered(arguments: list[str]) -> int:
    """The command, and what it raised as one line and an exit code."""
    try:
        code = _dispatch(arguments)
        _flush()
        return code
    except (UserError, RunFailure) as error:
        _say(f"accordion-bench: {one_line(error)}")
        return error.exit_code
    except Interrupted as stop:
        _say(f"accordion-bench: {stop}")
        return stop.exit_code
    except KeyboardInterrupt:
        _say("accordion-bench: interrupted; the same command continues")
        return 130
    except BrokenPipeError:  # the reader (head, less) has gone
        _silence()
        return 0
    except Unwritable as error:
        _silence()
        _say(f"accordion-bench: cannot write to standard output ({error}); what was asked for is done, but not shown")
        return 1


def _flush() -> None:
    """What is still in the buffer of standard output, now that it can be said if it does not fit."""
    if sys.stdout is not None:
        sys.stdout.flush()


def _silence() -> None:
    """Nothing of what is left in the buffer is tried again when the interpreter ends."""
    with suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _say(text: str) -> None:
    """A line on standard error; should that be full or closed, the exit code still tells."""
    with suppress(OSError):
        print(text, file=sys.stderr, flush=True)


def _warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
) -> str:
    """What a warning looks like on the screen: one line without the place in the code, unless it is about code."""
    if category is UserWarning:
        return f"accordion-bench: warning: {one_line(message)}\n"
    return f"{filename}:{lineno}: {category.__name__}: {message}\n"


def _dispatch(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        width = max(map(len, COMMANDS))
        print(HELP.format(commands="\n".join(f"  {name:<{width}}  {text}" for name, text in COMMANDS.items())), end="")
        return 0
    if arguments[0] == "--version":
        print(f"accordion-bench {__version__}")
        return 0
    command, *rest = arguments
    if command not in COMMANDS:
        hint = closest(command, list(COMMANDS)) or ";"
        raise UserError(f"no command {command!r}{hint} there are: {', '.join(COMMANDS)} (accordion-bench --help)")
    module = import_module(f"accordion_bench.commands.{'listing' if command == 'list' else command}")
    with names_only(command in LOOKING):
        return int(module.main(rest))
