"""python -m accordion_bench: the same as accordion-bench."""

import sys

from accordion_bench.commands.cli import main

if __name__ == "__main__":
    sys.exit(main())
