"""Private PCA as a scikit-learn estimator: one site in this process, with the same session and barrier."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_array, check_is_fitted, validate_data

from eigenveil.estimators._base import (
    PrivateEstimator,
    component_count,
    records_of,
    run,
    study_for_components,
    study_of,
    warn_of_noise,
    with_prior,
)
from eigenveil.numerics.encoding import FloatArray, select_columns
from eigenveil.reporting.document import HasRelease
from eigenveil.study.toml import single_tables


@dataclass(kw_only=True, repr=False, eq=False)
class PrivatePCA(PrivateEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Differentially private principal components of the records in one process.

    Parameters
    ----------
    n_components : int or float, default=2
        How many components, at most the number of columns. A number between 0 and 1 is a share of the
        released variance, noise included: the fewest components that hold more than that, chosen after the
        release at no cost. It needs every variance to be released, which "gauss-cov" and "analyze-gauss" do;
        "auto" then takes "gauss-cov".
    epsilon : float, default=1.0
        With delta, the guarantee of one call of `fit`. Fitting twice on the same records spends it twice.
    delta : float, default=1e-6
        Except with this probability epsilon holds. 0 is pure differential privacy, by "gauss-cov" alone.
    bounds : (lower, upper), each a number or an array of shape (n_features,), pairs or mapping
        Public bounds of the columns, in their units: for all at once, as a list of a pair for each column, or
        by name, as a mapping of each column's name to its pair. Required: bounds computed from the records
        would disclose them. Values beyond a bound count as the bound.
    algorithm : {"auto", "refined-cov", "refined-pca", "gauss-cov", "dp-pca"}, default="auto"
    choose : {"before", "during"}, default="before"
        When "auto" chooses: before, by public numbers, or by the first releases, which then state the choice.
    neighbours : {"add-remove", "replace-one"}, default="add-remove"
    radius : {"balance", "none"}, float, PublicNorm or {"norm": float}, default="balance"
        Clip radius of the records: chosen privately, only the bounds, a radius that leaves about this share
        of the records unclipped, or a norm known beforehand (in units of the widest column's half range, from
        the middle of the bounds).
    scaling : {"none", "bounds", "standard"}, default="none"
        Scaling of the columns: none, by half the distance between the bounds, or by the standard deviation,
        which a share of the budget estimates.
    prior : array-like, path, Prior or None, default=None
        What is public about these columns already: public rows of shape (n, n_features), or a CSV file of
        rows or loadings, or an earlier release.zip. Only with a prior "auto" is always "refined-cov". No
        guarantee covers it, and it is in the release (axes and variances, never rows). `result_.prior` says
        how much of each component came from it.
    whiten : bool, default=False
        Divide what `transform` returns by the released standard deviation along each component.
    random_state : int, RandomState instance or None, default=None
        None draws the noise from the operating system. Anything else is a reproducible simulation:
        it is NOT private, and `release_` says so.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features)
        Orthonormal rows, for columns divided by `scale_`; the largest entry of each is positive.
    explained_variance_ : ndarray of shape (n_components,)
        Equal to scikit-learn's up to noise and grid (divided by the noised record count less one).
    explained_variance_ratio_ : ndarray of shape (n_components,)
    singular_values_ : ndarray of shape (n_components,)
    mean_, scale_ : ndarray of shape (n_features,)
        The private mean, and the divisor of each column, both in its own unit: 1, half the distance between
        its bounds, or its noised standard deviation.
    noise_variance_ : float
        Mean variance of the other directions, as in probabilistic PCA. The privacy noise is in
        `result_.noise_scale`.
    n_components_, n_features_in_ : int
    n_samples_ : float
        The noised record count.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Only if the columns of X have names.
    result_ : Result
        All that was released, in the study's units.
    release_ : dict
        The document of the release: guarantee, rounds and plan.

    Notes
    -----
    Shape: X (n_samples, n_features), finite. Neighbours, sensitivity and privacy: as every study
    [P1]-[P7]. The guarantee covers `release_` and the warnings, which follow from it. Under "replace-one" the
    number of records is public, and the plan in `release_` holds it. `fit_transform`, `transform`, `score`
    and `score_samples` return functions of the records given to them: they spend nothing, no guarantee covers
    them, and they are as confidential as those records.

    Columns of tables are found by the names that they had in `fit`, in any order; other columns are ignored.
    Columns of arrays are found by position.

    Examples
    --------
    >>> import numpy as np
    >>> from eigenveil import PrivatePCA
    >>> X = np.random.default_rng(0).normal(size=(2000, 3)) * [3.0, 1.0, 0.5]
    >>> pca = PrivatePCA(n_components=1, epsilon=2.0, bounds=(-10, 10), random_state=0).fit(X)
    >>> abs(pca.components_).round(1).tolist(), pca.transform(X).shape
    ([[1.0, 0.0, 0.0]], (2000, 1))
    >>> pca.release_["private"]  # random_state makes it a simulation
    False"""

    n_components: int | float = field(default=2, kw_only=False)
    choose: str = "before"
    prior: Any = None
    whiten: bool = False

    def fit(self, X: ArrayLike, y: object = None) -> Self:
        """Spend (epsilon, delta) on the records X. Shape: (n_samples, n_features).

        Raises:
            ValueError: bounds are missing or reversed, X holds anything but finite numbers, or a
                parameter is invalid; nothing was spent."""
        records = records_of(self, X)
        study = study_of(self, records.shape[1], choose=self.choose)
        study = with_prior(study_for_components(self.n_components, study), self.prior)
        simulation = run(self, study, records)
        self._set_attributes(simulation)
        warn_of_noise(self.n_components, self.n_components_, simulation.result)
        return self

    @classmethod
    def from_release(
        cls, release: HasRelease, *, n_components: int | float | None = None, whiten: bool = False
    ) -> Self:
        """Return an estimator fitted from a release or a simulation.

        Nothing is queried and nothing spent [P7]. All released components are used, or those that
        `n_components` selects: a number, or a share of the released variance. The parameters are the study's,
        so that a clone can be fitted to other records.

        Raises:
            ValueError: the study released no components, or fewer than requested."""
        result, study = release.result, release.document["plan"]["study"]
        if result.declined is not None:
            raise ValueError(f"this study released no components: {result.declined}")
        self = cls(
            len(result.components) if n_components is None else n_components,
            epsilon=study["privacy"]["epsilon"],
            delta=study["privacy"]["delta"],
            bounds={one["name"]: (one["lower"], one["upper"]) for one in single_tables(study["columns"])},
            algorithm=study["algorithm"],
            choose=study["choose"],
            neighbours=study["privacy"]["neighbours"],
            radius=study["privacy"]["radius"],
            scaling=study["records"]["scaling"],
            whiten=whiten,
        )
        self.feature_names_in_ = np.array(result.columns, dtype=object)
        self.n_features_in_ = len(result.columns)
        return self._set_attributes(release)

    def _set_attributes(self, release: HasRelease) -> Self:
        result = release.result
        d, k = len(result.columns), component_count(self.n_components, result)
        self.release_, self.result_ = dict(release.document), result
        self.components_ = np.ascontiguousarray(result.components[:k])
        self.n_components_ = len(self.components_)
        self.n_samples_ = result.records
        # A release divides by n; scikit-learn by n - 1.
        unbiased = max(self.n_samples_, 2.0) / (max(self.n_samples_, 2.0) - 1)
        self.explained_variance_ = np.maximum(result.explained_variance[:k], 0.0) * unbiased
        self.explained_variance_ratio_ = result.explained_variance_ratio[:k]
        self.singular_values_ = np.sqrt(self.explained_variance_ * (max(self.n_samples_, 2.0) - 1))
        self.mean_, self.scale_ = result.mean, result.scale
        other_variance = max(0.0, result.total_variance * unbiased - float(self.explained_variance_.sum()))
        self.noise_variance_ = other_variance / (d - self.n_components_) if d > self.n_components_ else 0.0
        return self

    def transform(self, X: ArrayLike) -> FloatArray:
        """Return records in the component space. Shape: (n, n_features) -> (n, n_components).

        Raises:
            ValueError: a column is missing, or a value is not a finite number."""
        off = (self._records(X) - self.mean_) / self.scale_
        return np.asarray(off @ self.components_.T / self._whitening_scales())

    def inverse_transform(self, X: ArrayLike) -> FloatArray:
        """Return points of the component space as records. Shape: (n, n_components) -> (n, n_features)."""
        check_is_fitted(self)
        points = check_array(X, dtype=np.float64) * self._whitening_scales()
        return np.asarray(points @ self.components_ * self.scale_ + self.mean_)

    def get_covariance(self) -> FloatArray:
        """Return the covariance of the probabilistic PCA model, in the columns' own units.

        The other directions share one variance, and no variance is below its privacy noise.
        Shape: (n_features, n_features)."""
        return self._matrix(*self._variances()) * np.outer(self.scale_, self.scale_)

    def get_precision(self) -> FloatArray:
        """Return the inverse of `get_covariance`. Shape: (n_features, n_features).

        Raises:
            ValueError: the release holds no variance."""
        return self._inverse() / np.outer(self.scale_, self.scale_)

    def score_samples(self, X: ArrayLike) -> FloatArray:
        """Return each record's log-likelihood under the probabilistic PCA model.

        Shape: (n, n_features), in the columns' own units -> (n,).
        A function of the records given: it spends nothing, no guarantee covers it, and it is as confidential
        as they are.

        Raises:
            ValueError: as `transform`, or the release holds no variance."""
        off = (self._records(X) - self.mean_) / self.scale_
        inverse, (along, other) = self._inverse(), self._variances()
        k, d = self.components_.shape
        sizes = float(np.log(along).sum()) + 2 * float(np.log(self.scale_).sum())
        sizes += (d - k) * math.log(other) if d > k else 0.0
        squares = np.einsum("ij,ij->i", off @ inverse, off)
        return np.asarray(-0.5 * (squares + d * math.log(2 * math.pi) + sizes))

    def score(self, X: ArrayLike, y: object = None) -> float:
        """Return the mean of `score_samples`: as confidential as the records, and without a guarantee."""
        return float(self.score_samples(X).mean())

    def _records(self, X: ArrayLike) -> FloatArray:
        check_is_fitted(self)
        names = getattr(self, "feature_names_in_", None)
        records: FloatArray = validate_data(self, select_columns(names, X), dtype=np.float64, reset=False)
        return records

    def _whitening_scales(self) -> FloatArray:
        """Return the divisors of `transform`, above 0 also for a released variance of 0. Shape: (k,)."""
        if not self.whiten:
            return np.ones(self.n_components_)
        return np.maximum(np.sqrt(self.explained_variance_), np.finfo(np.float64).eps)

    # Probabilistic PCA (Tipping & Bishop 1999): a record is normal about the mean, with each component's
    # variance along it and one variance for all other directions. It follows from the release [P7].

    def _variances(self) -> tuple[FloatArray, float]:
        """Return the variances along components and along every other direction, for columns over `scale_`.

        None is below the privacy noise of a variance, from which it could not be distinguished."""
        check_is_fitted(self)
        other = max(self.noise_variance_, self.result_.noise_scale)
        return np.maximum(self.explained_variance_, other), other

    def _matrix(self, along: FloatArray, other: float) -> FloatArray:
        found = (self.components_.T * (along - other)) @ self.components_
        return np.asarray(found + other * np.eye(len(self.mean_)))

    def _inverse(self) -> FloatArray:
        along, other = self._variances()
        if not (along > 0).all():
            raise ValueError("the release has no variance above 0, so records have no density")
        k, d = self.components_.shape
        return self._matrix(1 / along, 1 / other if k < d else 0.0)

    @property
    def _n_features_out(self) -> int:
        """Number of output features, for scikit-learn's `get_feature_names_out`."""
        return int(self.n_components_)
