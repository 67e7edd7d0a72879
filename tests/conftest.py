"""One thread per process and no deadlines: the machine may be small, and nothing here is timed."""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before anything imports torch

from hypothesis import settings

settings.register_profile("plain", deadline=None)
settings.load_profile("plain")
