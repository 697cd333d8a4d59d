"""Refinement of leading directions by their cross covariance with all others; last stage of refined-*.

To first order nothing else rotates the components. It has k (d - k) numbers at the sensitivity of |a| |b|,
a record's leading part times its rest, and a mean of about 0 for nearly right directions, so clipping affects
the tails and hardly the signal. After a weak first stage it is queried several times, in small steps."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np

from eigenveil.algorithms.shared.clip_radius import LONG_TAIL, NormGrid, choose_radius, read_histogram
from eigenveil.algorithms.shared.preparation import (
    SMALL_SAMPLE,
    LocationEstimate,
    cost_of_share,
    effective_mu,
    keeps_fractions,
    query_at_share,
)
from eigenveil.algorithms.shared.query_builders import CrossQueryBuilder, fraction_bits, weights
from eigenveil.algorithms.shared.stated_error import (
    centre_sine,
    clipping_bias,
    product_bias_factor,
    rounding_error,
    rounding_variance,
    typical_sine,
)
from eigenveil.numerics.arrow import leading_rotation
from eigenveil.numerics.encoding import FloatArray
from eigenveil.numerics.linalg import eigenpairs, single_blas_thread
from eigenveil.protocol.estimate import StepsTo
from eigenveil.protocol.rounds import Release
from eigenveil.queries.limits import WEIGHT
from eigenveil.study.grid import S
from eigenveil.study.radius import quantile

# Of rho, for the one histogram of all steps; noise hides the tails of few records.
NORMS_SHARE, SMALL_NORMS_SHARE = 0.03, 0.05
# Least radius after a prior, in root mean square norms of parts. In a histogram of few records a bin of noise
# may be the only significant one: a radius of a tenth clips nearly all, and their small sum seems to say that
# the prior's axes are exact.
LEAST_RADIUS = 1.0
SPARE = 32  # directions besides the leading ones with separate weights
# Fewer of them, and the noise that these may add, as a factor: a site's time is in proportion to the
# directions. On five generated spectra the true sine followed `_tilt_noise` within 2 %. On real tables a
# factor of 1.03 cost up to 9 % of the error (BRFSS, pixels), and 1.01 at most 1.3 % (NHANES I).
FEWER_SPARE, WASTE = (0, 4, 8, 12, 16), 1.01
# Number of steps below a stated sine of the first stage: a large error needs small steps.
STEPS = ((0.03, 1), (0.25, 2), (math.inf, 8))

# Mean distance, in sd of a variance, of two eigenvalues that are equal without noise: of a 2-by-2 matrix with
# sd s on its diagonal and s / sqrt 2 beside it, (a - c)^2 + 4 b^2 has the mean 4 s^2.
APART = 2.0
# Factor of a stated tilt, whose median was above the true one (`python -m benchmarks.stated_error`, seeds 0
# to 23).
TYPICAL = 0.85


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AlignedCovariance:
    """Released estimate of a covariance in its own axes.

    Along `basis` the variances are known, falling, and cross covariances of the leading k and the others are
    0 up to `sd` (last column: with a direction outside of the basis, where the variance is `level`). A gap
    below `gap_noise` is noise, and `variance_sd` is the sd of a variance. `clipping_bias` is its square as a
    share of the variances (`stated_error.clipping_bias_factor`). `rounding` is the variance of an entry of
    each leading direction by rounding the records' rests, 0 where that is not stated.

    Shape: basis (d, m), variances (m,), sd (k, m - k + 1), rounding (k,) or (1,)."""

    basis: FloatArray
    variances: FloatArray
    level: float
    sd: FloatArray
    gap_noise: float
    variance_sd: float
    clipping_bias: float = 0.0
    rounding: FloatArray = field(default_factory=lambda: np.zeros(1))

    @property
    def k(self) -> int:
        return len(self.sd)

    @property
    def outside(self) -> int:
        """Return the number of directions outside of the basis."""
        return len(self.basis) - len(self.variances)

    @property
    def all_variances(self) -> FloatArray:
        """Return the variances along the basis, then the level of each direction outside. Shape: (d,)."""
        return np.append(self.variances, np.full(self.outside, self.level))

    def gaps(self) -> FloatArray:
        """Return gaps from the leading variances to all others and to the level outside, beyond their noise.
        Shape: (k, m - k + 1)."""
        others = np.append(self.variances[self.k :], self.level)
        found = np.maximum(self.variances[: self.k, None] - others, 0.0)
        return np.asarray(np.maximum(np.sqrt(np.maximum(found**2 - self.variance_sd**2, 0.0)), 1e-12))

    def spread(self, columns: FloatArray) -> FloatArray:
        """Return a column for each direction outside. Shape: (k, m - k + 1) -> (k, d - k)."""
        return np.hstack([columns[:, :-1], np.repeat(columns[:, -1:], self.outside, axis=1)])

    def _tilts(self, gaps: FloatArray) -> FloatArray:
        """Return the variances of all tilts over these gaps, by the noise of the cross covariance, clipping
        and rounding of rests. Shape: (k, d - k) -> (k, d - k)."""
        clipping = clipping_bias(self.clipping_bias, self.all_variances, gaps)
        return np.asarray((self.spread(self.sd) / gaps) ** 2 + clipping + self.rounding[:, None] / gaps**2)

    def sine(self, start: LocationEstimate) -> float:
        """Return the stated error: from the sd of the cross covariance, clipping, rounding, and the centre's
        error."""
        gaps = self.spread(self.gaps())
        rounding = rounding_error(start, self.all_variances, gaps)
        return min(1.0, math.hypot(typical_sine(self._tilts(gaps)), centre_sine(start, gaps), rounding))

    def clear_gaps(self, least: float = 1.0, apart: float = APART) -> FloatArray:
        """Return `gaps` less what noise adds: it moves two equal variances `apart` sd apart. A gap below
        `least` sd is not known. Shape: (k, m - k + 1)."""
        others, sd = np.append(self.variances[self.k :], self.level), max(self.variance_sd, 1e-12)
        found = np.maximum(self.variances[: self.k, None] - others, 0.0)
        return np.asarray(np.sqrt(np.maximum(found**2 - (apart * sd) ** 2, (least * sd) ** 2)))

    def stated_sine(self, start: LocationEstimate, least: float = 1.0, apart: float = APART) -> float:
        """Return the stated error by `clear_gaps`: about the median of the true one. A tilt of tangent t has
        the sine t / sqrt(1 + t^2), which no gap that is not known makes 1 by itself."""
        gaps = self.spread(self.clear_gaps(least, apart))
        typical = TYPICAL * typical_sine(self._tilts(gaps))
        others = math.hypot(centre_sine(start, gaps), rounding_error(start, self.all_variances, gaps))
        return math.sin(math.atan(math.hypot(typical, others)))

    def turned(
        self, along: FloatArray, outside: FloatArray, noise: FloatArray, *, direct: bool
    ) -> AlignedCovariance:
        """Return the estimate rotated by a noised cross covariance.

        Each entry is a weighted mean of the prior, 0 with `sd`, and the release; it then rotates the axes,
        by the direct rotation or, as revisions before the fractions, by `_nearest`.

        Shape: along (k, m - k), outside (d, k), noise as `sd`."""
        prior, new = self.sd**2, noise**2
        trust = prior / (prior + new)
        # A change beyond both sds: the directions have not converged, and the true sd is larger.
        surprise = self._surprise(along, outside, prior + new)
        k, m = self.k, self.variances.size
        beyond, coefficients = self._beyond(outside * trust[:, -1])
        diagonal = np.append(self.variances, np.full(len(coefficients), self.level))
        arms = np.vstack([(along * trust[:, :-1]).T, coefficients])
        if direct and not arms.any():
            basis = self.basis
        elif direct:
            others = np.hstack([self.basis[:, k:], beyond])
            basis = leading_rotation(diagonal, arms).applied(self.basis[:, :k], others, m - k)
        else:
            basis = _turned_by_nearest(diagonal, arms, np.hstack([self.basis, beyond]), m)
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


def _turned_by_nearest(diagonal: FloatArray, arms: FloatArray, basis: FloatArray, m: int) -> FloatArray:
    """Return the first m axes of the basis after `_nearest` for the leading axes of an arrow matrix. Shape:
    (d, j) -> (d, m)."""
    k = arms.shape[1]
    matrix = np.diag(diagonal)
    matrix[k:, :k] = arms
    matrix[:k, k:] = arms.T
    _, axes = eigenpairs(matrix)
    with single_blas_thread():
        return np.asarray(basis @ _nearest(axes[:, :k])[:, :m])


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
    least = 0.0 if start.plan.study.prior is None else LEAST_RADIUS * math.sqrt(_part_square(first, cross))
    radius, retained, bias_factor = yield from _clip(start, cross, norms, left, least)
    found = replace(first, clipping_bias=bias_factor)
    for _ in range(steps):
        cross = cross.about(found.basis[:, : cross.basis.shape[1]])
        query, unit = cross.query(radius)
        release = yield query_at_share(start.plan, query, left / steps)
        entries = _entries(start, found, cross, release, unit * start.records * retained)
        found = found.turned(*entries, direct=keeps_fractions(start.plan))
    return replace(found, rounding=_rest_rounding(start, found, cross))


def _rest_rounding(start: LocationEstimate, found: AlignedCovariance, cross: CrossQueryBuilder) -> FloatArray:
    """Return the variance of an entry of each leading direction by rounding rests, (k,); 0 where the plan's
    revision does not state it. By chance as of rounding records, and what rounding leaves of a normal part of
    standard deviation t units in a column: its share 2 exp(-2 pi^2 t^2), up to 1."""
    if not keeps_fractions(start.plan):
        return np.zeros(found.k)
    fine, variances = 4.0**cross.fraction_bits, found.variances[: found.k]
    removed = np.append(np.ones(cross.k), 1 - cross.spare / WEIGHT)
    square = cross.basis**2 @ (removed**2 * found.variances[: removed.size]) * (S**2 * fine)
    left = np.minimum(2 * np.exp(-2 * math.pi**2 * square), 1.0)
    bias = ((left[:, None] * cross.basis[:, : cross.k]) ** 2).sum(axis=0) * variances**2
    chance = rounding_variance(start.plan) / fine * variances / start.records
    return np.asarray(chance + bias / max(len(cross.basis) - cross.k, 1))


def cross_query_builder(start: LocationEstimate, first: AlignedCovariance) -> CrossQueryBuilder:
    """Return the query builder with optimal weights for the estimate, of as few spare directions as hardly
    add noise: a site's time grows with them."""
    most = _weighted(start, first, SPARE)
    if not keeps_fractions(start.plan):
        return most
    fewer = (_weighted(start, first, spare) for spare in FEWER_SPARE)
    limit = WASTE**2 * _tilt_noise(first, most)
    cross = next((one for one in fewer if _tilt_noise(first, one) <= limit), most)
    square = float((first.variances[cross.k :] * _spare_weights(first, cross) ** 2).sum())
    rest = math.sqrt(square + first.level * first.outside)
    return replace(cross, fraction_bits=fraction_bits(rest, len(first.basis), first.k))


def _weighted(start: LocationEstimate, first: AlignedCovariance, spare: int) -> CrossQueryBuilder:
    p = min(first.k + spare, first.variances.size)
    rest, count = first.variances[p:], first.basis.shape[0] - p
    level = (float(rest.sum()) + first.level * first.outside) / count if count else first.level
    leading, separate = weights(first.variances[:p], first.k, level, count, first.gap_noise)
    return CrossQueryBuilder(centre=start.centre, basis=first.basis[:, :p], leading=leading, spare=separate)


def _spare_weights(first: AlignedCovariance, cross: CrossQueryBuilder) -> FloatArray:
    """Return the weight of each direction of the basis but the leading ones. Shape: (m - k,)."""
    return np.append(cross.spare / WEIGHT, np.ones(first.variances.size - cross.basis.shape[1]))


def _tilt_noise(first: AlignedCovariance, cross: CrossQueryBuilder) -> float:
    """Return about the summed squared noise of the tilts towards the basis, for a radius in proportion to the
    norms: that of leading parts, times that of rests, times the noise over the gaps."""
    others = first.variances[first.k :]
    lead, spare = (cross.leading / WEIGHT) ** 2, _spare_weights(first, cross) ** 2
    gaps = np.maximum(first.variances[: first.k, None] - np.append(others, first.level), first.gap_noise) ** 2
    inverse = np.append(1 / spare, float(first.outside))
    return _part_square(first, cross) * float((inverse / gaps / lead[:, None]).sum())


def _part_square(first: AlignedCovariance, cross: CrossQueryBuilder) -> float:
    """Return the mean squared norm of leading parts, times that of rests."""
    lead, spare = (cross.leading / WEIGHT) ** 2, _spare_weights(first, cross) ** 2
    rest = float(spare @ first.variances[first.k :]) + first.level * first.outside
    return float(lead @ first.variances[: first.k]) * rest


def part_norm_grid(start: LocationEstimate) -> NormGrid:
    """Return the grid of the norms of records' parts: |a| |b| <= |z|^2 / 2."""
    return NormGrid(top=start.norms.largest**2 / 2)


def _clip(
    start: LocationEstimate, cross: CrossQueryBuilder, share: float, left: float, least: float
) -> StepsTo[tuple[float, float, float]]:
    """Return the clip by balance from one histogram at `share`, for all steps together at `left`. The radius
    of records' parts (analysis units), the share of their mean norm left by clipping, and the
    `clipping_bias_factor`."""
    plan, grid = start.plan, part_norm_grid(start)
    norms = read_histogram((yield query_at_share(plan, cross.norms(grid), share)), grid)
    noise = 2 * math.sqrt(cross.centre.size * cross.k) / effective_mu(plan, cost_of_share(plan, left))
    radius = max(least, choose_radius(norms, quantile(plan.study.radius), noise, power=1, quadratic=False))
    long = keeps_fractions(plan) and norms.fall() >= LONG_TAIL
    bias_factor = product_bias_factor(norms.with_tail() if long else norms, radius, start.records)
    return radius, norms.retained(radius, 1), bias_factor


def _entries(
    start: LocationEstimate, found: AlignedCovariance, cross: CrossQueryBuilder, release: Release, unit: float
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return a release along the basis, outside of it, and its noise (see `AlignedCovariance.turned`). Both
    about the mean: the entries about the centre have a part of its offset."""
    along, rest, sd = cross.read(release, unit)
    if start.offset.any():
        beside = cross.basis.T @ start.offset
        along = along - np.outer(beside[: cross.k], beside[cross.k :])
        rest = rest - np.outer(start.offset - cross.basis @ beside, beside[: cross.k])
    further = found.basis[:, cross.basis.shape[1] :]
    entries = np.hstack([along, (further.T @ rest).T])
    noise = np.hstack([sd[:, :-1], np.repeat(sd[:, -1:], further.shape[1] + 1, axis=1)])
    return entries, rest - further @ (further.T @ rest), noise


def refinement_steps(sine: float) -> int:
    """Return the number of steps after a first stage of that stated error."""
    return next(steps for most, steps in STEPS if sine < most)
