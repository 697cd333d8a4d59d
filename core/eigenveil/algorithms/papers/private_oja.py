"""Algorithm 2 of [DPPCA], Oja's rule with noise: private-oja by batches, private-oja-shuffled by records."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from eigenveil.accounting.amplification import local_micro_rho
from eigenveil.accounting.zcdp import ATTO, Neighbours, mu
from eigenveil.algorithms.papers.oja import (
    CANDIDATES,
    FLOOR,
    BatchPass,
    RoundCounter,
    RunningStrength,
    StepSchedule,
    orthonormalise_against,
)
from eigenveil.algorithms.recommended.dp_pca import VARIANCE_SHARE, read_variances
from eigenveil.algorithms.shared.clip_radius import NormGrid, choose_radius, read_histogram
from eigenveil.algorithms.shared.preparation import (
    LocationEstimate,
    cost_of_share,
    effective_mu,
    locate,
    query_at_share,
    row_radius,
    share_of,
    shares,
    signal_to_noise,
)
from eigenveil.algorithms.shared.query_builders import GradientQueryBuilder
from eigenveil.algorithms.shared.stated_error import centre_sine, centre_warning, even_gaps
from eigenveil.errors import Code, RequestError
from eigenveil.numerics.encoding import FloatArray
from eigenveil.numerics.linalg import fix_signs, orthonormal, start_directions
from eigenveil.protocol.estimate import Estimate, Steps, StepsTo
from eigenveil.protocol.plan import Plan
from eigenveil.queries import SquaredNormSum
from eigenveil.study.grid import S
from eigenveil.study.radius import quantile
from eigenveil.study.study import Extraction

SEARCHED = 15_000.0  # signal from which a search for the step sizes is worth its noise (measured)


def private_oja(plan: Plan) -> Steps:
    """Run private-oja: count, mean, one pass (or one a component), explained variances.

    Batches (equation 7 of [DPPCA]) are disjoint, so every step may have the whole cost of the pass [P9].
    Privacy: [P7], [P9]; each query is charged and answered behind the barrier.
    Cost: the whole budget, d k integers a round from every site (d k c with c candidate schedules)."""
    study, rounds = plan.study, RoundCounter()
    start = yield from rounds.through(locate(plan))
    w = yield from _passes(start, rounds, start.left - VARIANCE_SHARE)
    variances, total, scale = yield from read_variances(start, w)
    # The schedule whose k directions have the largest sum of Rayleigh quotients.
    chosen = int(np.argmax(variances.reshape(-1, study.components).sum(axis=1))) * study.components
    selected = slice(chosen, chosen + study.components)
    return ordered(start, w[:, selected], variances[selected], total, scale)


def ordered(
    start: LocationEstimate,
    found: FloatArray,
    variances: FloatArray,
    total: float,
    scale: float,
    warnings: tuple[str, ...] = (),
) -> Estimate:
    """Return the estimate of directions, largest variance first. Shape: found (d, k), variances (k,)."""
    order = np.argsort(-variances, kind="stable")
    centre = centre_sine(start, even_gaps(variances, total, len(found)) - scale)
    return Estimate(
        components=fix_signs(found[:, order]).T,
        explained_variance=variances[order],
        mean=start.mean,
        records=start.records,
        total_variance=total,
        noise_scale=scale,
        sin_error=None,
        warnings=centre_warning(centre) + warnings,
    )


def _passes(start: LocationEstimate, rounds: RoundCounter, share: float) -> StepsTo[FloatArray]:
    """Return each schedule's k directions, concatenated. Shape: (d, c k)."""
    plan = start.plan
    d, k = plan.study.dimension, plan.study.components
    # Several schedules run in parallel: one gradient of more columns, so more noise for each.
    rates = CANDIDATES[: d // k] if signal_to_noise(start) >= SEARCHED else CANDIDATES[:1]
    block = plan.study.rank is Extraction.BLOCK
    columns = k if block else 1  # of a pass
    found = [np.zeros((d, 0)) for _ in rates]
    for j in range(0, k, columns):
        new = start_directions(d, j + columns)[:, -columns:]
        begun = np.hstack([new if block else orthonormalise_against(new, before) for before in found])
        cost = share_of(plan.micro_rho, share / (k // columns))
        more = yield from rounds.through(_pass(start, rounds.started, cost, begun, found, rates))
        found = [np.hstack([before, new]) for before, new in zip(found, more, strict=True)]
    return np.hstack(found)


def _pass(
    start: LocationEstimate,
    first: int,
    cost: int,
    w: FloatArray,
    found: list[FloatArray],
    rates: tuple[StepSchedule, ...],
) -> StepsTo[list[FloatArray]]:
    """Use all batches once: some for the radius, the others a step each. Shape: w (d, c m), found (d, j)."""
    once = BatchPass(plan=start.plan, first=first, micro_rho=cost)
    strength, radius, taken = RunningStrength(w.shape[1]), math.nan, 0
    refreshes = radius_batches(once.size)
    for t in range(once.size):
        slope = GradientQueryBuilder(centre=start.centre, directions=w, offset=np.zeros_like(w))
        if t in refreshes:
            radius = yield from batch_gradient_radius(start, once, slope, radius)
            continue
        query, unit = slope.query(radius)
        sums: FloatArray = (yield once.about(query)).values.reshape(w.shape).astype(np.float64)
        gradient = sums * (once.size / (unit * start.records))
        level = strength.after(w, gradient)
        every = np.split(level, len(rates))
        steps = [rate.step(taken, x) for rate, part in zip(rates, every, strict=True) for x in part.tolist()]
        moved = np.split(w + gradient * np.array(steps), len(rates), axis=1)
        w = np.hstack([orthonormalise_against(new, before) for new, before in zip(moved, found, strict=True)])
        taken += 1
    return np.split(w, len(rates), axis=1)


def radius_batches(batches: int) -> tuple[int, ...]:
    """Return the batches for the clip radius: at the beginning, and after the directions have converged."""
    return tuple(sorted({0, min(3, batches // 4), batches // 3}))


def batch_gradient_radius(
    start: LocationEstimate, once: BatchPass, slope: GradientQueryBuilder, before: float
) -> StepsTo[float]:
    """Return a clip radius by the study's rule, from one batch's histogram of gradient norms."""
    plan = start.plan
    grid = NormGrid(top=start.norms.largest**2 * float(np.linalg.norm(slope.directions, 2)))
    histogram = read_histogram((yield once.about(slope.norms(grid))), grid)
    # The relevant noise is that after averaging over the steps.
    noise = 4 * math.sqrt(slope.offset.size / once.size) / effective_mu(plan, once.micro_rho)
    rule, fallback = quantile(plan.study.radius), None if math.isnan(before) else before
    return choose_radius(histogram, rule, noise, power=1, quadratic=False, fallback=fallback)


SHUFFLED_VARIANCE_SHARE = 0.05  # of epsilon
GAIN = 2.0


def private_oja_shuffled(plan: Plan) -> Steps:
    """Run private-oja-shuffled: count, mean, variance, and a round for each position of the order.

    Algorithm 2 of [DPPCA] as published: each record is one local randomiser, in a secret order [P24]. The
    coordinator would receive the gradients of single records, so no coordinator and no site accepts it. The
    steps' offset is the paper's, with the released variance in place of the spectrum.

    Neighbours: replace-one.
    Privacy: [P7], [P24]; each query is charged and answered behind the barrier.
    Cost: the whole budget, d k integers a round, a round a record.
    Raises RequestError: other neighbours, or too few records for amplification."""
    study, rounds, k = plan.study, RoundCounter(), plan.study.components
    if study.neighbours is not Neighbours.REPLACE_ONE:
        raise RequestError(
            Code.BAD_STUDY, 'private-oja-shuffled needs neighbours = "replace-one"; set it in the study'
        )
    least = 1 - shares(plan).count - shares(plan).small_mean - SHUFFLED_VARIANCE_SHARE
    local_micro_rho(mu(cost_of_share(plan, least)), plan.atto_delta / ATTO, plan.batches)  # refuses early
    start = yield from rounds.through(locate(plan))
    noise = 8 * math.sqrt(plan.batches)
    radius = choose_radius(start.norms, quantile(study.radius), noise, power=2, quadratic=False)
    total = yield from rounds.through(_variance(start, radius))
    share = start.left - SHUFFLED_VARIANCE_SHARE
    once = BatchPass(
        plan=plan, first=rounds.started, micro_rho=cost_of_share(plan, share), atto_delta=plan.atto_delta
    )
    begun = start_directions(study.dimension, k)
    w, lengths, scale = yield from _shuffled_pass(start, once, radius**2, total, begun)
    found = ordered(start, w, lengths, total, scale)
    return replace(found, explained_variance=np.maximum(found.explained_variance, 0.0))


def _variance(start: LocationEstimate, radius: float) -> StepsTo[float]:
    """Return the noised trace, an upper limit of every direction's variance."""
    query = SquaredNormSum(centre=start.centre, radius=row_radius(radius, start.centre.size))
    release = yield query_at_share(start.plan, query, SHUFFLED_VARIANCE_SHARE)
    return max(float(release.values[0]) / (S**2 * start.records), FLOOR)


def _shuffled_pass(
    start: LocationEstimate, once: BatchPass, radius: float, total: float, w: FloatArray
) -> StepsTo[tuple[FloatArray, FloatArray, float]]:
    """Use all positions once; return directions, noised Rayleigh quotients and their noise. The quotients are
    averaged over the second half. Shape: w (d, k) -> (d, k), (k,)."""
    local = local_micro_rho(mu(once.micro_rho), once.atto_delta / ATTO, once.size)
    sigma = 2 * radius / mu(local)  # of one entry of one noised gradient
    rates = StepSchedule(gain=GAIN, offset=max(1.0, w.shape[0] * (GAIN * sigma / total) ** 2))
    lengths, seen = np.zeros(w.shape[1]), 0
    nothing = np.zeros_like(w)
    for t in range(once.size):
        query, unit = GradientQueryBuilder(centre=start.centre, directions=w, offset=nothing).query(radius)
        gradient = (yield once.about_record(query)).values.reshape(w.shape) / unit
        if 2 * t >= once.size:
            lengths, seen = lengths + (w * gradient).sum(axis=0), seen + 1
        w = orthonormal(w + rates.step(t, total) * gradient)
    return w, lengths / max(seen, 1), sigma / math.sqrt(max(seen, 1))
