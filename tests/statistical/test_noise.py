"""[P2] The noise that leaves `eigenveil.noise.source` follows the exact law at the planned scale.

False-alarm rate: at most 1e-6 for each check (see `checks`); all checks of this file together
alarm without cause less than once in 10,000 runs. Power: a sigma 10 % off in either direction is
caught by every check that is about scale, as the planted faults show.
"""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from eigenveil.accounting.neighbours import Neighbours
from eigenveil.accounting.zcdp import MICRO
from eigenveil.noise.source import Block, NoiseSpec, OsNoise, noise_spec
from eigenveil.numerics.encoding import IntArray, frozen
from eigenveil.protocol.query import NoiseLaw
from eigenveil.queries import ClippedSum, Count, Gram
from eigenveil.study.grid import S
from tests.statistical.checks import independent, mean_fits, shape_fits, variance_fits

SCALES = [1.0, 3.0, 47.5, 1e6, 2.0**40]
OFF = [0.9, 1.1]


def draw(sigma: float, count: int = 40_000) -> IntArray:
    return OsNoise().draw(NoiseSpec(blocks=(Block(count=count, scale=sigma),)))


@pytest.mark.parametrize("sigma", SCALES)
def test_variance_and_mean(sigma: float) -> None:
    sample = draw(sigma)
    assert variance_fits(sample, sigma)
    assert mean_fits(sample, sigma)


def test_variance_of_a_long_sample() -> None:
    """200,000 draws: a sigma 1.5 % off is seen (missed less than once in 100,000 times)."""
    sample = draw(1000.0, 200_000)
    assert variance_fits(sample, 1000.0)
    assert not variance_fits(sample, 985.0)
    assert not variance_fits(sample, 1015.0)


@pytest.mark.parametrize("off", OFF)
@pytest.mark.parametrize("sigma", SCALES)
def test_the_variance_check_catches_a_wrong_scale(sigma: float, off: float) -> None:
    """Planted fault, both directions: the draw is right, the declared sigma is 10 % off."""
    assert not variance_fits(draw(sigma * off, 10_000), sigma)


@pytest.mark.parametrize("sigma", [0.5, 1.0, 3.0])
def test_shape(sigma: float) -> None:
    assert shape_fits(draw(sigma), sigma)


@pytest.mark.parametrize("off", OFF)
@pytest.mark.parametrize("sigma", [0.5, 1.0, 3.0])
def test_the_shape_check_catches_a_wrong_scale(sigma: float, off: float) -> None:
    assert not shape_fits(draw(sigma * off, 20_000), sigma)


@pytest.mark.parametrize("sigma", [0.5, 1.0])
def test_the_shape_check_catches_rounded_continuous_noise(sigma: float) -> None:
    """Planted fault: rint of a float Gaussian is not the discrete Gaussian."""
    rounded = np.rint(np.random.default_rng(6).normal(0, sigma, 40_000)).astype(np.int64)
    assert not shape_fits(rounded, sigma)


def test_half_the_noise_is_caught() -> None:
    assert not variance_fits(draw(500.0), 1000.0)


@pytest.mark.parametrize("scale", [2.0, 47.5, 1e6, 2.0**40])
def test_laplace_noise_has_its_scale_to_seven_percent(scale: float) -> None:
    """By its mean magnitude: 40,000 draws lie 14 standard errors from that of a scale 7 % off."""
    block = Block(count=40_000, scale=scale, law=NoiseLaw.LAPLACE)
    found = float(np.abs(OsNoise().draw(NoiseSpec(blocks=(block,))).astype(np.float64)).mean())

    def errors(b: float) -> float:
        return (found * math.sinh(1 / b) - 1) * math.sqrt(40_000)  # the law's mean is 1 / sinh(1 / b)

    assert abs(errors(scale)) < 5.2  # its standard deviation is near its mean: 2e-7
    assert errors(0.93 * scale) > 5.2
    assert errors(1.07 * scale) < -5.2


def test_the_noise_of_a_question_has_the_scale_of_its_price() -> None:
    """rho = 1/2 buys sigma = Delta."""
    query = ClippedSum(centre=frozen(np.zeros(2000, dtype=np.int64)), radius=S)
    sample = np.concatenate(
        [OsNoise().draw(noise_spec(query, MICRO // 2, Neighbours.ADD_REMOVE)) for _ in range(10)]
    )
    assert variance_fits(sample, 1024.0 * S)
    assert not variance_fits(sample, 1024.0 * S * 1.1)


def test_a_gram_matrix_has_both_scales_in_their_places() -> None:
    """[P3] rho = 1/2: sigma = R^2 on the diagonal, R^2 / sqrt 2 above it."""
    d = 100
    query = Gram(centre=frozen(np.zeros(d, dtype=np.int64)), radius=S)
    draws = np.array(
        [OsNoise().draw(noise_spec(query, MICRO // 2, Neighbours.ADD_REMOVE)) for _ in range(40)]
    )
    diagonal, above = draws[:, :d].ravel(), draws[:, d:].ravel()
    assert variance_fits(diagonal, float(S**2))
    assert variance_fits(above, S**2 / 2**0.5)
    assert not variance_fits(diagonal, S**2 / 2**0.5)
    assert not variance_fits(above, float(S**2))


def test_entries_and_draws_are_independent() -> None:
    first, second = draw(50.0), draw(50.0)
    assert independent(first, second)
    assert independent(first[:-1], first[1:])
    assert not independent(first, first)


def test_nobody_can_seed_it() -> None:
    """Neither an argument nor the global generators reach the sampler."""
    with pytest.raises(TypeError):
        OsNoise(1)  # type: ignore[arg-type, call-arg]
    spec = noise_spec(Count(), 1, Neighbours.ADD_REMOVE)
    with pytest.raises(TypeError):
        OsNoise().draw(spec, seed=1)  # type: ignore[call-arg]
    draws = []
    for _ in range(2):
        np.random.seed(1)  # noqa: NPY002
        random.seed(1)
        draws.append(draw(2.0**40, 8).tolist())
    assert draws[0] != draws[1]


def test_only_the_operating_systems_noise_calls_itself_private() -> None:
    assert OsNoise().private is True
