"""scikit-learn's face of eigenveil: one site, in process, the same session and the same barrier."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_array, check_is_fitted, validate_data

from eigenveil.estimators._base import records_of, run, study_of
from eigenveil.estimators.bounds import Bounds
from eigenveil.estimators.likelihood import Model
from eigenveil.estimators.share import chosen, fitted_for, warn_of_noise
from eigenveil.numerics.encoding import FloatArray
from eigenveil.numerics.tables import in_order
from eigenveil.reporting.result import Result
from eigenveil.study.columns import single_tables
from eigenveil.study.radius import PublicNorm


@dataclass(kw_only=True, repr=False, eq=False)
class PrivatePCA(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Principal components of the records in one process, with differential privacy.

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
        by name, as a mapping of each column's name to its pair. Required: bounds read off the records would
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
    whiten : bool, default=False
        Divide what `transform` returns by the released standard deviation along each component.
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
    "replace-one" the number of records is public, and the plan in `release_` holds it. `fit_transform`,
    `transform`, `score` and `score_samples` return functions of the records given to them: they spend
    nothing, no guarantee covers them, and they are as confidential as those records.

    Tables are taken by the names of their columns, in any order, as they were in `fit`; what else a table
    holds is not looked at. Arrays are taken by position.

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

    n_components: int | float = field(default=2, kw_only=False)
    epsilon: float = 1.0
    delta: float = 1e-6
    bounds: Bounds | None = None
    algorithm: str = "auto"
    choose: str = "before"
    neighbours: str = "add-remove"
    radius: str | float | PublicNorm | dict[str, float] = "balance"
    scaling: str = "none"
    whiten: bool = False
    random_state: Any = None

    def fit(self, X: ArrayLike, y: object = None) -> Self:
        """Spend (epsilon, delta) on the records X. Shape: (n_samples, n_features).

        Raises:
            ValueError: bounds are missing or reversed, X holds anything but finite numbers, or a
                parameter is refused; nothing was spent.
        """
        records = records_of(self, X)
        d = records.shape[1]
        study = study_of(self, d, choose=self.choose)
        simulation = run(self, fitted_for(self.n_components, study), records)
        self._take(simulation.result, simulation.document)
        warn_of_noise(self.n_components, self.n_components_, simulation.result)
        return self

    @classmethod
    def from_document(
        cls,
        document: Mapping[str, Any],
        *,
        n_components: int | float | None = None,
        whiten: bool = False,
    ) -> Self:
        """Fitted by what a study released: `document` is the content of a release.json, or a simulation's.

        Nothing is asked and nothing spent [P7]. All released components are kept, or as many as
        `n_components` says: a number of them, or the share of the released variance that they hold. The
        parameters are the study's, so that a clone may be fitted to other records.

        Raises:
            ValueError: the study released no components, or fewer than are wanted.
        """
        result, study = Result.from_dict(document["result"]), document["plan"]["study"]
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
        return self._take(result, dict(document))

    def _take(self, result: Result, document: dict[str, Any]) -> Self:
        d, k = len(result.columns), chosen(self.n_components, result)
        self.release_ = document
        self.components_ = np.ascontiguousarray(result.components[:k])
        self.n_components_ = len(self.components_)
        self.n_samples_ = result.records
        # A release divides by n; scikit-learn by n - 1.
        unbiased = max(self.n_samples_, 2.0) / (max(self.n_samples_, 2.0) - 1)
        self.explained_variance_ = np.maximum(result.explained_variance[:k], 0.0) * unbiased
        self.explained_variance_ratio_ = result.explained_variance_ratio[:k]
        self.singular_values_ = np.sqrt(self.explained_variance_ * (max(self.n_samples_, 2.0) - 1))
        self.mean_, self.scale_ = result.mean, result.scale
        left = max(0.0, result.total_variance * unbiased - float(self.explained_variance_.sum()))
        self.noise_variance_ = left / (d - self.n_components_) if d > self.n_components_ else 0.0
        return self

    def transform(self, X: ArrayLike) -> FloatArray:
        """Records in the component space. Shape: (n, n_features) -> (n, n_components).

        Raises:
            ValueError: a column is missing, or anything is no finite number.
        """
        off = (self._records(X) - self.mean_) / self.scale_
        return np.asarray(off @ self.components_.T / self._lengths())

    def inverse_transform(self, X: ArrayLike) -> FloatArray:
        """Points of the component space as records. Shape: (n, n_components) -> (n, n_features)."""
        check_is_fitted(self)
        points = check_array(X, dtype=np.float64) * self._lengths()
        return np.asarray(points @ self.components_ * self.scale_ + self.mean_)

    def get_covariance(self) -> FloatArray:
        """What the released components say of the covariance, in the columns' own units, the directions left
        out sharing one variance (probabilistic PCA) and none varying less than the privacy noise on a
        variance. Shape: (n_features, n_features)."""
        return self._model().covariance

    def get_precision(self) -> FloatArray:
        """The inverse of `get_covariance`. Shape: (n_features, n_features).

        Raises:
            ValueError: the release holds no variance.
        """
        return self._model().precision

    def score_samples(self, X: ArrayLike) -> FloatArray:
        """The log-likelihood of each record under the released components (probabilistic PCA), in the
        columns' own units. Shape: (n, n_features) -> (n,).

        A function of the records given: it spends nothing, no guarantee covers it, and it is as confidential
        as they are.

        Raises:
            ValueError: as `transform`, or the release holds no variance.
        """
        records = self._records(X)
        return self._model().log_likelihood(records)

    def score(self, X: ArrayLike, y: object = None) -> float:
        """The mean of `score_samples`: as confidential as the records given, and covered by no guarantee."""
        return float(self.score_samples(X).mean())

    def _records(self, X: ArrayLike) -> FloatArray:
        check_is_fitted(self)
        names = getattr(self, "feature_names_in_", None)
        records: FloatArray = validate_data(self, in_order(names, X), dtype=np.float64, reset=False)
        return records

    def _lengths(self) -> FloatArray:
        """What `transform` divides by. Shape: (n_components,)."""
        if not self.whiten:
            return np.ones(self.n_components_)
        least = np.finfo(np.float64).eps  # of a direction that the release gives no variance
        return np.maximum(np.sqrt(self.explained_variance_), least)

    def _model(self) -> Model:
        check_is_fitted(self)
        return Model(
            components=self.components_,
            variances=self.explained_variance_,
            left=self.noise_variance_,
            noise=self.release_["result"]["noise_scale"],
            mean=self.mean_,
            scale=self.scale_,
        )

    @property
    def _n_features_out(self) -> int:
        """Asked for by scikit-learn's `get_feature_names_out`."""
        return int(self.n_components_)
