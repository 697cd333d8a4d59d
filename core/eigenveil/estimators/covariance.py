"""Private covariance matrix as a scikit-learn estimator."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.covariance import EmpiricalCovariance

from eigenveil.algorithms.shared.standardised import remaining_plan
from eigenveil.algorithms.shared.stated_error import predicted_frobenius_error, shrunk_eigenvalues
from eigenveil.errors import RequestError
from eigenveil.estimators._base import NOISED_MATRIX_ALGORITHMS, PrivateEstimator, records_of, run, study_of
from eigenveil.numerics.linalg import eigenpairs
from eigenveil.planning.choose import make_plan
from eigenveil.study.algorithm import Algorithm
from eigenveil.study.study import Scaling, Study

COVARIANCE_ALGORITHMS = (
    *NOISED_MATRIX_ALGORITHMS,
    Algorithm.SEPARATE_COV,
    Algorithm.ADAPTIVE_COV,
    Algorithm.EM_COV,
    Algorithm.ZERO,
)
CANDIDATES = (Algorithm.GAUSS_COV, Algorithm.SEPARATE_COV, Algorithm.ZERO)


@dataclass(kw_only=True, repr=False, eq=False)
class PrivateCovariance(PrivateEstimator, EmpiricalCovariance):
    """Differentially private covariance matrix of the records in one process.

    Parameters
    ----------
    epsilon, delta, bounds, neighbours, radius, scaling, random_state
        As those of `PrivatePCA`.
    algorithm : {"auto", "gauss-cov", "analyze-gauss", "separate-cov", "adaptive-cov", "em-cov", "zero"}, \
default="auto"
        "auto" takes the one with the least Frobenius error predicted from public numbers (it does not read
        the records, and assumes 10,000 of them).
    shrink : bool, default=True
        Shrink the eigenvalues of a noised matrix by the known scale of the noise, which costs no privacy.
        Without it the matrix has no bias and may have negative eigenvalues.

    Attributes
    ----------
    covariance_ : ndarray of shape (n_features, n_features)
        In the columns' own units, divided by the noised record count.
    precision_ : ndarray of shape (n_features, n_features)
        Its pseudo-inverse.
    location_ : ndarray of shape (n_features,)
        The private mean.
    n_samples_ : float
        The noised record count (0 with "zero", which has no queries).
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Only if the columns of X have names.
    result_ : Result
        All that was released, in the study's units.
    release_ : dict
        The document of the release: guarantee, rounds and plan.

    Notes
    -----
    Shape: X (n_samples, n_features), finite. Neighbours, sensitivity and privacy: as every study
    [P1]-[P7], and [P10], [P12]-[P14] for the algorithms that use them. The guarantee covers `release_` and
    the warnings, which follow from it. Under "replace-one" the number of records is public: the plan in
    `release_` holds it. `error_norm`, `mahalanobis` and `score` return functions of the records given to
    them, which are as confidential as those.

    By default all columns share one scale, as in the Frobenius norm: the noise hides a column whose bounds
    are much narrower than the widest. With another `scaling` a column's noise is proportional to its scale.

    Examples
    --------
    >>> import numpy as np
    >>> from eigenveil import PrivateCovariance
    >>> X = np.random.default_rng(0).normal(size=(2000, 2)) * [3.0, 1.0]
    >>> found = PrivateCovariance(epsilon=2.0, bounds=(-10, 10), random_state=0).fit(X)
    >>> found.covariance_.shape, bool(abs(found.covariance_[0, 0] - 9) < 1)
    ((2, 2), True)"""

    # Attributes that scikit-learn's methods read; not parameters here.
    store_precision = True
    assume_centered = False

    shrink: bool = True

    def fit(self, X: ArrayLike, y: object = None) -> Self:
        """Spend (epsilon, delta) on the records X. Shape: (n_samples, n_features).

        Raises:
            ValueError: bounds are missing or reversed, X holds anything but finite numbers, or a
                parameter is invalid; nothing was spent."""
        records = records_of(self, X)
        study = self._study(records.shape[1])
        found = run(self, study, records)
        result, covariance = found.result, found.result.covariance
        if covariance is not None:
            if self.shrink and study.algorithm in NOISED_MATRIX_ALGORITHMS:  # post-processing [P7]
                values, vectors = eigenpairs(covariance)
                covariance = (vectors * shrunk_eigenvalues(values, result.noise_scale)) @ vectors.T
            covariance = covariance * np.outer(result.scale, result.scale)
        self.release_, self.result_ = found.document, result
        self.location_ = result.mean
        self.n_samples_ = result.records
        self._set_covariance(covariance)
        return self

    def _study(self, d: int) -> Study:
        study = study_of(self, d, name="private-covariance")
        if study.algorithm is Algorithm.AUTO:
            return replace(study, algorithm=_best_algorithm(study, self.shrink))
        if study.algorithm not in COVARIANCE_ALGORITHMS:
            known = ", ".join(["auto", *(one.value for one in COVARIANCE_ALGORITHMS)])
            raise ValueError(f"algorithm={self.algorithm!r} gives no covariance; choose one of: {known}")
        # em-cov finds its directions one by one; the matrix needs all of them.
        return replace(study, components=d) if study.algorithm is Algorithm.EM_COV else study


def _best_algorithm(study: Study, shrink: bool) -> Algorithm:
    """Return the candidate with the least predicted error."""

    def error(algorithm: Algorithm) -> float:
        plan = make_plan(replace(study, algorithm=algorithm))
        standard = study.scaling is Scaling.STANDARD
        return predicted_frobenius_error(remaining_plan(plan) if standard else plan, shrink=shrink)

    try:
        return min(CANDIDATES, key=error)
    except RequestError as problem:
        raise ValueError(str(problem)) from problem
