"""Leading eigenvectors of arrow matrices, and the rotation to them, beside dense linear algebra."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eigenveil.numerics import arrow
from eigenveil.numerics.arrow import DirectRotation, leading_rotation
from eigenveil.numerics.encoding import FloatArray
from eigenveil.numerics.linalg import eigenpairs, sin_angle


def dense(diagonal: FloatArray, arms: FloatArray) -> FloatArray:
    matrix, k = np.diag(diagonal), arms.shape[1]
    matrix[k:, :k], matrix[:k, k:] = arms, arms.T
    return matrix


def whole(rotation: DirectRotation) -> FloatArray:
    """Return the matrix of a rotation."""
    k, rest = len(rotation.top), len(rotation.bottom)
    axes = np.eye(k + rest)
    return rotation.applied(axes[:, :k], axes[:, k:], rest)


@st.composite
def arrows(draw: st.DrawFn) -> tuple[FloatArray, FloatArray]:
    k, rest = draw(st.integers(1, 5)), draw(st.integers(0, 30))
    generator = np.random.default_rng(draw(st.integers(0, 2**32)))
    diagonal = np.sort(generator.exponential(size=k + rest))[::-1]
    if draw(st.booleans()):  # variances that coincide
        diagonal = np.ceil(diagonal * 2)
    arms = generator.normal(size=(rest, k)) * draw(st.sampled_from([0.0, 1e-9, 0.01, 0.3, 10.0]))
    return diagonal, np.where(generator.random(size=arms.shape) < 0.2, 0.0, arms)


@given(arrows())
def test_the_rotation_is_orthogonal_and_leads_to_the_leading_eigenvectors(
    case: tuple[FloatArray, FloatArray],
) -> None:
    diagonal, arms = case
    k = arms.shape[1]
    rotation = leading_rotation(diagonal, arms)
    turned = whole(rotation)
    assert np.allclose(turned.T @ turned, np.eye(len(diagonal)), atol=1e-12)
    assert np.allclose(rotation.top, rotation.top.T, atol=1e-13)
    assert np.linalg.eigvalsh(rotation.top).min() > -1e-12
    values, _ = eigenpairs(dense(diagonal, arms))
    found = np.linalg.eigvalsh(turned[:, :k].T @ dense(diagonal, arms) @ turned[:, :k])[::-1]
    assert np.allclose(found, values[:k], atol=1e-12 * max(values[0], -values[-1]))


@pytest.mark.parametrize("size", [60, 1000])
def test_where_eigenvalues_stand_apart_the_span_is_that_of_a_dense_decomposition(size: int) -> None:
    generator = np.random.default_rng(size)
    diagonal = np.append([5.0, 4.0, 3.5], np.sort(generator.uniform(size=size - 3))[::-1])
    arms = generator.normal(size=(size - 3, 3)) / np.sqrt(size)
    rotation = leading_rotation(diagonal, arms)
    exact = eigenpairs(dense(diagonal, arms), 3)[1]
    assert sin_angle(whole(rotation)[:, :3].T, exact.T) < 1e-13


def test_a_dense_decomposition_takes_over_where_steps_do_not_end(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(1)
    diagonal, arms = np.sort(generator.uniform(size=20))[::-1], generator.normal(size=(18, 2))
    expected = whole(leading_rotation(diagonal, arms))
    monkeypatch.setattr(arrow, "STEPS", 1)
    assert np.allclose(whole(leading_rotation(diagonal, arms)), expected, atol=1e-12)


def test_no_arms_turn_nothing() -> None:
    assert np.array_equal(
        whole(leading_rotation(np.array([3.0, 2.0, 2.0, 1.0]), np.zeros((2, 2)))), np.eye(4)
    )
