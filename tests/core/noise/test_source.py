"""[P2] [P3] The planned noise costs its price and no more: exact in rationals, for every change found.

`cost` is the checker: what a change D of the answer costs under independent rounded Gaussians,
sum_j D_j^2 / (2 sigma_j^2), as a fraction.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eigenveil.accounting.zcdp import MICRO, Neighbours
from eigenveil.noise.source import NoiseSpec, OsNoise, noise_spec
from eigenveil.numerics.encoding import IntArray, frozen
from eigenveil.queries import AdditiveQuery, ClippedSum, Gram, SquaredNormSum
from eigenveil.queries.limits import row_norm_limit
from eigenveil.study.grid import S
from tests.core.records import Case, Integers, changes, contributions, hostile_rows
from tests.support import every_query


def cost(spec: NoiseSpec, change: Integers) -> Fraction:
    """The exact zCDP cost of one change of the answer. Shape: change (spec.length,) Python integers."""
    total, start = Fraction(0), 0
    for block in spec.blocks:
        part = change[start : start + block.count]
        if block.count:
            total += Fraction(int((part * part).sum())) / (2 * Fraction(block.sigma) ** 2)
        start += block.count
    assert start == len(change)
    return total


def dearest(query: AdditiveQuery, spec: NoiseSpec, neighbours: Neighbours, multiplicity: int = 1) -> Fraction:
    """The largest cost of any change that hostile records make, at one site or at several alike."""
    centre = frozen(np.zeros(4, dtype=np.int64))
    rows = hostile_rows(300, centre, S, seed=11)
    tried = changes(contributions(Case(query=query, rows=rows)), neighbours) * multiplicity
    return max(cost(spec, change) for change in tried)


def tight(kind: type[ClippedSum | SquaredNormSum | Gram]) -> AdditiveQuery:
    """A question whose sensitivity `hostile_rows` reach exactly."""
    return kind(centre=frozen(np.zeros(4, dtype=np.int64)), radius=S)


QUERIES: dict[str, AdditiveQuery] = every_query() | {
    f"tight {k.__name__}": tight(k) for k in (ClippedSum, SquaredNormSum, Gram)
}


@pytest.mark.parametrize("neighbours", Neighbours)
@pytest.mark.parametrize("name", QUERIES)
def test_no_change_that_records_make_costs_more_than_the_price(name: str, neighbours: Neighbours) -> None:
    query = QUERIES[name]
    for multiplicity in (1, 3):
        spec = noise_spec(query, 1000, neighbours, multiplicity)
        expensive = dearest(query, spec, neighbours, multiplicity)
        assert expensive <= Fraction(1000, MICRO)
        if name.startswith("tight"):
            assert expensive >= Fraction(1000, MICRO) * Fraction(98, 100)


@given(
    radius=st.integers(1, row_norm_limit(3)),
    price=st.integers(1, 10**12),
    neighbours=st.sampled_from(Neighbours),
)
def test_sigma_is_exact_for_any_radius_and_price(radius: int, price: int, neighbours: Neighbours) -> None:
    query = ClippedSum(centre=frozen([0, 0, 0]), radius=radius)
    square = Fraction(noise_spec(query, price, neighbours).sigma) ** 2
    needed = Fraction(query.l2_squared(neighbours) * MICRO, 2 * price)
    assert needed <= square <= needed * (1 + Fraction(1, 10**12))


def drawn(query: AdditiveQuery) -> IntArray:
    return OsNoise().draw(noise_spec(query, 10**9, Neighbours.ADD_REMOVE))


@pytest.mark.parametrize("name", every_query())
def test_a_draw_is_one_fresh_integer_an_entry(name: str) -> None:
    query = every_query()[name]
    noise = drawn(query)
    assert noise.dtype == np.int64
    assert noise.shape == (query.length,)
    assert noise.flags.writeable  # it is the caller's own
