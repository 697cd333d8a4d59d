"""private-oja: Oja's rule on noised gradients of disjoint batches of the records.

Source: Algorithm 2 of [DPPCA], as minibatches (its equation 7). Each batch is about other people, so every
step may spend the whole price of the pass [P9]. Gradients x (x . w) are clipped by a radius that some of the
batches are spent on; the bound ||x||^2 of the paper is sqrt(tr / lambda1) times longer than typical
gradients. Its error does not vanish with the spread of the gradients, as that of dp-pca does.
"""

from __future__ import annotations

import math
from collections.abc import Generator

import numpy as np

from eigenveil.algorithms.gradient.dp_pca import VARIANCE_SHARE, read_variances
from eigenveil.algorithms.shared.clip_radius import Balance, Grid, choose, read_histogram
from eigenveil.algorithms.shared.gradient_query import Slope
from eigenveil.algorithms.shared.passes import Pass, Rounds, apart
from eigenveil.algorithms.shared.preparation import COUNT_SHARE, Centred, drawn_mu, locate, part, signal
from eigenveil.algorithms.shared.stated_error import centre_sine, centre_warning, even_gaps
from eigenveil.algorithms.shared.step_sizes import CANDIDATES, Rates, Strength, best
from eigenveil.numerics.encoding import FloatArray
from eigenveil.numerics.linalg import fix_signs, start_directions
from eigenveil.protocol.estimate import Estimate, Steps
from eigenveil.protocol.plan import Plan
from eigenveil.protocol.query import PricedQuery
from eigenveil.protocol.release import Release
from eigenveil.study.radius import quantile
from eigenveil.study.study import Extraction

SEARCHED = 15_000.0  # signal from which on a search for the step lengths is worth its noise (measured)


def private_oja(plan: Plan) -> Steps:
    """Count, mean, one pass (or one a component), explained variances.

    Neighbours: as the study says.
    Privacy: [P7], [P9]; the questions are priced and answered behind the barrier.
    Cost: the whole budget, d k integers a round from every site (d k c with c schedules on trial).
    """
    study, rounds = plan.study, Rounds()
    start = yield from rounds.through(locate(plan))
    left = 1 - COUNT_SHARE - start.mean_share - VARIANCE_SHARE
    w = yield from _passes(plan, start, rounds, left)
    variances, total, scale = yield from read_variances(plan, start, w)
    chosen = best(variances, study.components) * study.components
    kept = slice(chosen, chosen + study.components)
    return ordered(start, w[:, kept], variances[kept], total, scale)


def ordered(
    start: Centred,
    found: FloatArray,
    variances: FloatArray,
    total: float,
    scale: float,
    warnings: tuple[str, ...] = (),
) -> Estimate:
    """An estimate of directions found one by one, the longest first. Shape: found (d, k), variances (k,)."""
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


def schedules(plan: Plan, start: Centred) -> tuple[Rates, ...]:
    """The step lengths to try side by side: one gradient of more columns, hence louder noise for each."""
    fit = plan.study.dimension // plan.study.components
    return CANDIDATES[:fit] if signal(plan, start.records) >= SEARCHED else CANDIDATES[:1]


def _passes(
    plan: Plan, start: Centred, rounds: Rounds, share: float
) -> Generator[PricedQuery, Release, FloatArray]:
    """Each schedule's k directions, side by side. Shape: (d, c k)."""
    d, k = plan.study.dimension, plan.study.components
    rates = schedules(plan, start)
    if plan.study.rank is Extraction.BLOCK:
        price = part(plan.micro_rho, share)
        nothing = [np.zeros((d, 0)) for _ in rates]
        begun = np.tile(start_directions(d, k), len(rates))
        found = yield from rounds.through(_pass(plan, start, rounds.asked, price, begun, nothing, rates))
        return np.hstack(found)
    found = [np.zeros((d, 0)) for _ in rates]
    for j in range(k):
        begun = np.hstack([apart(start_directions(d, j + 1)[:, -1:], before) for before in found])
        price = part(plan.micro_rho, share / k)
        more = yield from rounds.through(_pass(plan, start, rounds.asked, price, begun, found, rates))
        found = [np.hstack([before, new]) for before, new in zip(found, more, strict=True)]
    return np.hstack(found)


def _pass(
    plan: Plan,
    start: Centred,
    first: int,
    price: int,
    w: FloatArray,
    found: list[FloatArray],
    rates: tuple[Rates, ...],
) -> Generator[PricedQuery, Release, list[FloatArray]]:
    """All batches once: some for the radius, each other one a step. Shape: w (d, c m), found c of (d, j)."""
    once, columns = Pass(plan=plan, first=first, micro_rho=price), w.shape[1] // len(rates)
    strength, radius, taken = Strength(w.shape[1]), math.nan, 0
    refreshes = radius_batches(once.size)
    for t in range(once.size):
        slope = Slope(centre=start.centre, directions=w, offset=np.zeros_like(w))
        if t in refreshes:
            radius = yield from gradient_radius(plan, start, once, slope, radius)
            continue
        query, unit = slope.query(radius)
        release = yield once.about(query)
        sums: FloatArray = release.values.reshape(w.shape).astype(np.float64)
        gradient = sums * (once.size / (unit * start.records))
        level = strength.after(w, gradient)
        steps = [
            rate.step(taken, float(level[i * columns + j]))
            for i, rate in enumerate(rates)
            for j in range(columns)
        ]
        moved = np.split(w + gradient * np.array(steps), len(rates), axis=1)
        w = np.hstack([apart(new, before) for new, before in zip(moved, found, strict=True)])
        taken += 1
    return np.split(w, len(rates), axis=1)


def radius_batches(batches: int) -> tuple[int, ...]:
    """The batches that a clip radius is read from: at the beginning, and once the directions have turned."""
    return tuple(sorted({0, min(3, batches // 4), batches // 3}))


def gradient_radius(
    plan: Plan, start: Centred, once: Pass, slope: Slope, before: float
) -> Generator[PricedQuery, Release, float]:
    """A clip radius by the study's rule, from one batch's histogram of gradient norms."""
    grid = Grid(top=start.norms.largest**2 * float(np.linalg.norm(slope.directions, 2)))
    histogram = read_histogram((yield once.about(slope.norms(grid))), grid)
    # What matters is the noise left after the steps have averaged.
    noise = 4 * math.sqrt(slope.offset.size / once.size) / drawn_mu(plan, once.micro_rho)
    rule = Balance(power=1, noise=noise, quadratic=False)
    return choose(histogram, quantile(plan.study.radius), rule, None if math.isnan(before) else before)
