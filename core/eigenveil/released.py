"""What a federation released, as arrays and words: from release.json to tables, pictures and estimators.

The one module of core that reads a file, because whoever analyses a release has one.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from eigenveil.errors import Code, RequestError
from eigenveil.numerics.encoding import FloatArray, canonical
from eigenveil.reporting.cards import release_card, release_lines
from eigenveil.reporting.result import Result
from eigenveil.reporting.verify import load_release as intact
from eigenveil.study.study import Study
from eigenveil.study.toml import study_from_dict

if TYPE_CHECKING:
    from eigenveil.estimators.pca import PrivatePCA


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ReleasedResult:
    """What a federation released, k components of d columns, intact as somebody signed it.

    `document` is all that was signed: guarantee, result, rounds and plan; `public_key` the raw Ed25519 key of
    whoever signed it, which `verify_release` holds against the federation's. `result` is what was found, as
    arrays; the most asked for of it are properties here. Source: releases and public numbers only [P7].

    >>> from eigenveil import load_release
    >>> released = load_release("release.json")
    >>> released.components.shape, released.columns, released.sites
    ((2, 3), ('c0', 'c1', 'c2'), ('north',))
    """

    document: dict[str, Any]
    public_key: bytes
    result: Result

    @property
    def columns(self) -> tuple[str, ...]:
        """Their names, in the order of every array here."""
        return self.result.columns

    @property
    def components(self) -> FloatArray:
        """Shape: (k, d), orthonormal rows, about columns divided by `scale`."""
        return self.result.components

    @property
    def explained_variance(self) -> FloatArray:
        """Along each component. Shape: (k,)."""
        return self.result.explained_variance

    @property
    def explained_variance_ratio(self) -> FloatArray:
        """Of the released total. Shape: (k,)."""
        return self.result.explained_variance_ratio

    @property
    def mean(self) -> FloatArray:
        """The private mean, in the columns' own units. Shape: (d,)."""
        return self.result.mean

    @property
    def scale(self) -> FloatArray:
        """What each column is divided by, in its own unit. Shape: (d,)."""
        return self.result.scale

    @property
    def predicted_error(self) -> float | None:
        """The predicted sine of the largest angle to the records' own components: 0 is exact, 1 is noise;
        None where it is not known."""
        return self.result.predicted_sin_angle

    @property
    def guarantee(self) -> str:
        """What is guaranteed, in words."""
        return str(self.document["guarantee"]["words"])

    @property
    def sites(self) -> tuple[str, ...]:
        """All that were invited."""
        return self.study.federation.sites

    @property
    def study(self) -> Study:
        """What was asked."""
        return study_from_dict(self.document["plan"]["study"])

    def to_sklearn(self, n_components: int | float | None = None, *, whiten: bool = False) -> PrivatePCA:
        """A fitted `PrivatePCA`, which transforms tables by the names of their columns.

        It keeps all released components, so many of them, or the fewest that hold more than a share of the
        released variance. Nothing is asked and nothing spent [P7].

        Raises:
            ValueError: the study released no components, or fewer than are wanted.
        """
        from eigenveil.estimators.pca import PrivatePCA  # scikit-learn is another extra

        return PrivatePCA.from_document(self.document, n_components=n_components, whiten=whiten)

    def __repr__(self) -> str:
        return release_lines(self.document)

    def _repr_html_(self) -> str:
        return release_card(self.document)


def load_release(source: str | os.PathLike[str] | bytes | Mapping[str, Any]) -> ReleasedResult:
    """A release, if it is as somebody signed it: `verify_release` says who.

    `source` is the path of a release.json, its bytes, or what they say as a mapping.

    Raises:
        RequestError: code `bad-release`: not a release, of an older format, without a signature, or changed
            after signing; code `bad-argument`: the file cannot be read.

    >>> from eigenveil import load_release
    >>> released = load_release("release.json")
    >>> released.guarantee[:14], released.components.shape
    ('NOT PRIVATE: t', (2, 3))
    >>> load_release(b"{}")
    Traceback (most recent call last):
    eigenveil.errors.RequestError: this is not an intact eigenveil release; ...
    """
    signed = intact(_bytes(source))
    return ReleasedResult(document=signed.document, public_key=signed.public_key, result=signed.result)


def _bytes(source: str | os.PathLike[str] | bytes | Mapping[str, Any]) -> bytes:
    if isinstance(source, bytes):
        return source
    if isinstance(source, Mapping):
        return canonical(dict(source))
    try:
        with open(source, "rb") as file:
            return file.read()
    except OSError as problem:
        why = problem.strerror or "it cannot be read"
        raise RequestError(Code.BAD_ARGUMENT, f"{os.fspath(source)}: {why}") from problem
