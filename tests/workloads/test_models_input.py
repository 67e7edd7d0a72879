"""What a user may get wrong when naming a network, and networks of their own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from model_cases import image_facts, on_meta, text_facts
from places import REPOSITORY

from accordion_bench.errors import UserError
from accordion_bench.workloads.models import MODELS, build_model, check_fit


def test_registry_and_checks_need_no_torch() -> None:
    code = (
        "import sys; from accordion_bench.workloads.models import check_fit\n"
        "from accordion_bench.errors import UserError\n"
        "check_fit('resnet18', 'image')\n"
        "assert not {'torch', 'torchvision'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=REPOSITORY)


def refusal(action: Any, *args: Any) -> str:
    with pytest.raises(UserError) as caught:
        action(*args)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_text_and_images_do_not_mix() -> None:
    message = refusal(check_fit, "lstm", "image", "cifar10")
    assert message.startswith("model 'lstm' reads text, dataset 'cifar10' has images; choose one of: densenet, ")
    assert refusal(check_fit, "resnet8", "text") == (
        "model 'resnet8' reads images, the dataset has text; choose one of: lstm"
    )
    for name, entry in MODELS.items():
        check_fit(name, entry.kind)
    check_fit("anyones.module:network", "text")
    refusal(build_model, "lstm", image_facts(), {})


def test_unknown_model_says_what_there_is() -> None:
    message = refusal(build_model, "resnt18", image_facts(), {})
    assert "no model 'resnt18'; did you mean resnet18? There are: densenet, googlenet, lstm" in message


@pytest.mark.parametrize(
    ("name", "settings", "expected"),
    [
        ("resnet18", {"width": 3}, "model has no setting 'width'; there are: none"),
        ("resnet18", {"classes": 3}, "no setting 'classes'"),
        ("senet", {"varient": "post"}, "no setting 'varient'; did you mean variant?"),
        ("senet", {"variant": "best"}, "model.variant must be one of auto, preact, post, got 'best'"),
        ("senet", {"variant": 2}, "model.variant must be a text, got 2"),
        ("lstm", {"layerz": 2}, "did you mean layers? there are: layers, hidden, dropout"),
        ("lstm", {"layers": "two"}, "model.layers must be a whole number, got 'two'"),
        ("lstm", {"layers": 2.0}, "model.layers must be a whole number"),
        ("lstm", {"layers": True}, "model.layers must be a whole number"),
        ("lstm", {"layers": 0}, "model.layers must be a whole number >= 1, got 0"),
        ("lstm", {"hidden": -650}, "model.hidden must be a whole number >= 1, got -650"),
        ("lstm", {"dropout": 1.0}, "model.dropout must be a rate in [0, 1), got 1.0"),
        ("lstm", {"dropout": float("nan")}, "model.dropout must be finite and at most 1e+15 in size, got nan"),
        ("lstm", {"dropout": None}, "model.dropout must be a number, got None"),
    ],
)
def test_wrong_settings_are_refused_in_one_line(name: str, settings: dict[str, Any], expected: str) -> None:
    facts = text_facts(30) if MODELS[name].kind == "text" else image_facts()
    assert expected in refusal(build_model, name, facts, settings)


def test_whole_numbers_pass_as_numbers() -> None:
    assert on_meta("lstm", text_facts(30), dropout=0, hidden=8).dropout.p == 0


@pytest.mark.parametrize(
    ("name", "smallest"),
    [
        *[(name, 4) for name in ("smallcnn", "resnet8", "wideresnet", "googlenet")],
        *[(name, 8) for name in ("resnet18", "senet", "densenet")],
        ("vgg19bn", 32),
        ("vgg9", 16),
    ],
)
def test_images_too_small_for_the_network_are_refused(name: str, smallest: int) -> None:
    on_meta(name, image_facts(size=smallest))
    message = refusal(build_model, name, image_facts(size=smallest - 1), {})
    assert f"needs images of at least {smallest}x{smallest} pixels, got {smallest - 1}x{smallest - 1}" in message


@pytest.fixture
def own_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "networks_of_a_user.py").write_text(
        "from torch import nn\n"
        "def build(*, channels, size, classes, width: int):\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(channels * size**2, width), nn.Linear(width, classes))\n"
        "def forgets_size(channels, classes): ...\n"
        "def gives_nothing(channels, size, classes): ...\n"
        "class Tagger(nn.Module):\n"
        "    def __init__(self, vocabulary: int, *, width: int = 4):\n"
        "        super().__init__()\n"
        "        self.table = nn.Embedding(vocabulary, width)\n"
        "number = 3\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    yield "networks_of_a_user"
    sys.modules.pop("networks_of_a_user", None)


def test_anyones_own_network_can_be_named(own_module: str) -> None:
    model = build_model(f"{own_module}:build", image_facts(4, 2, 6), {"width": 5})
    assert [tuple(p.shape) for p in model.parameters()] == [(5, 72), (5,), (4, 5), (4,)]
    assert build_model(f"{own_module}:Tagger", text_facts(9), {"width": 2}).table.weight.shape == (9, 2)


@pytest.mark.parametrize(
    ("attribute", "settings", "expected"),
    [
        ("build", {}, "but missing a required argument: 'width'"),
        ("build", {"width": "5"}, "model.width must be a whole number, got '5'"),
        (
            "forgets_size",
            {},
            "and its settings by keyword, but got an unexpected keyword argument 'size'",
        ),
        ("gives_nothing", {}, "must return a torch.nn.Module, got NoneType"),
        ("number", {}, "must be a callable that builds a network, got int"),
        ("absent", {}, "must be a name or module:object that can be imported"),
    ],
)
def test_anyones_own_mistakes_are_named(
    own_module: str, attribute: str, settings: dict[str, Any], expected: str
) -> None:
    assert expected in refusal(build_model, f"{own_module}:{attribute}", image_facts(), settings)


def test_absent_module_is_one_line() -> None:
    assert (
        "can be imported, got 'no_such_module_anywhere:build' (No module named 'no_such_module_anywhere')"
        in refusal(build_model, "no_such_module_anywhere:build", image_facts(), {})
    )
