"""Language modelling: contiguous streams of text, each with a hidden state that lives as long as an epoch.

Shape suffixes: T steps of a batch, B streams, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from accordion_bench.errors import UserError
from accordion_bench.training.communicator import Communicator
from accordion_bench.training.task import Carry, Task
from accordion_bench.workloads.datasets.base import TextData
from accordion_bench.workloads.tasks.evaluation import Share, evaluating, sum_units

EVALUATION_GROUPS = 8  # units of work that processes share; each carries its own hidden state
EVALUATION_STREAMS = 8  # streams per group
IGNORED = -100  # target of the filling at the end of the last streams

TextBatch = tuple[Tensor, Tensor]  # inputs (T, B), targets (T, B): the next token of each


class LanguageModelling(Task):
    """Next-token cross-entropy; perplexity on the test split, and on the validation split beside it.

    The training text is cut into A x B streams of equal length (what is left over is dropped); worker w owns columns
    w B .. (w + 1) B - 1 in every epoch, so its hidden state always continues the text it has just read. The order of a
    text is its meaning: nothing is shuffled. `model(tokens_TB, carry)` gives (logits_TBV, carry); carry None is zero.

    Args:
        data: the text.
        share: how it is divided; batch_per_worker counts streams.
        bptt: T, steps through which gradients flow; the code published with the paper has 30.

    Raises:
        UserError: if bptt is below 1 or a stream would be shorter than two tokens.
    """

    metric = "perplexity"
    higher_is_better = False

    def __init__(self, data: TextData, share: Share, *, bptt: int = 30) -> None:
        if bptt < 1:
            raise UserError(f"dataset.bptt must be at least 1 step, got {bptt}")
        streams = share.workers * share.batch_per_worker
        length = len(data.train) // streams
        if length < 2:
            most = len(data.train) // (2 * share.workers)
            if most < 1:
                raise UserError(
                    f"the training text must have at least {2 * share.workers} tokens for {share.workers} workers, got "
                    f"{len(data.train)}; take a longer one, or fewer workers"
                )
            raise UserError(
                f"batch.per_worker must be at most {most} ({len(data.train)} training tokens "
                f"in streams of two or more over {share.workers} workers), got {share.batch_per_worker}"
            )
        self._share, self._bptt = share, bptt
        self.facts = {"kind": "text", "vocabulary": len(data.vocabulary)}
        kept = _as_tensor(data.train)[: streams * length]
        self._train = kept.view(streams, length).T.contiguous().to(share.device)  # (length, A x B)
        self._valid = _evaluation_groups(data.valid, share.device)
        self._test = _evaluation_groups(data.test, share.device)

    @property
    def batches_per_epoch(self) -> int:
        """ceil((stream length - 1) / T)."""
        return -(-(len(self._train) - 1) // self._bptt)

    def batches(self, epoch: int, worker: int) -> Iterator[TextBatch]:
        """(inputs, targets) of the worker's streams, from their beginning; the same in every epoch."""
        first = worker * self._share.batch_per_worker
        own = self._train[:, first : first + self._share.batch_per_worker]
        yield from zip(own[:-1].split(self._bptt), own[1:].split(self._bptt), strict=True)

    def size(self, batch: TextBatch) -> int:
        """Number of predicted tokens."""
        return batch[1].numel()

    def loss(self, model: nn.Module, batch: TextBatch, carry: Carry) -> tuple[Tensor, Carry]:
        """Mean cross-entropy per token, and the hidden state cut off from this batch's graph."""
        inputs_TB, targets_TB = batch
        logits_TBV, carry = model(inputs_TB, carry)
        return F.cross_entropy(logits_TBV.flatten(0, 1), targets_TB.flatten()), _detached(carry)

    def evaluate(self, model: nn.Module, communicator: Communicator) -> dict[str, float]:
        """perplexity and loss per token on the test split, valid_perplexity and valid_loss on the validation split."""
        with evaluating(model):
            loss = self._mean_loss(model, self._test, communicator)
            valid_loss = self._mean_loss(model, self._valid, communicator)
        return {
            "perplexity": _exp(loss),
            "loss": loss,
            "valid_perplexity": _exp(valid_loss),
            "valid_loss": valid_loss,
        }

    def _mean_loss(self, model: nn.Module, groups: list[TextBatch], communicator: Communicator) -> float:
        def measure(unit: int) -> Tensor:
            inputs, targets = groups[unit]
            total, carry = torch.zeros((), dtype=torch.float64, device=self._share.device), None
            for inputs_TB, targets_TB in zip(inputs.split(self._bptt), targets.split(self._bptt), strict=True):
                logits_TBV, carry = model(inputs_TB, carry)
                total += F.cross_entropy(
                    logits_TBV.flatten(0, 1), targets_TB.flatten(), ignore_index=IGNORED, reduction="sum"
                )
            return torch.stack([total, (targets != IGNORED).sum().double()])

        loss, count = sum_units(len(groups), measure, 2, communicator, self._share.device)
        return loss / count


def _evaluation_groups(tokens: NDArray[np.int32], device: torch.device) -> list[TextBatch]:
    """Groups of streams that together predict every token but the first exactly once.

    The number of streams is fixed by the text alone. Streams lose context at their beginnings only.
    """
    text = _as_tensor(tokens)
    count = len(text) - 1
    if count < 1:
        raise UserError(f"a text to evaluate on must have at least 2 tokens, got {len(text)}")
    streams = min(EVALUATION_GROUPS * EVALUATION_STREAMS, count)
    length = -(-count // streams)
    filling = streams * length - count
    inputs = F.pad(text[:-1], (0, filling)).view(streams, length)
    targets = F.pad(text[1:], (0, filling), value=IGNORED).view(streams, length)
    return [
        (group_inputs.T.contiguous().to(device), group_targets.T.contiguous().to(device))
        for group_inputs, group_targets in zip(
            inputs.split(EVALUATION_STREAMS), targets.split(EVALUATION_STREAMS), strict=True
        )
    ]


def _as_tensor(tokens: NDArray[np.int32]) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(tokens, dtype=np.int64))


def _detached(carry: Carry) -> Carry:
    if isinstance(carry, Tensor):
        return carry.detach()
    if isinstance(carry, (tuple, list)):
        return type(carry)(_detached(part) for part in carry)
    return carry


def _exp(loss: float) -> float:
    """e to the loss; infinity instead of an OverflowError."""
    return float(torch.tensor(loss, dtype=torch.float64).exp())
