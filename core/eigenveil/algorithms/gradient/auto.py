"""auto, where a study lets the first releases choose: a noised matrix and its refinement, or gradients.

Both ways end with the same refinement, whose noise goes with |z| |a|, a record's length times its part along
the leading directions. They differ in what finds these directions: a matrix, whose noise goes with |z|^2, or
gradients, whose noise goes with |z| |a| too, but whose budget is divided among rounds. So gradients pay where
the total variance is many times the variances looked for, which a first part of the matrix tells: what does
not stand out of its noise is hardly larger than that noise. Two parts are worth as much as one matrix.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import Enum

import numpy as np

from eigenveil.algorithms.covariance.gauss_cov import gauss_cov
from eigenveil.algorithms.covariance.noised_gram import Clip, Noised, averaged, covariance
from eigenveil.algorithms.covariance.refined_cov import (
    PREPARED,
    aligned,
    matrix_clip,
    matrix_share,
    of_aligned,
    refined_cov,
)
from eigenveil.algorithms.gradient.refined_pca import by_gradients, refined_pca
from eigenveil.algorithms.shared.preparation import Centred, locate
from eigenveil.algorithms.shared.refinement import refined, steps_for
from eigenveil.numerics.linalg import eigenpairs
from eigenveil.protocol.estimate import Steps
from eigenveil.protocol.plan import Plan
from eigenveil.study.algorithm import Algorithm

WIDE = 1000  # a covariance matrix of more columns is d^2 / 2 > 500,000 numbers a site
PROBE = 1 / 3  # of the matrix's share, for its first part
SEEN = 2.3  # times sd sqrt(d) of that part above the other variances; noise alone reaches 2 (Wigner)
FLAT = 30.0  # times k sd sqrt(d): from such a total variance on, gradients find what is not seen (measured)


class Way(Enum):
    """What the first releases decide for."""

    MATRIX = "matrix"
    GRADIENTS = "gradients"


def ways_of(plan: Plan) -> tuple[Way, ...]:
    """What the first releases may decide for: `auto` by either way, and each refinement how many steps it
    takes; nothing where they decide nothing."""
    d = plan.study.dimension
    if d == plan.study.components:
        return ()
    both = (Way.GRADIENTS,) if d > WIDE else tuple(Way)
    refining: dict[object, tuple[Way, ...]] = {
        Algorithm.AUTO: both,
        Algorithm.REFINED_COV: (Way.MATRIX,),
        Algorithm.REFINED_PCA: (Way.GRADIENTS,),
    }
    return refining.get(plan.algorithm, ())


def imagined(plan: Plan, way: Way) -> Steps:
    """The algorithm of a plan as it goes on where the first releases decide for `way` and for the most steps
    of the refinement."""
    if plan.algorithm is Algorithm.AUTO:
        return auto(plan, way)
    return (refined_cov if way is Way.MATRIX else refined_pca)(plan, steps_for(1.0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """What the first part of a matrix shows: how far component k stands above the other variances, and the
    total variance for each component, both in parts of the noise's sd sqrt(d)."""

    height: float
    flatness: float

    @property
    def way(self) -> Way:
        unseen = self.height < SEEN and self.flatness > FLAT
        return Way.GRADIENTS if unseen else Way.MATRIX

    def __str__(self) -> str:
        above = f"the last component stands {self.height:.1f} noise levels above the rest"
        return f"in the first third of the matrix {above}, the total variance {self.flatness:.0f} a component"


def auto(plan: Plan, way: Way | None = None) -> Steps:
    """Count, mean, a third of a matrix, then what its spectrum is best followed by.

    `way` is one to rehearse, with the most that it may ask, whatever the releases say.

    Neighbours: as the study says.
    Privacy: [P7], [P28]; what is asked next is decided from releases alone, and each question is priced and
    answered behind the barrier, from what is left of the budget on that way.
    Cost: the whole budget.
    """
    d, k = plan.study.dimension, plan.study.components
    if k == d:  # nothing is left to turn towards
        return (yield from gauss_cov(plan))
    start = yield from locate(plan, PREPARED)
    steps = None if way is None else steps_for(1.0)
    if d > WIDE:
        found = yield from by_gradients(plan, start, 1 - PREPARED.count - start.mean_share, steps)
        return replace(found, way=f"gradients, then their refinement: {d} columns are too many for a matrix")
    share = matrix_share(plan, start)
    clip = matrix_clip(plan, start, share)
    first = yield from covariance(plan, start, clip, clip.left * share * PROBE)
    probe = _probe(plan, start, first)
    if (way or probe.way) is Way.GRADIENTS:
        found = yield from by_gradients(plan, start, clip.left * (1 - share * PROBE), steps)
        return replace(found, way=f"gradients, then their refinement: {probe}")
    found = yield from _by_matrix(plan, start, clip, share, first, steps)
    return replace(found, way=f"the rest of the matrix, then its refinement: {probe}")


def _probe(plan: Plan, start: Centred, first: Noised) -> Probe:
    d, k = plan.study.dimension, plan.study.components
    values, _ = eigenpairs(first.matrix)
    level = first.scale * math.sqrt(d / 2)
    return Probe(
        height=float(values[k - 1] - np.median(values)) / level,
        flatness=max(first.trace - start.off, 0.0) / (k * level),
    )


def _by_matrix(
    plan: Plan, start: Centred, clip: Clip, share: float, first: Noised, steps: int | None
) -> Steps:
    """The rest of the matrix, averaged with its first part, and the refinement of both."""
    rest = yield from covariance(plan, start, clip, clip.left * share * (1 - PROBE))
    noised = averaged(first, rest)
    whole = aligned(plan, noised)
    found = yield from refined(
        plan, start, whole, clip.left * (1 - share), steps or steps_for(whole.sine(start))
    )
    return of_aligned(plan, start, clip, noised, found)
