"""Quantisers, AdaComp, DGC and ATOMO against small examples worked by hand, and the bits they send."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from accordion_bench.compressors import build_compressor
from accordion_bench.compressors.atomo import decompose, draw_systematically, probabilities
from accordion_bench.compressors.packing import pack, pack_in_torch, unpack, unpack_in_torch
from accordion_bench.errors import UserError
from accordion_bench.training.aggregator import Aggregator
from accordion_bench.training.communicator import Communicator
from accordion_bench.training.compressor import Compressor
from accordion_bench.training.gradients import Layout


def build(name: str, shape: tuple[int, ...], level: float = 1, **keywords: Any) -> Compressor:
    """A compressor of a model with one layer w."""
    feedback = keywords.pop("error_feedback", name != "dgc")
    compressor = build_compressor(name, Layout({"w": shape}), 1, error_feedback=feedback, settings=keywords)
    compressor.set_levels([level])
    return compressor


def reduce(compressor: Compressor, *gradients: list[float]) -> tuple[list[float], list[list[float]], int]:
    """Update, what is left on every worker, and the bytes one worker sent."""
    grads_HN = torch.tensor(gradients, dtype=torch.float32)
    communicator = Communicator(len(gradients))
    update_N = compressor.reduce(grads_HN, communicator)
    return update_N.tolist(), grads_HN.tolist(), communicator.traffic.bytes_per_worker


@settings(max_examples=30, deadline=None)
@given(st.lists(st.booleans(), min_size=1, max_size=70))
def test_bits_survive_packing_and_fill_whole_bytes(bits: list[bool]) -> None:
    bits_B = torch.tensor(bits)
    packed_Y = pack(bits_B)
    assert len(packed_Y) == math.ceil(len(bits) / 8)
    assert torch.equal(pack_in_torch(bits_B), packed_Y)
    for back_B in (unpack(packed_Y, len(bits)), unpack_in_torch(packed_Y, len(bits))):
        assert back_B.tolist() == [int(bit) for bit in bits]


def test_the_first_bit_is_the_highest() -> None:
    assert pack(torch.tensor([1, 0, 0, 0, 0, 0, 0, 1, 1], dtype=torch.uint8)).tolist() == [129, 128]


def test_efsignsgd_sends_signs_times_the_mean_magnitude() -> None:
    update, rest, size = reduce(build("efsignsgd", (2, 2)), [1, -2, 3, 0])
    assert update == [1.5, -1.5, 1.5, 1.5]
    assert rest == [[-0.5, -0.5, 1.5, -1.5]]
    assert size == 4 + 1


def test_onebit_sends_the_means_of_both_signs() -> None:
    update, rest, size = reduce(build("onebit", (1, 5)), [1, -2, 5, 0, -4])
    assert update == [2, -3, 2, 2, -3]
    assert rest == [[-1, 1, 3, -2, -1]]
    assert size == 8 + 1


def test_signsgd_takes_the_majority_and_nothing_at_a_tie() -> None:
    three = reduce(build("signsgd", (2, 2), error_feedback=False), [1, -2, 9, 0], [2, 3, -1, -1], [1, -1, -1, 0])
    assert three[0] == [1, -1, -1, 1]  # sign(0) = +1
    assert three[2] == 1
    two = reduce(build("signsgd", (1, 2), error_feedback=False, step=0.25), [1, 5], [-7, 2])
    assert two[0] == [0, 0.25]


def test_terngrad_shares_the_largest_scale_and_clips() -> None:
    compressor = build("terngrad", (1, 3), error_feedback=False, clip=None)
    update, _, size = reduce(compressor, [4, -4, 4], [0, 0, 0])
    assert update == [2, -2, 2]  # |g| = s is sent for certain, zero never
    assert size == 4 + 1  # the scale, and 6 bits
    update, rest, _ = reduce(build("terngrad", (1, 4), error_feedback=False, clip=0.5), [3, -3, 3, 3])
    assert update == [1.5, -1.5, 1.5, 1.5]
    assert rest == [[1.5, -1.5, 1.5, 1.5]]


def test_qsgd_leaves_alone_what_is_on_a_step() -> None:
    update, _, size = reduce(build("qsgd", (2, 2), 3, error_feedback=False, norm="max"), [3, -2, 1, 0])  # s = 3
    assert update == pytest.approx([3, -2, 1, 0], rel=1e-6)
    assert size == 4 + 2
    update, _, _ = reduce(build("qsgd", (1, 2), 2, error_feedback=False), [3, 4])  # s = 1: 0 or the norm
    assert set(update) <= {0.0, 5.0}


def test_qsgd_buckets_have_norms_of_their_own() -> None:
    compressor = build("qsgd", (1, 5), 2, error_feedback=False, norm="max", bucket=2)
    update, _, size = reduce(compressor, [1, -1, 10, 10, -7])
    assert update == [1, -1, 10, 10, -7]
    assert size == 3 * 4 + math.ceil(5 * 2 / 8)


def with_memory(compressor: Compressor, memory: list[float], gradient: list[float]) -> tuple[Tensor, Tensor, int]:
    aggregator, communicator = Aggregator(compressor), Communicator(1)
    aggregator.load_memory(torch.tensor([memory], dtype=torch.float32))
    update_N, _ = aggregator.reduce(torch.tensor([gradient], dtype=torch.float32), communicator)
    assert aggregator.memory_HN is not None
    return update_N, aggregator.memory_HN[0], communicator.traffic.bytes_per_worker


def test_adacomp_chooses_by_the_newest_gradient() -> None:
    compressor = build("adacomp", (2, 4), bin_linear=4)
    memory, gradient = [0.5, 0, -2, 0, 0, 0, 0, 0], [0.5, 0.6, 1, 0.1, 0, 0, 0, 0]
    # G = 1, 0.6, -1, 0.1 | 0 ...; H = G + gradient = 1.5, 1.2, 0, 0.2 | 0 ...; maxima 1 | 0, so that the scale is 0.5.
    update_N, memory_N, size = with_memory(compressor, memory, gradient)
    assert update_N.tolist() == [0.5, 0.5, 0, 0, 0, 0, 0, 0]
    torch.testing.assert_close(memory_N, torch.tensor([0.5, 0.1, -1, 0.1, 0, 0, 0, 0]))
    assert compressor.report() == {"sent_fraction_L": [0.25]}
    assert compressor.report() == {}
    assert size == 4 + 4 + 3  # the length, the scale, two elements and an empty bin


def test_adacomp_sends_more_where_more_is_near_the_maximum() -> None:
    compressor = build("adacomp", (1, 1000))
    reduce(compressor, [1.0] * 1000)
    flat = compressor.report()["sent_fraction_L"]
    _, _, size = reduce(compressor, [1.0] + [0.1] * 499 + [-1.0] + [0.1] * 499)
    assert flat == [1.0]
    assert compressor.report()["sent_fraction_L"] == [0.002]
    assert size == 4 + 4 + 2 * 2  # bins of 500 need two bytes per element


def test_adacomp_messages_are_as_long_as_the_longest() -> None:
    update, _, size = reduce(build("adacomp", (1, 8), bin_linear=8), [1, 0, 0, 0, 0, 0, 0, 0], [2] * 8)
    assert update == [1.5, 1, 1, 1, 1, 1, 1, 1]
    assert size == 4 + 4 + 8


def test_dgc_corrects_and_masks_the_momentum() -> None:
    compressor = build("dgc", (1, 4), 0.25, momentum=0.5)
    assert reduce(compressor, [4, 3, 2, 1])[0] == [4, 0, 0, 0]
    # u = 0.5 (0, 3, 2, 1) + 1 = 1, 2.5, 2, 1.5; v = (0, 3, 2, 1) + u = 1, 5.5, 4, 2.5.
    assert reduce(compressor, [1, 1, 1, 1])[0] == [0, 5.5, 0, 0]
    state = compressor.worker_state_dict(0)
    assert state["momentum/w"].tolist() == [[1, 0, 2, 1.5]]
    assert state["unsent/w"].tolist() == [[1, 0, 4, 2.5]]


def test_dgc_gives_1d_tensors_the_same_momentum() -> None:
    compressor = build("dgc", (2,), momentum=0.5)
    compressor.set_levels([])
    assert [reduce(compressor, [1, 2])[0] for _ in range(3)] == [[1, 2], [1.5, 3], [1.75, 3.5]]


def test_dgc_clips_each_worker_to_its_share() -> None:
    update, _, _ = reduce(build("dgc", (2,), clip_norm=1.0), *[[30, 40]] * 4)
    assert update == pytest.approx([0.3, 0.4])  # norm 1 / sqrt(4)


def test_dgc_forgets_a_gradient_that_was_not_finite() -> None:
    compressor = build("dgc", (1, 4), 0.25)
    reduce(compressor, [4, 3, 2, 1])
    before = {key: value.clone() for key, value in compressor.worker_state_dict(0).items()}
    reduce(compressor, [1, math.nan, 1, 1])
    after = compressor.worker_state_dict(0)
    assert all(torch.equal(before[key], after[key]) for key in before)


@pytest.mark.parametrize(
    ("s", "budget", "expected"),
    [
        ([3, 1], 1, [0.75, 0.25]),
        ([1, 10, 1], 2, [0.5, 1, 0.5]),
        ([1, 1, 1, 1], 2, [0.5] * 4),
        ([8, 4, 1, 1, 0], 3, [1, 1, 0.5, 0.5, 0]),  # p_2 is 1 only because p_1 was cut
        ([5, 1, 0], 2, [1, 1, 0]),
        ([5, 0, 0], 2, [1, 0, 0]),
        ([0, 0], 1, [0, 0]),
    ],
)
def test_atomo_probabilities(s: list[float], budget: int, expected: list[float]) -> None:
    assert probabilities(torch.tensor(s, dtype=torch.float32), budget).tolist() == pytest.approx(expected)


def test_systematic_draws_have_the_right_number_and_frequencies() -> None:
    p = torch.tensor([0.9, 0.6, 0.3, 0.2, 1.0], dtype=torch.float64)
    drawn = torch.stack([draw_systematically(p, torch.tensor((i + 0.5) / 1000).double()) for i in range(1000)])
    assert drawn.sum(1).unique().tolist() == [3]
    torch.testing.assert_close(drawn.double().mean(0), p, atol=1e-3, rtol=0)


@pytest.mark.parametrize("shape", [(5, 9), (9, 5), (1, 4)])
def test_decompose_is_a_singular_value_decomposition(shape: tuple[int, int]) -> None:
    matrix = torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    s, u, v = decompose(matrix)
    torch.testing.assert_close(u * s @ v.T, matrix)
    torch.testing.assert_close(s.flip(0), torch.linalg.svdvals(matrix))
    torch.testing.assert_close(v.T @ v, torch.eye(min(shape), dtype=torch.float64))


def test_atomo_recovers_a_matrix_of_low_rank_and_counts_its_atoms() -> None:
    matrix = torch.outer(torch.arange(1.0, 7), torch.arange(2.0, 10))
    update, rest, size = reduce(build("atomo", (6, 8), 2), matrix.flatten().tolist())
    assert update == pytest.approx(matrix.flatten().tolist(), rel=1e-4)
    assert max(map(abs, rest[0])) < 1e-3
    assert size == 4 * 2 * (6 + 8 + 1)


MODEL = {"conv": (10, 3, 3, 3), "linear": (10, 33), "one": (1, 1), "bias": (10,)}  # 270 + 330 + 1 and 10 elements


@pytest.mark.parametrize(
    ("name", "level", "layers_bytes"),
    [
        ("efsignsgd", 1, 3 * 4 + 76),  # 601 bits
        ("onebit", 1, 6 * 4 + 76),
        ("signsgd", 1, 76),  # 602 bits
        ("terngrad", 1, 3 * 4 + 151),  # 1202 bits
        ("qsgd", 2, 3 * 4 + 151),
        ("qsgd", 5, 3 * 4 + 376),  # 3005 bits
        ("dgc", 0.1, 8 * (27 + 33 + 1)),
        ("atomo", 2, 4 * (2 * (10 + 27 + 1) + 2 * (10 + 33 + 1) + 1)),  # 1 x 1 goes dense
    ],
)
def test_bytes_in_closed_form(name: str, level: float, layers_bytes: int) -> None:
    layout = Layout(MODEL)
    compressor = build_compressor(name, layout, 1, error_feedback=False, settings={})
    compressor.set_levels([level] * 3)
    communicator = Communicator(2)
    compressor.reduce(torch.randn(2, layout.size), communicator)
    assert communicator.traffic.bytes_per_worker == layers_bytes + 10 * 4
    assert communicator.traffic.collectives == (3 if name == "terngrad" else 2)


@pytest.mark.parametrize(
    ("name", "wrong", "message"),
    [
        ("qsgd", {"bucket": 0}, "compressor.bucket must be >= 1"),
        ("qsgd", {"norm": "l1"}, "compressor.norm must be"),
        ("signsgd", {"step": 0.0}, "compressor.step must be a number > 0"),
        ("terngrad", {"clip": -1.0}, "compressor.clip must be > 0"),
        ("dgc", {"momentum": 1.0}, r"compressor.momentum must be in \[0, 1\)"),
        ("dgc", {"clip_norm": 0.0}, "compressor.clip_norm must be > 0"),
        ("dgc", {"error_feedback": True}, "compressor.error_feedback must be false"),
        ("adacomp", {"bin_linear": 20_000}, "compressor.bin_linear must be 1 to 16383"),
    ],
)
def test_wrong_settings_are_refused(name: str, wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        build(name, (2, 2), **wrong)
