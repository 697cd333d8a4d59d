"""[P1] Floats propose, integers decide: no record beyond its radius passes, whatever floats propose. In the
daemon the proposals are nearly always right, so the deciding comparison is tried here on its own, with
proposals at the radius, one step beyond it and far beyond int64."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from eigenveil.accounting.zcdp import Neighbours
from eigenveil.numerics.encoding import IntArray, frozen
from eigenveil.queries.limits import GRADIENT_LIMIT, OFFSET_STEPS, WEIGHT
from eigenveil.site.kernels import clipping
from eigenveil.site.site import Site
from eigenveil.study.grid import S
from tests.core.queries.kinds import cross_cases, gradient_cases
from tests.core.records import verdict


@given(norm2=st.lists(st.integers(0, 2**38), min_size=1, max_size=20), radius=st.integers(1, 2**19))
@example(norm2=[32_993_320_036], radius=149_889)  # in floats, 1024 R / ||z|| rounds up to a whole number
@example(norm2=[248_408_844_697], radius=130_929)
def test_a_weight_is_the_largest_that_fits_or_one_less_or_none(norm2: list[int], radius: int) -> None:
    for square, t in zip(norm2, clipping.weights(frozen(norm2), radius).tolist(), strict=True):
        best = WEIGHT if square <= radius**2 else math.isqrt((WEIGHT * radius) ** 2 // square)
        assert t in (best, best - 1, 0)
        assert t * t * square <= (WEIGHT * radius) ** 2


sizes = st.integers(0, 30)


def signed(draw: st.DrawFn, bits: int) -> int:
    return draw(st.integers(-(2**bits), 2**bits))


@st.composite
def proposals(draw: st.DrawFn) -> tuple[IntArray, IntArray, int, IntArray]:
    """A centred record z, a proposal b and u, and a pull. Shape: (d,), (k,), int, (d, k)."""
    d, k = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    bits = draw(sizes)
    z = frozen([signed(draw, 13) for _ in range(d)])
    b = frozen([signed(draw, bits) for _ in range(k)])
    pull = frozen([[signed(draw, 14) for _ in range(k)] for _ in range(d)])
    return z, b, draw(st.integers(0, OFFSET_STEPS)), pull


NO_PULL = frozen([[0], [0]])


@given(proposals())
@example((frozen([1, 1]), frozen([5]), 0, NO_PULL))  # 50 = 7^2 + 1: one too many
@example((frozen([3, 4]), frozen([7]), 0, NO_PULL))  # 35^2: exactly at the radius
def test_a_gradient_is_accepted_exactly_if_its_integers_fit(
    proposal: tuple[IntArray, IntArray, int, IntArray],
) -> None:
    z, b, u, pull = proposal
    whole: Any = np.outer(z.astype(object), b.astype(object)) - u * pull.astype(object)
    square = int((whole * whole).sum())
    norm2 = frozen([int((z * z).sum())])
    for radius in {math.isqrt(square), math.isqrt(square) + 1, max(math.isqrt(square) - 1, 1), 1}:
        if not 1 <= radius <= GRADIENT_LIMIT:
            continue
        fits = clipping._within_radius(
            b[None, :].astype(np.float64),
            np.array([float(u)]),
            (z @ pull)[None, :].astype(np.float64),
            norm2.astype(np.float64),
            float((pull**2).sum()),
            radius,
        )
        assert fits.tolist() == [square <= radius**2]


@pytest.mark.parametrize("size", [2.0**30, 2.0**31, 2.0**40, 2.0**62, 2.0**63, 2.0**100])
@pytest.mark.parametrize("norm2", [1, 3, 2**26, 2**38])
def test_a_proposal_beyond_int64_is_never_accepted(size: float, norm2: int) -> None:
    fits = clipping._within_radius(
        np.array([[size, -size]]), None, None, np.array([float(norm2)]), 0.0, GRADIENT_LIMIT
    )
    assert fits.tolist() == [False]


def too_long(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted fault: a proposal that is a thousandth too long, with the integer check left in place."""
    honest = getattr(clipping, name)
    monkeypatch.setattr(clipping, name, lambda *args: honest(*args) * (1 - 1e-3))


CLIPPED = {
    "gradient": lambda: gradient_cases(1, pulls=False),
    "gradient, pull": lambda: gradient_cases(1, pulls=True),
    "cross-covariance": lambda: cross_cases(1),
}


@pytest.mark.usefixtures("numpy_alone")  # which the faults are planted in
@pytest.mark.parametrize("kind", CLIPPED)
def test_a_norm_proposed_too_small_costs_records_but_no_privacy(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cases = [case for case in CLIPPED[kind]() if case.query.bound >= 2**24]
    too_long("gradient_norms", monkeypatch)
    message = [Site(case.rows).answer(case.query) for case in cases]
    assert verdict(cases, Neighbours.ADD_REMOVE).worst <= 1
    monkeypatch.setattr(clipping, "_within_radius", lambda b, *rest: np.ones(len(b), dtype=bool))
    assert any(verdict([case], Neighbours.ADD_REMOVE).worst > 1 for case in cases)
    assert any(
        (Site(case.rows).answer(case.query) != one).any() for case, one in zip(cases, message, strict=True)
    )


@given(st.integers(1, 2**19), st.lists(st.integers(-2 * S, 2 * S), min_size=1, max_size=6))
@example(1, [2 * S])
@example(5, [3, 4])
@example(5, [3, 5])
def test_a_clipped_row_fits_its_radius_in_its_direction(radius: int, row: list[int]) -> None:
    z = np.array([row], dtype=np.float64)
    square = sum(v * v for v in row)
    cut = clipping.clip_rows(z, frozen([square]), radius)[0]
    assert sum(int(v) ** 2 for v in cut) <= max(radius**2, 0)
    assert (cut * z[0] >= 0).all()
    assert (np.abs(cut) <= np.abs(z[0])).all()
    if square <= radius**2:
        assert cut.tolist() == row
