"""PrivateCovariance: equivalence to the empirical covariance, and every refusal."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.covariance import EmpiricalCovariance

import eigenveil
from eigenveil import PrivateCovariance
from eigenveil.estimators.covariance import COVARIANCE_ALGORITHMS
from eigenveil.numerics.encoding import FloatArray
from eigenveil.study.algorithm import Algorithm
from tests.core.estimators.test_pca import BOUNDS, HUGE, X, records

pytestmark = pytest.mark.filterwarnings(
    "ignore:clipping left",
    "ignore:the directions are mostly noise",
    "ignore:a variance of",
    "ignore:no record was read",
    "ignore:the noise of the private mean",
)
MATRICES = [one.value for one in COVARIANCE_ALGORITHMS if one is not Algorithm.ZERO]


@pytest.mark.parametrize("algorithm", ["auto", *MATRICES])
@pytest.mark.parametrize("radius", ["balance", "none"])
def test_with_a_huge_budget_it_is_the_covariance(algorithm: str, radius: str) -> None:
    x = records()
    private = PrivateCovariance(
        epsilon=HUGE, delta=1e-6, bounds=BOUNDS, algorithm=algorithm, radius=radius
    ).fit(x)
    exact = EmpiricalCovariance().fit(x)
    size = float(np.linalg.norm(exact.covariance_))
    assert exact.error_norm(private.covariance_, norm="frobenius", squared=False) < 0.02 * size
    np.testing.assert_allclose(private.location_, exact.location_, atol=0.05)
    assert private.n_samples_ == pytest.approx(len(x), abs=2)
    np.testing.assert_allclose(private.covariance_, private.covariance_.T)


def test_precision_distances_and_scores_agree_with_scikit_learn() -> None:
    x = records()
    private = PrivateCovariance(epsilon=HUGE, bounds=BOUNDS, algorithm="gauss-cov").fit(x)
    exact = EmpiricalCovariance().fit(x)
    np.testing.assert_allclose(private.get_precision(), np.linalg.inv(private.covariance_), atol=1e-6)
    np.testing.assert_allclose(private.precision_, private.get_precision())
    np.testing.assert_allclose(private.mahalanobis(x), exact.mahalanobis(x), rtol=0.05)
    assert private.score(x) == pytest.approx(exact.score(x), abs=0.01)
    assert private.error_norm(exact.covariance_) == pytest.approx(exact.error_norm(private.covariance_))
    assert "PrivateCovariance" in eigenveil.__all__


def wide(n: int = 3000, d: int = 40) -> FloatArray:
    generator = np.random.default_rng(4)
    return generator.normal(size=(n, d)) * 10 / np.sqrt(1 + np.arange(d))


@pytest.mark.parametrize("algorithm", ["gauss-cov", "analyze-gauss"])
def test_shrinking_is_nearer_and_leaves_no_negative_variance(algorithm: str) -> None:
    x = wide()
    exact = EmpiricalCovariance().fit(x)
    plain, shrunk = (
        PrivateCovariance(bounds=BOUNDS, algorithm=algorithm, shrink=shrink, random_state=1).fit(x)
        for shrink in (False, True)
    )
    assert exact.error_norm(shrunk.covariance_) < 0.6 * exact.error_norm(plain.covariance_)
    assert np.linalg.eigvalsh(plain.covariance_)[0] < 0
    assert np.linalg.eigvalsh(shrunk.covariance_)[0] >= -1e-9
    assert (shrunk.mahalanobis(x) >= 0).all()
    assert plain.release_ == shrunk.release_


def test_auto_looks_at_public_numbers_only() -> None:
    chosen = {
        PrivateCovariance(bounds=BOUNDS, random_state=0).fit(x).release_["plan"]["algorithm"]
        for x in (records(20), records(4000), records(4000) / 1000)
    }
    assert chosen == {"gauss-cov"}
    hopeless = PrivateCovariance(epsilon=0.01, bounds=BOUNDS, radius="none", random_state=0).fit(wide())
    assert hopeless.release_["plan"]["algorithm"] == "zero"
    assert not hopeless.covariance_.any()


REFUSED: list[tuple[str, dict[str, Any], Any, str]] = [
    ("no covariance", {"algorithm": "dp-pca"}, X, "gives no covariance; choose one of: auto, gauss-cov"),
    ("unknown radius", {"radius": "wide"}, X, 'must be "balance", "none", a quantile'),
    ("norm of no length", {"radius": {"norm": 0}}, X, "above 0"),
    ("radius NaN", {"radius": float("nan")}, X, "radius must be"),
]


@pytest.mark.parametrize(
    ("parameters", "x", "message"), [r[1:] for r in REFUSED], ids=[r[0] for r in REFUSED]
)
def test_bad_input_is_refused(parameters: dict[str, Any], x: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PrivateCovariance(**{"bounds": BOUNDS, **parameters}).fit(x)
