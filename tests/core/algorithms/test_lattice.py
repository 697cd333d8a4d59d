"""From a span modulo p to the real subspace: right whenever it answers, and silent where it cannot tell."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from eigenveil.algorithms.papers.subspace_votes import real_basis
from eigenveil.errors import Code
from eigenveil.numerics.linalg import orthonormal, sin_angle
from eigenveil.site.subspaces import row_echelon_form
from eigenveil.study.grid import S, inexact_columns, whole_bounds
from eigenveil.study.study import Scaling
from tests.support import a_column, a_study, refused


@pytest.mark.parametrize(
    ("k", "d", "largest"),
    [
        (1, 50, S),
        (3, 20, S),
        (8, 40, S),
        (10, 200, 9),
        (7, 8, 2),
    ],
)
def test_the_real_subspace_is_found_to_the_last_bits(k: int, d: int, largest: int) -> None:
    rng = np.random.default_rng(k * d)
    for _ in range(5):
        rows = rng.integers(-largest, largest + 1, (k, d))
        found = real_basis(row_echelon_form(rows))
        assert found is not None
        assert np.allclose(found @ found.T, np.eye(k), atol=1e-12)
        assert sin_angle(orthonormal(rows.T.astype(float)).T, found) < 1e-9


def test_an_ambiguous_span_has_no_real_basis() -> None:
    """Ten directions of eleven large columns: many real hyperplanes have this form."""
    rng = np.random.default_rng(2)
    for _ in range(5):
        rows = rng.integers(-S, S + 1, (10, 11))
        assert real_basis(row_echelon_form(rows)) is None


def test_whole_bounds_map_whole_numbers_exactly() -> None:
    for largest in (1, 2, 3, 100, 1000, 4096):
        lower, upper = whole_bounds(largest)
        assert -lower == upper >= largest
        assert inexact_columns(a_study(columns=(a_column("x", lower, upper),))) == ()
    with refused(Code.BAD_ARGUMENT, "4096"):
        whole_bounds(4097)
    odd: list[Any] = [a_column("a", 0.0, 100.0), a_column("b", -4.0, 4.0), a_column("c", -3.5, 4.5)]
    assert inexact_columns(a_study(columns=tuple(odd))) == ("a", "c")
    wide = (a_column("b", -4.0, 4.0), a_column("d", -3.0, 3.0))
    assert inexact_columns(a_study(columns=wide, scaling=Scaling.NONE)) == ()
