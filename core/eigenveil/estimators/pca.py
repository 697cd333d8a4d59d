"""scikit-learn's face of eigenveil: one site, in process, the same session and the same barrier."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_array, check_is_fitted, validate_data

from eigenveil.estimators._base import records_of, run, study_of
from eigenveil.numerics.encoding import FloatArray
from eigenveil.simulation import Simulation
from eigenveil.study.radius import PublicNorm


@dataclass(kw_only=True, repr=False, eq=False)
class PrivatePCA(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Principal components of the records in one process, with differential privacy.

    Parameters
    ----------
    n_components : int, default=2
        How many components, at most the number of columns.
    epsilon, delta : float, default=1.0 and 1e-6
        The guarantee of one call of `fit`. Fitting twice on the same records spends it twice.
    bounds : (lower, upper), each a number or an array of shape (n_features,)
        Public bounds of the columns, in their units. Required: bounds read off the records would
        tell about them. Values beyond a bound count as the bound.
    algorithm : {"auto", "refined-cov", "refined-pca", "gauss-cov", "dp-pca"}, default="auto"
    choose : {"before", "during"}, default="before"
        When "auto" chooses: by public numbers, or by the first releases, which then say which way was taken.
    neighbours : {"add-remove", "replace-one"}, default="add-remove"
    radius : {"balance", "none"}, float, PublicNorm or {"norm": float}, default="balance"
        How long records are shortened: to a radius chosen privately, not at all beyond the bounds, so that
        about this share of them stays whole, or so that none is longer than a norm that is known beforehand
        (in units of the widest column's half range, from the middle of the bounds).
    scaling : {"none", "bounds", "standard"}, default="none"
        In which units columns are compared: as they are, each by half the distance between its bounds, or
        each by its standard deviation, which a part of the budget estimates.
    random_state : int, RandomState instance or None, default=None
        None draws the noise from the operating system. Anything else is a reproducible simulation:
        it is NOT private, and `release_` says so.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features)
        Orthonormal rows, about columns divided by `scale_`; the largest entry of each is positive.
    explained_variance_ : ndarray of shape (n_components,)
        Equal to scikit-learn's up to noise and grid (divided by the noised record count less one).
    explained_variance_ratio_ : ndarray of shape (n_components,)
    singular_values_ : ndarray of shape (n_components,)
    mean_, scale_ : ndarray of shape (n_features,)
        The private mean, and what each column is divided by, both in its own unit: 1, half the distance
        between its bounds, or its noised standard deviation.
    noise_variance_ : float
        Mean variance of the directions left out, as in probabilistic PCA. The privacy noise is in
        `release_["result"]["noise_scale"]`.
    n_components_, n_features_in_ : int
    n_samples_ : float
        The noised record count.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Only if the columns of X have names.
    release_ : dict
        The content of release.json: guarantee, result, rounds and plan.

    Notes
    -----
    Shape: X (n_samples, n_features), finite. Neighbours, sensitivity and privacy: as every study
    [P1]-[P7]; only what `release_` holds is covered by the guarantee, and warnings, which say no more. Under
    "replace-one" the number of records is public, and the plan in `release_` holds it. `fit_transform` and
    `transform` return functions of single records, which are as confidential as the records.

    Examples
    --------
    >>> import numpy as np
    >>> from eigenveil import PrivatePCA
    >>> X = np.random.default_rng(0).normal(size=(2000, 3)) * [3.0, 1.0, 0.5]
    >>> pca = PrivatePCA(n_components=1, epsilon=2.0, bounds=(-10, 10), random_state=0).fit(X)
    >>> abs(pca.components_).round(1).tolist(), pca.transform(X).shape
    ([[1.0, 0.0, 0.0]], (2000, 1))
    >>> pca.release_["private"]  # random_state makes a simulation of it
    False
    """

    n_components: int = field(default=2, kw_only=False)
    epsilon: float = 1.0
    delta: float = 1e-6
    bounds: tuple[ArrayLike, ArrayLike] | None = None
    algorithm: str = "auto"
    choose: str = "before"
    neighbours: str = "add-remove"
    radius: str | float | PublicNorm | dict[str, float] = "balance"
    scaling: str = "none"
    random_state: Any = None

    def fit(self, X: ArrayLike, y: object = None) -> Self:
        """Spend (epsilon, delta) on the records X. Shape: (n_samples, n_features).

        Raises:
            ValueError: bounds are missing or reversed, X holds anything but finite numbers, or a
                parameter is refused; nothing was spent.
        """
        records = records_of(self, X)
        d = records.shape[1]
        study = study_of(self, d, components=_components(self.n_components, d), choose=self.choose)
        return self._take(run(self, study, records))

    def _take(self, simulation: Simulation) -> Self:
        result, d = simulation.result, len(simulation.result.columns)
        self.release_ = simulation.document
        self.components_ = np.ascontiguousarray(result.components)
        self.n_components_ = len(self.components_)
        self.n_samples_ = result.records
        # A release divides by n; scikit-learn by n - 1.
        unbiased = max(self.n_samples_, 2.0) / (max(self.n_samples_, 2.0) - 1)
        self.explained_variance_ = np.maximum(result.explained_variance, 0.0) * unbiased
        self.explained_variance_ratio_ = result.explained_variance_ratio
        self.singular_values_ = np.sqrt(self.explained_variance_ * (max(self.n_samples_, 2.0) - 1))
        self.mean_, self.scale_ = result.mean, result.scale
        left = max(0.0, result.total_variance * unbiased - float(self.explained_variance_.sum()))
        self.noise_variance_ = left / (d - self.n_components_) if d > self.n_components_ else 0.0
        return self

    def transform(self, X: ArrayLike) -> FloatArray:
        """Records in the component space. Shape: (n, n_features) -> (n, n_components)."""
        check_is_fitted(self)
        records = validate_data(self, X, dtype=np.float64, reset=False)
        return np.asarray((records - self.mean_) / self.scale_ @ self.components_.T)

    def inverse_transform(self, X: ArrayLike) -> FloatArray:
        """Points of the component space as records. Shape: (n, n_components) -> (n, n_features)."""
        check_is_fitted(self)
        points = check_array(X, dtype=np.float64)
        return np.asarray(points @ self.components_ * self.scale_ + self.mean_)

    @property
    def _n_features_out(self) -> int:
        """Asked for by scikit-learn's `get_feature_names_out`."""
        return int(self.n_components_)


def _components(value: Any, d: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not 1 <= value <= d:
        raise ValueError(f"n_components={value!r} must be an integer between 1 and n_features={d}")
    return int(value)
