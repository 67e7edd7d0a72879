"""VGG-19 with BatchNorm (Simonyan and Zisserman 2015), with the classifiers that the paper's counts imply."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from torch import nn
from torchvision.ops import Conv2dNormActivation

from accordion_bench.workloads.models.blocks import GlobalMean, check_size

# (width, convolutions) of each stage; a 2x2 max pool ends the stage.
_STAGES = ((64, 2), (128, 2), (256, 4), (512, 4), (512, 4))
_SMALL_STAGES = ((16, 1), (32, 1), (64, 2), (64, 2))


def build(*, channels: int, size: int, classes: int) -> nn.Module:
    """Sixteen 3x3 convolutions (with bias) with BatchNorm and ReLU, five max pools, three Linear layers.

    (batch, channels, size, size) -> logits (batch, classes). The two data sets of the paper have different classifiers:
    512 wide below 100 classes (20,565,834 parameters for 3 channels and 10 classes, Table 8), 4096 wide with a third
    dropout from 100 classes on (39,327,652 for 100, Table 9). Maps larger than 1x1 after the last pool are averaged.
    Convolution weights start as N(0, 2 / (k * k * outputs)), their biases at 0; Linear layers at PyTorch's default.

    Raises:
        UserError: images smaller than 32x32.
    """
    check_size("vgg19bn", size, halvings=5)
    layers, inputs = _stages(channels, _STAGES)
    layers["classifier"] = _classifier(inputs, classes)
    return _initialised(nn.Sequential(layers))


def build_vgg9(*, channels: int, size: int, classes: int) -> nn.Module:
    """The same in small, for CPUs: six convolutions 16 to 64 wide, four max pools, two hidden layers of 64.

    (batch, channels, size, size) -> logits (batch, classes); 143,946 parameters for 3 channels and 10 classes. No
    dropout. Not in the paper: it stands for networks without skip connections, on which the paper's gap is largest.

    Raises:
        UserError: images smaller than 16x16.
    """
    check_size("vgg9", size, halvings=4)
    layers, inputs = _stages(channels, _SMALL_STAGES)
    hidden = [nn.Linear(inputs, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU()]
    layers["classifier"] = nn.Sequential(*hidden, nn.Linear(64, classes))
    return _initialised(nn.Sequential(layers))


def _stages(channels: int, stages: Sequence[tuple[int, int]]) -> tuple[OrderedDict[str, nn.Module], int]:
    """The convolutions up to the mean over what is left of the map, and how many channels that has."""
    layers: OrderedDict[str, nn.Module] = OrderedDict()
    inputs = channels
    for number, (width, convolutions) in enumerate(stages, start=1):
        stage: list[nn.Module] = []
        for _ in range(convolutions):
            stage.append(Conv2dNormActivation(inputs, width, 3, bias=True))
            inputs = width
        layers[f"stage{number}"] = nn.Sequential(*stage, nn.MaxPool2d(2))
    layers["mean"] = GlobalMean()
    return layers, inputs


def _initialised(model: nn.Module) -> nn.Module:
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            assert module.bias is not None
            nn.init.zeros_(module.bias)
    return model


def _classifier(inputs: int, classes: int) -> nn.Module:
    wide = classes >= 100
    hidden = 4096 if wide else 512
    layers: list[nn.Module] = []
    for width in (inputs, hidden):
        layers += [nn.Dropout(0.5), nn.Linear(width, hidden), nn.ReLU()]
    if wide:
        layers.append(nn.Dropout(0.5))
    return nn.Sequential(*layers, nn.Linear(hidden, classes))
