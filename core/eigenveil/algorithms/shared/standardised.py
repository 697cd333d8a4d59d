"""scaling = "standard": any algorithm on columns in units of their standard deviations.

A part of the budget gives the columns' middles and standard deviations (`column_scales`), which are then
public. The algorithm runs with the rest on rows in a frame of these units. Queries, sensitivities and proofs
are unchanged [P29]. Its result is converted to the study's units."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from eigenveil.algorithms.shared.column_scales import (
    SPREADS,
    ColumnScales,
    column_scales,
    scale_warnings,
)
from eigenveil.algorithms.shared.preparation import cost_of_share, keeps_fractions, shares
from eigenveil.algorithms.shared.stated_error import scale_sine
from eigenveil.numerics.encoding import FloatArray
from eigenveil.numerics.linalg import eigenpairs, fix_signs
from eigenveil.protocol.estimate import Estimate, MatrixClipping, Outcome, Steps, StepsTo
from eigenveil.protocol.plan import Plan
from eigenveil.protocol.query import PricedQuery
from eigenveil.queries import GradientQuery, Query
from eigenveil.queries.gradients import pass_key
from eigenveil.study import grid
from eigenveil.study.grid import S
from eigenveil.study.study import Scaling

SCALE_ROUNDS = 2  # rounds for the scales
LEAST = 0.05  # least variance of a column, relative to its first estimate
UNKNOWN = 1.0  # relative error of a variance that noise hides


def standardised(plan: Plan, algorithm: Callable[[Plan], Steps]) -> Steps:
    """Run the queries for the column scales, then `algorithm` with the rest of the budget.
    Privacy: [P7], [P29]; each query is charged and answered behind the barrier.
    Cost: the whole budget; the algorithm's rounds and two more."""
    scales = yield from column_scales(plan)

    def in_frame(priced_query: PricedQuery) -> PricedQuery:
        return replace(priced_query, query=_later(plan, priced_query.query), frame=scales.frame)

    found = yield from changed_queries(algorithm(remaining_plan(plan)), in_frame)
    return in_units(plan, scales, found)


def changed_queries(
    steps: StepsTo[Outcome], change: Callable[[PricedQuery], PricedQuery]
) -> StepsTo[Outcome]:
    """Run `steps` with each of their queries changed."""
    release = None
    while True:
        try:
            priced_query = next(steps) if release is None else steps.send(release)
        except StopIteration as end:
            outcome: Outcome = end.value
            return outcome
        release = yield change(priced_query)


def remaining_plan(plan: Plan) -> Plan:
    """Return the plan after the scales: scaling by the frame's bounds, with the rest of the budget."""
    left, prior = cost_of_share(plan, 1 - sum(shares(plan).scales)), plan.study.prior
    # In the frame columns have one unit, their standard deviations: the axes of a prior are as before.
    framed = None if prior is None else replace(prior, scaling=Scaling.BOUNDS)
    study = replace(plan.study, scaling=Scaling.BOUNDS, prior=framed)
    return replace(plan, study=study, micro_rho=left)


def _later(plan: Plan, query: Query) -> Query:
    """Return the same query SCALE_ROUNDS rounds later; the key of a pass depends on its first round."""
    if not isinstance(query, GradientQuery) or query.batch is None:
        return query
    first, batches = query.batch.first_round + SCALE_ROUNDS, query.batch.batches
    return replace(
        query, batch=replace(query.batch, first_round=first, key=pass_key(plan.digest, first, batches))
    )


def in_units(plan: Plan, scales: ColumnScales, found: Estimate) -> Estimate:
    """Return an algorithm's result in its frame, converted to columns in their standard deviations. A
    released matrix improves the scales of the first two queries without cost [P7]. Records were rounded on
    the grid of the bounds, which adds to each variance."""
    unit = float(SPREADS)  # standard deviations per unit of the frame
    rounding = (grid.unit(plan.study) / scales.spreads) ** 2 / 12 * keeps_fractions(plan)
    matrix = None if found.covariance is None else found.covariance * unit**2
    scaled = replace(
        found,
        explained_variance=found.explained_variance * unit**2,
        mean=(scales.frame.middles + found.mean * unit * scales.spreads) / S,
        total_variance=found.total_variance * unit**2,
        noise_scale=found.noise_scale * unit**2,
        covariance=matrix,
        noise=None if found.noise is None else found.noise.in_units(unit**2),
        clipping=None if found.clipping is None else _with_ends(scales, found.clipping).in_units(unit**2),
        warnings=(*scale_warnings(plan.study, scales), *found.warnings),
        scale=scales.spreads / S,
    )
    if matrix is None or found.noise_scale == 0 or not len(found.components):
        # Standardised columns have variance 1: an excess shows that their scales are too small.
        excess = max(scaled.total_variance / plan.study.dimension - 1, 0.0)
        errors = np.hypot(np.hypot(scales.errors, excess), rounding)
        return replace(scaled, sin_error=_with_scales(scaled, errors))
    by, errors = _second_look(np.diagonal(matrix), scaled.noise_scale, scales.errors)
    divided = _divided(scaled, matrix, by)
    stated = _with_scales(divided, np.hypot(errors, rounding))
    if stated is not None and keeps_fractions(plan):
        # A component has about this share in columns that were divided by an assumption.
        stated = min(1.0, math.hypot(stated, float((errors >= UNKNOWN).mean())))
    return replace(divided, sin_error=stated)


def _with_ends(scales: ColumnScales, clipping: MatrixClipping) -> MatrixClipping:
    """Return the limits of clipping with what the ends of the frame cut off."""
    lost = np.array(clipping.lost) + scales.lost
    return replace(clipping, lost=tuple(lost.tolist()), outside=tuple(scales.outside.tolist()))


def _second_look(variances: FloatArray, noise: float, errors: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return a second divisor of the columns, and the relative errors of their variances after it. The first
    estimate of a variance is 1 with error `errors`, that of the matrix `variances` with error `noise`; the
    result is their weighted mean. The divisor is at least the noise. Shape: (d,), (d,) -> (d,), (d,)."""
    total = errors**2 + noise**2
    believed = (variances * errors**2 + noise**2) / total
    least = max(LEAST, 2 * noise)
    left = np.where(believed < least, UNKNOWN, errors * noise / np.sqrt(total))
    return np.sqrt(np.maximum(believed, least)), left


def _divided(found: Estimate, before: FloatArray, by: FloatArray) -> Estimate:
    """Return the estimate for the divided columns. Shape: before (d, d), by (d,). Components and variances
    keep the algorithm's knowledge beyond its matrix; beside those of a prior it may be noise."""
    k, matrix = len(found.components), before / np.outer(by, by)
    shown = np.vecdot(found.components @ before, found.components)
    rest = np.eye(len(by)) - found.components.T @ found.components
    outside = rest @ before @ rest
    if found.prior is not None and found.prior.used:
        shown = found.explained_variance
        outside = _shrunk(outside, rest, found.noise_scale, float(shown.min()))
    turned = (found.components.T * shown) @ found.components + outside
    values, vectors = eigenpairs(turned / np.outer(by, by))
    made = np.divide(found.explained_variance, shown, out=np.ones(k), where=shown > 0)
    return replace(
        found,
        components=fix_signs(vectors[:, :k]).T,
        explained_variance=np.maximum(values[:k], 0.0) * made,
        total_variance=max(float(np.trace(matrix)), 0.0),
        noise_scale=found.noise_scale * float((1 / by**2).mean()),
        covariance=matrix,
        noise=None if found.noise is None else replace(found.noise, divisors=tuple(by.tolist())),
        scale=None if found.scale is None else found.scale * by,
    )


def _shrunk(matrix: FloatArray, onto: FloatArray, noise: float, most: float) -> FloatArray:
    """Return a noised matrix in the range of a projection, with its variances nearer to their mean as far as
    they are noise, and between 0 and `most`. Shape: (d, d), (d, d) -> (d, d)."""
    d, even = len(matrix), float(np.trace(matrix)) / float(np.trace(onto)) * onto
    uneven = float(((matrix - even) ** 2).sum())
    share = max(1 - noise**2 / 2 * d**2 / uneven, 0.0) if uneven > 0 else 0.0
    values, vectors = eigenpairs(even + share * (matrix - even))
    return np.asarray(vectors * np.clip(values, 0.0, most) @ vectors.T)


def _with_scales(found: Estimate, errors: FloatArray) -> float | None:
    """Return the stated sine including scales with relative errors `errors` of their squares. Shape: (d,)."""
    k, d = found.components.shape
    if found.sin_error is None or not 0 < k < d:
        return found.sin_error
    if found.covariance is None:
        level = max(found.total_variance - float(found.explained_variance.sum()), 0.0) / (d - k)
        values, others = np.r_[found.explained_variance, np.full(d - k, level)], np.full((d, d - k), 1 / d)
    else:
        values, vectors = eigenpairs(found.covariance)
        others = vectors[:, k:] ** 2
    mixed = (found.components**2 * errors**2) @ others
    return min(1.0, math.hypot(found.sin_error, scale_sine(values, mixed)))
