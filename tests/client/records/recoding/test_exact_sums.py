"""Sums that are exact, whatever the order and the size of their terms."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from eigenveil_client.records.recoding.gather import ExactSums

terms = st.lists(st.tuples(st.integers(0, 5), st.floats(allow_nan=False, allow_infinity=False)), max_size=40)


@example([(0, 1.0), (0, 1e-300), (1, 1e300)], 1)
@given(terms, st.integers(1, 40))
def test_a_mean_is_the_exact_one_rounded_once(added: list[tuple[int, float]], size: int) -> None:
    """From the least float to the largest, in whatever pieces they come."""
    sums = ExactSums()
    for start in range(0, len(added), size):
        which, values = zip(*added[start : start + size], strict=True)
        sums.add(np.array(which), np.array(values))
    for number, mean in enumerate(sums.means(8).tolist()):
        own = [Fraction(value) for place, value in added if place == number]
        assert mean == float(sum(own) / len(own)) if own else np.isnan(mean)


def test_many_terms_of_one_size_do_not_overflow_a_digit() -> None:
    sums, value = ExactSums(), -(2.0 - 2**-52)
    for _ in range(20):
        sums.add(np.zeros(50_000, dtype=np.int64), np.full(50_000, value))
    assert sums.means(1).tolist() == [value]
