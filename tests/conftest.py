"""One thread per process and no deadlines: the machine may be small, and nothing here is timed.

Tests marked `long` run when ACCORDION_BENCH_LONG=1 is set.
"""

from __future__ import annotations

import os
import signal

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before anything imports torch

# Started in the background or under nohup, a process ignores these, and so would every process that a test starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

import pytest
from hypothesis import settings

# Where a change is judged, the same examples every time; elsewhere new ones, which may find something.
settings.register_profile("plain", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("plain")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what takes minutes unless it is asked for."""
    if item.get_closest_marker("long") and os.environ.get("ACCORDION_BENCH_LONG") != "1":
        pytest.skip("takes minutes on a CPU; set ACCORDION_BENCH_LONG=1 to run it")
