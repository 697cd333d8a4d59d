"""The queries about leading directions and the rest: lengths and the clipped sum, over chunks of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from eigenveil.numerics.encoding import FloatArray, IntArray, frozen
from eigenveil.numerics.exact_sum import ExactSum
from eigenveil.queries import CrossCovariance, CrossNorms, CrossSpec
from eigenveil.queries.cross_covariance import INNER_BITS, OUTER_BITS
from eigenveil.queries.limits import WEIGHT
from eigenveil.site.kernels import clipping
from eigenveil.site.kernels.clipping import gradient_coefficients
from eigenveil.site.stored import Shown

CACHED = 2**15  # entries of a piece: it passes through the cache six times
WIDE = 64  # rows at least, so that a product with many columns is one of matrices


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Parts:
    """What records have of the leading directions, and the rest of them.

    Shape: a (m, k) = a, b (m, d) = b, integer-valued, norm2 (m,) = ||b||^2, norm (m,) = ||b||.
    """

    a: FloatArray
    b: FloatArray
    norm2: FloatArray
    norm: FloatArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Split:
    """A spec, ready for products; what is scaled is scaled by powers of two, which is exact.

    Shape: along (d, p) = U, back (p, d) = U^T / 2**OUTER_BITS, stretch (k,) and taken (p,).
    """

    along: FloatArray
    back: FloatArray
    stretch: FloatArray
    taken: FloatArray

    def __call__(self, z: FloatArray) -> _Parts:
        """Exact: PRIVACY.md [P28] bounds every sum of absolute products below 2**53 units. z becomes b."""
        y = z @ self.along
        a = y[:, : self.stretch.size] * self.stretch
        y *= self.taken
        np.rint(y, out=y)
        z -= y @ self.back
        np.rint(z, out=z)
        norm2 = np.vecdot(z, z)
        return _Parts(a=a, b=z, norm2=norm2, norm=np.sqrt(norm2))


def _split(spec: CrossSpec) -> _Split:
    along = spec.directions.astype(np.float64)
    return _Split(
        along=along,
        back=np.ascontiguousarray(along.T) * 2.0**-OUTER_BITS,
        stretch=spec.scales.astype(np.float64) * 2.0**-spec.shift,
        taken=np.concatenate([np.full(spec.k, WEIGHT), WEIGHT - spec.kept]) * 2.0**-INNER_BITS,
    )


def _parts(shown: Shown, spec: CrossSpec, most: int) -> Iterator[_Parts]:
    entries = max(WIDE * spec.centre.size, CACHED)
    return map(_split(spec), shown.centred(spec.centre, most, entries))


def cross_norms(shown: Shown, query: CrossNorms, chunk: int) -> IntArray:
    """Counts of records by ||a|| ||b||."""
    edges, counts = query.edges.astype(np.float64), np.zeros(query.length, dtype=np.int64)
    for part in _parts(shown, query.spec, chunk):
        norm = clipping.gradient_norms(part.a, None, part.norm, 0.0)
        counts += np.bincount(np.searchsorted(edges, norm, side="right"), minlength=query.length)
    return frozen(counts)


def cross_covariance(shown: Shown, query: CrossCovariance, chunk: int) -> IntArray:
    """Sum of b a'^T, a' from `clipping.gradient_coefficients` with b in z's place: d by k, row by row.

    Exactness: ||b|| ||a'|| <= R bounds every record's products.
    """
    total = ExactSum((query.spec.centre.size, query.spec.k), query.radius)
    for part in _parts(shown, query.spec, min(chunk, total.most)):
        short, _ = gradient_coefficients(part.a, None, part.norm, part.norm2, 0.0, query.radius)
        total.add(part.b.T @ short, len(short))
    return frozen(total.total().reshape(-1))
