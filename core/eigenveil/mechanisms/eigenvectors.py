"""Directions of a Gram matrix by the exponential mechanism, one after the other (Amin et al. 2019)."""

from __future__ import annotations

import numpy as np

from eigenveil.accounting.neighbours import Neighbours
from eigenveil.accounting.zcdp import mu
from eigenveil.mechanisms.outcome import Outcome
from eigenveil.noise.bingham import bingham
from eigenveil.noise.source import NoiseSource
from eigenveil.numerics.encoding import FloatArray, IntArray, frozen
from eigenveil.numerics.linalg import SLACK, complement, eigenpairs, symmetric
from eigenveil.protocol.query import RoundQuery
from eigenveil.queries import VECTOR, Eigenvectors
from eigenveil.study.study import Study


def score_range(query: Eigenvectors, neighbours: Neighbours, multiplicity: int) -> float:
    """max - min over directions u of how much one person moves the score u' C u, as computed.

    Sensitivity: a record adds (z.u)^2, which lies in [0, R^2]; a replaced one moves it by
    (x.u)^2 - (y.u)^2, in [-R^2, R^2]. Floats move the matrix that is decomposed by at most 2 d 2^-48 trace
    on either side, hence four times that.
    """
    square = float(query.radius) ** 2
    moved = multiplicity * square * neighbours.records
    return moved + 8 * query.centre.size * SLACK * query.records * square


def release(
    asked: RoundQuery, query: Eigenvectors, total: IntArray, study: Study, noise: NoiseSource
) -> Outcome:
    """`count` directions, the i-th from exp(t u' C u) among those at right angles to the ones before.

    Neighbours: as the study says.
    Sensitivity: `score_range`, D; epsilon_i = t D.
    Privacy: [P13]; [P14] says what floats leave open.
    Cost: epsilon = sqrt(2 rho), divided evenly among the directions (the last of d follows from the others).
    """
    d = query.centre.size
    epsilon = mu(asked.micro_rho) / max(1, min(query.count, d - 1))
    steepness = epsilon / score_range(query, study.neighbours, study.max_sites_per_person)
    vectors = directions(symmetric(total, d) * steepness, query.count, noise)
    return Outcome(values=frozen(np.rint(vectors * VECTOR).astype(np.int64).reshape(-1)), sigma=0.0)


def directions(exponents: FloatArray, count: int, noise: NoiseSource) -> FloatArray:
    """`count` orthonormal directions from exp(u' E u). Shape: exponents (d, d), symmetric -> (count, d)."""
    basis = np.eye(len(exponents))
    out = []
    for _ in range(count):
        inside = basis.T @ exponents @ basis
        values, vectors = eigenpairs((inside + inside.T) / 2)
        u = vectors @ bingham(values, noise)
        out.append(basis @ u)
        basis = basis @ complement(u)
    return np.array(out)
