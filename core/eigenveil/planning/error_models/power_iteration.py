"""The error of the iterative family, dp-pca and noisy-power, as `matrix` gives it for the covariance family.

A round carries the lean of direction i towards j over by a factor rho < 1 and adds fresh noise to it. What is
left of the public starting directions fades by rho a round. dp-pca averages its tail, and leans with it.
"""

from __future__ import annotations

import numpy as np

from eigenveil.algorithms.covariance.noised_gram import noise_ratio
from eigenveil.algorithms.gradient.dp_pca import Schedule, gradient_radius, schedule
from eigenveil.algorithms.gradient.noisy_power import ENERGY_SHARE, ROUNDS
from eigenveil.algorithms.shared.gradient_query import Slope
from eigenveil.algorithms.shared.preparation import Centred, drawn_mu, price
from eigenveil.numerics.encoding import FloatArray
from eigenveil.planning.error_models.covariance import clipped, seen, sensitivity, shortened
from eigenveil.planning.error_models.eigengaps import Assumed, bent
from eigenveil.planning.error_models.noiseless import imagine, located
from eigenveil.planning.error_models.rotation import PredictedError, error
from eigenveil.planning.error_models.spectrum import AssumedSpectrum
from eigenveil.protocol.plan import Plan
from eigenveil.study.grid import S

# Beyond first order, fitted to about 100 simulations: several directions at once are 8 % worse, and rounds
# whose own leans are long no longer build on each other, the less so the more directions there are.
SEVERAL = 1.08


class Pulls:
    """The gradients of the assumed records along the first m directions, and how a radius clips them.

    A gradient is x a^T - C with a_i = x_i / sqrt(lambda_i), and C has sqrt(lambda_i) v_i in column i (0
    without pull); not `scaled`, a_i = x_i.
    """

    def __init__(self, assumed: Assumed, m: int, *, pulled: bool, scaled: bool = True) -> None:
        guess, top = assumed.guess, assumed.guess.values[:m] if scaled else np.ones(m)
        self.assumed, self.pulled, self.m = assumed, float(pulled), m
        self._scales = assumed.values if scaled else np.ones(len(assumed.values))
        known = guess.leading[:, :m] ** 2
        across = (known / top[: known.shape[1]]).sum(axis=1) + (m - known.shape[1])
        off = self.pulled * (top.sum() - 2 * known.sum(axis=1))
        self.norms = np.sqrt(np.maximum(guess.lengths**2 * across + off, 1e-300))

    def radius(self, plan: Plan, start: Centred, times: Schedule) -> float:
        """The clip radius that the study's rule finds."""
        axes, roots = np.eye(plan.study.dimension, self.m), np.sqrt(self.assumed.guess.values[: self.m])
        slope = Slope(centre=start.centre, directions=axes / roots, offset=axes * roots * self.pulled)
        steps = gradient_radius(plan, start, times, slope, None)
        return imagine(plan, steps, self.norms * S**2 * slope.fine) * slope.reach

    def kept(self, radius: float) -> FloatArray:
        """How much of each gradient a radius leaves. Shape: (N,)."""
        return np.asarray(np.minimum(1.0, radius / self.norms))

    def response(self, kept: FloatArray) -> tuple[FloatArray, FloatArray]:
        """What a round makes of direction i, and how much less of its leans towards j.

        A clipped gradient keeps its length, so it answers a lean by a turn alone; what the pull holds back
        follows the directions. Shape: (N,) -> (m,), (r, m, g).
        """
        assumed, x, y = self.assumed, self.assumed.squares, self.assumed.squares_beyond
        held = self.pulled * assumed.values * (1 - kept.mean())
        own = held + (kept[:, None] * x).mean(axis=0)
        other = held[:, None] + (kept[:, None] * y).mean(axis=0)
        lengths = assumed.guess.lengths**2
        answered = (kept * (kept < 1) / self.norms**2)[:, None] * x
        answered = answered * (lengths[:, None] / self._scales - 2 * self.pulled)
        gaps = assumed.opened(own[:, None] - other + answered.T @ y / len(x), kept)
        return own, np.minimum(gaps, own[:, None])


def dp_pca(plan: Plan, guess: AssumedSpectrum) -> PredictedError:
    """Noise and clipping of the averaged tail, and what is left of the start."""
    start = located(plan, guess)
    return averaged(plan, guess, start, schedule(plan, start))


def averaged(plan: Plan, guess: AssumedSpectrum, start: Centred, times: Schedule) -> PredictedError:
    """The directions of an averaged tail."""
    k = plan.study.components
    assumed = Assumed(guess=guess, k=k, records=start.records)
    noise = sensitivity(plan) / (drawn_mu(plan, times.round_price) * start.records) * np.sqrt(assumed.values)
    ratios, leans = [], []
    for pulled in (False, True):
        pulls = Pulls(assumed, times.directions, pulled=pulled)
        radius = pulls.radius(plan, start, times)
        kept = pulls.kept(radius)
        own, gaps = pulls.response(kept)
        ratios.append(1 - gaps / own[:, None])
        leans.append((noise * radius / own)[:, None] ** 2)
    rounds = times.rounds - times.tail
    variances, started = tail(leans, ratios, times.tail, rounds)
    counts, spare = assumed.beyond.counts, times.directions - k
    if spare > 0:  # the last turn, within all m directions, is by the mean of the tail at once
        both = 1 + assumed.beyond.values[:spare] / assumed.values[:, None]
        inner = (noise * radius)[:, None] ** 2
        variances[..., :spare] = inner * both / (4 * rounds * gaps[..., :spare] ** 2)
        started[..., :spare] = 0.0
    once = (leans[1] * counts / (1 - ratios[1] ** 2)).sum(axis=(-1, -2))[:, None, None]
    beyond = (1 + (once * (k + 1) / 3) ** 2 / 2) * (SEVERAL if k > 1 else 1.0)
    return error(beyond**2 * (variances + bent(assumed, kept, gaps)), counts, started)


def tail(
    leans: list[FloatArray], ratios: list[FloatArray], before: int, rounds: int
) -> tuple[FloatArray, FloatArray]:
    """Variance of a lean averaged over the last `rounds` rounds, after `before` others, and the square of
    what is left of one that it started with.

    Shape: leans (a round's fresh variance) and ratios (r, m, g), of the rounds before and of the averaged
    ones.
    """
    first, rho = ratios
    carried, gone = first ** (2 * before), rho**rounds
    weight = (rho * (1 - gone) / ((1 - rho) * rounds)) ** 2
    fresh = rounds - 2 * rho * (1 - gone) / (1 - rho) + rho**2 * (1 - gone**2) / (1 - rho**2)
    noise = leans[0] * (1 - carried) / (1 - first**2) * weight + leans[1] * fresh / ((1 - rho) * rounds) ** 2
    return noise, carried * weight


def noisy_power(plan: Plan, guess: AssumedSpectrum) -> PredictedError:
    """The last of a few rounds, each with the noise of a whole row squared."""
    clip, assumed = clipped(plan, guess, noise_ratio(plan))
    kept = shortened(guess, clip.radius)
    own, gaps = seen(assumed, kept)
    gaps = np.minimum(gaps, own[:, None])
    rho = 1 - gaps / own[:, None]
    each = drawn_mu(plan, price(plan, (clip.left - ENERGY_SHARE) / ROUNDS))
    noise = sensitivity(plan) * (clip.radius / S) ** 2 / (each * assumed.records)
    faded = rho ** (2 * ROUNDS)
    variances = (noise / own[:, None]) ** 2 * (1 - faded) / (1 - rho**2) + bent(assumed, kept, gaps)
    return error(variances, assumed.beyond.counts, faded)
