"""Bounds: however they are written, they are the same ones; what says nothing of a column is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eigenveil.estimators._base import lower_upper

PAIRS = st.lists(st.tuples(st.floats(-1e6, 0), st.floats(1, 1e6)), min_size=1, max_size=5)


@given(PAIRS)
def test_every_spelling_is_the_same_bounds(pairs: list[tuple[float, float]]) -> None:
    names = [f"c{i}" for i in range(len(pairs))]
    lower, upper = ([pair[side] for pair in pairs] for side in (0, 1))
    named = dict(reversed(list(zip(names, pairs, strict=True)))) | {"other": (0.0, 1.0)}
    for bounds in ((lower, upper), (np.array(lower), np.array(upper)), pairs, list(map(list, pairs)), named):
        assert lower_upper(bounds, names, named=True) == (lower, upper)


def test_one_pair_of_numbers_is_for_all_columns() -> None:
    for bounds in ((-1, 2), [-1, 2], np.array([-1, 2])):
        assert lower_upper(bounds, ["a", "b", "c"], named=False) == ([-1.0] * 3, [2.0] * 3)


@pytest.mark.parametrize(
    ("bounds", "named", "why"),
    [
        ({"a": (0, 1)}, True, "no entry for column 'b'; they name: a"),
        ({"a": (0, 1), "b": (0, 1)}, False, "need records whose columns have names"),
        ({"a": (0, 1), "b": 3}, True, "2 pairs"),
        ([(0, 1), (0, 1), (0, 1)], False, "2 pairs"),
        ([(0, 1, 2), (0, 1, 2)], False, "each a number or 2 numbers"),
        (7, False, "each a number or 2 numbers"),
    ],
)
def test_what_is_no_bounds_of_these_columns_is_refused(bounds: Any, named: bool, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        lower_upper(bounds, ["a", "b"], named=named)
