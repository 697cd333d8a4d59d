"""What the covariance family shares: a clip radius, a noised Gram matrix, and how loud its noise is."""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass

import numpy as np

from eigenveil.algorithms.shared.clip_radius import Balance, Histogram, choose
from eigenveil.algorithms.shared.preparation import (
    UNCLIPPED,
    Centred,
    drawn_mu,
    is_public,
    law,
    locate,
    louder,
    price,
    priced,
    public_radius,
    row_norms,
    row_radius,
    shares,
)
from eigenveil.algorithms.shared.stated_error import (
    bending,
    bent,
    centre_sine,
    centre_warning,
    gaps_of,
    typical_sine,
)
from eigenveil.numerics.encoding import FloatArray
from eigenveil.numerics.linalg import symmetric
from eigenveil.protocol.estimate import MatrixNoise
from eigenveil.protocol.plan import Plan
from eigenveil.protocol.query import NoiseLaw, PricedQuery
from eigenveil.protocol.release import Release
from eigenveil.queries import Gram
from eigenveil.study.grid import S
from eigenveil.study.radius import longest, quantile

RADIUS_SHARE = 0.05  # of rho; where epsilons are added up, `preparation.EPSILONS` says
CLIPPED = 0.9
DRAG = 0.6  # measured on normal and heavy-tailed records, independent columns and scaled rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Clip:
    """A clip radius of rows, in grid units, the share of their squared norms that it leaves, how much it
    bends (`stated_error.bending`) and falls on long records, and the share of the budget that is left after
    it."""

    radius: int
    kept: float
    bending: float
    drag: float
    left: float

    def unit(self, records: float) -> float:
        """What a covariance of 1 is in the integers of a Gram matrix; puts back what clipping cut off, on
        average."""
        return S**2 * records * self.kept

    def restored(self, values: FloatArray) -> FloatArray:
        """Variances with what clipping cut off of each, where `unit` has put back the average.

        A record's square grows with x_i^2 as l_i^2 where columns are independent, and as l_i where all of a
        record is longer: DRAG of the way from these to those. Shape: values (d,), falling -> (d,).
        """
        squares = float((values**2).sum())
        ahead = np.maximum(values * (float(values.sum()) / squares) - 1, 0.0) if squares > 0 else values
        return np.asarray(
            values * self.kept / np.maximum(self.kept - DRAG * self.drag * ahead, self.kept / 2)
        )


def left_after(plan: Plan, start: Centred) -> float:
    """The share of the budget that is left after the count and the mean."""
    return 1 - shares(plan).count - start.mean_share


def noise_ratio(plan: Plan, *, flat: bool = False) -> float:
    """How much louder a Gram matrix is off its diagonal than with symmetric Gaussian noise."""
    centre = np.zeros(plan.study.dimension, dtype=np.int64)
    return louder(plan, Gram(centre=centre, radius=S, flat=flat))


def clip_radius(plan: Plan, start: Centred, ratio: float) -> Generator[PricedQuery, Release, Clip]:
    """The radius that the study's rule gives for one Gram matrix of that `noise_ratio` at all that is left.

    Privacy: [P7] post-processing; a study whose radius is public asks nothing.
    Cost: 5 % of rho, or 8 % of epsilon.
    """
    left = left_after(plan, start)
    if is_public(plan):
        return public_clip(plan, start, left)
    share = RADIUS_SHARE if law(plan) is NoiseLaw.GAUSSIAN else shares(plan).norms
    norms = yield from row_norms(start.centre, price(plan, share), law(plan), longest(plan.study.radius))
    radius = balanced(plan, norms, left - share, ratio)
    return clip_to(radius, norms, start.records, left - share)


def public_clip(plan: Plan, start: Centred, left: float) -> Clip:
    """The radius that no row can be longer than."""
    return Clip(radius=public_radius(plan, start.centre), kept=1.0, bending=0.0, drag=0.0, left=left)


def balanced(plan: Plan, norms: Histogram, share: float, ratio: float) -> int:
    """The radius that the study's rule gives for a Gram matrix of that `noise_ratio` at a share of the
    budget, in grid units."""
    d = plan.study.dimension
    noise = 8 * math.sqrt(d) / drawn_mu(plan, price(plan, share)) * ratio
    rule = Balance(power=2, noise=noise, quadratic=True)
    return row_radius(choose(norms, quantile(plan.study.radius), rule), d)


def clip_to(radius: int, norms: Histogram, records: float, left: float) -> Clip:
    """A radius in grid units and what a histogram of norms says that clipping to it does."""
    at = radius / S
    return Clip(
        radius=radius,
        kept=norms.kept(at),
        bending=bending(norms, at, records),
        drag=norms.drag(at),
        left=left,
    )


def prepared(plan: Plan, ratio: float) -> Generator[PricedQuery, Release, tuple[Centred, Clip]]:
    """Where the records are (`locate`), then the radius for one Gram matrix of that `noise_ratio`."""
    start = yield from locate(plan)
    clip = yield from clip_radius(plan, start, ratio)
    return start, clip


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Noised:
    """A noised covariance matrix; `scale` is sqrt 2 times the sd of an entry off its diagonal. Symmetric
    noise has that sd on the diagonal, `even` noise that of the others [P3]. Shape: matrix (d, d)."""

    matrix: FloatArray
    scale: float
    even: bool = False

    @property
    def trace(self) -> float:
        """The noised total variance, from 0 on."""
        return max(float(np.trace(self.matrix)), 0.0)


def covariance(
    plan: Plan, start: Centred, clip: Clip, share: float, *, flat: bool = False
) -> Generator[PricedQuery, Release, Noised]:
    """One Gram matrix about the centre, divided by the noised count.

    Privacy: [P7] post-processing of one `Gram` question.
    Cost: `share` of the budget, d (d + 1) / 2 integers from every site.
    """
    release = yield priced(plan, Gram(centre=start.centre, radius=clip.radius, flat=flat), share)
    unit = clip.unit(start.records)
    even = flat or law(plan) is NoiseLaw.LAPLACE  # as loud off the diagonal as on it
    matrix = symmetric(release.values, plan.study.dimension)
    matrix /= unit
    return Noised(
        matrix=matrix,
        scale=release.sigma / unit * (math.sqrt(2) if even else 1.0),
        even=even,
    )


def noise_of(plan: Plan, start: Centred, clip: Clip, noised: Noised) -> MatrixNoise | None:
    """What is known of the errors of that matrix [P7]; None where it is not about the records' mean."""
    if not plan.study.centring:
        return None
    off_diagonal = noised.scale / math.sqrt(2)
    return MatrixNoise(
        law=law(plan),
        diagonal=off_diagonal if noised.even else noised.scale,
        off_diagonal=off_diagonal,
        count=start.counted,
        centre=start.off,
        kept=min(clip.kept, 1.0),
    )


def averaged(one: Noised, other: Noised) -> Noised:
    """Two noised matrices of the same records, each as much as it is known better."""
    part = other.scale**2 / (one.scale**2 + other.scale**2)
    return Noised(
        matrix=part * one.matrix + (1 - part) * other.matrix,
        scale=math.sqrt(part) * one.scale,
        even=one.even,
    )


def clip_warning(kept: float) -> tuple[str, ...]:
    """A sentence if clipping cut off much; variances are then extrapolated."""
    if kept >= CLIPPED:
        return ()
    sentence = (
        f"clipping kept about {kept:.0%} of the records' squared length, so variances are scaled up by "
        "an average that may not hold for every direction; more records or a larger epsilon would help"
    )
    return (sentence,)


def stated_error(plan: Plan, start: Centred, clip: Clip, values: FloatArray, scale: float) -> float | None:
    """First-order sine of the angle that symmetric noise, clipping and the centre's error turn the top-k
    subspace by; None where the radius rule does not allow to state one: for a fixed quantile, whose bending
    is large and hardly known.

    A leaning has variance scale^2 / 2 / (l_i - l_j)^2, and what clipping adds. Shape: values (d,), falling.
    """
    if quantile(plan.study.radius) not in (None, UNCLIPPED):
        return None
    gaps = gaps_of(values, plan.study.components)
    leanings = scale**2 / 2 / gaps**2 + bent(clip.bending, values, gaps)
    return min(1.0, math.hypot(typical_sine(leanings), centre_sine(start, gaps)))


def matrix_warnings(plan: Plan, start: Centred, clip: Clip, values: FloatArray) -> tuple[str, ...]:
    """What the result of a noised matrix has to be read with. Shape: values (d,), falling."""
    return clip_warning(clip.kept) + centre_warning(
        centre_sine(start, gaps_of(values, plan.study.components))
    )
