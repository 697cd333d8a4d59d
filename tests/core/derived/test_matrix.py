"""The released matrix: repaired to a covariance, with noise of the stated scale."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from eigenveil import Column, Federation, Study, simulate
from eigenveil.derived.moments import Moments
from eigenveil.errors import Code
from eigenveil.study.grid import S
from tests.core.derived.drawn import a_matrix, a_noise
from tests.support import refused

ROWS = np.random.default_rng(2).normal(size=(4000, 5)) @ np.triu(np.ones((5, 5))) / 3


def a_study(algorithm: str, **changes: object) -> Study:
    columns = tuple(Column(name=name, unit="mm", lower=-4, upper=4) for name in "abcde")
    values = {"name": "pilot", "columns": columns, "epsilon": 2.0, "delta": 1e-6, "components": 2} | changes
    return Study(federation=Federation(sites=("north",)), algorithm=algorithm, **values)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("algorithm", "delta"),
    [
        ("gauss-cov", 1e-6), ("gauss-cov", 0.0), ("analyze-gauss", 1e-6),
        pytest.param("refined-cov", 1e-6, marks=pytest.mark.slow),
        pytest.param("auto", 1e-6, marks=pytest.mark.slow),
    ],
)  # fmt: skip
def test_noise_of_a_release_matches_its_stated_scale(algorithm: str, delta: float) -> None:
    """Mean squares of 15 entries over 60 releases: off by a tenth in one of 10,000 such tests."""
    clipped = np.clip(ROWS, -4, 4)
    exact, mean = np.cov(clipped.T, bias=True) / 16, clipped.mean(axis=0)
    on, off, centre = [], [], []
    for seed in range(60):
        study = a_study(algorithm, delta=delta, radius=1.0, epsilon=8.0)
        matrix = Moments.of(simulate(study, {"north": ROWS}, seed=seed).result).matrix
        assert np.allclose(matrix.scale, 4, rtol=1 / S)
        moved = matrix.values - exact
        centre.append((matrix.mean - mean) / matrix.scale / np.sqrt(matrix.mean_noise_variance))
        on.append(
            np.diag(moved) / np.hypot(np.diag(matrix.entry_errors), np.diag(exact) * matrix.common_error)
        )
        off.append((moved / matrix.entry_errors)[np.triu_indices(5, 1)])
    limit = 0.35 if delta == 0 else 0.25  # a square of Laplace noise varies more
    assert abs(np.mean(np.square(on)) - 1) < limit
    assert abs(np.mean(np.square(off)) - 1) < limit
    assert 0.4 < np.mean(np.square(centre)) < 1 + limit  # stated with room for what the step may be off


def test_the_noise_of_the_mean_is_in_the_matrix_as_its_square() -> None:
    """The mean's noise e adds e e^T, whose root mean squares 20,000 draws give to 2 percent."""
    away = np.random.default_rng(4).normal(size=(20_000, 4)) * 0.1
    squares = away[:, :, None] * away[:, None, :]
    response = replace(a_matrix(1e-12), mean_noise_variance=0.01).entry_errors
    assert np.allclose(response, np.sqrt((squares**2).mean(axis=0)), rtol=0.06)


def test_a_matrix_is_repaired_by_raising_its_small_eigenvalues_only() -> None:
    matrix = a_matrix(0.02)
    broken = replace(matrix, values=matrix.values - 0.05 * np.eye(4))
    mended = broken.positive_definite()
    values = np.linalg.eigvalsh(mended.values)
    assert np.isclose(values[0], 0.02)
    assert np.allclose(values, np.maximum(np.linalg.eigvalsh(broken.values), 0.02))
    assert mended.repaired > 0
    assert np.allclose(mended.positive_definite().values, mended.values)
    assert a_matrix().positive_definite().repaired == 0


def test_clipping_bias_is_noted_only_where_records_are_clipped() -> None:
    assert a_matrix().notes() == ()
    (sentence,) = replace(a_matrix(), noise=a_noise(1e-4, remaining=0.8)).notes()
    assert "80.00%" in sentence
    assert replace(a_matrix(), noise=a_noise(1e-4, count=0.15, remaining=0.8)).common_error == pytest.approx(
        0.25
    )


@pytest.mark.parametrize(
    "changes",
    [{"algorithm": "separate-cov"}, {"algorithm": "dp-pca"}, {"algorithm": "gauss-cov", "centring": False}],
)
def test_a_release_without_a_known_noise_is_refused_with_what_has_one(changes: dict[str, object]) -> None:
    run = simulate(a_study(**changes), {"north": ROWS}, seed=0)  # type: ignore[arg-type]
    with refused(Code.BAD_ARGUMENT, "gauss-cov, refined-cov or analyze-gauss"):
        Moments.of(run.result)
