"""refined-pca: a short noisy power iteration, then its directions turned by their cross covariance with all
that is outside of them. No matrix of d by d is ever asked for.

Source: dp-pca for the first stage; the second is our own (docs/algorithms/refined-pca.md), measured on
synthetic and clinical tables.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass

import numpy as np

from eigenveil.algorithms.gradient.dp_pca import (
    REFRESHES,
    VARIANCE_SHARE,
    Schedule,
    Tail,
    dp_pca,
    gap_warning,
    iterate,
    read_variances,
)
from eigenveil.algorithms.shared.preparation import COUNT_SHARE, Centred, locate, part, signal
from eigenveil.algorithms.shared.refinement import Aligned, refined, steps_for
from eigenveil.algorithms.shared.stated_error import centre_sine, centre_warning
from eigenveil.numerics.encoding import FloatArray
from eigenveil.numerics.linalg import fix_signs
from eigenveil.protocol.estimate import Estimate, Steps
from eigenveil.protocol.plan import Plan
from eigenveil.protocol.query import PricedQuery
from eigenveil.protocol.release import Release
from eigenveil.study.radius import quantile

RADIUS_SHARE = 0.05
BLUR = 0.05  # of the least variance looked for: a smaller gap is not counted on


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """The first stage: directions beside those looked for, rounds, and its share of what is left."""

    spare: int
    rounds: int
    share: float


# From a signal (`preparation.signal`) on. Spare directions show the gap and have weights of their own, but
# where the signal is weak they are noise that every round carries along.
STAGES = (
    (600.0, Stage(spare=4, rounds=30, share=0.35)),
    (180.0, Stage(spare=2, rounds=30, share=0.35)),
    (0.0, Stage(spare=0, rounds=15, share=0.2)),
)


def refined_pca(plan: Plan, steps: int | None = None) -> Steps:
    """Count, mean, 15 or 30 gradients with three radii, variances, then one to eight cross covariances.

    `steps` of the last stage are imagined, for a rehearsal of the most that may be asked.

    Neighbours: as the study says.
    Privacy: [P7], [P28]; the questions are priced and answered behind the barrier.
    Cost: the whole budget, at most d (k + 4) integers a round from every site.
    """
    if plan.study.components == plan.study.dimension:  # nothing is left to turn towards
        return (yield from dp_pca(plan))
    start = yield from locate(plan)
    return (yield from by_gradients(plan, start, 1 - COUNT_SHARE - start.mean_share, steps))


def by_gradients(plan: Plan, start: Centred, share: float, steps: int | None = None) -> Steps:
    """Both stages, at a share of the budget, once it is known where the records are; the second of so many
    steps, or of as many as suit the first."""
    times, left = schedule(plan, start, share)
    tail = yield from iterate(plan, start, times)
    first, total = yield from _aligned(plan, start, tail)
    steps = steps or steps_for(tail.error(plan.study.components))
    found = yield from refined(plan, start, first, left, steps)
    return _estimate(plan, start, tail, found, total)


def schedule(plan: Plan, start: Centred, share: float) -> tuple[Schedule, float]:
    """The rounds of the first stage, and what the last one has of a share of the budget for both."""
    left = share - RADIUS_SHARE - VARIANCE_SHARE
    strength = signal(plan, start.records)
    stage = next(stage for least, stage in STAGES if strength >= least)
    times = Schedule(
        rounds=stage.rounds,
        directions=min(plan.study.components + stage.spare, plan.study.dimension),
        round_price=part(plan.micro_rho, left * stage.share / stage.rounds),
        radius_price=part(plan.micro_rho, RADIUS_SHARE / REFRESHES),
    )
    return times, left * (1 - stage.share)


def _aligned(
    plan: Plan, start: Centred, tail: Tail
) -> Generator[PricedQuery, Release, tuple[Aligned, float]]:
    """What the first stage found, with its variances, and the total variance."""
    basis = tail.components(tail.basis.shape[1])
    lengths, total, scale = yield from read_variances(plan, start, basis)
    order = np.argsort(-lengths, kind="stable")
    return on_axes(basis[:, order], lengths[order], plan.study.components, total, scale), total


def on_axes(basis: FloatArray, lengths: FloatArray, k: int, total: float, scale: float) -> Aligned:
    """Directions of these variances, of a total that is spread evenly over all others.

    Of what is off the diagonal nothing is known but what variances allow. Shape: basis (d, m), lengths (m,),
    falling.
    """
    d, m = basis.shape
    level = max(total - float(lengths.sum()), 1e-3 * total, 1e-12) / max(d - m, 1)
    variances = np.maximum(lengths, level)
    return Aligned(
        basis=basis,
        variances=variances,
        level=level,
        sd=_allowed(variances, k, d),
        blur=BLUR * float(variances[k - 1]),
        unsure=scale,
    )


def _allowed(variances: FloatArray, k: int, d: int) -> FloatArray:
    """Sizes of cross covariances that variances allow: sqrt(l_i l_j), and spread over all columns l_i.

    Shape: (m,) -> (k, m - k + 1).
    """
    lead = variances[:k, None]
    return np.hstack([np.sqrt(lead * variances[k:]), lead / math.sqrt(d)])


def _estimate(plan: Plan, start: Centred, tail: Tail, found: Aligned, total: float) -> Estimate:
    k = plan.study.components
    stated = quantile(plan.study.radius) is None
    centre = centre_sine(start, found.gaps())
    warnings = gap_warning(tail, found.variances[:k], total, found.unsure)
    return Estimate(
        components=fix_signs(found.basis[:, :k]).T,
        explained_variance=found.variances[:k],
        mean=start.mean,
        records=start.records,
        total_variance=total,
        noise_scale=found.unsure,
        sin_error=found.sine(start) if stated else None,
        warnings=centre_warning(centre) + (warnings if stated else ()),
    )
