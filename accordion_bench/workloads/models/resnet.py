"""Residual networks for small images (He et al. 2016), with a 3x3 stem and no max pool."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from torch import nn
from torchvision.models.resnet import BasicBlock

from accordion_bench.workloads.models.blocks import GlobalMean, check_size


def build_resnet18(*, channels: int, size: int, classes: int) -> nn.Module:
    """The paper's ResNet-18: four stages of two basic blocks, 64, 128, 256 and 512 wide (Tables 8 and 9).

    (batch, channels, size, size) -> logits (batch, classes).
    11,173,962 parameters for 3 channels and 10 classes, 11,220,132 for 100.

    Raises:
        UserError: images smaller than 8x8.
    """
    check_size("resnet18", size, halvings=3)
    return _residual_network(channels, classes, widths=(64, 128, 256, 512), blocks=2)


def build_resnet8(*, channels: int, size: int, classes: int) -> nn.Module:
    """A small one for runs on a CPU: three stages of one basic block, 16, 32 and 64 wide; not in the paper.

    (batch, channels, size, size) -> logits (batch, classes). 78,042 parameters for 3 channels and 10 classes.

    Raises:
        UserError: images smaller than 4x4.
    """
    check_size("resnet8", size, halvings=2)
    return _residual_network(channels, classes, widths=(16, 32, 64), blocks=1)


def _residual_network(channels: int, classes: int, widths: Sequence[int], blocks: int) -> nn.Module:
    """Stem, one stage per width (every stage but the first halves the map), mean, Linear. No convolution has a bias."""
    layers: OrderedDict[str, nn.Module] = OrderedDict()
    layers["conv"] = nn.Conv2d(channels, widths[0], 3, padding=1, bias=False)
    layers["norm"] = nn.BatchNorm2d(widths[0])
    layers["relu"] = nn.ReLU()
    inputs = widths[0]
    for number, width in enumerate(widths, start=1):
        first = _block(inputs, width, stride=1 if number == 1 else 2)
        layers[f"stage{number}"] = nn.Sequential(first, *(_block(width, width, stride=1) for _ in range(blocks - 1)))
        inputs = width
    layers["mean"] = GlobalMean()
    layers["linear"] = nn.Linear(inputs, classes)
    return nn.Sequential(layers)


def _block(inputs: int, width: int, stride: int) -> nn.Module:
    shortcut = None
    if stride != 1 or inputs != width:
        shortcut = nn.Sequential(nn.Conv2d(inputs, width, 1, stride=stride, bias=False), nn.BatchNorm2d(width))
    block: nn.Module = BasicBlock(inputs, width, stride, shortcut)
    return block
