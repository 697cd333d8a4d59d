"""Both stages of refined-cov and refined-pca: directions, which cross covariances then refine.

The first stage is gauss-cov (a noised covariance matrix) or dp-pca (a short noisy power iteration)."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from eigenveil.algorithms.recommended.dp_pca import (
    REFRESHES,
    VARIANCE_SHARE,
    Schedule,
    dp_pca,
    gap_warning,
    iterate,
    read_variances,
)
from eigenveil.algorithms.recommended.gauss_cov import (
    GaussCovariance,
    RowClip,
    balanced,
    clip_to,
    debiased_eigenvalues,
    matrix_clipping,
    matrix_noise,
    matrix_warnings,
    noise_ratio,
    public_clip,
)
from eigenveil.algorithms.recommended.prior import PriorEstimate, estimate_from_prior
from eigenveil.algorithms.shared.preparation import (
    LocationEstimate,
    PreparationShares,
    has_public_radius,
    keeps_fractions,
    locate,
    share_of,
    signal_to_noise,
)
from eigenveil.algorithms.shared.refinement import (
    APART,
    SPARE,
    AlignedCovariance,
    refine_directions,
    refinement_steps,
)
from eigenveil.algorithms.shared.stated_error import (
    centre_sine,
    centre_warning,
    has_known_clipping,
    separation_warning,
)
from eigenveil.numerics.encoding import FloatArray
from eigenveil.numerics.linalg import fix_signs, leading_eigenpairs
from eigenveil.protocol.estimate import Estimate, PriorUse, Steps
from eigenveil.protocol.plan import Plan
from eigenveil.study.algorithm import Algorithm
from eigenveil.study.radius import quantile

# Share of the matrix after the mean, from a signal (`preparation.signal_to_noise`) on.
SHARES = ((1000.0, 0.2), (100.0, 0.35), (0.0, 0.5))
# The final norms also give the clip radius of the matrix. A first step of the mean that is more exact leaves
# fewer records far from it.
PREPARED = PreparationShares(steps=((0.05, 0.30), (0.10, 0.55)), final_norms=0.03)
WIDE_MATRIX = 1000  # columns from which on only directions with weights of their own are refined
LEAST = 0.3  # least variance, as a share of the noise edge


def matrix_share(start: LocationEstimate) -> float:
    """Return the share of the matrix in the budget left after the mean."""
    return next(share for least, share in SHARES if signal_to_noise(start) >= least)


def matrix_clip(start: LocationEstimate, share: float) -> RowClip:
    """Return the clip for a matrix at a share of the rest, from the last norms of the mean."""
    plan, left = start.plan, start.left
    if has_public_radius(plan):
        return public_clip(start)
    radius = balanced(plan, start.norms, left * share, noise_ratio(plan))
    return clip_to(start, radius, start.norms, left)


def aligned(noised: GaussCovariance) -> AlignedCovariance:
    """Return a noised matrix on its own axes; of a wide one, on those with weights of their own, and the mean
    of the other variances as level outside."""
    plan, d = noised.clip.plan, len(noised.matrix)
    k = plan.study.components
    p = min(k + SPARE, d) if d >= WIDE_MATRIX and keeps_fractions(plan) else d
    values, vectors = leading_eigenpairs(noised.matrix, p)
    variances = debiased_eigenvalues(values, noised.scale)
    found = on_axes(vectors, variances[:p], k, noised.scale)
    return found if p == d else replace(found, level=max(found.level, float(variances[p:].mean())))


def states_gaps(plan: Plan) -> bool:
    """Return True for the revisions that state what the released gaps show."""
    return plan.revision >= (3 if plan.algorithm is Algorithm.REFINED_COV else 2)


def on_axes(basis: FloatArray, variances: FloatArray, k: int, scale: float) -> AlignedCovariance:
    """Return a matrix with noise of that `scale`: zero off its diagonal up to the noise. Shape: basis (d, m),
    variances (m,), falling."""
    sd, edge = scale / math.sqrt(2), scale / math.sqrt(2) * math.sqrt(len(basis))
    return AlignedCovariance(
        basis=basis,
        variances=np.maximum(variances, LEAST * edge),
        level=LEAST * edge,
        sd=np.full((k, variances.size - k + 1), sd),
        gap_noise=edge / 2,
        variance_sd=scale,
    )


def refined_matrix(noised: GaussCovariance, share: float, steps: int | None) -> Steps:
    """Refine the directions of a noised matrix at a share of the budget."""
    clip, start = noised.clip, noised.clip.start
    own, k = aligned(noised), start.plan.study.components
    informed = from_prior(noised, own)
    first = own if informed is None else informed.estimate
    steps = steps or refinement_steps(first.sine(start))
    found = yield from refine_directions(start, first, share, steps)
    alone = found if informed is None else without_shared(start.plan, informed, found)
    return Estimate(
        components=fix_signs(found.basis[:, :k]).T,
        explained_variance=clip.restored(found.all_variances)[:k],
        mean=start.mean,
        records=start.records,
        total_variance=noised.trace,
        noise_scale=noised.scale,
        sin_error=matrix_sine(clip, alone, own) if has_known_clipping(start.plan) else None,
        covariance=noised.matrix,  # as released: its noise is known, unlike after rotation
        noise=matrix_noise(noised),
        clipping=matrix_clipping(noised),
        warnings=matrix_warnings(clip, found.spread(found.gaps())) + _matrix_gap_warning(start.plan, own),
        prior=prior_use(start.plan, informed, found),
    )


def from_prior(noised: GaussCovariance, own: AlignedCovariance) -> PriorEstimate | None:
    """Return the estimate from the study's prior; None without one, or where the matrix contradicts it."""
    prior = noised.clip.plan.study.prior
    return None if prior is None else estimate_from_prior(noised, own, prior)


def without_shared(plan: Plan, informed: PriorEstimate, found: AlignedCovariance) -> AlignedCovariance:
    """Return the estimate whose error is stated: that of the releases alone where they do not confirm the
    prior, and where it is from persons who may be in this study as well, so that it is no evidence of its
    own."""
    prior = plan.study.prior
    shared = prior is not None and bool(prior.shared_sites)
    return informed.without(found) if shared or not informed.confirmed else found


def prior_use(plan: Plan, informed: PriorEstimate | None, found: AlignedCovariance) -> PriorUse | None:
    """Return the part that the study's prior has in each component; None without one."""
    prior = plan.study.prior
    if prior is None:
        return None
    shares = (0.0,) * plan.study.components if informed is None else informed.shares(found)
    return PriorUse(
        used=informed is not None,
        confirmed=informed is not None and informed.confirmed,
        shares=shares,
        shared_sites=prior.shared_sites,
    )


def _matrix_gap_warning(plan: Plan, first: AlignedCovariance) -> tuple[str, ...]:
    if not states_gaps(plan) or not has_known_clipping(plan):
        return ()
    following = np.append(first.variances, first.level)[first.k]
    return separation_warning(first.variances[: first.k], float(following), APART * first.variance_sd)


# Share of the matrix's clipping bias that its refinement has at least, whose cross covariances clip the same
# records. Factor of the squared sine of a first stage, up to UNSURE: gaps of a first stage that was mostly
# noise are noise too, and one step after another confirms them. Chosen, with TYPICAL, on seeds 0 to 23 of
# `python -m benchmarks.stated_error`; without UNSURE, false confidence on flat spectra was .9 % (with: .3 %).
MATRIX_BIAS, CONFIRMED, UNSURE = 0.4, 1.25, 0.55


def matrix_sine(clip: RowClip, found: AlignedCovariance, first: AlignedCovariance) -> float:
    """Return the stated error after a noised matrix and its refinement, by the plan's revision."""
    start = clip.start
    if not states_gaps(start.plan):
        return stated_sine(start, found, first, SECOND_ORDER if start.plan.revision >= 2 else 0.0)
    least = MATRIX_BIAS * clip.clipping_bias_factor
    found = replace(found, clipping_bias=max(found.clipping_bias, least))
    return refined_sine(first.stated_sine(start), found.stated_sine(start))


def refined_sine(before: float, after: float) -> float:
    """Return the stated error of a refinement that states `after`, of a first stage that states `before`. The
    refinement is of first order in the tilts of the first stage and neglects about their square."""
    return max(after, before**2, min(UNSURE, CONFIRMED * before**2))


# Factor of the first stage's squared sine in `stated_sine`, from revision 2 on. Chosen on seeds 0 to 99: on
# others the true sine was above 1.5 times the stated one in 47 % of runs on breast cancer (revision 1: 82 %)
# and 10 % at near-equal variances (20 %).
SECOND_ORDER = 1.5


def stated_sine(
    start: LocationEstimate, found: AlignedCovariance, first: AlignedCovariance, neglected: float
) -> float:
    """Return the stated error of `found`, a sine (0 to 1). It is at least `neglected` times the square of the
    sine of `first`, up to that sine: the refinement is of first order in the tilts of `first`, and its own
    statement does not show what it neglects. `neglected` is 0 in revision 1 and in that of `auto`."""
    before = first.sine(start)
    return max(found.sine(start), min(before, neglected * before**2))


RADIUS_SHARE = 0.05
BLUR = 0.05  # of the least wanted variance: smaller gaps count as this


# First stage from a signal (`preparation.signal_to_noise`) on: spare directions, rounds, and its share of the
# rest of the budget. Spare directions show the gap and have separate weights, and add noise to every round.
STAGES = ((600.0, 4, 30, 0.35), (180.0, 2, 30, 0.35), (0.0, 0, 15, 0.2))
# From revision 2 on, but for weak signals of few columns. Without spare directions the gap behind the last
# component is not measured. On studies of 10 to 150 columns (benchmarks/generated.py, 3 paired seeds each)
# two of them and 30 rounds at .35 gave .81 of the error of the stages above at signals of 100 to 700 (24
# studies), and at .2 then .92 of that (40 other studies), but 1.2 on NHANES I, whose signal is above 180. At
# lower ones 20 rounds gave 1.01 of it at up to 100 columns (12 studies; digits 1.66), .9 at more (3), and .91
# of that of 30 rounds on four studies of 1,000 columns.
SPARE_STAGES = ((600.0, 4, 30, 0.35), (180.0, 2, 30, 0.35), (100.0, 2, 30, 0.2), (0.0, 2, 20, 0.35))
WEAK, FEW_COLUMNS = 100.0, 100


def refined_pca(plan: Plan, steps: int | None = None) -> Steps:
    """Run refined-pca: count, mean, 15 to 30 gradients with three radii, variances, 1 to 8 cross covariances.

    `steps` fixes the number of refinement steps for a dry run.
    Privacy: [P7], [P28]; each query is charged and answered behind the barrier.
    Cost: the whole budget, at most d (k + 4) integers a round from every site."""
    if plan.study.components == plan.study.dimension:  # no direction is left outside
        return (yield from dp_pca(plan))
    start = yield from locate(plan)
    return (yield from by_gradients(start, start.left, steps))


def by_gradients(start: LocationEstimate, share: float, steps: int | None = None) -> Steps:
    """Run both stages at a share of the budget, about a known location. By default the number of refinement
    steps follows from the error of the first stage."""
    times, left = schedule(start, share)
    tail = yield from iterate(start, times)
    k, basis = start.plan.study.components, tail.components(tail.basis.shape[1])
    lengths, total, scale = yield from read_variances(start, basis)
    order = np.argsort(-lengths, kind="stable")
    first = refined_pca_on_axes(basis[:, order], lengths[order], k, total, scale)
    steps = steps or refinement_steps(tail.error(k))
    if states_gaps(start.plan):
        raised = yield from refine_directions(start, _raised(first), left, steps)
        bias_factor = max(raised.clipping_bias, tail.clipping_bias)
        found = replace(raised, variances=first.variances, clipping_bias=bias_factor)
        return _measured(start, first, found, total, tail.error(k))
    found = yield from refine_directions(start, first, left, steps)
    apart = gap_warning(tail, found.variances[:k], total, found.variance_sd)
    return _estimate(start, found, total, found.sine(start), apart)


# Least variance of a direction to refine, in sd of a variance above the level. One that is not found yet has
# about the level's, and gaps of nothing would turn it by noise: at 1,000 and 1,200 columns, variances i^-.8
# and 30, 20, 12, 1, ..., 1, three components had .80 of the error without it; with 4 and 8 they had more.
RAISED = 2.0


def _raised(first: AlignedCovariance) -> AlignedCovariance:
    """Return the estimate with at least that variance along its leading directions."""
    k, least = first.k, first.level + RAISED * first.variance_sd
    variances = np.append(np.maximum(first.variances[:k], least), first.variances[k:])
    sd = _allowed(variances, k, len(first.basis))
    return replace(first, variances=variances, sd=sd, gap_noise=BLUR * float(variances[k - 1]))


def schedule(start: LocationEstimate, share: float) -> tuple[Schedule, float]:
    """Return the schedule of the first stage and the remaining share for the refinement."""
    plan, left = start.plan, share - RADIUS_SHARE - VARIANCE_SHARE
    strength = signal_to_noise(start)
    has_spare = states_gaps(plan) and (strength >= WEAK or plan.study.dimension > FEW_COLUMNS)
    stages = SPARE_STAGES if has_spare else STAGES
    _, spare, rounds, stage_share = next(stage for stage in stages if strength >= stage[0])
    times = Schedule(
        rounds=rounds,
        directions=min(plan.study.components + spare, plan.study.dimension),
        round_cost=share_of(plan.micro_rho, left * stage_share / rounds),
        radius_cost=share_of(plan.micro_rho, RADIUS_SHARE / REFRESHES),
    )
    return times, left * (1 - stage_share)


def refined_pca_on_axes(
    basis: FloatArray, lengths: FloatArray, k: int, total: float, scale: float
) -> AlignedCovariance:
    """Return directions with these variances; the rest of the total is spread evenly over all others. Entries
    off the diagonal are limited only by the variances. Shape: basis (d, m), lengths (m,), falling."""
    d, m = basis.shape
    level = max(total - float(lengths.sum()), 1e-3 * total, 1e-12) / max(d - m, 1)
    variances = np.maximum(lengths, level)
    return AlignedCovariance(
        basis=basis,
        variances=variances,
        level=level,
        sd=_allowed(variances, k, d),
        gap_noise=BLUR * float(variances[k - 1]),
        variance_sd=scale,
    )


def _allowed(variances: FloatArray, k: int, d: int) -> FloatArray:
    """Return the cross covariances that the variances allow: sqrt(l_i l_j), and l_i spread over columns.
    Shape: (m,) -> (k, m - k + 1)."""
    lead = variances[:k, None]
    return np.hstack([np.sqrt(lead * variances[k:]), lead / math.sqrt(d)])


# Distance of two equal variances that were measured apart, in the root mean square, and their least gap, both
# in sd of one; and the power of a first stage's error that is left at least. The last two were chosen on
# seeds 0 to 11 of `python -m benchmarks.stated_error`.
MEASURED_APART, LEAST_GAP, LEFT_POWER = math.sqrt(2), 0.1, 3


def _measured(
    start: LocationEstimate, first: AlignedCovariance, found: AlignedCovariance, total: float, before: float
) -> Estimate:
    """Return the estimate of revision 2, whose first stage states `before` and shows the next variances."""
    k = start.plan.study.components
    following, noise = float(np.append(first.variances, first.level)[k]), math.sqrt(2) * first.variance_sd
    apart = separation_warning(first.variances[:k], following, noise)
    stated = max(found.stated_sine(start, LEAST_GAP, MEASURED_APART), before**LEFT_POWER)
    return _estimate(start, found, total, stated, apart)


def _estimate(
    start: LocationEstimate,
    found: AlignedCovariance,
    total: float,
    stated: float,
    warnings: tuple[str, ...],
) -> Estimate:
    """Return the estimate of a refinement. A stated radius leaves no stated error."""
    k, known = start.plan.study.components, quantile(start.plan.study.radius) is None
    return Estimate(
        components=fix_signs(found.basis[:, :k]).T,
        explained_variance=found.variances[:k],
        mean=start.mean,
        records=start.records,
        total_variance=total,
        noise_scale=found.variance_sd,
        sin_error=stated if known else None,
        warnings=centre_warning(centre_sine(start, found.gaps())) + (warnings if known else ()),
    )
