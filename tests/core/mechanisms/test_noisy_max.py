"""[P26] Which sum is the largest tells no more than epsilon: exactly, from the discrete Laplace law."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from eigenveil.accounting.neighbours import Neighbours
from eigenveil.mechanisms import noisy_max
from eigenveil.numerics.encoding import FloatArray, frozen
from eigenveil.queries import LongestColumn
from eigenveil.site.site import Site
from eigenveil.study.grid import S
from eigenveil.study.price import micro_rho_of
from tests.core.records import hostile_rows
from tests.support import a_study

ADD, REPLACE = Neighbours.ADD_REMOVE, Neighbours.REPLACE_ONE
REACH = 400  # of the noise: with scales up to 20, a probability of e^-20 lies beyond
RADIUS = 2

Sums = tuple[list[int], list[int]]  # of two neighbours


def scale(epsilon: float, relation: Neighbours, sites: int = 1) -> float:
    query = LongestColumn(centre=frozen([0, 0, 0]), radius=RADIUS)
    study = a_study(neighbours=relation, max_sites_per_person=sites)
    (block,) = noisy_max.noise_of(query, micro_rho_of(epsilon), study).blocks
    return block.scale


def law(sums: list[int], b: float) -> FloatArray:
    """The probability that each sum is the first of the largest. Shape: (d,) -> (d,)."""
    x = np.arange(-REACH, REACH + 1)
    weight = np.exp(-np.abs(x) / b)
    weight /= weight.sum()
    below = np.concatenate([[0.0], np.cumsum(weight)])  # of noise less than x, from -REACH on

    def beaten(other: int, by: int, ties: bool) -> FloatArray:
        """That the noised `other` is below `by` + x, or equal to it. Shape: (m,)."""
        return below[np.clip(x + by - other + REACH + ties, 0, below.size - 1)]

    out = []
    for j, own in enumerate(sums):
        won = [beaten(other, own, i > j) for i, other in enumerate(sums) if i != j]
        out.append(float((weight * np.prod(won, axis=0)).sum()))
    return np.array(out)


def loss(sums: Sums, b: float) -> float:
    """The largest log ratio of probabilities between two vectors of sums, either way."""
    one, other = (law(each, b) for each in sums)
    return float(np.abs(np.log(one / other)).max())


def joined(records: int) -> list[Sums]:
    """A person joins with so many records: every sum rises, by 0 to R^2 for each."""
    rises = product((0, records * RADIUS**2), repeat=3)
    return [([a, b, 9], [a + i, b + j, 9 + k]) for a, b in product((0, 9, 30), repeat=2) for i, j, k in rises]


def replaced(records: int) -> list[Sums]:
    """One person's records for another's: sums rise and fall."""
    most = records * RADIUS**2
    moves = list(product((-most, 0, most), repeat=3))
    return [([a, 50, 50], [a + i, 50 + j, 50 + k]) for a in (20, 50, 70) for i, j, k in moves]


def test_the_law_is_a_law() -> None:
    assert law([3, 5, 5], 4.0).sum() == pytest.approx(1, abs=1e-9)


@pytest.mark.parametrize("sites", [1, 3])
@pytest.mark.parametrize("epsilon", [0.7, 1.0, 3.0])
def test_no_name_tells_more_than_epsilon_and_one_tells_most_of_it(epsilon: float, sites: int) -> None:
    for relation, pairs in ((ADD, joined(sites)), (REPLACE, replaced(sites))):
        worst = max(loss(pair, scale(epsilon, relation, sites)) for pair in pairs)
        assert 0.6 * epsilon <= worst <= epsilon


def test_the_noise_of_the_other_relation_or_of_one_site_is_caught() -> None:
    assert max(loss(pair, scale(1.0, ADD)) for pair in replaced(1)) > 1
    assert max(loss(pair, scale(1.0, ADD, 1)) for pair in joined(3)) > 1


@pytest.mark.parametrize("radius", [1, 4000, 2 * S])
def test_a_record_raises_every_sum_by_no_more_than_the_squared_radius(radius: int) -> None:
    """Whatever the others are (see test_sensitivity), and one record raises some sum by just that."""
    query = LongestColumn(centre=frozen([-S, 0, S]), radius=radius)
    rows = hostile_rows(1000, query.centre, radius, 1)
    each = np.array([Site(rows[i : i + 1]).answer(query) for i in range(len(rows))])
    assert (each.min(), each.max()) == (0, radius**2)
