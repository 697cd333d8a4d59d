"""[P20] Quantiles of the normal law against ball arithmetic: middle, tails, and where the formula changes."""

from __future__ import annotations

import math

import numpy as np
import pytest
from flint import arb, ctx

from eigenveil.numerics.linalg import normal_quantiles

SEAMS = (0.075, 0.925, math.exp(-25))  # between the rational functions of Wichura's algorithm


def left_of(z: arb) -> arb:
    return (-z / arb(2).sqrt()).erfc() / 2


@pytest.fixture
def probabilities() -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    generator = np.random.default_rng(7)
    seams = [math.nextafter(p, to) for p in SEAMS for to in (0.0, p, 1.0)]
    tails = 2.0 ** -generator.uniform(1, 105, 2000)
    return np.array([*seams, *tails, *generator.uniform(size=2000), 2.0**-105, 1 - 2.0**-53])


def test_each_quantile_is_within_its_bound(
    probabilities: np.ndarray[tuple[int], np.dtype[np.float64]],
) -> None:
    found = normal_quantiles(probabilities)
    before, ctx.prec = ctx.prec, 256
    try:
        for p, z in zip(probabilities.tolist(), found.tolist(), strict=True):
            off = arb(2.0**-50 * (1 + abs(z)))
            assert left_of(arb(z) - off) < p < left_of(arb(z) + off), (p, z)
    finally:
        ctx.prec = before


def test_the_shape_stays_and_nothing_is_taken_for_certain() -> None:
    assert normal_quantiles(np.full((2, 3), 0.5)).tolist() == [[0.0] * 3] * 2
    for p in (0.0, 1.0):
        with pytest.raises(ValueError, match="range"):
            normal_quantiles(np.array([p]))
