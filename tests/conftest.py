"""One thread per process and no deadlines: the machine may be small, and nothing here is timed.

Tests marked `long` run when ACCORDION_BENCH_LONG=1 is set. What takes most of the time without being `long` is marked
`thorough`, so that `make test-quick` can leave it out: the files here, and single tests where they stand.
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


THOROUGH = {
    *("test_golden", "test_packaging", "test_every_table", "test_sweep", "test_reliability_sweeps", "test_plan"),
    *("test_networks_end_to_end", "test_models", "test_models_details", "test_protocols", "test_interpolations"),
    *("test_checkpoint", "test_placement", "test_replay"),
    *("test_reliability_disk", "test_reliability_files", "test_reliability_jobs", "test_reliability_kill"),
    *(
        "test_reliability_verify",
        "test_one_reading",
        "test_foreign_results",
        "test_core_compressors",
        "test_compressors_statistics",
        "test_bad_gradients",
    ),
    *("test_figures_paper", "test_report_figures", "test_lasso", "test_audit", "test_numbers_out_of_range"),
    *("test_trainer", "test_own_models", "test_bad_input"),
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of the files above."""
    for item in items:
        if item.path.stem in THOROUGH:
            item.add_marker(pytest.mark.thorough)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what takes minutes unless it is asked for."""
    if item.get_closest_marker("long") and os.environ.get("ACCORDION_BENCH_LONG") != "1":
        pytest.skip("takes minutes on a CPU; set ACCORDION_BENCH_LONG=1 to run it")
