"""Wide residual network WRN-28-10 (Zagoruyko and Komodakis 2016)."""

from __future__ import annotations

from collections import OrderedDict

from torch import Tensor, nn
from torch.nn import functional as F

from accordion_bench.workloads.models.blocks import GlobalMean, check_size


def build(*, channels: int, size: int, classes: int) -> nn.Module:
    """Three stages of four pre-activation blocks, 160, 320 and 640 wide; every convolution has a bias (Tables 8 and 9).

    (batch, channels, size, size) -> logits (batch, classes).
    36,489,290 parameters for 3 channels and 10 classes, 36,546,980 for 100.

    Raises:
        UserError: images smaller than 4x4.
    """
    check_size("wideresnet", size, halvings=2)
    layers: OrderedDict[str, nn.Module] = OrderedDict()
    layers["conv"] = nn.Conv2d(channels, 16, 3, padding=1)
    inputs = 16
    for number, width in enumerate((160, 320, 640), start=1):
        first = WideBlock(inputs, width, stride=1 if number == 1 else 2)
        layers[f"stage{number}"] = nn.Sequential(first, *(WideBlock(width, width, stride=1) for _ in range(3)))
        inputs = width
    layers["norm"] = nn.BatchNorm2d(inputs)
    layers["relu"] = nn.ReLU()
    layers["mean"] = GlobalMean()
    layers["linear"] = nn.Linear(inputs, classes)
    return nn.Sequential(layers)


class WideBlock(nn.Module):
    """Pre-activation block whose *second* convolution carries the stride. Its dropout of rate 0 is left out."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        self.norm1 = nn.BatchNorm2d(inputs)
        self.conv1 = nn.Conv2d(inputs, width, 3, padding=1)
        self.norm2 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride=stride, padding=1)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != width:
            self.shortcut = nn.Conv2d(inputs, width, 1, stride=stride)

    def forward(self, maps: Tensor) -> Tensor:
        residual = self.conv1(F.relu(self.norm1(maps)))
        residual = self.conv2(F.relu(self.norm2(residual)))
        return residual + self.shortcut(maps)
