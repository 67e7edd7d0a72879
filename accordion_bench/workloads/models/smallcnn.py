"""A very small convolutional network for quick runs on a CPU; not in the paper."""

from __future__ import annotations

from collections import OrderedDict

from torch import nn

from accordion_bench.workloads.models.blocks import GlobalMean, check_size


def build(*, channels: int, size: int, classes: int) -> nn.Module:
    """Three 3x3 convolutions (16, 32, 32 wide, the last two of stride 2) with BatchNorm and ReLU, mean, Linear.

    (batch, channels, size, size) -> logits (batch, classes). 14,458 parameters on 1x8x8 digits with 10 classes.

    Raises:
        UserError: images smaller than 4x4.
    """
    check_size("smallcnn", size, halvings=2)
    layers: OrderedDict[str, nn.Module] = OrderedDict()
    inputs = channels
    for number, (outputs, stride) in enumerate([(16, 1), (32, 2), (32, 2)], start=1):
        layers[f"conv{number}"] = nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)
        layers[f"norm{number}"] = nn.BatchNorm2d(outputs)
        layers[f"relu{number}"] = nn.ReLU()
        inputs = outputs
    layers["mean"] = GlobalMean()
    layers["linear"] = nn.Linear(inputs, classes)
    return nn.Sequential(layers)
