"""A site that answers in floats: the reference for what the grid of the bounds and its roundings cost.

Records are scaled and not rounded, and nothing is truncated; only the sum over all records is a whole number.
Centres, directions and radii are public numbers of the queries, and stay as they are."""

from __future__ import annotations

import numpy as np

from benchmarks.accuracy.runs import scaled
from eigenveil.noise.seeded import SeededNoise
from eigenveil.numerics.encoding import FloatArray, IntArray, frozen
from eigenveil.numerics.linalg import sin_angle, single_blas_thread
from eigenveil.planning.choose import make_plan
from eigenveil.queries import ClippedSum, Count, CrossCovariance, CrossNorms, CrossSpec, Frame, Gram, Query
from eigenveil.queries.cross_covariance import INNER_BITS, OUTER_BITS
from eigenveil.queries.limits import WEIGHT
from eigenveil.queries.rows import RowBins
from eigenveil.session import Session
from eigenveil.simulation import MemoryJournal, run_study
from eigenveil.site.record_view import ParallelMap, to_grid
from eigenveil.site.site import Site
from eigenveil.study.grid import S
from eigenveil.study.study import Study


class FloatSite(Site):
    """Site of one study's records that answers the queries of gauss-cov and refined-cov without rounding."""

    def __init__(self, records: FloatArray, study: Study) -> None:
        super().__init__(to_grid(records, study))
        self._points = scaled(records, study) * S

    def answer(self, query: Query, apply: ParallelMap = map, *, frame: Frame | None = None) -> IntArray:
        """Return the sum, rounded once. Shape: (query.length,)."""
        match query:
            case Count():
                return frozen([len(self)])
            case RowBins():
                return _counts(query.edges, _norms(self._points - query.centre))
            case ClippedSum():
                return _whole(WEIGHT * _clipped(self._points - query.centre, query.radius).sum(axis=0))
            case Gram():
                z = _clipped(self._points - query.centre, query.radius)
                product = z.T @ z
                return _whole(
                    np.concatenate([np.diagonal(product), product[np.triu_indices_from(product, 1)]])
                )
            case CrossNorms():
                a, b = _split(self._points, query.spec)
                return _counts(query.edges, _norms(a) * _norms(b))
            case CrossCovariance():
                a, b = _split(self._points, query.spec)
                norms = np.maximum(_norms(a) * _norms(b), 1e-300)
                return _whole((b.T @ (a * np.minimum(1, query.radius / norms)[:, None])).ravel())
            case _:
                raise TypeError(f"no answer in floats to {query}")


def _norms(rows: FloatArray) -> FloatArray:
    return np.asarray(np.sqrt(np.vecdot(rows, rows)))


def _counts(edges: IntArray, norms: FloatArray) -> IntArray:
    return frozen(np.bincount(np.searchsorted(edges, norms, side="right"), minlength=edges.size + 1))


def _clipped(rows: FloatArray, radius: int) -> FloatArray:
    return np.asarray(rows * np.minimum(1, radius / np.maximum(_norms(rows), 1e-300))[:, None])


def _split(points: FloatArray, spec: CrossSpec) -> tuple[FloatArray, FloatArray]:
    """Return the parts along the leading directions and the rests of all records: (n, k), (n, d)."""
    z = points - spec.centre
    y = z @ spec.directions.astype(np.float64)
    removed = np.concatenate([np.full(spec.k, WEIGHT), WEIGHT - spec.retained]) * 2.0 ** -(
        INNER_BITS + OUTER_BITS
    )
    rest = (z - (y * removed) @ spec.directions.T) * 2.0**spec.fraction_bits
    return y[:, : spec.k] * (spec.scales * 2.0**-spec.shift), rest


def _whole(sums: FloatArray) -> IntArray:
    return frozen(np.rint(sums).astype(np.int64))


def run_in_floats(study: Study, records: FloatArray, truth: FloatArray, seed: int) -> tuple[float, float]:
    """Return the true and the stated sine of one run with such a site."""
    plan = make_plan(study)
    session, sites = Session(plan), {"all": FloatSite(records, study)}
    with single_blas_thread():
        run_study(session, sites, journal=MemoryJournal(plan), noise=SeededNoise(seed))
    stated = session.result.sin_error
    return sin_angle(session.result.components, truth), np.nan if stated is None else stated
