"""The flat buffer: every parameter has its place, and a backward pass writes into it."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from accordion_bench.training.gradients import Binding, Layout
from accordion_bench.workloads.models import build_model

SHAPES = st.lists(st.lists(st.integers(1, 4), max_size=4), min_size=1, max_size=12)


def _layout(shapes: list[list[int]]) -> Layout:
    return Layout({f"p{i}": shape for i, shape in enumerate(shapes)})


@given(SHAPES)
def test_slots_cover_the_buffer_once_matrices_first(shapes: list[list[int]]) -> None:
    layout = _layout(shapes)
    assert sorted(slot.name for slot in layout.slots) == sorted(f"p{i}" for i in range(len(shapes)))
    place = 0
    for slot in layout.slots:
        assert slot.shape == tuple(shapes[int(slot.name[1:])])
        assert slot.start == place
        place = slot.stop
    assert place == layout.size == sum(torch.Size(shape).numel() for shape in shapes)
    dimensions = [len(slot.shape) >= 2 for slot in layout.slots]
    assert dimensions == sorted(dimensions, reverse=True)
    assert layout.layers == layout.slots[: sum(dimensions)]
    assert layout.dense == slice(sum(slot.size for slot in layout.layers), layout.size)


@given(SHAPES)
def test_matrices_of_one_shape_are_one_view_in_the_models_order(shapes: list[list[int]]) -> None:
    layout = _layout(shapes)
    flat_HN = torch.arange(2 * layout.size).view(2, layout.size)
    shapes_seen = [(block.rows, block.columns) for block in layout.blocks]
    assert len(set(shapes_seen)) == len(shapes_seen)
    covered = []
    for block in layout.blocks:
        view = layout.block(flat_HN, block)
        assert view.data_ptr() == flat_HN[0, block.start :].data_ptr()
        for place, layer in enumerate(block.layers):
            slot = layout.layers[layer]
            assert (slot.rows, slot.columns) == (block.rows, block.columns)
            expected = flat_HN[:, slot.start : slot.stop].view(2, slot.shape[0], -1)
            assert torch.equal(view[:, place], expected)
            assert torch.equal(layout.matrix(flat_HN, layer), expected)
            covered.append(layer)
        numbers = [int(layout.layers[layer].name[1:]) for layer in block.layers]
        assert numbers == sorted(numbers)
    assert covered == list(range(len(layout.layers)))


def test_a_backward_pass_writes_straight_into_the_buffer_and_adds_to_it() -> None:
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(2 * 4, 3)).double()
    x = torch.randn(5, 1, 4, 4, dtype=torch.float64)
    parameters = dict(model.named_parameters())
    expected = torch.autograd.grad(model(x).square().mean(), list(parameters.values()))
    layout = Layout.of(model)
    flat_HN = layout.zeros(2, dtype=torch.float64)
    binding = Binding(model, layout)
    binding.bind(flat_HN[1])
    for _ in range(3):
        model(x).square().mean().backward()
    assert not flat_HN[0].any()
    for slot in layout.slots:
        gradient = expected[list(parameters).index(slot.name)]
        torch.testing.assert_close(flat_HN[1, slot.start : slot.stop].view(slot.shape), 3 * gradient)
        assert parameters[slot.name].grad.data_ptr() == flat_HN[1, slot.start :].data_ptr()  # type: ignore[union-attr]


def test_tied_parameters_appear_once_and_frozen_ones_never() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 2))
    model[1].weight = model[0].weight
    model[2].weight.requires_grad_(False)
    layout = Layout.of(model)
    assert [slot.name for slot in layout.slots] == ["0.weight", "0.bias", "1.bias", "2.bias"]
    flat_N = layout.zeros(1)[0]
    Binding(model, layout).bind(flat_N)
    x = torch.ones(1, 3)
    model[1](model[0](x)).sum().backward()
    w, b = model[0].weight.detach(), model[0].bias.detach()
    hidden = x @ w.T + b
    expected = torch.ones(3, 1) @ hidden + (w.sum(0, keepdim=True)).T @ x
    torch.testing.assert_close(flat_N[:9].view(3, 3), expected)


def test_resnet18_has_the_published_number_of_parameters_in_buffers_and_blocks() -> None:
    for classes, parameters in ((10, 11_173_962), (100, 11_220_132)):
        with torch.device("meta"):
            model = build_model("resnet18", {"kind": "image", "channels": 3, "size": 32, "classes": classes}, {})
        layout = Layout.of(model)
        assert layout.size == parameters
        assert len(layout.blocks) < len(layout.layers) == 21
