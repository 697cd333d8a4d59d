"""Refinement: leading directions turned by their cross covariance with all others, the last stage of
`refined-cov` and `refined-pca`.

To first order only the cross covariance between the leading directions and the rest turns the components. A
whole matrix spends its noise on d (d + 1) / 2 numbers at the sensitivity of |z|^2, a gradient on d k at that
of |z| |a|; the cross covariance on k (d - k) at that of |a| |b|, a record's leading part times its rest. Its
mean is about 0 once the directions are nearly right, so that clipping takes from the tails and hardly from
the signal. Where a first stage was weak it is asked several times: directions that turn far turn in steps.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass, replace

import numpy as np

from eigenveil.algorithms.shared.clip_radius import Balance, Grid, choose, read_histogram
from eigenveil.algorithms.shared.cross_query import Cross, weights
from eigenveil.algorithms.shared.preparation import SMALL, Centred, drawn_mu, price, priced
from eigenveil.algorithms.shared.stated_error import LOPSIDED, bending, bent, centre_sine, typical_sine
from eigenveil.numerics.blas import one_thread
from eigenveil.numerics.encoding import FloatArray
from eigenveil.numerics.linalg import eigenpairs
from eigenveil.protocol.plan import Plan
from eigenveil.protocol.query import PricedQuery
from eigenveil.protocol.release import Release
from eigenveil.study.radius import quantile

# Of rho, for the one histogram of all steps: what few records have in their tails, noise hides.
NORMS_SHARE, SMALL_NORMS_SHARE = 0.03, 0.05
SPARE = 32  # directions beside the leading ones that may have a weight of their own
# Steps below a stated sine of the first stage: what is far off turns in small ones.
STEPS = ((0.03, 1), (0.25, 2), (math.inf, 8))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Aligned:
    """A covariance as far as releases tell it, turned to its own axes.

    Along `basis` the variances are known, falling, and cross covariances of the leading k and the others are
    0, give or take `sd` (the last column: with a direction outside of the basis, where the variance is
    `level`). A gap below `blur` is noise, and a variance has the sd `unsure`. `bent` is the square that
    clipping may add, as a share of the variances (`stated_error.bending`).

    Shape: basis (d, m), variances (m,), sd (k, m - k + 1).
    """

    basis: FloatArray
    variances: FloatArray
    level: float
    sd: FloatArray
    blur: float
    unsure: float
    bent: float = 0.0

    @property
    def k(self) -> int:
        return len(self.sd)

    @property
    def outside(self) -> int:
        """Directions that are not in the basis."""
        return len(self.basis) - len(self.variances)

    def gaps(self) -> FloatArray:
        """From the leading variances to all others, and to the level outside, as far as they stand out of the
        variances' own noise. Shape: (k, m - k + 1)."""
        others = np.append(self.variances[self.k :], self.level)
        found = np.maximum(self.variances[: self.k, None] - others, 0.0)
        return np.asarray(np.maximum(np.sqrt(np.maximum(found**2 - self.unsure**2, 0.0)), 1e-12))

    def _spread(self, columns: FloatArray) -> FloatArray:
        """A column for each direction outside. Shape: (k, m - k + 1) -> (k, d - k)."""
        return np.hstack([columns[:, :-1], np.repeat(columns[:, -1:], self.outside, axis=1)])

    def sine(self, start: Centred) -> float:
        """The stated error: what is not known of the cross covariance, clipping, and the centre's error."""
        gaps = self._spread(self.gaps())
        values = np.append(self.variances, np.full(self.outside, self.level))
        leanings = (self._spread(self.sd) / gaps) ** 2 + bent(self.bent, values, gaps)
        return min(1.0, math.hypot(typical_sine(leanings), centre_sine(start, gaps)))

    def turned(self, along: FloatArray, outside: FloatArray, noise: FloatArray) -> Aligned:
        """Turned by a noised cross covariance, of which `sd` says how near to 0 it is: each entry counts for
        as much as it is known better, and what is then known turns the axes.

        Shape: along (k, m - k), outside (d, k), noise as `sd`.
        """
        prior, new = self.sd**2, noise**2
        trust = prior / (prior + new)
        # More change than both explain: the directions are on their way still, and less is known than that.
        surprise = self._surprise(along, outside, prior + new)
        k, m = self.k, self.variances.size
        beyond, legs = self._beyond(outside * trust[:, -1])
        matrix = np.diag(np.append(self.variances, np.full(len(legs), self.level)))
        matrix[k:m, :k] = (along * trust[:, :-1]).T
        matrix[m:, :k] = legs
        matrix[:k, k:] = matrix[k:, :k].T
        _, axes = eigenpairs(matrix)
        with one_thread():
            basis = np.hstack([self.basis, beyond]) @ _nearest(axes[:, :k])[:, :m]
        # The variances stay: noise off the diagonal drives eigenvalues apart, and would open gaps.
        return replace(self, basis=basis, sd=np.sqrt(trust * new * surprise))

    def _beyond(self, outside: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Directions outside of the basis, and what of `outside` is along them: (d, j), (j, k)."""
        m = self.variances.size
        if not self.outside:
            return self.basis[:, m:], np.zeros((0, self.k))
        # Beside the basis, not alone: what `outside` does not fill is then outside of the basis as well.
        with one_thread():
            frame, legs = np.linalg.qr(np.hstack([self.basis, outside]))
        return frame[:, m:], legs[m:, m:]

    def _surprise(self, along: FloatArray, outside: FloatArray, expected: FloatArray) -> float:
        """Mean square of a change, relative to what was expected; 1 where it is no larger."""
        seen = float((along**2 / expected[:, :-1]).sum() + (outside**2 / expected[:, -1]).sum())
        return max(1.0, seen / (along.size + self.k * self.outside))


def _nearest(leading: FloatArray) -> FloatArray:
    """A turn of all axes whose first k span `leading`, each near its own axis: unlike eigenvectors it hardly
    moves with the last bit where variances coincide, so that every machine asks the same next.

    Shape: (m, k), orthonormal -> (m, m).
    """
    k = leading.shape[1]
    frame, upper = np.linalg.qr(np.hstack([leading @ leading[:k].T, np.eye(len(leading))[:, k:]]))
    return np.asarray(frame * np.where(np.diagonal(upper) < 0, -1.0, 1.0))


@dataclass(frozen=True, slots=True, kw_only=True)
class CrossClip:
    """A clip radius of records' parts (analysis units), and the share of their mean length that it leaves."""

    radius: float
    kept: float
    bending: float


def refined(
    plan: Plan, start: Centred, first: Aligned, share: float, steps: int
) -> Generator[PricedQuery, Release, Aligned]:
    """`first`, turned `steps` times by the noised cross covariance of its leading directions and the rest.

    The weights and the radius are those of the first step: they are about variances, which hardly change.

    Neighbours: as the study says.
    Privacy: [P7] post-processing of one `CrossNorms` and some `CrossCovariance` questions [P28].
    Cost: `share` of rho, d k integers a step from every site.
    """
    norms = SMALL_NORMS_SHARE if start.records < SMALL else NORMS_SHARE
    cross, left = question(start, first), share - norms
    clip = yield from _clip(plan, start, cross, norms, left)
    found = replace(first, bent=clip.bending)
    for _ in range(steps):
        cross = cross.about(found.basis[:, : cross.basis.shape[1]])
        query, unit = cross.query(clip.radius)
        release = yield priced(plan, query, left / steps)
        found = found.turned(*_entries(found, cross, release, unit * start.records * clip.kept))
    return found


def question(start: Centred, first: Aligned) -> Cross:
    """The weights for what is known, the leading directions and some others first."""
    p = min(first.k + SPARE, first.variances.size)
    rest, count = first.variances[p:], first.basis.shape[0] - p
    level = (float(rest.sum()) + first.level * first.outside) / count if count else first.level
    chosen = weights(first.variances[:p], first.k, level, count, first.blur)
    return Cross(centre=start.centre, basis=first.basis[:, :p], weights=chosen)


def reach(start: Centred) -> Grid:
    """How long a record's part can be: |a| |b| <= |z|^2 / 2."""
    return Grid(top=start.norms.largest**2 / 2)


def _clip(
    plan: Plan, start: Centred, cross: Cross, share: float, left: float
) -> Generator[PricedQuery, Release, CrossClip]:
    """The radius by balance, from one histogram at `share`, for all steps together at what is `left`."""
    grid = reach(start)
    norms = read_histogram((yield priced(plan, cross.norms(grid), share)), grid)
    noise = 2 * math.sqrt(cross.centre.size * cross.k) / drawn_mu(plan, price(plan, left))
    rule = Balance(power=1, noise=noise, quadratic=False)
    radius = choose(norms, quantile(plan.study.radius), rule)
    bends = bending(norms, radius, start.records, 1) + (LOPSIDED * norms.unseen(radius)) ** 2
    return CrossClip(radius=radius, kept=norms.kept(radius, 1), bending=bends)


def _entries(
    found: Aligned, cross: Cross, release: Release, unit: float
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """A release along all of the basis, what is outside of it, and the noise (`Aligned.turned`)."""
    along, rest, sd = cross.read(release, unit)
    further = found.basis[:, cross.basis.shape[1] :]
    entries = np.hstack([along, (further.T @ rest).T])
    noise = np.hstack([sd[:, :-1], np.repeat(sd[:, -1:], further.shape[1] + 1, axis=1)])
    return entries, rest - further @ (further.T @ rest), noise


def steps_for(sine: float) -> int:
    """How many steps suit a first stage of that stated error."""
    return next(steps for most, steps in STEPS if sine < most)
