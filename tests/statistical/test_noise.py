"""[P2] [P26] The noise that leaves `eigenveil.noise.source` follows the exact law at the planned scale.

False-alarm rate: at most 1e-6 for each check (see `checks`); all checks of this file together
alarm without cause less than once in 10,000 runs. Power: a million draws whose scale is 2 % off in either
direction are caught by every check that is about scale, as the planted faults show."""

from __future__ import annotations

import random

import numpy as np
import pytest
from scipy import stats

from eigenveil.accounting.zcdp import Neighbours
from eigenveil.noise.quantiles import GAUSSIAN
from eigenveil.noise.sampler import AT_ONCE, integers
from eigenveil.noise.source import Block, NoiseSpec, OsNoise, noise_spec, words
from eigenveil.numerics.encoding import FloatArray, IntArray
from eigenveil.protocol.query import NoiseDistribution
from eigenveil.queries import Count
from tests.statistical.checks import (
    alike,
    balanced,
    discrete_laplace,
    independent,
    mean_fits,
    rounded_normal,
    shape_fits,
    uniform,
    variance_fits,
)

MILLION = 10**6
SCALES = [1.0, 3.0, 47.5, 1e6, 2.0**32, 2.0**40]
OFF = [0.98, 1.02]
DISTRIBUTIONS = {NoiseDistribution.GAUSSIAN: rounded_normal, NoiseDistribution.LAPLACE: discrete_laplace}
TAILS = {NoiseDistribution.GAUSSIAN: stats.norm, NoiseDistribution.LAPLACE: stats.laplace}

distributions = pytest.mark.parametrize("distribution", DISTRIBUTIONS)


def draw(
    scale: float, count: int = MILLION, distribution: NoiseDistribution = NoiseDistribution.GAUSSIAN
) -> IntArray:
    return OsNoise().draw(NoiseSpec(blocks=(Block(count=count, scale=scale, distribution=distribution),)))


@pytest.mark.parametrize("sigma", SCALES)
def test_variance_and_mean(sigma: float) -> None:
    sample = draw(sigma)
    assert variance_fits(sample, sigma)
    assert mean_fits(sample, sigma)
    assert not any(variance_fits(sample, sigma * off) for off in OFF)


@distributions
@pytest.mark.parametrize("scale", [0.5, 1.0, 3.0])
def test_shape(scale: float, distribution: NoiseDistribution) -> None:
    """And a wrong scale is seen."""
    sample, reach = draw(scale, distribution=distribution), int(20 * scale) + 3
    assert shape_fits(sample, DISTRIBUTIONS[distribution](scale, reach))
    assert not any(shape_fits(sample, DISTRIBUTIONS[distribution](scale * off, reach)) for off in OFF)


def levels(sample: IntArray, scale: float, distribution: NoiseDistribution) -> FloatArray:
    """Chance of a smaller value: evenly spread in (0, 1) at scales at which integers are as good as real."""
    return np.asarray(TAILS[distribution].cdf(sample / scale))


@distributions
@pytest.mark.parametrize("scale", [1e5, 2.0**32, 2.0**40])
def test_a_million_draws_follow_their_distribution(scale: float, distribution: NoiseDistribution) -> None:
    sample = draw(scale, distribution=distribution)
    assert uniform(levels(sample, scale, distribution))
    assert not any(uniform(levels(sample, scale * off, distribution)) for off in OFF)


@distributions
def test_signs_are_even_and_independent_of_magnitudes(distribution: NoiseDistribution) -> None:
    sample = draw(20.0, distribution=distribution)
    assert balanced(sample)
    assert alike(sample[sample > 0], -sample[sample < 0])
    assert not balanced(np.where(np.arange(MILLION) % 100 == 0, np.abs(sample), sample))


@pytest.mark.parametrize("zeros", [10, 32])
def test_tails_follow_their_distribution(zeros: int) -> None:
    """Beyond 3.3 sigma, where floats propose, and beyond 6.3, where balls settle: values whose words begin
    with so many zeros that their tail probability is below 2^-(zeros + 1)."""
    mask, sigma = np.uint64((1 << (64 - zeros)) - 1), 1e6
    sample = integers(GAUSSIAN, sigma, 4000, lambda count: words(count) & mask if count > 1 else words(1))

    def fits(scale: float) -> bool:
        return uniform(np.asarray(stats.norm.sf(np.abs(sample) / scale) * 2.0 ** (zeros + 1)))

    assert fits(sigma)
    assert not any(fits(sigma * off) for off in OFF)


def test_entries_and_draws_are_independent() -> None:
    """Near ones, those a piece apart, and those of another draw."""
    first, second = draw(50.0), draw(50.0)
    assert independent(first, second)
    for lag in (1, 2, AT_ONCE):
        assert independent(first[:-lag], first[lag:])
    assert not independent(first, first)


def test_operating_system_noise_cannot_be_seeded() -> None:
    """Neither an argument nor the global generators reach the sampler."""
    with pytest.raises(TypeError):
        OsNoise(1)  # type: ignore[call-arg]
    spec = noise_spec(Count(), 1, Neighbours.ADD_REMOVE)
    with pytest.raises(TypeError):
        OsNoise().draw(spec, seed=1)  # type: ignore[call-arg]
    draws = []
    for _ in range(2):
        np.random.seed(1)  # noqa: NPY002
        random.seed(1)
        draws.append(draw(2.0**40, 8).tolist())
    assert draws[0] != draws[1]
