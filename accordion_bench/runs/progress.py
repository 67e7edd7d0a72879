"""What a person sees while a run is going: one live line on a terminal, plain lines otherwise."""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from accordion_bench.config.schema import RunConfig
from accordion_bench.runs.records import Summary
from accordion_bench.training.record import EpochRecord
from accordion_bench.training.traffic import Traffic

if TYPE_CHECKING:
    from accordion_bench.training.trainer import Trainer


def human_count(number: float) -> str:
    """Three significant digits with a unit: 82.3 k, 2.42 G."""
    for limit, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(number) >= limit:
            return f"{number / limit:.3g} {unit}" if number / limit < 1000 else f"{number / limit:.0f} {unit}"
    return f"{number:.0f}"


def human_time(seconds: float) -> str:
    """3 h 12 min, 4 min 05 s, 12 s."""
    seconds = round(seconds)
    if seconds >= 3600:
        return f"{seconds // 3600} h {seconds % 3600 // 60:02d} min"
    if seconds >= 60:
        return f"{seconds // 60} min {seconds % 60:02d} s"
    return f"{seconds} s"


def say(text: str) -> None:
    """A line on standard error; a log that cannot be written (full disk, closed terminal) must not end a run."""
    with suppress(OSError, ValueError):
        print(text, file=sys.stderr, flush=True)


class Progress:
    """Reports one run; every method is cheap and writes only where this process should.

    Args:
        config: the run.
        silent: write nothing (another process reports, or --quiet).
        examples_per_batch: of all workers in one update with batch multiple 1.
        low_floats: words per update of the least compressed level, for the ratio.
        metric: the task's, as it is called in what is shown.
    """

    def __init__(
        self, config: RunConfig, *, silent: bool, examples_per_batch: int, low_floats: float, metric: str
    ) -> None:
        self.config = config
        self.silent = silent
        self.examples_per_batch = examples_per_batch
        self.low_floats = low_floats
        self.metric = metric
        self.unit = " %" if metric == "accuracy" else ""
        self.live = not silent and sys.stderr.isatty()
        self._bar: Any = None
        self._task: Any = None
        self._started = time.monotonic()
        self._first_epoch = 0
        self._sent = Traffic()
        self._low = 0.0
        self._line = ""

    def begin(self, first_epoch: int, sent: Traffic) -> None:
        """Training is about to start at this epoch; earlier epochs have sent `sent`."""
        self._started = time.monotonic()
        self._first_epoch = first_epoch
        self._sent = sent
        self._low = float("nan") if first_epoch else 0.0
        if self.live:
            from rich.console import Console
            from rich.progress import BarColumn, TextColumn
            from rich.progress import Progress as Bar

            self._bar = Bar(
                TextColumn("epoch {task.fields[epoch]:>3}/{task.fields[epochs]}"),
                BarColumn(bar_width=20),
                TextColumn("{task.fields[text]}"),
                console=Console(stderr=True),
                transient=True,
            )
            self._task = self._bar.add_task(
                "",
                total=float(self.config.epochs),
                completed=first_epoch,
                epoch=first_epoch,
                epochs=self.config.epochs,
                text="",
            )
            self._bar.start()

    def update(self, done: int, total: int) -> None:
        """An update of the current epoch is done."""
        if self._bar is not None:
            whole = int(self._bar.tasks[0].fields["epoch"])
            self._bar.update(self._task, completed=whole + done / total, text=self._line or f"update {done}/{total}")

    def epoch(self, record: EpochRecord) -> None:
        """An epoch has ended."""
        if self.silent:
            return
        done = record.epoch + 1
        self._sent = self._sent + Traffic.from_dict(record.traffic)
        self._low += self.low_floats * record.updates
        seconds = sum(value for name, value in record.seconds.items() if name != "evaluate")
        rate = self.examples_per_batch * record.batch_multiple * record.updates / seconds if seconds else 0.0
        elapsed = time.monotonic() - self._started
        left = elapsed / (done - self._first_epoch) * (self.config.epochs - done)
        sent = self._sent.floats_per_worker
        ratio = f" ({self._low / sent:.1f}x less than least compressed)" if sent and self._low > 1.01 * sent else ""
        lowest = len(self.config.compressor.levels) - 1
        layers = len(record.level_index_L)
        low = ""
        if lowest > 0:
            low = f"  low in {sum(index == lowest for index in record.level_index_L)} of {layers} layers"
        if len(self.config.batch.multipliers) > 1:
            low += f"  batch x{record.batch_multiple}"
        self._line = (
            f"loss {record.loss:.3f}  {self.metric} {record.metrics[self.metric]:.1f}{self.unit}  "
            f"sent {human_count(sent)} floats{ratio}{low}  {rate:,.0f} examples/s  {human_time(left)} left"
        )
        if self._bar is not None:
            self._bar.update(self._task, completed=done, epoch=done, text=self._line)
        else:
            say(f"epoch {done:>3}/{self.config.epochs}  {self._line}")

    def say(self, text: str) -> None:
        """A line that stays."""
        if not self.silent:
            say(text)

    def end(self) -> None:
        """Training is over, well or badly."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None


def title(config: RunConfig, processes: int, device: str) -> str:
    """What is run and where; said when all that could be refused has been accepted."""
    kind = device.partition(":")[0]
    backend = "" if processes == 1 else f" ({'nccl' if kind == 'cuda' else 'gloo'})"
    where = f"{processes} process{'es' if processes > 1 else ''}{backend} on {kind}"
    return f"{config.title} in {where} · seed {config.seed}"


def announcement(trainer: Trainer, path: Path) -> str:
    """What the run will send at most and at least, and where its results go."""
    epochs, batches = trainer.problem.epochs - trainer.position, trainer.task.batches_per_epoch
    most = epochs * batches * max(trainer.problem.floats_per_step)
    least = epochs * (batches // max(trainer.problem.multiples)) * min(trainer.problem.floats_per_step)
    amount = human_count(most) if most == least else f"{human_count(least)} to {human_count(most)}"
    start = ""
    if trainer.current is not None:
        start = f"continues within epoch {trainer.position + 1} and "
    elif trainer.position:
        start = f"continues after epoch {trainer.position} and "
    return f"{start}will send {amount} floats per worker   {path}"


def farewell(summary: Summary, path: Path) -> str:
    """What the run reached, and what to do with it."""
    unit = " %" if summary.metric == "accuracy" else ""
    took = human_time(summary.training_seconds)
    return (
        f"done: {summary.metric} {summary.final:.2f}{unit} after {summary.epochs} epochs, "
        f"{human_count(summary.floats_per_worker)} floats per worker, {took} of training   "
        f"{path}   Next: accordion-bench list"
    )
