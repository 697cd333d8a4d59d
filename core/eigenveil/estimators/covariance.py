"""A private covariance matrix beside scikit-learn's covariance estimators."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.covariance import EmpiricalCovariance

from eigenveil.algorithms.covariance.frobenius import foreseen, shrunk
from eigenveil.algorithms.shared.standardised import remainder
from eigenveil.errors import RequestError
from eigenveil.estimators._base import records_of, run, study_of
from eigenveil.estimators.bounds import Bounds
from eigenveil.numerics.encoding import FloatArray
from eigenveil.numerics.linalg import eigenpairs
from eigenveil.planning.resolve import make_plan
from eigenveil.study.algorithm import Algorithm
from eigenveil.study.radius import PublicNorm
from eigenveil.study.study import Scaling, Study

NOISED = (Algorithm.GAUSS_COV, Algorithm.ANALYZE_GAUSS)  # a matrix and noise of known size, nothing else
KNOWN = (*NOISED, Algorithm.SEPARATE_COV, Algorithm.ADAPTIVE_COV, Algorithm.EM_COV, Algorithm.ZERO)
CANDIDATES = (Algorithm.GAUSS_COV, Algorithm.SEPARATE_COV, Algorithm.ZERO)


@dataclass(kw_only=True, repr=False, eq=False)
class PrivateCovariance(EmpiricalCovariance):
    """The covariance matrix of the records in one process, with differential privacy.

    Parameters
    ----------
    epsilon : float, default=1.0
        With delta, the guarantee of one call of `fit`. Fitting twice on the same records spends it twice.
    delta : float, default=1e-6
        Except with this probability epsilon holds. 0 is pure differential privacy, with much more noise.
    bounds : (lower, upper), each a number or an array of shape (n_features,), pairs or mapping
        Public bounds of the columns, in their units: for all at once, as a list of a pair for each column, or
        by name, as a mapping of each column's name to its pair. Required: bounds read off the records would
        tell about them. Values beyond a bound count as the bound.
    algorithm : {"auto", "gauss-cov", "analyze-gauss", "separate-cov", "adaptive-cov", "em-cov", "zero"}, \
default="auto"
        "auto" takes the one with the least Frobenius error that is foreseen from public numbers (it does not
        look at the records, and assumes 10,000 of them).
    neighbours : {"add-remove", "replace-one"}, default="add-remove"
    radius : {"balance", "none"}, float, PublicNorm or {"norm": float}, default="balance"
        How long records are shortened: to a radius chosen privately, not at all beyond the bounds, so that
        about this share of them stays whole, or so that none is longer than a norm that is known beforehand
        (in units of the widest column's half range, from the middle of the bounds).
    scaling : {"none", "bounds", "standard"}, default="none"
        In which units columns are compared: as they are, each by half the distance between its bounds, or
        each by its standard deviation, which a part of the budget estimates.
    shrink : bool, default=True
        Shrink the eigenvalues of a noised matrix by the known size of the noise, which costs no privacy.
        Without it the matrix has no bias and may have negative eigenvalues.
    random_state : int, RandomState instance or None, default=None
        None draws the noise from the operating system. Anything else is a reproducible simulation:
        it is NOT private, and `release_` says so.

    Attributes
    ----------
    covariance_ : ndarray of shape (n_features, n_features)
        In the columns' own units, divided by the noised record count.
    precision_ : ndarray of shape (n_features, n_features)
        Its pseudo-inverse.
    location_ : ndarray of shape (n_features,)
        The private mean.
    n_samples_ : float
        The noised record count (0 with "zero", which asks nothing).
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Only if the columns of X have names.
    release_ : dict
        The content of release.json: guarantee, result, rounds and plan.

    Notes
    -----
    Shape: X (n_samples, n_features), finite. Neighbours, sensitivity and privacy: as every study
    [P1]-[P7], and [P10], [P12]-[P14] for the algorithms that use them; only what `release_` holds is covered
    by the guarantee, and warnings, which say no more. Under "replace-one" the number of records is public:
    the plan in `release_` holds it. `error_norm`, `mahalanobis` and `score` return functions of the records
    given to them, which are as confidential as those.

    By default all columns share one scale, as the Frobenius norm does: a column whose bounds are far narrower
    than the widest is lost in the noise. With another `scaling` each has noise in its own proportion.

    Examples
    --------
    >>> import numpy as np
    >>> from eigenveil import PrivateCovariance
    >>> X = np.random.default_rng(0).normal(size=(2000, 2)) * [3.0, 1.0]
    >>> found = PrivateCovariance(epsilon=2.0, bounds=(-10, 10), random_state=0).fit(X)
    >>> found.covariance_.shape, bool(abs(found.covariance_[0, 0] - 9) < 1)
    ((2, 2), True)
    """

    # Read by scikit-learn's methods; not parameters here.
    store_precision = True
    assume_centered = False

    epsilon: float = 1.0
    delta: float = 1e-6
    bounds: Bounds | None = None
    algorithm: str = "auto"
    neighbours: str = "add-remove"
    radius: str | float | PublicNorm | dict[str, float] = "balance"
    scaling: str = "none"
    shrink: bool = True
    random_state: Any = None

    def fit(self, X: ArrayLike, y: object = None) -> Self:
        """Spend (epsilon, delta) on the records X. Shape: (n_samples, n_features).

        Raises:
            ValueError: bounds are missing or reversed, X holds anything but finite numbers, or a
                parameter is refused; nothing was spent.
        """
        records = records_of(self, X)
        study = self._study(records.shape[1])
        found = run(self, study, records)
        result, covariance = found.result, found.result.covariance
        if covariance is not None and self.shrink and study.algorithm in NOISED:
            covariance = shrunk_matrix(covariance, result.noise_scale)
        if covariance is not None:
            covariance = covariance * np.outer(result.scale, result.scale)
        self.release_ = found.document
        self.location_ = result.mean
        self.n_samples_ = result.records
        self._set_covariance(covariance)
        return self

    def _study(self, d: int) -> Study:
        study = study_of(self, d, name="private-covariance")
        if study.algorithm is Algorithm.AUTO:
            return replace(study, algorithm=_least(study, self.shrink))
        if study.algorithm not in KNOWN:
            known = ", ".join(["auto", *(one.value for one in KNOWN)])
            raise ValueError(f"algorithm={self.algorithm!r} gives no covariance; choose one of: {known}")
        # Only em-cov finds its directions one by one: all of them make the matrix.
        return replace(study, components=d) if study.algorithm is Algorithm.EM_COV else study


def shrunk_matrix(covariance: FloatArray, noise_scale: float) -> FloatArray:
    """The noised matrix with its eigenvalues shrunk [P7]. Shape: (d, d) -> (d, d)."""
    values, vectors = eigenpairs(covariance)
    return np.asarray((vectors * shrunk(values, noise_scale)) @ vectors.T)


def _least(study: Study, shrink: bool) -> Algorithm:
    """The candidate with the least foreseen error."""

    def error(algorithm: Algorithm) -> float:
        plan = make_plan(replace(study, algorithm=algorithm))
        standard = study.scaling is Scaling.STANDARD
        return foreseen(remainder(plan) if standard else plan, shrink=shrink)

    try:
        return min(CANDIDATES, key=error)
    except RequestError as problem:
        raise ValueError(str(problem)) from problem
