"""PrivatePCA: scikit-learn's own checks, equivalence to exact PCA, and every refusal with its message."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.decomposition import PCA
from sklearn.utils.estimator_checks import check_estimator

from eigenveil import PrivateCovariance, PrivatePCA
from eigenveil.estimators import _base
from eigenveil.estimators._base import lower_upper
from eigenveil.numerics.encoding import FloatArray
from eigenveil.numerics.linalg import sin_angle
from eigenveil.reporting.document import ReleaseContent
from eigenveil.reporting.figures import figure
from eigenveil.reporting.report import render

BOUNDS = (-40.0, 40.0)
HUGE = 1e6
# What a result says against itself is a warning; most records here are few.
pytestmark = pytest.mark.filterwarnings(
    "ignore:clipping left",
    "ignore:the directions are mostly noise",
    "ignore:the predicted error assumes",
    "ignore:the noise of the private mean",
    "ignore:component . and the next direction",
)


def records(n: int = 4000, seed: int = 0) -> FloatArray:
    """Six columns of very different variance, turned, with a mean."""
    generator = np.random.default_rng(seed)
    turn, _ = np.linalg.qr(generator.normal(size=(6, 6)))
    spread = np.array([6.0, 4.0, 2.5, 1.5, 1.0, 0.5])
    return generator.normal(size=(n, 6)) * spread @ turn + np.arange(6.0)


def content(fitted: PrivatePCA) -> ReleaseContent:
    return ReleaseContent(document=fitted.release_, result=fitted.result_)


CHECKED: list[Any] = [PrivatePCA(bounds=(-50, 50), epsilon=5.0)]
CHECKED += [
    PrivateCovariance(bounds=(-50, 50), epsilon=5.0, algorithm=one)
    for one in ("auto", "adaptive-cov", "em-cov", "zero")
]


@pytest.mark.parametrize("estimator", CHECKED, ids=str)
def test_every_check_of_scikit_learn_passes(estimator: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scikit-learn warns about the checks it skips
        results = check_estimator(estimator, on_fail=None)
    assert len(results) > 40
    assert {r["check_name"]: r["exception"] for r in results if r["status"] == "failed"} == {}
    # Skipped by scikit-learn itself unless an environment variable turns array API support on.
    assert {r["check_name"] for r in results if r["status"] == "skipped"} <= {"check_array_api_input"}


@pytest.mark.parametrize("algorithm", ["gauss-cov", "dp-pca"])
def test_with_a_huge_budget_it_is_pca(algorithm: str) -> None:
    x = records()
    private = PrivatePCA(2, epsilon=HUGE, bounds=BOUNDS, algorithm=algorithm).fit(x)
    exact = PCA(2).fit(x)
    rtol, atol = (2e-3, 1e-3) if algorithm == "gauss-cov" else (3e-2, 1e-2)
    assert sin_angle(private.components_, exact.components_) < 0.01
    np.testing.assert_allclose(np.abs(np.sum(private.components_ * exact.components_, axis=1)), 1, atol=1e-3)
    np.testing.assert_allclose(private.mean_, exact.mean_, atol=0.05)
    for name in ("explained_variance_", "explained_variance_ratio_", "singular_values_"):
        np.testing.assert_allclose(getattr(private, name), getattr(exact, name), rtol=rtol, atol=atol)
    np.testing.assert_allclose(private.noise_variance_, exact.noise_variance_, rtol=0.05)
    assert private.n_samples_ == pytest.approx(len(x), abs=2)


def test_a_share_is_chosen_from_the_whole_released_spectrum() -> None:
    """With a huge budget it is as many as scikit-learn takes."""
    x = records()
    for share in (0.5, 0.9, 0.99):
        fitted = PrivatePCA(share, epsilon=HUGE, bounds=BOUNDS).fit(x)
        assert fitted.n_components_ == PCA(share).fit(x).n_components_
        assert fitted.release_["plan"]["algorithm"] == "gauss-cov"
        assert len(fitted.result_.components) == 6
    with pytest.warns(UserWarning, match="they may be noise"):
        PrivatePCA(0.999, epsilon=0.5, bounds=BOUNDS, random_state=1).fit(records(300))


def test_a_frame_is_fitted_and_transformed_by_name() -> None:
    names = [f"c{i}" for i in range(6)]
    frame = pd.DataFrame(records(300), columns=names)
    bounds = dict.fromkeys(reversed(names), BOUNDS)
    by_name = PrivatePCA(2, bounds=bounds, random_state=0).fit(frame)
    table = pl.DataFrame(records(300), schema=names)
    by_place = PrivatePCA(2, bounds=[BOUNDS] * 6, random_state=0).fit(table)
    np.testing.assert_array_equal(by_name.components_, by_place.components_)
    np.testing.assert_array_equal(by_name.transform(frame[names[::-1]]), by_place.transform(frame))


def test_replace_one_is_stated_and_nothing_about_one_record_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its plan holds the exact number of records, which one record more changes for certain."""
    monkeypatch.setattr(figure, "render_svg", lambda *drawn: "")  # takes seconds
    fitted = PrivatePCA(2, bounds=BOUNDS, neighbours="replace-one").fit(records())
    text = fitted.release_["guarantee"]
    assert fitted.release_["plan"]["study"]["records"]["max_records"] == len(records())
    assert text["neighbours"] == "replace-one"
    assert (text["other_neighbours"], text["other_epsilon"], text["other_delta"]) == (None, None, None)
    assert "add-remove" not in render(content(fitted))
    both = PrivatePCA(2, bounds=BOUNDS).fit(records())
    assert "Read as replace-one" in render(content(both))


@pytest.mark.parametrize(
    ("estimator", "name"), [(PrivatePCA, "components_"), (PrivateCovariance, "covariance_")]
)
def test_fits_with_one_seed_are_equal_and_not_private_and_others_differ(estimator: Any, name: str) -> None:
    one, two, other, private, again = (
        estimator(bounds=BOUNDS, random_state=seed).fit(X) for seed in (7, 7, 8, None, None)
    )
    np.testing.assert_array_equal(getattr(one, name), getattr(two, name))
    assert one.release_["private"] is False
    assert one.release_["guarantee"]["text"].startswith("NOT PRIVATE")
    assert not np.array_equal(getattr(one, name), getattr(other, name))
    assert not np.array_equal(getattr(private, name), getattr(again, name))


@pytest.mark.parametrize("estimator", [PrivatePCA, PrivateCovariance])
def test_a_delta_near_one_over_n_is_warned_about_by_the_noised_count(estimator: Any) -> None:
    """Under add-remove the number of records is private: the exact one is in no sentence."""
    with pytest.warns(UserWarning, match="not far below 1/n") as caught:
        fitted = estimator(epsilon=0.5, delta=1e-3, bounds=BOUNDS, random_state=4).fit(records(3917))
    result = " ".join(str(one.message) for one in caught)
    assert f"about {fitted.n_samples_:.0f} records" in result
    assert "3917" not in result


def test_a_refusal_does_not_reveal_the_number_of_records(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_base, "MAX_RECORDS", 3000)
    with pytest.raises(ValueError, match="at most 3000 records") as caught:
        PrivatePCA(2, bounds=BOUNDS).fit(records(3917))
    assert "3917" not in str(caught.value)


@pytest.mark.filterwarnings("ignore:a variance of")
def test_one_record_is_fitted_like_any_other_number_of_them() -> None:
    """Were it refused, the refusal would tell one record from two."""
    assert PrivatePCA(2, bounds=BOUNDS).fit(records(1)).components_.shape == (2, 6)


def test_noise_is_warned_about_and_so_are_variances_that_cannot_be() -> None:
    with pytest.warns(
        UserWarning, match="mostly noise|private mean|bounds allow in total, 9600|next direction"
    ) as caught:
        fitted = PrivatePCA(2, bounds=BOUNDS, random_state=0).fit(records(3))
    assert [str(one.message) for one in caught] == fitted.release_["results"]["pca"]["warnings"]
    assert {one.filename for one in caught} == {__file__}
    assert len(caught) == 4


X = records(50)
NAN = X.copy()
NAN[3, 1] = np.nan
REFUSED: list[tuple[str, dict[str, Any], Any, str]] = [
    ("missing bounds", {"bounds": None}, X, r"bounds=\(lower, upper\) is required"),
    ("reversed bounds", {"bounds": (1.0, -1.0)}, X, "lower bound 1.0 must be below upper bound -1.0"),
    ("infinite bounds", {"bounds": (-np.inf, np.inf)}, X, "bounds must be finite"),
    ("bounds of another width", {"bounds": ([0.0] * 5, [1.0] * 5)}, X, "each a number or 6 numbers"),
    ("missing values", {}, NAN, "contains NaN"),
    ("text", {}, [["a", "b"], ["c", "d"]], "could not convert string"),
    ("k above d", {"n_components": 7}, X, "between 1 and n_features=6"),
    ("k a fraction above one", {"n_components": 2.5}, X, "must be an integer between 1"),
    ("an unknown share", {"n_components": 0.9, "algorithm": "dp-pca"}, X, "use algorithm gauss-cov"),
    ("a share of all", {"n_components": 1.0}, X, "or a share of the variance between 0 and 1"),
    ("epsilon zero", {"epsilon": 0.0}, X, "epsilon must be a finite number above 0"),
    ("epsilon text", {"epsilon": "1"}, X, "epsilon = '1' must be a number"),
    ("delta zero", {"delta": 0.0, "algorithm": "dp-pca"}, X, "cannot run at delta = 0"),
    ("delta one", {"delta": 1.0}, X, "delta must be 0"),
    ("unknown algorithm", {"algorithm": "pca"}, X, "choose one of: .auto., .gauss-cov., "),
    ("unknown neighbours", {"neighbours": "add"}, X, "choose one of: .add-remove., .replace-one."),
    ("no records", {}, X[:0], "minimum of 1 is required"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("parameters", "x", "message"), [r[1:] for r in REFUSED], ids=[r[0] for r in REFUSED]
)
def test_bad_input_is_refused(parameters: dict[str, Any], x: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PrivatePCA(**{"n_components": 2, "bounds": BOUNDS, **parameters}).fit(x)


# Bounds in every spelling.


PAIRS = st.lists(st.tuples(st.floats(-1e6, 0), st.floats(1, 1e6)), min_size=1, max_size=5)


@given(PAIRS)
def test_every_spelling_is_the_same_bounds(pairs: list[tuple[float, float]]) -> None:
    names = [f"c{i}" for i in range(len(pairs))]
    lower, upper = ([pair[side] for pair in pairs] for side in (0, 1))
    named = dict(reversed(list(zip(names, pairs, strict=True)))) | {"other": (0.0, 1.0)}
    for bounds in ((lower, upper), (np.array(lower), np.array(upper)), pairs, list(map(list, pairs)), named):
        assert lower_upper(bounds, names, named=True) == (lower, upper)


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
def test_invalid_bounds_are_refused(bounds: Any, named: bool, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        lower_upper(bounds, ["a", "b"], named=named)


def test_a_prior_of_public_rows_is_used_and_never_by_default() -> None:
    generator = np.random.default_rng(3)
    rows = generator.normal(size=(900, 8)) * [3, 1, 1, 1, 1, 1, 1, 1]
    values: dict[str, Any] = {"epsilon": 0.3, "bounds": (-12, 12), "random_state": 0}
    assert PrivatePCA(1, **values).fit(rows[:800]).result_.prior is None
    with pytest.warns(UserWarning, match="starts from a prior"):
        fitted = PrivatePCA(1, prior=rows[800:], **values).fit(rows[:800])
    assert fitted.result_.prior is not None
    assert fitted.result_.prior.used
    assert fitted.release_["plan"]["algorithm"] == "refined-cov"
    assert str(rows[800, 0]) not in str(fitted.release_)
    with pytest.raises(ValueError, match="prior: row 5: x0"):
        PrivatePCA(1, prior=rows[800:] + 50 * (np.arange(100) == 4)[:, None], **values).fit(rows[:800])
    with pytest.raises(ValueError, match="absent"):
        PrivatePCA(1, prior="absent.csv", **values).fit(rows[:800])
