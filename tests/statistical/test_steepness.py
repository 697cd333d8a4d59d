"""[P13] [P14] Directions are as steep as privacy allows and no steeper: releases against the law itself.

With the Gram matrix T R^2 / epsilon along one axis, exp(T u_1^2) has E[u_1^2] = M(3/2, d/2 + 1, T) /
(d M(1/2, d/2, T)) (Kummer's M). T (1 - u_1^2) is nearly a gamma variable of (d - 1) / 2, so many columns
tell much: a steepness that is 7 % off moves the mean by 0.07 sqrt(n (d - 1) / 2) standard errors, 10 of them
here. False-alarm rate 1e-6 a comparison."""

from __future__ import annotations

import math

import pytest
from flint import arb, fmpq
from scipy import stats

from eigenveil.accounting.zcdp import Neighbours
from eigenveil.numerics.encoding import frozen
from eigenveil.queries import VECTOR, Eigenvectors
from tests.statistical.mechanisms import LEVEL, at_cost, released, study_of
from tests.statistical.noises import Bulk

ALARM = stats.norm.isf(1e-6 / 2)
D, STEEP, R, RELEASES = 80, 400, 1000, 600


def moment(power: int) -> float:
    """E[u_1^(2 power)] of exp(STEEP u_1^2) on the sphere in D dimensions."""

    def kummer(n: int) -> arb:
        return arb(STEEP).hypgeom_1f1(arb(fmpq(2 * n + 1, 2)), arb(fmpq(D + 2 * n, 2)))

    rising = arb(1)
    for i in range(power):
        rising *= arb(fmpq(2 * i + 1, D + 2 * i))
    return float(rising * kummer(power) / kummer(0))


def errors_off(neighbours: Neighbours, n: int) -> float:
    """Standard errors between the mean of u_1^2 in n releases and its expected value."""
    query = Eigenvectors(centre=frozen([0] * D), radius=R, records=1000, count=1)
    pair = 1 if neighbours is Neighbours.ADD_REMOVE else 2
    along = round(STEEP * R**2 * pair / LEVEL)
    values = released(
        at_cost(query), frozen([along, *[0] * (query.length - 1)]), study_of(neighbours, D), Bulk(), n
    )
    found = float(((values[:, 0] / VECTOR) ** 2).mean())
    return (found - moment(1)) / math.sqrt((moment(2) - moment(1) ** 2) / n)


@pytest.mark.parametrize("neighbours", Neighbours)
def test_released_directions_are_exactly_as_steep_as_claimed(neighbours: Neighbours) -> None:
    assert abs(errors_off(neighbours, RELEASES)) <= ALARM
