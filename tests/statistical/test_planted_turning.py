"""[P20] Faults of smooth sensitivity, caught by the audit that finds nothing wrong with the product.

False-alarm rate: 1e-6 for each audit of the product. The chance to miss a fault is below 1e-8.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from eigenveil.mechanisms.papers.smooth_sensitivity import cauchy_scale, gaussian_scale, to_fixed_point
from eigenveil.noise.distributions import cauchy, haar
from eigenveil.noise.source import Block, NoiseSource, NoiseSpec
from eigenveil.numerics.encoding import FloatArray, IntArray, frozen
from eigenveil.numerics.linalg import orthonormal
from eigenveil.queries.papers.trusted import (
    CAUCHY,
    ENTRY_STEPS,
    GAUSSIAN,
    EigenspaceSensitivity,
    Subspace,
    leading_subspace_and_gap,
    person_weight,
)
from tests.statistical.audit import Approximate, Attack, Mechanism, audit
from tests.statistical.behind import R
from tests.statistical.counted import WITH_DELTA, Statistic, first, watched
from tests.statistical.mechanisms import ADD, DELTA, LEVEL, OF_ITS_OWN, at_price, study_of
from tests.statistical.noises import Bulk, computed_once

FEW = 300  # releases a side: the faults show in every one
PLANES = Subspace(centre=frozen([0, 0, 0]), radius=R, records=10_000, count=2, mechanism=CAUCHY)
PUBLIC = orthonormal(np.random.default_rng(1).normal(size=(3, 3)))

Variant = Callable[[Subspace, IntArray, NoiseSource], FloatArray]
Sums = tuple[IntArray, IntArray]


def weighed(*entries: float) -> IntArray:
    """A matrix in persons of full weight: its diagonal, then entries 12, 13, 23. Shape: (6,)."""
    return frozen(np.rint(np.array(entries) * R**2).astype(np.int64))


def bounds_of(query: Subspace, total: IntArray) -> tuple[EigenspaceSensitivity, FloatArray, float]:
    """How far one person turns it; its leading vectors; its gap."""
    unit = person_weight(query, 1)
    return EigenspaceSensitivity.of(query, ADD, unit), *leading_subspace_and_gap(query, total, unit)


def varied(release: Variant, query: Subspace, sums: Sums, statistic: Statistic) -> Attack:
    """Releases of a variant, tested by one number of each."""

    def attack(noise: NoiseSource, m: int) -> tuple[FloatArray, FloatArray]:
        """Shape: (m,) each."""
        with computed_once():
            both = [np.array([release(query, total, noise) for _ in range(m)]) for total in sums]
        return statistic(both[0]), statistic(both[1])

    return attack


def alarms(attack: Attack, claim: Approximate, samples: int = FEW) -> bool:
    """What the audit says."""
    mechanism = Mechanism(name="turned", kind="subspace", claim=claim, attack=attack, tight=0.0)
    return audit(mechanism, Bulk(), samples).alarm


def judged(release: Variant, query: Subspace, sums: Sums, statistic: Statistic) -> list[bool]:
    """Whether the audit alarms at a variant, and at the product on the same data sets with the same test."""
    pure = query.mechanism == CAUCHY
    claim = Approximate(epsilon=LEVEL) if pure else WITH_DELTA
    asked = at_price(query, atto_delta=0 if pure else OF_ITS_OWN)
    right = watched(asked, study_of(ADD, 3), *sums, statistic)
    return [alarms(attack, claim) for attack in (varied(release, query, sums, statistic), right)]


def rotated_left(query: Subspace, total: IntArray, noise: NoiseSource) -> FloatArray:
    """The d-by-d rotation of the paper, from the left. It has to be public, or nobody could use the release;
    so everybody can take it off again. Shape: (6,)."""
    bounds, vectors, gap = bounds_of(query, total)
    scale = math.ceil(cauchy_scale(bounds, gap, LEVEL, 6) * ENTRY_STEPS)
    noised = to_fixed_point(PUBLIC @ vectors) + np.array(cauchy(6, scale, noise))
    return (PUBLIC.T @ noised.reshape(3, 2)).reshape(-1)


def test_a_left_rotation_leaves_the_basis_bare() -> None:
    """Two eigenvalues change places: the plane stays, its basis does not. Only a rotation from the right
    (k by k) hides that, and the noise is scaled as if it were hidden."""
    sums = weighed(1000.5, 1000, 0, 0, 0, 0), weighed(1000.5, 1001, 0, 0, 0, 0)
    assert judged(rotated_left, PLANES, sums, first) == [True, False]


def one_noise(query: Subspace, total: IntArray, noise: NoiseSource) -> FloatArray:
    """Noise of dimension d: the same d numbers on each of the k columns. Shape: (6,)."""
    bounds, vectors, gap = bounds_of(query, total)
    scale = gaussian_scale(bounds, gap, LEVEL, DELTA, 3) * ENTRY_STEPS
    drawn = noise.draw(NoiseSpec(blocks=(Block(count=3, scale=scale),)))
    return (to_fixed_point(vectors @ haar(2, noise)) + np.repeat(drawn, 2)).astype(np.float64)


def test_noise_of_dimension_d_instead_of_dk() -> None:
    """The columns' difference is bare: without the record it has no third entry at all."""
    sums = weighed(1000, 1000.5, 0, 0, 0, 0), weighed(1000, 1001, 0.5, 0, 0, 0.5)
    query = replace(PLANES, mechanism=GAUSSIAN)
    assert judged(one_noise, query, sums, difference) == [True, False]


def difference(values: IntArray | FloatArray) -> FloatArray:
    """How far the columns are apart along the third axis. Shape: (m, length) -> (m,)."""
    return np.abs(values[:, 4] - values[:, 5]).astype(np.float64)
