"""Warnings, units and serialised form of a result."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from eigenveil.algorithms import Estimate
from eigenveil.derived.moments import Moments
from eigenveil.errors import RequestError
from eigenveil.numerics.encoding import canonical
from eigenveil.numerics.linalg import sin_angle
from eigenveil.planning.choose import USABLE
from eigenveil.protocol.estimate import MatrixNoise, no_release
from eigenveil.protocol.query import NoiseDistribution
from eigenveil.reporting import result
from eigenveil.reporting.document import ReleaseContent, release_document
from eigenveil.reporting.report import render
from eigenveil.reporting.result import Result, result_of, result_warnings, variance_bound
from eigenveil.study.study import Scaling
from tests.support import a_column, a_plan, a_study


def an_estimate(**changes: Any) -> Estimate:
    values: dict[str, Any] = {
        "components": np.eye(2, 3),
        "explained_variance": np.array([0.3, 0.1]),
        "mean": np.zeros(3),
        "records": 500.0,
        "total_variance": 0.5,
        "noise_scale": 0.01,
        "sin_error": 0.1,
    }
    return Estimate(**(values | changes))


def test_only_a_predicted_error_of_released_directions_beyond_the_usable_one_is_warned_of() -> None:
    for good in ({}, {"sin_error": None}, {"sin_error": USABLE}, {"sin_error": 1.0, "records": 0.0}):
        assert result_warnings(a_study(), an_estimate(**good)) == ()
    assert result_warnings(a_study(), no_release(a_plan(), 100.0, "no direction stood out")) == ()
    assert len(result_warnings(a_study(), an_estimate(sin_error=1.01 * USABLE))) == 1


@pytest.mark.parametrize(("scaling", "most"), [(Scaling.BOUNDS, 2.0), (Scaling.NONE, 1.0625)])
def test_variances_have_a_most(scaling: Scaling, most: float) -> None:
    study = replace(a_study(2), columns=(a_column("a", 0, 8), a_column("b", 1, 3)), scaling=scaling)
    assert variance_bound(study) == most
    at_most = an_estimate(explained_variance=np.array([most, 0.1]))
    assert result_warnings(study, at_most, 16.0) == ()
    (sentence,) = result_warnings(study, an_estimate(explained_variance=np.array([1.01 * most, 0.1])), 16.0)
    assert f"a variance of {16.16 * most:.4g}" in sentence
    assert f"bounds allow in total, {16 * most:g}:" in sentence


def test_divided_columns_vary_by_no_more_than_their_bounds_in_these_units() -> None:
    half = an_estimate(scale=np.array([0.5, 0.5, 1.0]), explained_variance=np.array([9.0, 0.1]))
    assert result_warnings(a_study(), half) == ()
    (sentence,) = result_warnings(a_study(), replace(half, explained_variance=np.array([9.1, 0.1])))
    assert "bounds allow in total, 9:" in sentence


@pytest.mark.parametrize(
    ("scaling", "mean", "scale", "square"),
    [(Scaling.BOUNDS, [6.0, 1.5], [4.0, 1.0], 1.0), (Scaling.NONE, [6.0, 0.0], [1.0, 1.0], 16.0)],
)
def test_a_result_is_in_the_units_of_its_study(
    scaling: Scaling, mean: list[float], scale: list[float], square: float
) -> None:
    columns = (a_column("a", 0, 8), a_column("b", 1, 3))
    noise = MatrixNoise(
        distribution=NoiseDistribution.GAUSSIAN,
        diagonal=0.02,
        off_diagonal=0.01,
        count=0.03,
        centre=0.04,
        retained_share=0.9,
    )
    estimate = an_estimate(
        components=np.eye(1, 2), mean=np.array([0.5, -0.5]), covariance=np.diag([0.3, 0.2]), noise=noise
    )
    found = result_of(a_plan(replace(a_study(2), columns=columns, scaling=scaling)), estimate)
    assert np.allclose(found.mean, mean)
    assert np.allclose(found.scale, scale)
    assert found.noise is not None
    sizes = (found.noise.diagonal, found.noise.off_diagonal, found.noise.centre, found.noise_scale)
    assert np.allclose(sizes, square * np.array([0.02, 0.01, 0.04, 0.01]))
    assert (found.noise.count, found.noise.retained_share) == (0.03, 0.9)
    assert found.covariance is not None
    assert np.allclose(found.covariance, square * np.diag([0.3, 0.2]))
    assert np.allclose([*found.explained_variance, found.total_variance], square * np.array([0.3, 0.1, 0.5]))


@pytest.mark.parametrize(("sine", "noise"), [(0.2, False), (0.5, False), (0.6, True), (None, True)])
def test_a_weak_component_is_noise_unless_a_refinement_found_it(sine: float | None, noise: bool) -> None:
    """The noise edge is at .24: a component of .1 is below it."""
    weak = an_estimate(covariance=np.eye(3), noise_scale=0.1, sin_error=sine)
    found = result_of(a_plan(), weak)
    assert found.noise_edge is not None
    assert found.from_noise == tuple(noise and one < found.noise_edge for one in found.explained_variance)
    assert any(found.from_noise) is noise
    assert not any(result_of(a_plan(), replace(weak, covariance=None)).from_noise)
    every = replace(weak, components=np.eye(3), explained_variance=np.array([9.0, 1.0, 0.1]), sin_error=0.0)
    assert result_of(a_plan(), every).from_noise == (False, False, True)


@pytest.mark.parametrize("most", [2, 3])
def test_a_result_without_its_matrix_still_has_its_noise_edge(
    most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = result_of(a_plan(), an_estimate(covariance=np.eye(3)))
    monkeypatch.setattr(result, "MOST_COVARIANCE_COLUMNS", most)
    message = made.published().to_dict()
    assert (message["covariance"] is None) is message["covariance_in_round"] is (most < 3)
    assert Result.from_dict(message).noise_edge == made.noise_edge is not None
    none = result_of(a_plan(), an_estimate())
    assert Result.from_dict(none.to_dict()).noise_edge is none.noise_edge is None
    if most < 3:
        with pytest.raises(RequestError, match="the signed release of its round"):
            Moments.of(message)


def test_a_declined_study_has_a_reason_and_neither_components_nor_pictures() -> None:
    result = result_of(a_plan(), no_release(a_plan(), 100.0, "no direction stood out"))
    document = release_document(a_plan(), result, [], rounds=[], private=True)
    response = json.loads(canonical(document))["results"]["pca"]
    assert response["declined"] == "no direction stood out"
    shapes = {name: response["arrays"][name]["shape"] for name in ("components", "explained_variance")}
    assert shapes == {"components": [0, 3], "explained_variance": [0]}
    assert sin_angle(np.eye(2, 3), result.components) == 1.0
    page = render(ReleaseContent(document=document, result=result))
    assert "no direction stood out" in page
    assert "<img" not in page
