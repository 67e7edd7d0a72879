"""Squeeze-and-excitation ResNet-18 (Hu et al. 2018), in the two forms behind the paper's three parameter counts.

The paper names one "SENet" but its counts and its data-sent columns belong to two networks:

variant  classes  parameters  where
preact   10       11,260,354  Table 8. Pre-activation blocks, last stage 512 wide, gates of 1x1 convolutions.
post     10       11,389,726  In no table of the paper, yet the data sent in Tables 1 and 3 fits it and not preact.
post     100      11,436,256  Table 9. Post-activation blocks, last stage 516 wide (sic), gates of Linear layers,
                              biased convolutions.

"auto" is what the results of the paper were most likely trained with: post, for every number of classes.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torchvision.ops import Conv2dNormActivation, SqueezeExcitation

from accordion_bench.errors import UserError
from accordion_bench.workloads.models.blocks import GlobalMean, check_size

_REDUCTION = 16


def build(*, channels: int, size: int, classes: int, variant: str = "auto") -> nn.Module:
    """Four stages of two gated residual blocks, mean, Linear.

    (batch, channels, size, size) -> logits (batch, classes). The counts above are for 3 channels.

    Args:
        channels: of the images.
        size: height and width of the images in pixels.
        classes: number of logits.
        variant: auto (which is post) | preact | post.

    Raises:
        UserError: images smaller than 8x8, or no such variant.
    """
    check_size("senet", size, halvings=3)
    if variant == "preact":
        stem = Conv2dNormActivation(channels, 64, 3)
        return _network(stem, PreActivationBlock, (64, 128, 256, 512), classes)
    if variant in ("auto", "post"):
        stem = Conv2dNormActivation(channels, 64, 3, bias=True)
        return _network(stem, PostActivationBlock, (64, 128, 256, 516), classes)
    raise UserError(f"model.variant must be one of auto, preact, post, got '{variant}'; auto is post")


def _network(
    stem: nn.Module, block: Callable[[int, int, int], nn.Module], widths: tuple[int, ...], classes: int
) -> nn.Module:
    layers: OrderedDict[str, nn.Module] = OrderedDict(stem=stem)
    inputs = widths[0]
    for number, width in enumerate(widths, start=1):
        stride = 1 if number == 1 else 2
        layers[f"stage{number}"] = nn.Sequential(block(inputs, width, stride), block(width, width, 1))
        inputs = width
    layers["mean"] = GlobalMean()
    layers["linear"] = nn.Linear(inputs, classes)
    return nn.Sequential(layers)


class PreActivationBlock(nn.Module):
    """BatchNorm and ReLU before each convolution, a gate, addition; nothing after it, not even after the last block."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        self.norm1 = nn.BatchNorm2d(inputs)
        self.conv1 = nn.Conv2d(inputs, width, 3, stride=stride, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        changes = stride != 1 or inputs != width
        self.shortcut = nn.Conv2d(inputs, width, 1, stride=stride, bias=False) if changes else None
        self.gate = SqueezeExcitation(width, width // _REDUCTION)

    def forward(self, maps: Tensor) -> Tensor:
        active = F.relu(self.norm1(maps))
        # Where the shape changes the shortcut starts from the activated maps, else from the block's raw input.
        shortcut = maps if self.shortcut is None else self.shortcut(active)
        residual = self.conv2(F.relu(self.norm2(self.conv1(active))))
        return self.gate(residual) + shortcut


class PostActivationBlock(nn.Module):
    """Convolution, BatchNorm, ReLU twice (the second ReLU comes before the gate too), gate, addition, ReLU."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        self.residual = nn.Sequential(
            Conv2dNormActivation(inputs, width, 3, stride=stride, bias=True),
            Conv2dNormActivation(width, width, 3, bias=True),
        )
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != width:
            self.shortcut = Conv2dNormActivation(inputs, width, 1, stride=stride, activation_layer=None, bias=True)
        self.squeeze = nn.Linear(width, width // _REDUCTION)
        self.excite = nn.Linear(width // _REDUCTION, width)

    def forward(self, maps: Tensor) -> Tensor:
        residual = self.residual(maps)
        gate = torch.sigmoid(self.excite(F.relu(self.squeeze(residual.mean((2, 3))))))
        return F.relu(residual * gate[:, :, None, None] + self.shortcut(maps))
