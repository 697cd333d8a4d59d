"""A released covariance of some columns, and how far its known noise moves what is read off it.

To first order an answer f moves by the sum of W_ij E_ij where W is its derivative and E the noise, of which
every entry's sd is known: so its standard error is exact algebra, and the same whenever it is asked for.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from eigenveil.errors import Code, RequestError
from eigenveil.numerics.blas import one_thread
from eigenveil.numerics.encoding import FloatArray
from eigenveil.numerics.linalg import eigenpairs
from eigenveil.protocol.estimate import MatrixNoise

# An entry that clipping bends is off by about this part of what it took, in parts of its columns' spread: 0.2
# to 0.7 on clinical tables. A guess and no law, which is said where less than CLIPPED of the length was kept.
BENT, CLIPPED = 0.5, 0.9995
BLURRED = 3.0  # sds of the noise on a variance, up to which nothing is made of it


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Noised:
    """Shape: values (m, m), the noised covariance of `columns` divided by `scale`; scale and mean (m,) in the
    columns' own units; divided (m,), what the release divided them by once more. `records` is the noised
    count, `wandering` the variance of the mean's noise in each column, in the units of `values`. `repaired`
    is how far `positive` lifted the least variance."""

    columns: tuple[str, ...]
    values: FloatArray
    scale: FloatArray
    mean: FloatArray
    records: float
    noise: MatrixNoise
    wandering: float
    divided: FloatArray
    repaired: float = 0.0

    def of(self, names: Sequence[str]) -> Noised:
        """The same of these columns alone, in this order.

        Raises:
            RequestError: a name is unknown, or there twice.
        """
        at = [self._place(name) for name in names]
        if len(set(at)) < len(at):
            raise RequestError(Code.BAD_ARGUMENT, f"a column is named twice: {', '.join(names)}")
        return replace(
            self,
            columns=tuple(names),
            values=self.values[np.ix_(at, at)],
            scale=self.scale[at],
            mean=self.mean[at],
            divided=self.divided[at],
        )

    def _place(self, name: str) -> int:
        if name in self.columns:
            return self.columns.index(name)
        near = difflib.get_close_matches(name, self.columns, n=3) or list(self.columns[:8])
        raise RequestError(
            Code.BAD_ARGUMENT, f"the release has no column {name!r}; it has, among others: {', '.join(near)}"
        )

    def positive(self) -> Noised:
        """The nearest matrix whose least variance is that of the noise: a covariance that can be inverted.

        Below its own sd a variance along a direction is noise. Answers at that floor have the shortest
        intervals of those tried whose coverage does not suffer (benchmarks/derived.py).
        """
        values, vectors = eigenpairs(self.values)
        least = self.noise.off_diagonal
        if values[-1] >= least:
            return self
        lifted = np.asarray((vectors * np.maximum(values, least)) @ vectors.T)
        return replace(self, values=lifted, repaired=float(least - values[-1]))

    def errors(self, forms: FloatArray) -> FloatArray:
        """The sd of sum_ij W_ij E_ij for the errors E of this matrix. Shape: forms (..., m, m) -> (...)."""
        twice = 2 * self.entries**2  # an entry off the diagonal stands there twice, and is one error
        np.fill_diagonal(twice, np.diag(twice) / 2)
        together = (forms * self.values).sum(axis=(-2, -1)) * self.stretch
        return np.asarray(np.sqrt((forms**2 * twice).sum(axis=(-2, -1)) + together**2))

    @property
    def entries(self) -> FloatArray:
        """The sd of each entry: the noise, the square of the mean's own, and what clipping bends (`BENT`).

        Shape: (m, m), symmetric.
        """
        here = np.eye(len(self.columns))
        noise = np.where(here, self.noise.diagonal, self.noise.off_diagonal)
        sizes = np.sqrt(np.maximum(np.diag(self.values), 0.0))
        bent = BENT * (1 - self.noise.kept) * np.outer(sizes, sizes) * (1 + (math.sqrt(2) - 1) * here)
        return np.asarray(np.sqrt(noise**2 + self.wandering**2 * (1 + 2 * here) + bent**2))

    @property
    def blurred(self) -> NDArray[np.bool_]:
        """Columns whose variance noise may make up: nothing divided by it is known. Shape: (m,)."""
        return np.asarray(np.diag(self.values) < BLURRED * self.noise.diagonal)

    @property
    def stretch(self) -> float:
        """By how much of themselves all entries may be off together: the count, and what clipping took and
        was put back on average."""
        return math.hypot(self.noise.count, 1 - self.noise.kept)

    def notes(self) -> tuple[str, ...]:
        """What every answer of this matrix has to be read with."""
        said = []
        if self.repaired:
            said.append(
                "noise left these columns without a proper covariance: directions of less variance than the "
                "noise were given as much as that, and the errors are those at the matrix so mended"
            )
        if names := [name for name, hidden in zip(self.columns, self.blurred, strict=True) if hidden]:
            said.append(
                f"noise may make up all of the variance of {', '.join(names)}: no correlation of theirs is "
                "known, and what is divided by their standard deviations is no more than a guess"
            )
        if self.noise.kept < CLIPPED:
            said.append(
                f"clipping kept about {self.noise.kept:.2%} of the records' squared length, and the errors "
                "hold a guess of what that bends, which is too small for columns of few ones or far values: "
                'a study with radius = "none" has none of it'
            )
        if self.noise.divided:
            said.append(
                "values beyond 7 standard deviations of a column counted as that, as the ones do where fewer "
                'than 2 in 100 are: what it changes is in no error; scaling = "bounds" has none of it'
            )
        return tuple(said)


def inverted(matrix: FloatArray) -> FloatArray:
    """Its inverse, on one thread. Shape: (m, m) -> (m, m)."""
    with one_thread():
        return np.asarray(np.linalg.inv(matrix), dtype=np.float64)
