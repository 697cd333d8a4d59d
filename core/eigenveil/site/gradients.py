"""The queries about gradients: how long they are, and their clipped sum, over chunks of the rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from eigenveil.numerics.encoding import FloatArray, IntArray, check_exact, frozen
from eigenveil.numerics.exact_sum import ExactSum
from eigenveil.queries import Gradient, GradientNorms, GradientSpec, ShuffledRecord
from eigenveil.queries.limits import OFFSET_STEPS, root_up
from eigenveil.site.kernels import clipping
from eigenveil.site.stored import Chunk, Shown
from eigenveil.study.grid import S


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Pulls:
    """A chunk of centred records, and what they have of a spec.

    Shape: z (m, d) in a chunk, a (m, k) = z W / 2**shift, z_offset (m, k) = z offset (None where offset = 0),
    norm2 (m,) = ||z||^2.
    """

    z: Chunk
    a: FloatArray
    z_offset: FloatArray | None
    norm2: FloatArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Side:
    """The public matrices of a spec, side by side so that one product serves both.

    Shape: matrix (d, k) = W / 2**shift, or (d, 2 k) = [W / 2**shift, offset] where offset is not 0;
    offset2 = ||offset||_F^2.
    """

    matrix: FloatArray
    k: int
    offset2: float

    def __call__(self, z: Chunk) -> _Pulls:
        """Exact: sums of integers below 2**53, those of a in units of 2**-shift."""
        product, norm2 = z.along(self.matrix)
        z_offset = product[:, self.k :] if self.offset2 else None
        return _Pulls(z=z, a=product[:, : self.k], z_offset=z_offset, norm2=norm2)


def _side(spec: GradientSpec) -> _Side:
    given = [spec.directions, spec.offset] if spec.offset.any() else [spec.directions]
    check_exact(2.0 * S * spec.centre.size * float(max(np.abs(one).max(initial=0) for one in given)))
    scaled = [spec.directions * 2.0**-spec.shift, *given[1:]]
    return _Side(matrix=np.hstack(scaled), k=spec.k, offset2=float((spec.offset**2).sum()))


def _pulls(shown: Shown, side: _Side, spec: GradientSpec, most: int) -> Iterator[_Pulls]:
    return map(side, shown.chunks(spec.centre, most))


def gradient_norms(shown: Shown, query: GradientNorms, chunk: int) -> IntArray:
    """Counts of records by 2**shift times the norm of their gradient."""
    side, edges = _side(query.spec), query.edges.astype(np.float64)
    counts = np.zeros(query.length, dtype=np.int64)
    for one in _pulls(shown, side, query.spec, chunk):
        norm = clipping.gradient_norms(one.a, one.z_offset, np.sqrt(one.norm2), side.offset2)
        norm *= 2.0**query.spec.shift
        counts += np.bincount(np.searchsorted(edges, norm, side="right"), minlength=query.length)
    return frozen(counts)


def gradient(shown: Shown, query: Gradient | ShuffledRecord, chunk: int) -> IntArray:
    """Sum of z b^T - u offset (see `clipping.gradient_coefficients`), the d-by-k matrix row by row.

    Exactness: ||z b^T||_F <= R + OFFSET_STEPS ||offset||_F for every kept record.
    """
    spec, side, offsets = query.spec, _side(query.spec), 0
    longest = query.radius + OFFSET_STEPS * root_up(int((spec.offset**2).sum()))
    total = ExactSum((spec.k, spec.centre.size), longest)
    for one in _pulls(shown, side, spec, min(chunk, total.most)):
        b, u = one.z.coefficients(one.a, one.z_offset, one.norm2, side.offset2, query.radius)
        total.add(one.z.combined(b), len(b))
        offsets += 0 if u is None else int(u.sum())
    return frozen((total.total().T - offsets * spec.offset).reshape(-1))
