"""A component of a user's own that goes wrong when it is told to."""

from __future__ import annotations

import time

from torch import Tensor

from accordion_bench.compressors.ladders import FRACTIONS
from accordion_bench.compressors.none import Uncompressed
from accordion_bench.training.communicator import Communicator
from accordion_bench.training.gradients import Layout


class Faulty(Uncompressed):
    """Averages the gradient, until one worker does something else."""

    ladder = FRACTIONS

    def __init__(
        self,
        layout: Layout,
        seed: int,
        *,
        error_feedback: bool = True,
        fault: str = "none",
        worker: int = 2,
        update: int = 7,
    ) -> None:
        super().__init__(layout, seed, error_feedback=error_feedback)
        self.fault, self.worker, self.update = fault, worker, update

    def reduce(self, grads_HN: Tensor, communicator: Communicator) -> Tensor:
        if self.updates == self.update and self.worker in communicator.hosted_workers:
            if self.fault == "raise":
                raise ValueError("no more gradients today")
            if self.fault == "sleep":
                time.sleep(1000)
            if self.fault == "spoil":
                grads_HN[self.worker - communicator.hosted_workers.start, 0] = float("nan")
        return super().reduce(grads_HN, communicator)
