"""The three SGD steps that the paper and its published code use."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from accordion_bench.config.schema import OptimizerConfig


class HeavyBallPlusGradient(torch.optim.Optimizer):
    """buffer = momentum * buffer + g; p -= lr * (g + buffer): the published language-model code's step."""

    def __init__(self, params: Iterable[Tensor], lr: float, momentum: float, weight_decay: float) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """One update from every parameter's `grad`."""
        for group in self.param_groups:
            for parameter in group["params"]:
                gradient = parameter.grad
                if gradient is None:
                    continue
                if group["weight_decay"]:
                    gradient = gradient.add(parameter, alpha=group["weight_decay"])
                state = self.state[parameter]
                if "momentum_buffer" not in state:
                    state["momentum_buffer"] = torch.zeros_like(parameter)
                buffer = state["momentum_buffer"].mul_(group["momentum"]).add_(gradient)
                parameter.add_(gradient + buffer, alpha=-group["lr"])


def build_optimizer(parameters: Iterable[Tensor], config: OptimizerConfig) -> torch.optim.Optimizer:
    """The optimiser; its rate is set before every epoch."""
    if config.kind == "heavy_ball_plus_gradient":
        return HeavyBallPlusGradient(parameters, 0.0, config.momentum, config.weight_decay)
    return torch.optim.SGD(
        parameters,
        lr=0.0,
        momentum=config.momentum,
        weight_decay=config.weight_decay,
        nesterov=config.kind == "nesterov" and config.momentum > 0,
    )
