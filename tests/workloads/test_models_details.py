"""The networks against torchvision, and the details that no parameter count can see."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from model_cases import image_facts, on_meta
from torch import Tensor, nn
from torch.nn import functional as F

from accordion_bench.workloads.models import build_model


@pytest.fixture(autouse=True)
def _seeded() -> Iterator[None]:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield


def torchvision_twin(name: str) -> nn.Module:
    """torchvision's network with its ImageNet stem and head changed to those of small images."""
    from torchvision import models

    if name == "resnet18":
        twin: nn.Module = models.resnet18(num_classes=10)
        twin.conv1 = nn.Conv2d(3, 64, 3, padding=1, bias=False)
        twin.maxpool = nn.Identity()
    elif name == "vgg19bn":
        twin = models.vgg19_bn(num_classes=10)
        twin.avgpool = nn.Identity()
        twin.classifier = nn.Sequential(
            nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)
        )
    else:
        twin = models.DenseNet(12, (6, 12, 24, 16), 24, num_classes=10)
        twin.features.conv0 = nn.Conv2d(3, 24, 3, padding=1, bias=False)
        for stem in ("norm0", "relu0", "pool0"):
            setattr(twin.features, stem, nn.Identity())
    return twin


@pytest.mark.parametrize("name", ["resnet18", "vgg19bn", "densenet"])
def test_same_function_as_torchvision(name: str) -> None:
    model, twin = build_model(name, image_facts(), {}), torchvision_twin(name)
    ours, theirs = model.state_dict(), twin.state_dict()
    # Both list parameters and statistics in the order of computation, so the values can be copied one by one.
    twin.load_state_dict(dict(zip(theirs, ours.values(), strict=True)))
    images = torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        torch.testing.assert_close(model.eval()(images), twin.eval()(images))


def outputs_of(model: nn.Module, images: Tensor, *names: str) -> list[Tensor]:
    """What the named submodules give when the model reads the images."""
    found: dict[str, Tensor] = {}
    hooks = [
        model.get_submodule(name).register_forward_hook(lambda _m, _i, out, name=name: found.__setitem__(name, out))
        for name in names
    ]
    with torch.no_grad():
        model(images)
    for hook in hooks:
        hook.remove()
    return [found[name] for name in names]


def test_preactivation_senet_ends_without_relu_and_gates_the_residual() -> None:
    model = build_model("senet", image_facts(size=8), {"variant": "preact"}).eval()
    images = torch.randn(2, 3, 8, 8)
    (last,) = outputs_of(model, images, "stage4.1")
    assert (last < 0).any()
    block = model.get_submodule("stage2.1")
    nn.init.constant_(block.gate.fc2.bias, -1e4)  # a closed gate lets only the shortcut through: the raw input
    before, after = outputs_of(model, images, "stage2.0", "stage2.1")
    assert torch.equal(before, after)
    nn.init.constant_(
        model.get_submodule("stage2.0").gate.fc2.bias, -1e4
    )  # here it is a convolution of relu(BN(input))
    inputs, after = outputs_of(model, images, "stage1.1", "stage2.0")
    first = model.get_submodule("stage2.0")
    assert torch.equal(after, first.shortcut(F.relu(first.norm1(inputs))))


def test_postactivation_senet_gates_activated_maps() -> None:
    model = build_model("senet", image_facts(size=8), {"variant": "post"}).eval()
    images = torch.randn(2, 3, 8, 8)
    residual, before, after = outputs_of(model, images, "stage3.1.residual", "stage3.0", "stage3.1")
    assert (residual >= 0).all()  # a ReLU before the gate too
    assert (after >= before).all()  # a gate in (0, 1) and the identity shortcut
    block = model.get_submodule("stage3.1")
    squeezed = F.linear(residual.mean((2, 3)), block.squeeze.weight, block.squeeze.bias).relu()
    gate = F.linear(squeezed, block.excite.weight, block.excite.bias).sigmoid()
    torch.testing.assert_close(after, before + residual * gate[:, :, None, None])
    nn.init.constant_(block.excite.bias, -1e4)
    before, after = outputs_of(model, images, "stage3.0", "stage3.1")
    assert torch.equal(before, after)


def test_wideresnet_strides_in_the_second_convolution() -> None:
    model = on_meta("wideresnet", image_facts())
    images = torch.empty(1, 3, 32, 32, device="meta")
    names = [f"stage{stage}.0.conv{number}" for stage in (1, 2, 3) for number in (1, 2)]
    assert [out.shape[-1] for out in outputs_of(model, images, *names)] == [32, 32, 32, 16, 16, 8]
    (last,) = outputs_of(model, images, "stage3.3")
    assert last.shape == (1, 640, 8, 8)


def test_googlenet_maps_are_those_of_the_description() -> None:
    model = on_meta("googlenet", image_facts())
    images = torch.empty(1, 3, 32, 32, device="meta")
    maps = outputs_of(model, images, *(f"module{number}" for number in range(1, 10)))
    widths = [256, 480, 512, 512, 512, 528, 832, 832, 1024]
    assert [tuple(out.shape[1:]) for out in maps] == [
        (width, size, size) for width, size in zip(widths, [32] * 2 + [16] * 5 + [8] * 2, strict=True)
    ]
