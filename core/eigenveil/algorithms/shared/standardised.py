"""scaling = "standard": any algorithm on columns in parts of their standard deviations.

A part of the budget gives the columns' middles and standard deviations (`column_scales`), which are public
from then on. The algorithm then runs with the rest, on rows that a frame shows in these units: every
question, its sensitivity and its proof are what they are [P29]. What it found is turned back into the study's
units.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from eigenveil.algorithms.shared.column_scales import (
    SPREADS,
    ColumnScales,
    column_scales,
    scale_shares,
    scale_warnings,
)
from eigenveil.algorithms.shared.preparation import part
from eigenveil.algorithms.shared.stated_error import scale_sine
from eigenveil.numerics.encoding import FloatArray
from eigenveil.numerics.linalg import eigenpairs, fix_signs
from eigenveil.protocol.estimate import Estimate, Steps
from eigenveil.protocol.plan import Plan
from eigenveil.protocol.query import PricedQuery
from eigenveil.queries import OnGradients, Query
from eigenveil.queries.batch import pass_key
from eigenveil.study.grid import S
from eigenveil.study.price import Composition
from eigenveil.study.study import Scaling

BEFORE = 2  # rounds, which give the scales
LEAST = 0.05  # of a column's variance after it was divided by the first look at it


def standardised(plan: Plan, algorithm: Callable[[Plan], Steps]) -> Steps:
    """The scales of the columns, then `algorithm` with what is left, in these.

    Neighbours: as the study says.
    Privacy: [P7], [P29]; each question is priced and answered behind the barrier.
    Cost: the whole budget; the algorithm's rounds and two more.
    """
    scales = yield from column_scales(plan)
    steps = algorithm(remainder(plan))
    try:
        asked = next(steps)
        while True:
            asked = steps.send((yield _through(plan, asked, scales)))
    except StopIteration as end:
        return in_units(plan, scales, end.value)


def remainder(plan: Plan) -> Plan:
    """What an algorithm runs after the scales are known: the same study by bounds, those of the frame, with
    what is left of its budget."""
    share = 1 - scale_shares(plan).both
    basic = plan.composition is Composition.BASIC
    left = part(plan.micro_rho, (share * (1 - 1e-9)) ** 2 if basic else share)
    return replace(plan, study=replace(plan.study, scaling=Scaling.BOUNDS), micro_rho=left)


def _through(plan: Plan, asked: PricedQuery, scales: ColumnScales) -> PricedQuery:
    """A question of the algorithm's own as the study asks it: through the frame, BEFORE rounds later."""
    return replace(asked, query=_later(plan, asked.query), frame=scales.frame)


def _later(plan: Plan, query: Query) -> Query:
    """The same question; a pass is named by the round that it began in."""
    if not isinstance(query, OnGradients) or query.batch is None:
        return query
    first, batches = query.batch.first + BEFORE, query.batch.batches
    return replace(query, batch=replace(query.batch, first=first, key=pass_key(plan.digest, first, batches)))


def in_units(plan: Plan, scales: ColumnScales, found: Estimate) -> Estimate:
    """What an algorithm found in its frame, about columns in parts of their standard deviations.

    A matrix that it released says more of these than the first two questions did, for nothing [P7].
    """
    unit = float(SPREADS)  # what 1 is in the frame
    matrix = None if found.covariance is None else found.covariance * unit**2
    scaled = replace(
        found,
        explained_variance=found.explained_variance * unit**2,
        mean=(scales.frame.middles + found.mean * unit * scales.spreads) / S,
        total_variance=found.total_variance * unit**2,
        noise_scale=found.noise_scale * unit**2,
        covariance=matrix,
        noise=None if found.noise is None else found.noise.in_units(unit**2),
        warnings=(*scale_warnings(plan.study, scales), *found.warnings),
        scale=scales.spreads / S,
    )
    if matrix is None or found.noise_scale == 0 or not len(found.components):
        # Standardised columns vary by 1 each: what they vary by more is what their scales are too small by.
        excess = max(scaled.total_variance / plan.study.dimension - 1, 0.0)
        return replace(scaled, sin_error=_with_scales(scaled, np.hypot(scales.errors, excess)))
    by, errors = _second_look(np.diagonal(matrix), scaled.noise_scale, scales.errors)
    divided = _divided(scaled, matrix, by)
    return replace(divided, sin_error=_with_scales(divided, errors))


def _second_look(variances: FloatArray, noise: float, errors: FloatArray) -> tuple[FloatArray, FloatArray]:
    """What to divide the columns by once more, and how far their variances are off then, in parts.

    The first look at a variance says 1 and is off by `errors`; a matrix says `variances`, and is off by
    `noise`: each counts as much as it is known better. None is divided by less than what noise is.
    Shape: (d,), (d,) -> (d,), (d,).
    """
    total = errors**2 + noise**2
    believed = (variances * errors**2 + noise**2) / total
    least = max(LEAST, 2 * noise)
    left = np.where(believed < least, 1.0, errors * noise / np.sqrt(total))
    return np.sqrt(np.maximum(believed, least)), left


def _divided(found: Estimate, before: FloatArray, by: FloatArray) -> Estimate:
    """The estimate about columns divided by that as well; components keep what the algorithm knew beyond its
    matrix of where they lie, and variances what it made of that. Shape: before (d, d), by (d,)."""
    k, matrix = len(found.components), before / np.outer(by, by)
    shown = np.vecdot(found.components @ before, found.components)
    rest = np.eye(len(by)) - found.components.T @ found.components
    turned = (found.components.T * shown) @ found.components + rest @ before @ rest
    values, vectors = eigenpairs(turned / np.outer(by, by))
    made = np.divide(found.explained_variance, shown, out=np.ones(k), where=shown > 0)
    return replace(
        found,
        components=fix_signs(vectors[:, :k]).T,
        explained_variance=np.maximum(values[:k], 0.0) * made,
        total_variance=max(float(np.trace(matrix)), 0.0),
        noise_scale=found.noise_scale * float((1 / by**2).mean()),
        covariance=matrix,
        noise=None if found.noise is None else replace(found.noise, divided=tuple(by.tolist())),
        scale=None if found.scale is None else found.scale * by,
    )


def _with_scales(found: Estimate, errors: FloatArray) -> float | None:
    """The stated sine with what scales add whose squares are off by `errors`, in parts. Shape: (d,)."""
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
