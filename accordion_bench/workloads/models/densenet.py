"""Densely connected network DenseNet-BC with growth 12 (Huang et al. 2017)."""

from __future__ import annotations

from collections import OrderedDict

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from accordion_bench.workloads.models.blocks import GlobalMean, check_size

_GROWTH = 12
_BLOCKS = (6, 12, 24, 16)


def build(*, channels: int, size: int, classes: int) -> nn.Module:
    """Four dense blocks of 6, 12, 24 and 16 bottleneck layers; a transition between two blocks halves channels and map.

    (batch, channels, size, size) -> logits (batch, classes). No convolution has a bias.
    1,000,618 parameters for 3 channels and 10 classes (Table 8), 1,035,268 for 100 (Table 9).

    Raises:
        UserError: images smaller than 8x8.
    """
    check_size("densenet", size, halvings=3)
    layers: OrderedDict[str, nn.Module] = OrderedDict()
    width = 2 * _GROWTH
    layers["conv"] = nn.Conv2d(channels, width, 3, padding=1, bias=False)
    for number, depth in enumerate(_BLOCKS, start=1):
        if number > 1:
            layers[f"transition{number - 1}"] = _transition(width)
            width //= 2
        layers[f"block{number}"] = nn.Sequential(*(Bottleneck(width + i * _GROWTH) for i in range(depth)))
        width += depth * _GROWTH
    layers["norm"] = nn.BatchNorm2d(width)
    layers["relu"] = nn.ReLU()
    layers["mean"] = GlobalMean()
    layers["linear"] = nn.Linear(width, classes)
    return nn.Sequential(layers)


def _transition(width: int) -> nn.Module:
    return nn.Sequential(
        OrderedDict(
            norm=nn.BatchNorm2d(width),
            relu=nn.ReLU(),
            conv=nn.Conv2d(width, width // 2, 1, bias=False),
            pool=nn.AvgPool2d(2),
        )
    )


class Bottleneck(nn.Module):
    """Adds `_GROWTH` maps to its input: (batch, inputs, h, w) -> (batch, inputs + 12, h, w)."""

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.norm1 = nn.BatchNorm2d(inputs)
        self.conv1 = nn.Conv2d(inputs, 4 * _GROWTH, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(4 * _GROWTH)
        self.conv2 = nn.Conv2d(4 * _GROWTH, _GROWTH, 3, padding=1, bias=False)

    def forward(self, maps: Tensor) -> Tensor:
        new = self.conv1(F.relu(self.norm1(maps)))
        new = self.conv2(F.relu(self.norm2(new)))
        return torch.cat([maps, new], dim=1)
