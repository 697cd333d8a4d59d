"""No false confidence: where the components are noise, the stated error says so; elsewhere it is about right.

The tables have few records far from the middle of their bounds, so that the private mean's own noise is
longer than anything that the records do. Runs are seeded: nothing fails by chance as long as no algorithm
changes. A right algorithm that has changed draws anew: with 2 % of its runs wrong, the most that is allowed,
it fails a case less than once in 5,000 times (binomial)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from scipy import stats

from eigenveil.numerics.encoding import FloatArray
from eigenveil.numerics.linalg import sin_angle
from eigenveil.study.algorithm import Algorithm
from tests.core.algorithms.test_algorithms import run, study, truth

A = Algorithm
# Of the slow ones two say what GAUSS_COV says, by the same function; the others take seconds.
SLOW = map(
    A,
    ["analyze-gauss", "separate-cov", "adaptive-cov", "noisy-power", "dp-pca", "refined-cov", "refined-pca"],
)
STATING = [A.GAUSS_COV, A.EM_COV, *(pytest.param(one, marks=pytest.mark.slow) for one in SLOW)]
LOST, CONFIDENT, ALLOWED, ALARM = 0.9, 0.5, 0.02, 2e-4
# Records, columns, epsilon, components, spread in half widths of the bounds.
TABLES = [(300, 60, 1.0, 1, 0.1), (600, 40, 1.0, 1, 0.05), (300, 40, 2.0, 3, 0.05)]
RUNS = 10


def far_off(n: int, d: int, spread: float, seed: int) -> FloatArray:
    """Records about a mean far from the middle of bounds +-6, with a spectrum of 4, 1, ..., 1."""
    generator = np.random.default_rng(seed)
    middle = generator.choice([-3.6, 3.6], d)
    return middle + 6 * spread * generator.standard_normal((n, d)) * np.sqrt([4.0] + [1.0] * (d - 1))


def runs(algorithm: Algorithm) -> Iterator[tuple[float, float]]:
    for n, d, epsilon, k, spread in TABLES:
        what = study(d, algorithm, epsilon=epsilon, components=k, max_records=2000)
        for seed in range(RUNS):
            rows = far_off(n, d, spread, seed)
            found = run(what, rows, seed).estimate
            assert found.sin_error is not None
            yield sin_angle(truth(rows, k), found.components), found.sin_error


def is_honest(algorithm: Algorithm) -> bool:
    """True if at most 2 % of the runs that found noise may be stated below .5, as far as so few runs tell."""
    stated = [error for sine, error in runs(algorithm) if sine > LOST]
    confident = sum(error < CONFIDENT for error in stated)
    assert len(stated) >= 20  # else the tables are too easy to tell anything
    return bool(stats.binom.sf(confident - 1, len(stated), ALLOWED) > ALARM)


@pytest.mark.parametrize("algorithm", STATING)
def test_where_the_components_are_noise_the_stated_error_is_large(algorithm: Algorithm) -> None:
    assert is_honest(algorithm)


def long_records(n: int, d: int, seed: int) -> FloatArray:
    """Rows of a falling spectrum, each as long as Student's t with 4 degrees of freedom makes it."""
    generator = np.random.default_rng(seed)
    lengths = np.sqrt(4 / generator.chisquare(4, n))
    return generator.standard_normal((n, d)) * np.sqrt(1 / np.arange(1.0, d + 1)) * lengths[:, None]


def test_the_stated_error_sees_what_clipping_bends() -> None:
    """The records are so many that noise alone would say less than half of it."""
    message = []
    for seed in range(9):
        rows = np.clip(0.4 * long_records(20_000, 20, seed), -6, 6)
        found = run(study(20, A.GAUSS_COV, epsilon=8.0), rows, seed).estimate
        assert found.sin_error is not None
        message.append(found.sin_error / sin_angle(truth(rows, 1), found.components))
    assert 0.67 < np.median(message) < 1.5
