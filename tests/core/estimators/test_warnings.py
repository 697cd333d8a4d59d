"""A fit warns when it is one of many on the same records, or follows a step fitted without noise."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, Normalizer, StandardScaler

from eigenveil import PrivateCovariance, PrivatePCA
from eigenveil.estimators import _base
from eigenveil.numerics.encoding import FloatArray

AGAIN, READ = "a search or a cross-validation", "without noise"


def records() -> FloatArray:
    return np.random.default_rng(1).uniform(-1, 1, (400, 3))


def pca() -> PrivatePCA:
    return PrivatePCA(1, bounds=(-1, 1), epsilon=5.0)


def score(estimator: PrivatePCA, X: FloatArray, y: None = None) -> float:
    return float(np.var(estimator.transform(X)))


def warned(fit: Callable[[], object]) -> tuple[bool, bool]:
    """True for each warning: a fit spends again, and something read the records before."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fit()
    texts = [str(one.message) for one in caught]
    return any(AGAIN in text for text in texts), any(READ in text for text in texts)


def searching(jobs: int | None) -> GridSearchCV:
    return GridSearchCV(pca(), {"n_components": [1, 2]}, scoring=score, cv=2, n_jobs=jobs, refit=False)


def test_each_fit_of_a_search_or_a_cross_validation_warns_that_it_spends_again() -> None:
    assert warned(lambda: searching(None).fit(records())) == (True, False)
    assert warned(lambda: cross_val_score(pca(), records(), scoring=score, cv=2)) == (True, False)


def test_a_single_fit_warns_of_no_repeated_spending() -> None:
    assert warned(lambda: pca().fit(records())) == (False, False)
    assert warned(lambda: PrivateCovariance(bounds=(-1, 1), epsilon=5.0).fit(records())) == (False, False)


@pytest.mark.parametrize("memory", [False, True])
def test_a_step_that_learned_from_the_records_is_named_and_one_that_learns_nothing_is_not(
    memory: bool, tmp_path: Path
) -> None:
    def pipe(*steps: object) -> Pipeline:
        return make_pipeline(*steps, memory=str(tmp_path) if memory else None)

    before = (
        (FunctionTransformer(lambda X: X), Normalizer(), "passthrough") if not memory else (Normalizer(),)
    )
    assert warned(lambda: pipe(*before, pca()).fit(records())) == (False, False)
    assert warned(lambda: pipe(pca(), StandardScaler()).fit(records())) == (False, False)
    assert warned(lambda: pipe(StandardScaler(), pca()).fit(records())) == (False, True)
    assert warned(lambda: pipe(StandardScaler(), pca(), Normalizer()).fit(records())) == (False, True)
    arrays = PrivatePCA(1, bounds=(np.full(3, -1.0), np.ones(3)), epsilon=5.0)
    assert warned(lambda: pipe(StandardScaler(), arrays, StandardScaler()).fit(records())) == (False, True)
    assert warned(lambda: pipe(arrays, StandardScaler()).fit(records())) == (False, False)


def test_an_uninspectable_caller_costs_no_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    spent: list[object] = []
    monkeypatch.setattr(_base, "call_warnings", lambda estimator: 1 / 0)
    monkeypatch.setattr(_base, "simulate", lambda *study, **how: spent.append(study))
    with pytest.raises(ZeroDivisionError):
        pca().fit(records())
    assert spent == []
