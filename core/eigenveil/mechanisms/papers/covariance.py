"""Mechanisms on a Gram matrix and its rows: noised eigenvalues [P10], directions, a private radius."""

from __future__ import annotations

import numpy as np

from eigenveil.accounting.zcdp import Neighbours, mu, scale_of
from eigenveil.mechanisms.result import MechanismResult, noised
from eigenveil.noise.distributions import bingham
from eigenveil.noise.source import Block, NoiseSource, NoiseSpec
from eigenveil.numerics.encoding import FloatArray, IntArray, add_noise, frozen
from eigenveil.numerics.linalg import SLACK, eigenpairs, eigenvalues, orthogonal_complement, symmetric
from eigenveil.protocol.query import NoiseDistribution, PricedQuery
from eigenveil.queries import VECTOR, Eigenvectors, RadiusSearch, Spectrum
from eigenveil.queries.limits import ceil_sqrt
from eigenveil.study.study import Study


def rounded_eigenvalues(query: Spectrum, total: IntArray) -> IntArray:
    """Return the eigenvalues rounded to integers, falling. Shape: (query.length,) -> (d,)."""
    return frozen(np.rint(eigenvalues(symmetric(total, query.centre.size))).astype(np.int64))


def l2_bound(query: Spectrum, neighbours: Neighbours, multiplicity: int) -> int:
    """Return the L2 sensitivity of the rounded eigenvalues, rounded up.

    Sensitivity: sum_i (l_i(A) - l_i(B))^2 <= ||A - B||_F^2 (Hoffman & Wielandt), as for `Gram`; plus the
    error of floats and rounding on both sides, sqrt(d) (1 + 2 d 2^-48 max trace)."""
    moved = ceil_sqrt(query.radius**4 * neighbours.records)
    return multiplicity * moved + int(np.ceil(np.sqrt(query.centre.size) * _rounding_error(query))) + 1


def l1_bound(query: Spectrum, neighbours: Neighbours, multiplicity: int) -> int:
    """Return the L1 sensitivity of the rounded eigenvalues, rounded up.

    Sensitivity: a record raises each eigenvalue, by ||z||^2 <= R^2 in total (Weyl). A replacement is one
    removal and one addition."""
    moved = query.radius**2 * neighbours.records
    return multiplicity * moved + int(np.ceil(query.centre.size * _rounding_error(query))) + 1


def _rounding_error(query: Spectrum) -> float:
    """Return the error of an eigenvalue by floats and rounding, on both sides."""
    return 1 + 2 * query.centre.size * SLACK * float(query.records * query.radius**2)


def eigenvalue_noise_spec(priced: PricedQuery, query: Spectrum, study: Study) -> NoiseSpec:
    """Return the noise of the eigenvalues: public, so it can be drawn before the sum is known."""
    bound = l2_bound if priced.distribution is NoiseDistribution.GAUSSIAN else l1_bound
    largest = bound(query, study.neighbours, study.max_sites_per_person)
    return NoiseSpec.of(query.released_length, scale_of(largest**2, priced.micro_rho), priced.distribution)


def release_eigenvalues(
    priced: PricedQuery, query: Spectrum, total: IntArray, study: Study, noise: NoiseSource
) -> MechanismResult:
    """Release eigenvalues plus independent noise.
    Sensitivity: `l2_bound` (Gaussian) or `l1_bound` (Laplace).
    Privacy: [P10].
    Cost: priced.micro_rho."""
    return noised(rounded_eigenvalues(query, total), eigenvalue_noise_spec(priced, query, study), noise)


def score_range(query: Eigenvectors, neighbours: Neighbours, multiplicity: int) -> float:
    """Return the range, over directions u, of one person's change of the computed score u' C u.

    Sensitivity: a record adds (z.u)^2, which lies in [0, R^2]; a replacement changes
    it by (x.u)^2 - (y.u)^2, in [-R^2, R^2]. Floats change the decomposed matrix by at most 2 d 2^-48 trace on
    either side, hence four times that."""
    square = float(query.radius) ** 2
    moved = multiplicity * square * neighbours.records
    return moved + 8 * query.centre.size * SLACK * query.records * square


def release_eigenvectors(
    priced: PricedQuery, query: Eigenvectors, total: IntArray, study: Study, noise: NoiseSource
) -> MechanismResult:
    """Release `count` directions, the i-th from exp(t u' C u) among those orthogonal to the earlier ones.

    The exponential mechanism, one by one (Amin et al. 2019).
    Sensitivity: `score_range`, D; epsilon_i = t D.
    Privacy: [P13]; [P14] for the effect of floats.
    Cost: epsilon = sqrt(2 rho), divided evenly among the directions; the last of d follows from the others.
    """
    d = query.centre.size
    epsilon = mu(priced.micro_rho) / max(1, min(query.count, d - 1))
    steepness = epsilon / score_range(query, study.neighbours, study.max_sites_per_person)
    vectors = directions(symmetric(total, d) * steepness, query.count, noise)
    return MechanismResult(frozen(np.rint(vectors * VECTOR).astype(np.int64).reshape(-1)))


def directions(exponents: FloatArray, count: int, noise: NoiseSource) -> FloatArray:
    """Return `count` orthonormal directions from exp(u' E u). Shape: (d, d), symmetric -> (count, d)."""
    basis = np.eye(len(exponents))
    out = []
    for _ in range(count):
        inside = basis.T @ exponents @ basis
        values, vectors = eigenpairs((inside + inside.T) / 2)
        u = vectors @ bingham(values, noise)
        out.append(basis @ u)
        basis = basis @ orthogonal_complement(u)
    return np.array(out)


def counts_beyond(total: IntArray) -> IntArray:
    """Return the number of records at or beyond each edge. Shape: total (b + 1,) -> (b,).

    One person changes each entry by at most the number of their sites. With one site all entries change in
    the same direction, also under replacement: the record of larger norm counts at more edges."""
    return frozen(np.cumsum(total[::-1])[::-1][1:])


def radius_noise_spec(query: RadiusSearch, micro_rho: int, study: Study) -> NoiseSpec:
    """Return the noise of the limit, then of each count: epsilon / 2 each, for counts that change by s.
    Counts that all change in one direction need it once; otherwise (replacement at several sites) twice."""
    sites, distribution = study.max_sites_per_person, NoiseDistribution.LAPLACE
    count_sensitivity = study.neighbours.records if sites > 1 else 1
    limit, count = (scale_of((2 * times * sites) ** 2, micro_rho) for times in (1, count_sensitivity))
    blocks = (
        Block(count=1, scale=limit, distribution=distribution),
        Block(count=query.edges.size, scale=count, distribution=distribution),
    )
    return NoiseSpec(blocks=blocks)


def release_radius(
    priced: PricedQuery, query: RadiusSearch, total: IntArray, study: Study, noise: NoiseSource
) -> MechanismResult:
    """Release the first j with counts[j] + noise_j <= limits[j] + noise, or the number of edges.

    The first radius with few records beyond it, by the sparse vector technique (AboveThreshold).
    Sensitivity: see `statistic`.
    Privacy: [P12].
    Cost: epsilon = sqrt(2 rho), whatever the number of edges."""
    drawn = noise.draw(radius_noise_spec(query, priced.micro_rho, study))
    limits = add_noise(query.limits, np.repeat(drawn[:1], query.limits.size))
    few = add_noise(counts_beyond(total), drawn[1:]) <= limits
    return MechanismResult(frozen([int(few.argmax()) if few.any() else query.edges.size]))
