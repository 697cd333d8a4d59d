"""[P20] [P21] What the noise on a subspace costs, computed exactly; and the laws that it is drawn from.

Losses are computed from the densities of two neighbours, at the code's own scales: no sampling, no bound of
the proof. Every fault planted here is caught by the same computation. False-alarm rate of what is sampled:
1e-6 for each check."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from numpy.typing import ArrayLike
from scipy import stats
from scipy.special import log_ndtr, ndtr

from eigenveil.accounting.gaussian import noise_multiplier
from eigenveil.accounting.zcdp import ATTO, Neighbours
from eigenveil.errors import Code
from eigenveil.mechanisms.papers import smooth_sensitivity
from eigenveil.noise.distributions import cauchy, fine_normals, haar
from eigenveil.noise.seeded import SeededNoise
from eigenveil.noise.source import NoiseSource, NoiseSpec, OsNoise
from eigenveil.numerics.encoding import FloatArray, IntArray, frozen
from eigenveil.protocol.query import NoiseDistribution, PricedQuery
from eigenveil.queries.papers.trusted import (
    CAUCHY,
    ENTRY_STEPS,
    GAP_STEPS,
    GAUSSIAN,
    PROPOSE_TEST_RELEASE,
    EigenspaceSensitivity,
    Subspace,
    person_weight,
    rotation_error,
)
from eigenveil.study.composition import micro_rho_of
from eigenveil.study.grid import S
from tests.support import a_study, refused

ALARM = 1e-6
GAPS = (0.0, 2.4, 3.0, 3.6, 10.0, 60.0, 300.0, 3000.0, 1e5)


def a_subspace(d: int, k: int, mechanism: str = GAUSSIAN, records: int = 1000) -> Subspace:
    centre = frozen(np.zeros(d, dtype=np.int64))
    return Subspace(centre=centre, radius=S, records=records, count=k, mechanism=mechanism)


def bounds_of(d: int, k: int, neighbours: Neighbours = Neighbours.ADD_REMOVE) -> EigenspaceSensitivity:
    query = a_subspace(d, k)
    return EigenspaceSensitivity.of(query, neighbours, person_weight(query, 1))


# ------------------------------------------------------------------ Gaussian, its scale a secret


def gaussian_delta(size: int, narrower: float, shift: float, epsilon: float) -> float:
    """The exact delta of N(0, I) against noise 1 / narrower times as wide whose mean lies `shift` away.

    The log ratio of densities is a quadratic form that is the same in all directions, so it exceeds epsilon
    outside a ball, or inside it: noncentral chi-square."""
    if narrower == 1:
        return float(shifted_delta(shift, epsilon))
    square, a = narrower**2, narrower**2 - 1
    rest = -size * math.log(narrower) + square * shift**2 / 2 * (1 - square / a)
    radius2 = (epsilon - rest) * 2 / a
    here, there = (square * shift / a) ** 2, (narrower * shift / a) ** 2
    tail = stats.ncx2.sf if a > 0 else stats.ncx2.cdf
    if radius2 <= 0:
        return 1.0 if a > 0 else 0.0
    return float(tail(radius2, size, here) - math.exp(epsilon) * tail(radius2 * square, size, there))


def shifted_delta(shift: ArrayLike, epsilon: ArrayLike) -> FloatArray:
    """The exact delta of Gaussian noise of size 1 and a mean `shift` away (Balle & Wang 2018).

    Shape: alike."""
    shift, epsilon = np.asarray(shift, dtype=np.float64), np.asarray(epsilon, dtype=np.float64)
    far = np.maximum(shift, 1e-12)
    outside = ndtr(far / 2 - epsilon / far) - np.exp(epsilon + log_ndtr(-far / 2 - epsilon / far))
    return np.where(shift > 0, outside, np.maximum(0.0, -np.expm1(np.minimum(epsilon, 0.0))))


def gaussian_worst(d: int, k: int, epsilon: float, delta: float) -> float:
    """The largest exact delta between neighbours over many gaps, over the claimed one."""
    worst = 0.0
    for neighbours, gap in product(Neighbours, GAPS):
        bounds = bounds_of(d, k, neighbours)
        here = smooth_sensitivity.gaussian_scale(bounds, gap, epsilon, delta, d * k)
        for other in (max(0.0, gap - bounds.step), gap, gap + bounds.step):
            there = smooth_sensitivity.gaussian_scale(bounds, other, epsilon, delta, d * k)
            moved = min(bounds.local(gap), bounds.local(other)) + bounds.float_slack
            for shift in (0.0, moved / here):
                worst = max(worst, gaussian_delta(d * k, here / there, shift, epsilon))
    return worst / delta


@pytest.mark.parametrize("delta", [1e-6, 1e-2])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0, 8.0, 30.0, 60.0, 500.0])
def test_gaussian_noise_of_secret_scale_is_within_its_delta(epsilon: float, delta: float) -> None:
    assert max(gaussian_worst(d, k, epsilon, delta) for d, k in ((2, 1), (5, 2), (30, 3))) <= 1


# ------------------------------------------------------------------ Cauchy


def cauchy_loss(size: int, moved: float, here: float, there: float) -> float:
    """The largest log ratio of densities of `size` Cauchy numbers: scales apart, means `moved` apart in L2.

    Spread evenly over all entries the change is longest in L1, which is what Cauchy noise minds."""
    shift = moved / math.sqrt(size)
    z = np.concatenate([np.linspace(-20, 20, 4001), [-1e6, 1e6]]) * here
    z = np.concatenate([z, z * shift / here])
    ratios = (there**2 + (z - shift) ** 2) / (here**2 + z**2) * (here / there)
    return size * float(np.abs(np.log(ratios)).max())


def cauchy_worst(d: int, k: int, epsilon: float, claimed: int) -> float:
    """The largest loss between neighbours over many gaps, at noise for `claimed` entries."""
    worst = 0.0
    for neighbours, gap in product(Neighbours, GAPS):
        bounds = bounds_of(d, k, neighbours)
        here = smooth_sensitivity.cauchy_scale(bounds, gap, epsilon, claimed)
        for other in (max(0.0, gap - bounds.step), gap, gap + bounds.step):
            there = smooth_sensitivity.cauchy_scale(bounds, other, epsilon, claimed)
            moved = min(bounds.local(gap), bounds.local(other)) + bounds.float_slack
            worst = max(worst, cauchy_loss(d * k, moved, here, there))
    return worst


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 10.0])
def test_cauchy_noise_is_pure(epsilon: float) -> None:
    """Measured: the constants use 0.3 to 0.4 of epsilon."""
    for d, k in ((2, 1), (5, 2), (30, 5)):
        assert 0.1 * epsilon <= cauchy_worst(d, k, epsilon, d * k) <= epsilon


@pytest.mark.parametrize("scale", [10, 2**45])
def test_cauchy_noise_has_its_scale(scale: int) -> None:
    """The score of the scale has mean 0 and variance 1 / 2; 7 % off it is 7 standard errors away. Seeded."""
    z = np.array([float(value) for value in cauchy(25_000, scale, SeededNoise(1))])
    for stated, fits in ((scale, True), (0.93 * scale, False), (1.07 * scale, False)):
        score = float(((z**2 - stated**2) / (z**2 + stated**2)).mean()) * math.sqrt(2 * len(z))
        assert bool(abs(score) <= stats.norm.isf(ALARM / 2)) is fits
    assert stats.kstest(z / scale, stats.cauchy.cdf).pvalue > ALARM or scale == 10


class LargeCauchy(OsNoise):
    """Uniform numbers that make Cauchy noise beyond int64."""

    private = False

    def uniform(self, count: int) -> FloatArray:
        """Shape: (count,)."""
        return np.full(count, 2.0**-53)


def test_what_does_not_fit_is_cut_off_after_the_noise_was_added() -> None:
    """Cut before, 2^61 of noise would show the entry that it was added to, to the last bit."""
    assert abs(cauchy(1, 2**50, LargeCauchy())[0]) > 2**200
    query = a_subspace(2, 1, CAUCHY)
    totals = (frozen([S**2, 0, 0]), frozen([0, S**2, 0]), frozen([S**2, S**2, S**2 // 2]))
    published = [released(asking(query, 1.0, 0.0), query, total, LargeCauchy()) for total in totals]
    assert published == [[smooth_sensitivity.LARGEST_VALUE, smooth_sensitivity.LARGEST_VALUE, 0]] * 3


# ------------------------------------------------------------------ the turn on the right


def test_a_turn_has_the_haar_distribution_from_either_side() -> None:
    """Entries of a Haar matrix with k = 3 are uniform on [-1, 1], also after a fixed turn."""
    noise, fixed = OsNoise(), np.linalg.qr(np.random.default_rng(1).normal(size=(3, 3)))[0]
    attempts = np.array([haar(3, noise) for _ in range(6000)])
    assert np.abs(attempts @ attempts.transpose(0, 2, 1) - np.eye(3)).max() < rotation_error(3)
    for seen in (attempts, fixed @ attempts, attempts @ fixed):
        for i, j in product(range(3), range(3)):
            assert stats.kstest(seen[:, i, j], stats.uniform(-1, 2).cdf).pvalue > ALARM
    rights = int((np.linalg.det(attempts) > 0).sum())
    assert stats.binomtest(rights, len(attempts)).pvalue > ALARM
    assert {haar(1, noise).item() for _ in range(60)} == {-1.0, 1.0}


def test_the_tails_of_normals_are_as_fine_as_their_middle() -> None:
    class Ends(OsNoise):
        """The first number in the last cell of its grid, the second one anywhere."""

        def uniform(self, count: int) -> FloatArray:
            """Shape: (count,)."""
            return np.r_[np.full(count // 2, 2.0**-53), np.linspace(0.01, 0.99, count // 2)]

    z = fine_normals(99, Ends())
    assert (np.diff(z) > 0).all()
    assert z[0] < -8.2
    assert np.abs(stats.norm.cdf(z) / (np.linspace(0.01, 0.99, 99) * 2.0**-52) - 1).max() < 1e-12


# ------------------------------------------------------------------ propose, test, release


def test_a_tested_gap_is_too_large_with_probability_delta_at_most() -> None:
    for neighbours, epsilon, delta in product(Neighbours, (0.1, 1.0, 8.0), (1e-3, 1e-9)):
        bounds = bounds_of(5, 2, neighbours)
        scale, margin = smooth_sensitivity.gap_noise(bounds, epsilon, delta)
        ratio = math.exp(-1 / scale)
        assert ratio ** (margin + 1) / (1 + ratio) <= delta <= ratio ** (margin - 1) / (1 + ratio)
        # floor(64 g) moves by at most 64 step + 1 where g moves by step.
        assert (GAP_STEPS * bounds.step + 1) / scale <= epsilon * (1 + 1e-12)


def delta_after_a_test(
    gap: float, other: float, epsilon: float, delta: float, margin: int | None = None
) -> float:
    """The exact delta between two data sets with these gaps whose subspaces lie as far apart as they may.

    For each released bound, Gaussian noise at a likelihood ratio that the bound has already moved."""
    bounds = bounds_of(5, 2)
    scale, taken = smooth_sensitivity.gap_noise(bounds, smooth_sensitivity.TEST_SHARE * epsilon, delta / 2)
    taken = taken if margin is None else margin
    factor = noise_multiplier((1 - smooth_sensitivity.TEST_SHARE) * epsilon, delta / 2)
    moved = min(bounds.local(gap), bounds.local(other)) + bounds.float_slack
    ratio, here, there = math.exp(-1 / scale), *(math.floor(g * GAP_STEPS) - taken for g in (gap, other))
    least = np.arange(min(here, there) - int(40 * scale), max(here, there) + int(40 * scale))
    chance = ratio ** np.abs(least - here) * (1 - ratio) / (1 + ratio)
    left = epsilon + (np.abs(least - here) - np.abs(least - there)) / scale
    reach = np.array([bounds.local(step / GAP_STEPS) for step in least.tolist()])
    shift = np.where(reach >= bounds.cap, 0.0, moved / ((reach + bounds.float_slack) * factor))
    return float((chance * shifted_delta(shift, left)).sum())


@pytest.mark.parametrize(
    ("gap", "other"), [(30.0, 29.0), (29.0, 30.0), (5.0, 4.0), (4.0, 5.0), (200.0, 199.0)]
)
def test_a_gap_test_and_its_release_stay_within_one_delta(gap: float, other: float) -> None:
    for epsilon, delta in ((1.0, 1e-6), (4.0, 1e-3)):
        assert delta_after_a_test(gap, other, epsilon, delta) <= delta


# ------------------------------------------------------------------ what is public is decided in public


def asking(query: Subspace, epsilon: float, delta: float) -> PricedQuery:
    rho, atto, laplace = micro_rho_of(epsilon), int(delta * ATTO), NoiseDistribution.LAPLACE
    return PricedQuery(query=query, micro_rho=rho, atto_delta=atto, distribution=laplace)


def released(priced: PricedQuery, query: Subspace, total: IntArray, noise: NoiseSource) -> list[int]:
    found: list[int] = smooth_sensitivity.release_subspace(
        priced, query, total, a_study(), noise
    ).values.tolist()
    return found


@pytest.mark.parametrize("mechanism", [GAUSSIAN, CAUCHY, PROPOSE_TEST_RELEASE])
def test_all_directions_are_a_public_basis(mechanism: str) -> None:
    query = a_subspace(3, 3, mechanism)
    for total, noise in ((frozen([5, 5, 5, 1, 2, 3]), SeededNoise(1)), (frozen([0] * 6), OsNoise())):
        values = released(asking(query, 2.0, 1e-6), query, total, noise)
        assert values[:-1] == (ENTRY_STEPS * np.eye(3, dtype=np.int64)).reshape(-1).tolist()


@pytest.mark.parametrize("mechanism", [GAUSSIAN, PROPOSE_TEST_RELEASE])
def test_a_tiny_epsilon_is_a_defined_outcome_and_no_delta_is_refused(mechanism: str) -> None:
    query = a_subspace(4, 2, mechanism)
    for total in (frozen([S**2 * 900, *[0] * 9]), frozen([0] * 10)):
        outcome = released(asking(query, 0.0015, 1e-18), query, total, OsNoise())
        assert not outcome[-1]
        with refused(Code.BAD_STUDY, "delta"):
            released(asking(query, 1.0, 0.0), query, total, OsNoise())


class Counting(SeededNoise):
    """Notes how wide the noise is that it is asked for."""

    def __init__(self) -> None:
        super().__init__(1)
        self.widest = 0.0

    def draw(self, spec: NoiseSpec) -> IntArray:
        """Shape: (spec.length,)."""
        self.widest = max(self.widest, spec.sigma)
        return super().draw(spec)


def test_noise_that_could_leave_int64_is_never_drawn() -> None:
    query, noise = a_subspace(4, 2), Counting()
    for epsilon in (0.0015, 0.01, 0.1, 1.0):
        released(asking(query, epsilon, 1e-18), query, frozen([0] * 10), noise)
    assert noise.widest <= smooth_sensitivity.MAX_SUBSPACE_NOISE * ENTRY_STEPS * 1.01
