"""Refinement of leading directions by their cross covariance with all others; last stage of refined-*.

To first order nothing else rotates the components. It has k (d - k) numbers at the sensitivity of |a| |b|,
a record's leading part times its rest, and a mean of about 0 for nearly right directions, so clipping affects
the tails and hardly the signal. After a weak first stage it is queried several times, in small steps."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from eigenveil.algorithms.shared.clip_radius import NormGrid, choose_radius, read_histogram
from eigenveil.algorithms.shared.preparation import (
    SMALL_SAMPLE,
    LocationEstimate,
    cost_of_share,
    effective_mu,
    query_at_share,
)
from eigenveil.algorithms.shared.query_builders import CrossQueryBuilder, weights
from eigenveil.algorithms.shared.stated_error import (
    SKEWNESS,
    centre_sine,
    clipping_bias,
    clipping_bias_factor,
    typical_sine,
)
from eigenveil.numerics.encoding import FloatArray
from eigenveil.numerics.linalg import eigenpairs, single_blas_thread
from eigenveil.protocol.estimate import StepsTo
from eigenveil.protocol.rounds import Release
from eigenveil.study.radius import quantile

# Of rho, for the one histogram of all steps; noise hides the tails of few records.
NORMS_SHARE, SMALL_NORMS_SHARE = 0.03, 0.05
SPARE = 32  # directions besides the leading ones with separate weights
# Number of steps below a stated sine of the first stage: a large error needs small steps.
STEPS = ((0.03, 1), (0.25, 2), (math.inf, 8))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AlignedCovariance:
    """Released estimate of a covariance in its own axes.

    Along `basis` the variances are known, falling, and cross covariances of the leading k and the others are
    0 up to `sd` (last column: with a direction outside of the basis, where the variance is `level`). A gap
    below `gap_noise` is noise, and `variance_sd` is the sd of a variance. `clipping_bias` is its square as a
    share of the variances (`stated_error.clipping_bias_factor`).

    Shape: basis (d, m), variances (m,), sd (k, m - k + 1)."""

    basis: FloatArray
    variances: FloatArray
    level: float
    sd: FloatArray
    gap_noise: float
    variance_sd: float
    clipping_bias: float = 0.0

    @property
    def k(self) -> int:
        return len(self.sd)

    @property
    def outside(self) -> int:
        """Return the number of directions outside of the basis."""
        return len(self.basis) - len(self.variances)

    def gaps(self) -> FloatArray:
        """Return gaps from the leading variances to all others and to the level outside, beyond their noise.
        Shape: (k, m - k + 1)."""
        others = np.append(self.variances[self.k :], self.level)
        found = np.maximum(self.variances[: self.k, None] - others, 0.0)
        return np.asarray(np.maximum(np.sqrt(np.maximum(found**2 - self.variance_sd**2, 0.0)), 1e-12))

    def _spread(self, columns: FloatArray) -> FloatArray:
        """Return a column for each direction outside. Shape: (k, m - k + 1) -> (k, d - k)."""
        return np.hstack([columns[:, :-1], np.repeat(columns[:, -1:], self.outside, axis=1)])

    def sine(self, start: LocationEstimate) -> float:
        """Return the stated error: from the sd of the cross covariance, clipping, and the centre's error."""
        gaps = self._spread(self.gaps())
        values = np.append(self.variances, np.full(self.outside, self.level))
        tilts = (self._spread(self.sd) / gaps) ** 2 + clipping_bias(self.clipping_bias, values, gaps)
        return min(1.0, math.hypot(typical_sine(tilts), centre_sine(start, gaps)))

    def turned(self, along: FloatArray, outside: FloatArray, noise: FloatArray) -> AlignedCovariance:
        """Return the estimate rotated by a noised cross covariance.

        Each entry is a weighted mean of the prior, 0 with `sd`, and the release; it then rotates the axes.

        Shape: along (k, m - k), outside (d, k), noise as `sd`."""
        prior, new = self.sd**2, noise**2
        trust = prior / (prior + new)
        # A change beyond both sds: the directions have not converged, and the true sd is larger.
        surprise = self._surprise(along, outside, prior + new)
        k, m = self.k, self.variances.size
        beyond, coefficients = self._beyond(outside * trust[:, -1])
        matrix = np.diag(np.append(self.variances, np.full(len(coefficients), self.level)))
        matrix[k:m, :k] = (along * trust[:, :-1]).T
        matrix[m:, :k] = coefficients
        matrix[:k, k:] = matrix[k:, :k].T
        _, axes = eigenpairs(matrix)
        with single_blas_thread():
            basis = np.hstack([self.basis, beyond]) @ _nearest(axes[:, :k])[:, :m]
        # The variances are unchanged: noise off the diagonal separates eigenvalues and would widen gaps.
        return replace(self, basis=basis, sd=np.sqrt(trust * new * surprise))

    def _beyond(self, outside: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return directions outside of the basis and coefficients of `outside` along them: (d, j), (j, k)."""
        m = self.variances.size
        if not self.outside:
            return self.basis[:, m:], np.zeros((0, self.k))
        # Together with the basis: then the part that `outside` does not span is outside of the basis as well.
        with single_blas_thread():
            frame, coefficients = np.linalg.qr(np.hstack([self.basis, outside]))
        return frame[:, m:], coefficients[m:, m:]

    def _surprise(self, along: FloatArray, outside: FloatArray, expected: FloatArray) -> float:
        """Return the mean squared change relative to its expectation, at least 1."""
        seen = float((along**2 / expected[:, :-1]).sum() + (outside**2 / expected[:, -1]).sum())
        return max(1.0, seen / (along.size + self.k * self.outside))


def _nearest(leading: FloatArray) -> FloatArray:
    """Return a rotation of all axes with first k spanning `leading`, each near its own axis. Unlike
    eigenvectors it is stable to the last bits where variances coincide, so that every machine makes the same
    next query. Shape: (m, k), orthonormal -> (m, m)."""
    k = leading.shape[1]
    frame, upper = np.linalg.qr(np.hstack([leading @ leading[:k].T, np.eye(len(leading))[:, k:]]))
    return np.asarray(frame * np.where(np.diagonal(upper) < 0, -1.0, 1.0))


def refine_directions(
    start: LocationEstimate, first: AlignedCovariance, share: float, steps: int
) -> StepsTo[AlignedCovariance]:
    """Return `first` after `steps` rotations by the noised cross covariance of its leading directions.

    Weights and radius are those of the first step: they follow from variances, which hardly change.
    Privacy: [P7] post-processing of one `CrossNorms` and some `CrossCovariance` queries [P28].
    Cost: `share` of rho, d k integers a step from every site."""
    norms = SMALL_NORMS_SHARE if start.records < SMALL_SAMPLE else NORMS_SHARE
    cross, left = cross_query_builder(start, first), share - norms
    radius, retained, bias_factor = yield from _clip(start, cross, norms, left)
    found = replace(first, clipping_bias=bias_factor)
    for _ in range(steps):
        cross = cross.about(found.basis[:, : cross.basis.shape[1]])
        query, unit = cross.query(radius)
        release = yield query_at_share(start.plan, query, left / steps)
        found = found.turned(*_entries(found, cross, release, unit * start.records * retained))
    return found


def cross_query_builder(start: LocationEstimate, first: AlignedCovariance) -> CrossQueryBuilder:
    """Return the query builder with optimal weights for the estimate."""
    p = min(first.k + SPARE, first.variances.size)
    rest, count = first.variances[p:], first.basis.shape[0] - p
    level = (float(rest.sum()) + first.level * first.outside) / count if count else first.level
    leading, spare = weights(first.variances[:p], first.k, level, count, first.gap_noise)
    return CrossQueryBuilder(centre=start.centre, basis=first.basis[:, :p], leading=leading, spare=spare)


def part_norm_grid(start: LocationEstimate) -> NormGrid:
    """Return the grid of the norms of records' parts: |a| |b| <= |z|^2 / 2."""
    return NormGrid(top=start.norms.largest**2 / 2)


def _clip(
    start: LocationEstimate, cross: CrossQueryBuilder, share: float, left: float
) -> StepsTo[tuple[float, float, float]]:
    """Return the clip by balance from one histogram at `share`, for all steps together at `left`. The radius
    of records' parts (analysis units), the share of their mean norm left by clipping, and the
    `clipping_bias_factor`."""
    plan, grid = start.plan, part_norm_grid(start)
    norms = read_histogram((yield query_at_share(plan, cross.norms(grid), share)), grid)
    noise = 2 * math.sqrt(cross.centre.size * cross.k) / effective_mu(plan, cost_of_share(plan, left))
    radius = choose_radius(norms, quantile(plan.study.radius), noise, power=1, quadratic=False)
    hidden = (SKEWNESS * norms.hidden_share(radius)) ** 2
    bias_factor = clipping_bias_factor(norms, radius, start.records, 1) + hidden
    return radius, norms.retained(radius, 1), bias_factor


def _entries(
    found: AlignedCovariance, cross: CrossQueryBuilder, release: Release, unit: float
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return a release along the basis, outside of it, and its noise (see `AlignedCovariance.turned`)."""
    along, rest, sd = cross.read(release, unit)
    further = found.basis[:, cross.basis.shape[1] :]
    entries = np.hstack([along, (further.T @ rest).T])
    noise = np.hstack([sd[:, :-1], np.repeat(sd[:, -1:], further.shape[1] + 1, axis=1)])
    return entries, rest - further @ (further.T @ rest), noise


def refinement_steps(sine: float) -> int:
    """Return the number of steps after a first stage of that stated error."""
    return next(steps for most, steps in STEPS if sine < most)
