"""What somebody's own model may do to its gradients, parameters and buffers in its own forward, and what it may be."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from small_trainer import Setting, SmallNet, make_trainer
from torch import Tensor, nn

from accordion_bench.compressors import COMPRESSORS
from accordion_bench.errors import RunFailure, UserError
from accordion_bench.training.gradients import Layout
from accordion_bench.training.trainer import Trainer

Change = Callable[[nn.Module], None]


def _trained(change: Change | None = None, **setting: object) -> Trainer:
    """A trainer after two epochs whose model does `change` at the beginning of every forward in training."""
    trainer = make_trainer(Setting(**{"workers": 2, "epochs": 2, **setting}))  # type: ignore[arg-type]
    if change is not None:
        trainer.model.register_forward_pre_hook(lambda model, _: change(model) if model.training else None)
    list(trainer.epochs())
    return trainer


def _parameters(trainer: Trainer) -> dict[str, Tensor]:
    return {name: p.detach().clone() for name, p in trainer.model.named_parameters()}


def _assign_zeros(model: nn.Module) -> None:
    for p in model.parameters():
        p.grad = torch.zeros_like(p)


@pytest.mark.parametrize(
    "change",
    [lambda model: model.zero_grad(set_to_none=True), _assign_zeros, nn.Module.zero_grad],
    ids=["none", "zeros", "zero_grad"],
)
@pytest.mark.parametrize("compressor", ["powersgd", "none"])
def test_a_model_that_empties_its_gradients_before_each_backward_is_trained_all_the_same(
    change: Change, compressor: str
) -> None:
    levels = (1,) if compressor == "none" else (1, 2)
    undisturbed, disturbed = (_trained(c, compressor=compressor, levels=levels) for c in (None, change))
    for name, value in _parameters(undisturbed).items():
        assert torch.equal(value, _parameters(disturbed)[name]), name


def test_gradients_of_all_accumulated_batches_count_when_each_forward_sets_them_to_none() -> None:
    undisturbed, disturbed = (
        _trained(change, multiples=(2, 1), scheduler_settings={"batch_index": 0})
        for change in (None, lambda model: model.zero_grad(set_to_none=True))
    )
    for name, value in _parameters(undisturbed).items():
        torch.testing.assert_close(value, _parameters(disturbed)[name])


@pytest.mark.parametrize("optimizer", ["nesterov", "heavy_ball_plus_gradient"])
def test_frozen_weights_stay_and_are_trained_again_when_thawed(optimizer: str) -> None:
    """Momentum, weight decay and the error memory would move them."""
    trainer = make_trainer(Setting(workers=2, epochs=3, optimizer=optimizer))
    epochs = trainer.epochs()
    next(epochs)
    trainer.model.head.requires_grad_(False)
    before = _parameters(trainer)
    next(epochs)
    frozen = _parameters(trainer)
    assert torch.equal(frozen["head.weight"], before["head.weight"])
    assert torch.equal(frozen["head.bias"], before["head.bias"])
    assert not torch.equal(frozen["features.0.weight"], before["features.0.weight"])
    trainer.model.head.requires_grad_(True)
    next(epochs)
    assert not torch.equal(_parameters(trainer)["head.weight"], frozen["head.weight"])


def test_a_parameter_that_becomes_trainable_later_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    original = SmallNet.__init__

    def with_frozen_head(self: SmallNet, plain: bool = False) -> None:
        original(self, plain)
        self.head.requires_grad_(False)

    monkeypatch.setattr(SmallNet, "__init__", with_frozen_head)
    with pytest.raises(RunFailure, match=r"parameter head\.weight of the model was frozen .* requires_grad=True"):
        _trained(lambda model: model.head.requires_grad_(True) and None)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda model: setattr(model, "head", nn.Linear(24, 10).double()), r"head\.weight of the model was replaced"),
        (lambda model: model.register_parameter("more", nn.Parameter(torch.zeros(1))), "more of the model was added"),
        (lambda model: model.head.register_parameter("bias", None), r"head\.bias of the model was removed"),
    ],
)
def test_parameters_that_are_not_those_of_the_beginning_are_refused_by_name(change: Change, words: str) -> None:
    with pytest.raises(RunFailure, match=words):
        _trained(change)


def test_a_buffer_that_forward_replaces_is_each_workers_own() -> None:
    """Each worker counts its own forward passes, whether in place or by a new tensor."""

    def count(model: nn.Module) -> None:
        model.in_place += 1
        model.replaced = model.replaced + 1

    trainer = make_trainer(Setting(workers=2, epochs=1))
    model = trainer.model
    model.register_buffer("in_place", torch.zeros(()))
    model.register_buffer("replaced", torch.zeros(()))
    model.register_buffer("later", None)
    model.register_forward_pre_hook(lambda model, _: count(model) if model.training else None)
    trainer.buffers = type(trainer.buffers)(model, 2)
    (record,) = trainer.epochs()
    for h in range(2):
        own = trainer.buffers.state_dict(h)
        assert own["in_place"] == own["replaced"] == record.updates
        assert "later" not in own
    saved = {name: x.clone() for name, x in trainer.buffers.state_dict(1).items()}
    trainer.buffers.use(1)
    model.replaced = torch.tensor([5.0, 6.0])
    trainer.buffers.load_state_dict(1, saved)
    assert model.replaced == record.updates


# What a model may be


class _Parts(nn.Module):
    def __init__(self, **parts: nn.Module | nn.Parameter) -> None:
        super().__init__()
        for name, part in parts.items():
            setattr(self, name, part)


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (lambda: _Parts(a=nn.Linear(2, 2).requires_grad_(False)), "must have a parameter to train, got none"),
        (lambda: _Parts(a=nn.Parameter(torch.zeros(0, 5))), "must have a parameter to train, got none"),
        (nn.Identity, "must have a parameter to train, got none"),
        (
            lambda: _Parts(a=nn.Linear(2, 2), b=nn.Linear(2, 2).double()),
            r"got a\.weight float32 on cpu and b\.weight float64 on",
        ),
        (lambda: _Parts(a=nn.LazyLinear(3)), r"parameter a\.weight of the model has no shape yet"),
        (lambda: _Parts(a=nn.Parameter(torch.zeros(2, 2, dtype=torch.complex64))), "a complex64 on cpu; use float"),
    ],
)
def test_models_that_cannot_be_trained_are_refused_in_one_line(model: Callable[[], nn.Module], words: str) -> None:
    with pytest.raises(UserError, match=words) as caught:
        Layout.of(model())
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", COMPRESSORS)
def test_a_parameter_without_elements_takes_no_part(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from small_trainer import setting_of

    original = SmallNet.__init__

    def with_empty(self: SmallNet, plain: bool = False) -> None:
        original(self, plain)
        self.empty = nn.Parameter(torch.zeros(0, 5, dtype=torch.float64))

    monkeypatch.setattr(SmallNet, "__init__", with_empty)
    trainer = make_trainer(setting_of(name, workers=2, epochs=1, images=32))
    (record,) = trainer.epochs()
    assert record.updates == 2
    assert "empty" not in [slot.name for slot in trainer.layout.slots]
