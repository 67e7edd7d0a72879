"""VGG-19 with BatchNorm (Simonyan and Zisserman 2015), with the classifiers that the paper's counts imply."""

from __future__ import annotations

from collections import OrderedDict

from torch import nn
from torchvision.ops import Conv2dNormActivation

from accordion_bench.workloads.models.blocks import GlobalMean, check_size

# (width, convolutions) of each stage; a 2x2 max pool ends the stage.
_STAGES = ((64, 2), (128, 2), (256, 4), (512, 4), (512, 4))


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
    layers: OrderedDict[str, nn.Module] = OrderedDict()
    inputs = channels
    for number, (width, convolutions) in enumerate(_STAGES, start=1):
        stage: list[nn.Module] = []
        for _ in range(convolutions):
            stage.append(Conv2dNormActivation(inputs, width, 3, bias=True))
            inputs = width
        layers[f"stage{number}"] = nn.Sequential(*stage, nn.MaxPool2d(2))
    layers["mean"] = GlobalMean()
    layers["classifier"] = _classifier(inputs, classes)
    model = nn.Sequential(layers)
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
