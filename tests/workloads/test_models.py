"""The networks compute, learn, and start from the global seed alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from model_cases import IMAGE_MODELS, image_facts, on_meta, text_facts
from torch import Tensor, nn
from torch.nn import functional as F

from accordion_bench.training.gradients import Layout
from accordion_bench.workloads.models import MODELS, build_model


@pytest.fixture(autouse=True)
def _seeded() -> Iterator[None]:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield


@pytest.mark.parametrize("name", IMAGE_MODELS)
@pytest.mark.parametrize(("channels", "size", "classes"), [(3, 64, 100), (2, 33, 3)])
def test_any_channels_size_and_class_count_give_one_logit_per_class(
    name: str, channels: int, size: int, classes: int
) -> None:
    model = on_meta(name, image_facts(classes, channels, size))
    assert model(torch.empty(5, channels, size, size, device="meta")).shape == (5, classes)


@pytest.mark.parametrize("name", sorted(set(IMAGE_MODELS) - {"vgg19bn", "vgg9"}))
def test_digits_of_8x8_pixels_fit_every_network_but_vgg(name: str) -> None:
    model = on_meta(name, image_facts(10, 1, 8))
    assert model(torch.empty(4, 1, 8, 8, device="meta")).shape == (4, 10)


# Networks at the smallest image each takes, so that real arithmetic stays cheap.
SMALL = [
    ("smallcnn", 4, {}),
    ("resnet8", 4, {}),
    ("resnet18", 8, {}),
    ("senet", 8, {"variant": "preact"}),
    ("senet", 8, {"variant": "post"}),
    ("wideresnet", 4, {}),
    ("densenet", 8, {}),
    ("googlenet", 4, {}),
    ("vgg19bn", 32, {}),
    ("vgg9", 16, {}),
]


@pytest.mark.parametrize(("name", "size", "settings"), SMALL)
def test_image_networks_reach_every_parameter(name: str, size: int, settings: dict[str, Any]) -> None:
    # In training mode BatchNorm cancels the bias before it; with fixed statistics every parameter must matter.
    model = build_model(name, image_facts(size=size), settings).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.fill_(0.5)  # else a ReLU over a few units may happen to be closed for every image
    F.cross_entropy(model(torch.randn(4, 3, size, size)), torch.arange(4)).backward()
    for parameter_name, parameter in model.named_parameters():
        assert parameter.grad is not None, parameter_name
        assert parameter.grad.isfinite().all(), parameter_name
        assert parameter.grad.count_nonzero() > 0, parameter_name


@pytest.mark.parametrize(("name", "size", "settings"), SMALL)
def test_image_networks_learn(name: str, size: int, settings: dict[str, Any]) -> None:
    model = build_model(name, image_facts(size=size), settings)
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0  # its noise would hide the fall of the loss in so few steps
    images, labels = torch.randn(8, 3, size, size), torch.randint(10, (8,))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    losses = []
    for _ in range(15 if name == "vgg9" else 5):  # its narrow hidden layers are slow to start
        optimizer.zero_grad()
        loss = F.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.8 * losses[0], losses


def small_lstm(**settings: Any) -> nn.Module:
    return build_model("lstm", text_facts(30), {"hidden": 16, **settings})


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_lstm_reaches_every_parameter_and_learns(layers: int) -> None:
    model = small_lstm(layers=layers, dropout=0.0)
    tokens_TB = torch.randint(30, (9, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=2.0, momentum=0.9)
    losses = []
    for _ in range(40):
        optimizer.zero_grad()
        logits_TBV, _ = model(tokens_TB[:-1], model.first_hidden(4))
        loss = F.cross_entropy(logits_TBV.flatten(0, 1), tokens_TB[1:].flatten())
        loss.backward()
        assert all(p.grad is not None and p.grad.count_nonzero() > 0 for p in model.parameters())
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.8 * losses[0], losses


def test_lstm_shapes_and_first_loss() -> None:
    model = build_model("lstm", text_facts(500), {"layers": 2, "hidden": 64}).eval()
    hidden = model.first_hidden(6)
    assert [state.shape for state in hidden] == [(2, 6, 64)] * 2
    tokens_TB = torch.randint(500, (5, 6))
    logits_TBV, (h_LBE, c_LBE) = model(tokens_TB, hidden)
    assert logits_TBV.shape == (5, 6, 500)
    assert h_LBE.shape == c_LBE.shape == (2, 6, 64)
    # Before training every word is about as likely as any other: perplexity near the vocabulary.
    loss = F.cross_entropy(logits_TBV.flatten(0, 1), tokens_TB.flatten())
    assert loss.exp().item() == pytest.approx(500, rel=0.05)


def test_lstm_carries_its_hidden_state() -> None:
    model = small_lstm(layers=2).double().eval()
    tokens_TB = torch.randint(30, (10, 3))
    whole_TBV, end = model(tokens_TB, model.first_hidden(3))
    first_TBV, middle = model(tokens_TB[:4], model.first_hidden(3))
    second_TBV, carried_end = model(tokens_TB[4:], middle)
    torch.testing.assert_close(torch.cat([first_TBV, second_TBV]), whole_TBV)
    torch.testing.assert_close(carried_end, end)
    fresh_TBV, _ = model(tokens_TB[4:], model.first_hidden(3))
    assert not torch.allclose(fresh_TBV, second_TBV)


def test_lstm_weight_is_tied_and_listed_once() -> None:
    model = small_lstm(layers=3)
    assert model.output.weight is model.embedding.weight
    listed = [name for name, p in model.named_parameters() if p.shape == (30, 16)]
    assert listed == ["embedding.weight"]
    assert [slot.name for slot in Layout.of(model).slots].count("embedding.weight") == 1
    # The shared gradient is the sum of both uses: the embedding's rows of the tokens, the output layer's of all words.
    logits_TBV, _ = model(torch.zeros(1, 1, dtype=torch.int64), model.first_hidden(1))
    logits_TBV.logsumexp(-1).sum().backward()
    assert (model.embedding.weight.grad.count_nonzero(dim=1) > 0).all()


@pytest.mark.parametrize("name", ["vgg19bn", "lstm"])
def test_dropout_acts_in_training_only(name: str) -> None:
    if MODELS[name].kind == "text":
        model = small_lstm(layers=2)
        hidden = model.first_hidden(3)
        tokens_TB = torch.randint(30, (4, 3))
        run = lambda: model(tokens_TB, hidden)[0]  # noqa: E731
    else:
        model = build_model(name, image_facts(), {})
        images = torch.randn(2, 3, 32, 32)
        run = lambda: model(images)  # noqa: E731
    with torch.no_grad():
        assert not torch.equal(run(), run())
        model.eval()
        assert torch.equal(run(), run())


@pytest.mark.parametrize("name", ["smallcnn", "resnet8", "vgg19bn", "lstm"])
def test_initial_values_are_a_function_of_the_global_seed(name: str) -> None:
    def values(seed: int) -> Tensor:
        torch.manual_seed(seed)
        facts = text_facts(30) if MODELS[name].kind == "text" else image_facts()
        return torch.cat([p.detach().flatten() for p in build_model(name, facts, {}).parameters()])

    assert torch.equal(values(1), values(1))
    assert not torch.equal(values(1), values(2))


def test_vgg_convolutions_start_as_described() -> None:
    model = build_model("vgg19bn", image_facts(), {})
    convolutions = [module for module in model.modules() if isinstance(module, nn.Conv2d)]
    assert len(convolutions) == 16
    for module in convolutions:
        assert module.bias is not None
        assert not module.bias.any()
        variance = 2 / (9 * module.out_channels)
        tolerance = 5 * (2 / module.weight.numel()) ** 0.5  # five standard errors of a normal sample's variance
        assert module.weight.var().item() == pytest.approx(variance, rel=tolerance)
        assert abs(module.weight.mean().item()) < 5 * (variance / module.weight.numel()) ** 0.5
