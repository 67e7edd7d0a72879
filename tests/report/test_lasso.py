"""The lemma of the LASSO model: sparse mean, dense noise, and the probability that a step leaves the support."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest, norm

from accordion_bench.report.figures.lasso import Lasso, course, exponent, make_lasso, soft

SMALL = Lasso(features=60, support=4)
START = np.zeros(SMALL.features)


def test_the_mean_gradient_is_sparse_and_a_stochastic_one_is_dense():
    """Part 1: 40,000 examples average to w - w*, up to tau / sqrt(B) in every coordinate; none is exactly zero."""
    gradient = SMALL.gradient(START, 40_000, np.random.default_rng(0))
    tolerance = 5 * 2 * SMALL.spread(START) / math.sqrt(40_000)
    np.testing.assert_allclose(gradient, START - SMALL.truth, atol=tolerance)
    assert np.count_nonzero(START - SMALL.truth) == SMALL.support
    assert np.count_nonzero(gradient) == SMALL.features


def test_outside_the_support_is_noise_of_the_stated_variance():
    """Part 2: over 400 draws of 56 coordinates, the variance is tau^2 / B to 5 %."""
    random = np.random.default_rng(1)
    draws = np.stack([SMALL.gradient(START, 50, random)[SMALL.support :] for _ in range(400)])
    assert np.mean(draws**2) == pytest.approx(SMALL.spread(START) ** 2 / 50, rel=0.05)
    assert abs(np.mean(draws)) < 5 * math.sqrt(SMALL.spread(START) ** 2 / 50 / draws.size)


@pytest.mark.parametrize("place", [START, SMALL.solution], ids=["start", "solution"])
@pytest.mark.parametrize("batch", [40, 80, 160])
def test_drawn_exact_and_bound_agree(place: np.ndarray, batch: int):
    """Part 3: the exact probability lies in the 99.9 % interval of 400 draws of whole steps, and below the bound."""
    random = np.random.default_rng(batch)
    count = sum(SMALL.leaves(place, batch, random) for _ in range(400))
    interval = binomtest(count, 400).proportion_ci(0.999)
    assert interval.low <= SMALL.exact(place, batch) <= interval.high
    assert SMALL.exact(place, batch) <= SMALL.bound(place, batch)


@given(
    batch=st.integers(1, 5000),
    penalty=st.floats(0.01, 5.0),
    noise=st.floats(0.01, 5.0),
    outside=st.integers(1, 500),
)
def test_the_bound_is_never_below_the_exact_probability(batch: int, penalty: float, noise: float, outside: int):
    model = Lasso(features=3 + outside, support=3, noise=noise, penalty=penalty)
    w = np.zeros(model.features)
    assert model.exact(w, batch) <= model.bound(w, batch) * (1 + 1e-6) + 1e-12


def test_the_exponent_is_the_best_one():
    """Chernoff at the optimum: no other t gives a larger exponent, and -log P / B tends to it as B grows."""
    for a in (0.05, 0.3, 1.0, 4.0):
        grid = np.linspace(1e-4, 1 - 1e-4, 20_001)
        assert exponent(a) == pytest.approx(np.max(grid * a + 0.5 * np.log1p(-(grid**2))), rel=1e-5)
    one = Lasso(features=2, support=1, noise=1.0, penalty=0.5)
    w = one.truth
    assert -math.log(one.exact(w, 400)) / 400 == pytest.approx(exponent(0.5), rel=0.08)
    assert exponent(1e-3) == pytest.approx(norm.logpdf(0) - norm.logpdf(1e-3), rel=1e-3)  # a^2 / 2, Gaussian noise


def test_large_batches_keep_the_support_and_small_ones_do_not():
    """The sparsity claim over a whole run: a batch that the bound promises 99.9 % for never leaves it."""
    model = Lasso(features=80, support=5)
    start = np.zeros(model.features)
    steps = 30
    outside = model.features - model.support
    batch = math.ceil(math.log(2 * outside * steps / 1e-3) / exponent(model.penalty / model.spread(start)))
    assert model.bound(start, batch) <= 1e-3 / steps
    large = course(model, batch, steps, np.random.default_rng(2))
    assert max(large.mean_nonzeros) <= model.support
    small = course(model, 20, steps, np.random.default_rng(2))
    assert max(small.mean_nonzeros) > 2 * model.support
    assert np.mean(large.top_share) > np.mean(small.top_share)


def test_soft_thresholding_is_the_proximal_map():
    """It minimises (v - w)^2 / 2 + t |v| in every coordinate, against a fine grid."""
    grid = np.linspace(-3, 3, 6001)
    for w in (-2.0, -0.3, 0.0, 0.7, 1.5):
        best = grid[np.argmin((grid - w) ** 2 / 2 + 0.6 * np.abs(grid))]
        assert soft(np.array([w]), 0.6)[0] == pytest.approx(best, abs=1e-3)


def test_the_figure_is_written_and_the_same_every_time(tmp_path: Path):
    model = Lasso(features=12, support=2)
    first, second = (make_lasso(output=tmp_path / name, model=model, trials=10) for name in "ab")
    assert [path.name for path in first] == ["lasso.png", "lasso.svg"]
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]
