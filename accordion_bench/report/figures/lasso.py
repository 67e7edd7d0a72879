"""Appendix B as an experiment: LASSO, where a stochastic gradient is a sparse mean plus dense noise. No torch.

The appendix of Agarwal et al. 2021 (arXiv 2010.16248) connects gradient compression and batch size by this model. Its
text was not at hand; the lemma below was derived for the model in full, and is what the experiment checks.

Model: features x ~ N(0, I_d), y = <x, w*> + e with e ~ N(0, sigma^2) and s non-zero coordinates of w*, their set S. The
objective is E (<x, w> - y)^2 / 2 + lambda |w|_1, and a step with a fresh batch of B examples is

    g = mean of x_i (<x_i, w> - y_i),    w+ = soft(w - rate g, rate lambda).

Lemma. Let w be zero outside S, and tau^2 = |w - w*|^2 + sigma^2. Then
  (1) the mean gradient w - w* has at most s non-zero coordinates, while g almost surely has d;
  (2) outside S, g is noise of variance tau^2 / B, since there x_ij is independent of the residual r_i;
  (3) w+ is again zero outside S with probability at least 1 - 2 (d - s) exp(-B I(lambda / tau)), where
      I(a) = u a + log(1 - u^2) / 2 at u = (sqrt(1 + 4 a^2) - 1) / (2 a).
Proof of (3): a coordinate j outside S stays zero exactly if |g_j| <= lambda. g_j is a mean of B products of
independent N(0, 1) and N(0, tau^2) variables, so E exp(t B g_j / tau) = (1 - t^2)^(-B/2) for |t| < 1. Chernoff's bound
at the best t is exp(-B I(lambda / tau)); two signs and d - s coordinates give the sum.

So a batch of log(2 (d - s) / delta) / I(lambda / tau) examples keeps the mean gradient sparse with probability
1 - delta: far from the solution tau is large, and a small batch drowns the few coordinates that matter in noise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from accordion_bench.report.figures import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Vector = NDArray[np.float64]
BATCHES = (32, 64, 128, 256, 512, 1024, 2048)
PATH_BATCHES = (32, 128, 1024)
TRIALS, PATHS, STEPS = 300, 5, 80
RANKS = 1000  # of the chi^2 distribution, for a mean over it


@dataclass(frozen=True)
class Lasso:
    """The model.

    Attributes:
        features: d.
        support: s, the non-zero coordinates of w*; the first ones, all 1.
        noise: sigma.
        penalty: lambda.
        rate: of the steps.
    """

    features: int = 200
    support: int = 10
    noise: float = 1.0
    penalty: float = 0.5
    rate: float = 0.1

    @property
    def truth(self) -> Vector:
        """w*: (d,)."""
        return (np.arange(self.features) < self.support).astype(float)

    @property
    def solution(self) -> Vector:
        """Where the mean gradient and the penalty balance: w* shrunk by lambda, (d,)."""
        return soft(self.truth, self.penalty)

    def gradient(self, w: Vector, batch: int, random: np.random.Generator) -> Vector:
        """A stochastic gradient (d,) of the smooth part, from `batch` fresh examples."""
        x_BN = random.standard_normal((batch, self.features))
        residual_B = x_BN @ (w - self.truth) - self.noise * random.standard_normal(batch)
        return x_BN.T @ residual_B / batch

    def step(self, w: Vector, gradient: Vector) -> Vector:
        """The proximal step."""
        return soft(w - self.rate * gradient, self.rate * self.penalty)

    def spread(self, w: Vector) -> float:
        """tau: the noise of a coordinate of g outside the support is tau / sqrt(B)."""
        return math.hypot(float(np.linalg.norm(w - self.truth)), self.noise)

    def bound(self, w: Vector, batch: int) -> float:
        """Upper bound of the probability that the step from w leaves the support: part (3) of the lemma."""
        outside = self.features - self.support
        return min(1.0, 2 * outside * math.exp(-batch * exponent(self.penalty / self.spread(w))))

    def exact(self, w: Vector, batch: int) -> float:
        """That probability itself: given the residuals, g outside the support is N(0, |r|^2 / B^2), |r|^2 a chi^2."""
        from scipy.stats import chi2, norm

        ranks = (np.arange(RANKS) + 0.5) / RANKS
        root = np.sqrt(chi2.ppf(ranks, batch)) * self.spread(w)
        tails = 2 * norm.sf(self.penalty * batch / root)
        return float(np.mean(-np.expm1((self.features - self.support) * np.log1p(-tails))))

    def leaves(self, w: Vector, batch: int, random: np.random.Generator) -> bool:
        """Whether one step with a fresh batch leaves the support."""
        return bool(np.any(self.step(w, self.gradient(w, batch, random))[self.support :]))


@dataclass(frozen=True)
class Course:
    """Proximal SGD from 0, per step.

    Attributes:
        mean_nonzeros: non-zero coordinates of the mean gradient.
        top_share: share of the stochastic gradient's squared norm in its s largest coordinates.
    """

    mean_nonzeros: list[int]
    top_share: list[float]


def soft(w: Vector, threshold: float) -> Vector:
    """Soft thresholding: the proximal map of threshold |w|_1."""
    return np.sign(w) * np.maximum(np.abs(w) - threshold, 0.0)


def exponent(a: float) -> float:
    """I(a) of the lemma, for a > 0: about a^2 / 2 for small and a for large a."""
    u = 2 * a / (math.sqrt(1 + 4 * a * a) + 1)
    return u * a + 0.5 * math.log1p(-u * u)


def course(model: Lasso, batch: int, steps: int, random: np.random.Generator) -> Course:
    """One run of proximal SGD from 0."""
    w = np.zeros(model.features)
    nonzeros, shares = [], []
    for _ in range(steps):
        gradient = model.gradient(w, batch, random)
        squares = np.sort(gradient**2)[::-1]
        nonzeros.append(int(np.count_nonzero(w - model.truth)))
        shares.append(float(squares[: model.support].sum() / squares.sum()))
        w = model.step(w, gradient)
    return Course(nonzeros, shares)


def make_lasso(*, output: Path, model: Lasso | None = None, trials: int = TRIALS) -> list[Path]:
    """Write <output>/lasso.png and .svg: the lemma's bound and its sparsity, against simulations. A few seconds.

    Raises:
        UserError: if output cannot be written.
    """
    from matplotlib import rc_context

    model = model or Lasso()
    with rc_context(style.SETTINGS):
        figure = style.new_figure(11.0, 3.7)
        left, middle, right = figure.subplots(1, 3)
        _draw_bound(left, model, trials)
        _draw_courses(middle, right, model)
        figure.suptitle(
            f"Appendix B. LASSO with {model.features} coordinates, {model.support} of them relevant: "
            "a sparse mean gradient plus dense noise\n"
            f"{trials} draws per point, mean of {PATHS} runs per curve",
            x=0.01,
            ha="left",
            fontsize=10.5,
        )
        return style.save(figure, output, "lasso")


def _draw_bound(axes: Axes, model: Lasso, trials: int) -> None:
    """The probability that a step leaves the support, against the batch size, at the start and at the solution."""
    from scipy.stats import binomtest

    start: Vector = np.zeros(model.features)
    places = (
        ("at the start", start, style.BLACK, "o"),
        ("at the solution", model.solution, style.VERMILLION, "s"),
    )
    for number, (name, w, colour, marker) in enumerate(places):
        random = np.random.default_rng(number)
        counts = [sum(model.leaves(w, batch, random) for _ in range(trials)) for batch in BATCHES]
        shares = [count / trials for count in counts]
        ends = [binomtest(count, trials).proportion_ci() for count in counts]
        low = [share - end.low for share, end in zip(shares, ends, strict=True)]
        high = [end.high - share for share, end in zip(shares, ends, strict=True)]
        fine = np.geomspace(BATCHES[0], BATCHES[-1], 60)
        axes.errorbar(
            BATCHES, shares, (low, high), color=colour, marker=marker, ls="", ms=5, capsize=2, label=f"{name}: drawn"
        )
        axes.plot(fine, [model.exact(w, int(batch)) for batch in fine], color=colour, lw=1.2, label=f"{name}: exact")
        bounds = [model.bound(w, int(batch)) for batch in fine]
        axes.plot(fine, bounds, color=colour, lw=1.2, ls=(0, (4, 2)), label=f"{name}: bound")
    axes.set_xscale("log", base=2)
    axes.set_xticks(BATCHES, [str(batch) for batch in BATCHES])
    axes.set_xlabel("batch size")
    axes.set_ylabel("probability")
    axes.set_title("A step leaves the support")
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=2, fontsize=8)


def _draw_courses(middle: Axes, right: Axes, model: Lasso) -> None:
    """Sparsity of the mean gradient, and what a Top-s sparsifier would keep, over the steps."""
    looks = ((style.VERMILLION, "s"), (style.BLUE, "o"), (style.BLACK, "^"))
    steps = range(STEPS)
    for batch, (colour, marker) in zip(PATH_BATCHES, looks, strict=True):
        courses = [course(model, batch, STEPS, np.random.default_rng((batch, number))) for number in range(PATHS)]
        for axes, name in ((middle, "mean_nonzeros"), (right, "top_share")):
            values = np.mean([getattr(one, name) for one in courses], axis=0)
            axes.plot(steps, values, color=colour, marker=marker, markevery=10, ms=5, lw=1.4, label=f"batch {batch}")
    middle.axhline(model.support, color=style.GREY, ls=":", lw=1.2, label="relevant coordinates")
    middle.axhline(model.features, color=style.GREY, ls="--", lw=1.2, label="a stochastic gradient")
    middle.set_yscale("log")
    middle.set_ylim(0.8 * model.support, 1.3 * model.features)
    ticks = [model.support, 2 * model.support, 5 * model.support, model.features]
    middle.set_yticks(ticks, [str(tick) for tick in ticks])
    middle.minorticks_off()
    middle.set_title("Non-zero coordinates of the mean gradient")
    right.set_ylim(0, 1)
    right.set_title(f"Energy in the {model.support} largest coordinates")
    for axes, label in ((middle, "coordinates"), (right, "share of the squared norm")):
        axes.set_xlabel("steps")
        axes.set_ylabel(label)
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=2, fontsize=8)
