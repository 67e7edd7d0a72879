"""GoogLeNet for small images (Szegedy et al. 2015), without auxiliary heads."""

from __future__ import annotations

from collections import OrderedDict

import torch
from torch import Tensor, nn
from torchvision.ops import Conv2dNormActivation

from accordion_bench.workloads.models.blocks import GlobalMean, check_size

# Widths of each inception module: 1x1 branch; 3x3 branch (reduce, out); double 3x3 branch (reduce, out); pool branch.
_MODULES = (
    (64, 96, 128, 16, 32, 32),
    (128, 128, 192, 32, 96, 64),
    (192, 96, 208, 16, 48, 64),
    (160, 112, 224, 24, 64, 64),
    (128, 128, 256, 24, 64, 64),
    (112, 144, 288, 32, 64, 64),
    (256, 160, 320, 32, 128, 128),
    (256, 160, 320, 32, 128, 128),
    (384, 192, 384, 48, 128, 128),
)
_POOL_AFTER = (2, 7)


def build(*, channels: int, size: int, classes: int) -> nn.Module:
    """3x3 stem, nine inception modules with max pools after the second and the seventh, mean, Linear.

    (batch, channels, size, size) -> logits (batch, classes). Every convolution has a bias, BatchNorm and ReLU.
    6,166,250 parameters for 3 channels and 10 classes (Table 8), 6,258,500 for 100 (Table 9). The authors published no
    network for 100 classes; a variant with dropout before the head has the same count.

    Raises:
        UserError: images smaller than 4x4.
    """
    check_size("googlenet", size, halvings=2)
    layers: OrderedDict[str, nn.Module] = OrderedDict()
    inputs = 192
    layers["stem"] = Conv2dNormActivation(channels, inputs, 3, bias=True)
    for number, widths in enumerate(_MODULES, start=1):
        module = Inception(inputs, *widths)
        layers[f"module{number}"] = module
        inputs = module.outputs
        if number in _POOL_AFTER:
            layers[f"pool{number}"] = nn.MaxPool2d(3, stride=2, padding=1)
    layers["mean"] = GlobalMean()
    layers["linear"] = nn.Linear(inputs, classes)
    return nn.Sequential(layers)


class Inception(nn.Module):
    """Four branches side by side; the usual 5x5 convolution is two 3x3 ones."""

    def __init__(
        self, inputs: int, point: int, reduce3: int, conv3: int, reduce5: int, conv5: int, pooled: int
    ) -> None:
        super().__init__()
        self.outputs = point + conv3 + conv5 + pooled
        self.branch1 = Conv2dNormActivation(inputs, point, 1, bias=True)
        self.branch3 = nn.Sequential(
            Conv2dNormActivation(inputs, reduce3, 1, bias=True),
            Conv2dNormActivation(reduce3, conv3, 3, bias=True),
        )
        self.branch5 = nn.Sequential(
            Conv2dNormActivation(inputs, reduce5, 1, bias=True),
            Conv2dNormActivation(reduce5, conv5, 3, bias=True),
            Conv2dNormActivation(conv5, conv5, 3, bias=True),
        )
        self.branch_pool = nn.Sequential(
            nn.MaxPool2d(3, stride=1, padding=1),
            Conv2dNormActivation(inputs, pooled, 1, bias=True),
        )

    def forward(self, maps: Tensor) -> Tensor:
        branches = (self.branch1, self.branch3, self.branch5, self.branch_pool)
        return torch.cat([branch(maps) for branch in branches], dim=1)
