"""[P13] [P14] Directions by rejection: the right law, quickly, on a grid, at right angles.

Comparisons with quadrature are at `ALARM`, by the central limit, and seeded: nothing here fails by chance."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pytest
from scipy import stats

from eigenveil.mechanisms import apply_mechanism
from eigenveil.noise import distributions
from eigenveil.noise.seeded import SeededNoise
from eigenveil.noise.source import OsNoise
from eigenveil.numerics.encoding import FloatArray, frozen
from eigenveil.protocol.query import PricedQuery, RoundQuery
from eigenveil.queries import VECTOR, Eigenvectors
from eigenveil.site.site import Site
from eigenveil.study.composition import micro_rho_of
from eigenveil.study.grid import S
from tests.support import DIGEST, a_study, random_rows

ALARM = 1e-6
N = 1000
EXPONENTS = np.array([20.0, 5.0, 0.0]) / 4  # C = diag(20, 5, 0), epsilon = 1, epsilon / 4 in the exponent


def sphere(steps: int = 200) -> tuple[FloatArray, FloatArray]:
    """Midpoints of a product grid on the sphere, and their areas. Shape: (m, 3), (m,)."""
    z = (np.arange(steps) + 0.5) / steps * 2 - 1
    angle = (np.arange(2 * steps) + 0.5) / steps * math.pi
    z, angle = (part.ravel() for part in np.meshgrid(z, angle))
    flat = np.sqrt(1 - z**2)
    return np.stack([flat * np.cos(angle), flat * np.sin(angle), z], axis=1), np.full(z.size, 1 / z.size)


POINTS, AREAS = sphere()


def density(matrix: FloatArray) -> FloatArray:
    """exp(u' M u), normalised, at POINTS."""
    weight = np.exp(((POINTS @ matrix) * POINTS).sum(axis=1)) * AREAS
    return weight / weight.sum()


def sample(exponents: FloatArray) -> FloatArray:
    noise = SeededNoise(1)
    return np.array([distributions.bingham(exponents, noise) for _ in range(N)])


def fits(found: FloatArray, exponents: FloatArray) -> bool:
    """True if the means of u_i^2 and u_i^4 are those of the law."""
    p = density(np.diag(exponents))
    for power in (2, 4):
        expected, got = p @ POINTS**power, (found**power).mean(axis=0)
        error = (found**power).std(axis=0) / math.sqrt(len(found))
        if (np.abs(got - expected) > stats.norm.isf(ALARM / 12) * error).any():
            return False
    return True


@pytest.mark.parametrize("exponents", [EXPONENTS, np.zeros(3), np.array([0.0, 30.0, 30.0])])
def test_directions_have_the_bingham_distribution(exponents: FloatArray) -> None:
    found = sample(exponents)
    assert np.allclose((found**2).sum(axis=1), 1)
    assert fits(found, exponents)


class Counting(SeededNoise):
    drawn = 0

    def uniform(self, count: int) -> FloatArray:
        """Shape: (count,)."""
        self.drawn += count
        return super().uniform(count)


def spectra(m: int) -> Iterator[FloatArray]:
    yield np.zeros(m)
    yield np.array([1e6] + [0.0] * (m - 1))
    yield 1e4 * 0.9 ** np.arange(float(m))
    yield np.array([m / 2] + [0.0] * (m - 1))
    yield np.linspace(-100, 100, m)


@pytest.mark.parametrize("m", [2, 12, 50, 200])
def test_it_ends_after_few_proposals(m: int) -> None:
    for exponents in spectra(m):
        noise = Counting(m)
        for _ in range(20):
            distributions.bingham(exponents, noise)
        proposals = noise.drawn / (m + 1) / 20
        assert proposals <= 4 * distributions.PROPOSALS


@pytest.mark.parametrize("m", [2, 3, 12, 200])
def test_the_envelope_lies_above_the_density(m: int) -> None:
    for exponents in spectra(m):
        a = exponents.max() - exponents
        b = distributions.envelope(a)
        assert 1 <= b <= m
        assert (1 / (b + 2 * a)).sum() == pytest.approx(1, rel=1e-9)
        x = np.concatenate([np.linspace(0, 2 * m, 1000), [(m - b) / 2]])
        remaining = distributions.log_accept(x, b, m)
        assert -1e-9 <= remaining.max() <= 1e-9


def eigenvector_query(d: int, count: int, epsilon: float) -> RoundQuery:
    query = Eigenvectors(centre=frozen(np.zeros(d, dtype=np.int64)), radius=S, records=1000, count=count)
    return RoundQuery(PricedQuery(query=query, micro_rho=micro_rho_of(epsilon)), DIGEST, 0)


@pytest.mark.parametrize(("d", "count"), [(1, 1), (2, 2), (5, 1), (5, 5), (12, 3)])
def test_directions_leave_as_integers_at_right_angles(d: int, count: int) -> None:
    round_query = eigenvector_query(d, count, 1.0)
    total = Site(random_rows(100, d)).answer(round_query.query)
    outcome = apply_mechanism(round_query.priced, total, a_study(d=d), OsNoise())
    vectors = outcome.values.reshape(count, d) / VECTOR
    assert outcome.values.dtype == np.int64
    assert np.abs(vectors @ vectors.T - np.eye(count)).max() <= d * 2.0**-23
