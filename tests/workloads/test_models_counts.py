"""Exact parameter counts and shapes of the networks.

The counts of the paper are stated as numbers and derived again by hand from the written architectures; where the
reference description lies beside the repository, every shape is compared with its tables as well.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
from model_cases import COUNTS, image_facts, network, on_meta, reference_sections, text_facts

from accordion_bench.training.gradients import Layout


@pytest.mark.parametrize(("name", "classes", "settings", "parameters", "matrices", "vectors"), COUNTS)
def test_counts_are_those_of_the_paper(
    name: str, classes: int, settings: dict[str, Any], parameters: int, matrices: int, vectors: int
) -> None:
    shapes = [tuple(p.shape) for p in network(name, classes, settings).parameters()]
    assert sum(torch.Size(shape).numel() for shape in shapes) == parameters
    assert sum(len(shape) > 1 for shape in shapes) == matrices
    assert sum(len(shape) == 1 for shape in shapes) == vectors


@pytest.mark.parametrize(("classes", "parameters"), [(10, 11_389_726), (100, 11_436_256)])
def test_senet_variant_auto_is_the_one_behind_the_results(classes: int, parameters: int) -> None:
    assert sum(p.numel() for p in on_meta("senet", image_facts(classes)).parameters()) == parameters


def conv(kernel: int, inputs: int, outputs: int, bias: bool = False, norm: bool = True) -> int:
    """Parameters of a convolution with the BatchNorm that follows it."""
    return kernel * kernel * inputs * outputs + bias * outputs + norm * 2 * outputs


def residual_by_hand(channels: int, widths: list[int], blocks: int, classes: int) -> int:
    total = conv(3, channels, widths[0])
    previous = widths[0]
    for stage, width in enumerate(widths):
        total += conv(3, previous, width) + (2 * blocks - 1) * conv(3, width, width)
        total += conv(1, previous, width) if stage else 0
        previous = width
    return total + (previous + 1) * classes


def vgg_by_hand(channels: int, hidden: int, classes: int) -> int:
    widths = [64] * 2 + [128] * 2 + [256] * 4 + [512] * 8
    convolutions = sum(conv(3, a, b, bias=True) for a, b in zip([channels, *widths], widths, strict=False))
    return convolutions + 513 * hidden + (hidden + 1) * hidden + (hidden + 1) * classes


def densenet_by_hand(channels: int, classes: int) -> int:
    width, total = 24, conv(3, channels, 24, norm=False)
    for block, depth in enumerate((6, 12, 24, 16)):
        for _ in range(depth):  # BN(c), conv1 c->48, BN(48), conv3 48->12
            total += 2 * width + conv(1, width, 48) + conv(3, 48, 12, norm=False)
            width += 12
        if block < 3:
            total += 2 * width + conv(1, width, width // 2, norm=False)
            width //= 2
    return total + 2 * width + (width + 1) * classes


def lstm_by_hand(vocabulary: int, layers: int, hidden: int) -> int:
    return vocabulary * hidden + vocabulary + layers * 4 * hidden * (2 * hidden + 2)


@pytest.mark.parametrize("classes", [2, 10, 26, 100, 200])
@pytest.mark.parametrize("channels", [1, 3])
def test_counts_follow_the_closed_forms_for_any_channels_and_classes(channels: int, classes: int) -> None:
    def count(name: str) -> int:
        return sum(p.numel() for p in on_meta(name, image_facts(classes, channels)).parameters())

    assert count("resnet18") == residual_by_hand(channels, [64, 128, 256, 512], 2, classes)
    assert count("resnet8") == residual_by_hand(channels, [16, 32, 64], 1, classes)
    assert count("vgg19bn") == vgg_by_hand(channels, 512 if classes < 100 else 4096, classes)
    small = [(channels, 16), (16, 32), (32, 64), (64, 64), (64, 64), (64, 64)]
    head = 2 * 65 * 64 + 65 * classes
    assert count("vgg9") == sum(conv(3, a, b) + b for a, b in small) + head
    assert count("densenet") == densenet_by_hand(channels, classes)
    assert count("smallcnn") == conv(3, channels, 16) + conv(3, 16, 32) + conv(3, 32, 32) + 33 * classes


@pytest.mark.parametrize(("layers", "hidden"), [(1, 8), (2, 650), (3, 650), (3, 20)])
def test_lstm_count_follows_the_closed_form(layers: int, hidden: int) -> None:
    model = on_meta("lstm", text_facts(77), layers=layers, hidden=hidden)
    assert sum(p.numel() for p in model.parameters()) == lstm_by_hand(77, layers, hidden)


# Table 1's data sent in millions of floats = words per step x 98 steps x epochs (SENet fits 249 of the 300 epochs).
@pytest.mark.parametrize(
    ("name", "rank", "epochs", "millions"),
    [
        ("resnet18", 2, 300, 2418.4),
        ("resnet18", 1, 300, 1350.4),
        ("vgg19bn", 4, 300, 6752.0),
        ("vgg19bn", 1, 300, 2074.9),
        ("senet", 4, 249, 4361.3),
        ("senet", 1, 249, 1392.6),
    ],
)
def test_shapes_explain_the_data_sent_in_table_1(name: str, rank: int, epochs: int, millions: float) -> None:
    layout = Layout.of(on_meta(name, image_facts()))
    words = sum(rank * (layer.rows + layer.columns) for layer in layout.layers) + layout.size - layout.dense.start
    assert words * 98 * epochs / 1e6 == pytest.approx(millions, abs=0.11)  # the paper truncates


def test_every_shape_is_that_of_the_reference_description() -> None:
    sections = reference_sections()
    unseen = set(sections)
    for name, classes, settings, parameters, *_ in COUNTS:
        if name == "lstm":
            continue  # given as a formula only
        heading = next(h for h in sections if f"({parameters:,}" in h)
        unseen.discard(heading)
        shapes = [tuple(p.shape) for p in network(name, classes, settings).parameters()]
        expected, order = sections[heading]
        assert Counter(shapes) == expected, heading
        by_dimension = sorted(dict.fromkeys(shapes), key=lambda shape: len(shape) == 1)  # stable
        assert by_dimension == order, heading
    assert not unseen
