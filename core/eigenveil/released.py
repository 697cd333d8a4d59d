"""Release of a federation as arrays and text, read from its file."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from eigenveil.input_file import file_bytes
from eigenveil.numerics.encoding import FloatArray
from eigenveil.protocol.plan import planned_study
from eigenveil.reporting.loadings import ComponentLoadings, component_loadings, release_warnings
from eigenveil.reporting.summary import release_dataframe, release_summary_html, release_summary_text
from eigenveil.reporting.verify import SignedRelease
from eigenveil.reporting.verify import load_release as load_signed_release
from eigenveil.study.study import Study

if TYPE_CHECKING:
    from eigenveil.estimators.pca import PrivatePCA


class ReleasedResult(SignedRelease):
    """Release of a federation, k components of d columns, unchanged since it was signed.

    `document` is what was signed: guarantee, rounds, plan, and all of the result but its arrays. `public_key`
    is the raw Ed25519 key of the signer, which `verify_release` compares with the federation's. `result` has
    all results as arrays; the most used are properties here. `print` shows the components in sentences, with
    their loadings. Source: releases and public numbers only [P7].

    >>> from eigenveil import load_release
    >>> released = load_release("release.zip")
    >>> released.components.shape, released.columns, released.sites
    ((2, 3), ('c0', 'c1', 'c2'), ('north',))
    >>> released.loadings[0].strongest[0].column in released.columns
    True"""

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns, in the order of all arrays."""
        return self.result.columns

    @property
    def components(self) -> FloatArray:
        """Components of columns divided by `scale`. Shape: (k, d), orthonormal rows."""
        return self.result.components

    @property
    def explained_variance(self) -> FloatArray:
        """Variance along each component. Shape: (k,)."""
        return self.result.explained_variance

    @property
    def explained_variance_ratio(self) -> FloatArray:
        """Share of the released total variance. Shape: (k,)."""
        return self.result.explained_variance_ratio

    @property
    def mean(self) -> FloatArray:
        """Private mean, in the columns' units. Shape: (d,)."""
        return self.result.mean

    @property
    def scale(self) -> FloatArray:
        """Divisor of each column, in its unit. Shape: (d,)."""
        return self.result.scale

    @property
    def predicted_error(self) -> float | None:
        """Predicted sine of the largest angle to the components of the records, or None if unknown. 0 is
        exact, 1 is pure noise."""
        return self.result.predicted_sin_angle

    @property
    def guarantee(self) -> str:
        """Privacy guarantee as text."""
        return str(self.document["guarantee"]["text"])

    @property
    def sites(self) -> tuple[str, ...]:
        """All invited sites."""
        return self.study.federation.sites

    @property
    def study(self) -> Study:
        """Study of the release."""
        return planned_study(self.document["plan"])

    @property
    def loadings(self) -> tuple[ComponentLoadings, ...]:
        """Components with the loading of each column, its error, and a sentence."""
        return component_loadings(self.result)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings about the result, a sentence or two each."""
        return release_warnings(self)

    def to_dataframe(self) -> Any:
        """Return a DataFrame with a row for each column: unit, mean, scale, and its loading in each component
        with the error. Raises RequestError: code `bad-config`, pandas is not installed."""
        return release_dataframe(self)

    def to_sklearn(self, n_components: int | float | None = None, *, whiten: bool = False) -> PrivatePCA:
        """Return a fitted `PrivatePCA`, which transforms tables by the names of their columns. `n_components`
        is the number of components, or a share of the released variance that the fewest components must
        exceed; None is all. It sends no query and costs nothing [P7].
        Raises ValueError: no components were released, or fewer than requested."""
        from eigenveil.estimators.pca import PrivatePCA  # scikit-learn is another extra

        return PrivatePCA.from_release(self, n_components=n_components, whiten=whiten)

    def __repr__(self) -> str:
        return release_summary_text(self)

    def _repr_html_(self) -> str:
        return release_summary_html(self)


def load_release(source: str | os.PathLike[str] | bytes) -> ReleasedResult:
    """Return a release, if it is unchanged since it was signed; `verify_release` checks by whom.

    `source` is the path of a release.zip, or its bytes.

    Raises:
        RequestError: code `bad-release`: not a release, of another format, without a signature, or changed
            after signing; code `bad-argument`: the file cannot be read.

    >>> from eigenveil import load_release
    >>> released = load_release("release.zip")
    >>> released.guarantee[:14], released.components.shape
    ('NOT PRIVATE: t', (2, 3))
    >>> load_release(b"{}")
    Traceback (most recent call last):
    eigenveil.errors.RequestError: this is not an intact eigenveil release; ..."""
    signed = load_signed_release(file_bytes(source))
    return ReleasedResult(document=signed.document, result=signed.result, public_key=signed.public_key)
