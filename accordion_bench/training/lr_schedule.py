"""The learning rate of every epoch as scheduled: warm-up, then steps down. No torch.

This is not the scheduler: that one decides about communication, and may multiply the rate given here by the
batch multiple.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from accordion_bench.config.schema import LRScheduleConfig


@dataclass(frozen=True)
class LRSchedule:
    """Table 7 of Agarwal et al. 2021: base x workers after a linear warm-up, times `factor` from every milestone on.

    With `warmup_delay` 1 the warm-up is that of the published code, which computes the rate of an epoch from the index
    of the one before: epochs 0 and 1 run at `base`, and with 5 warm-up epochs the sixth is the first at full rate.

    Attributes:
        config: base rate, warm-up, milestones (first epochs at the lower rate, counted from 0) and factor.
        workers: A, what the rate is multiplied by after the warm-up if `config.scale_with_workers`.
    """

    config: LRScheduleConfig
    workers: int

    def rate(self, epoch: int) -> float:
        """The rate of an epoch (from 0), without the batch multiple. Equal epochs of the schedule get equal floats."""
        passed = sum(milestone <= epoch for milestone in self.config.milestones)
        return self.config.base * self._scale(epoch) * self.config.factor**passed

    def _scale(self, epoch: int) -> float:
        if not self.config.scale_with_workers:
            return 1.0
        if self.config.warmup_epochs == 0:
            return float(self.workers)
        progress = min(max(epoch - self.config.warmup_delay, 0) / self.config.warmup_epochs, 1.0)
        return 1.0 + (self.workers - 1) * progress
