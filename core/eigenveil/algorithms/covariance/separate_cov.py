"""separate-cov: eigenvalues from one noised spectrum, eigenvectors from one noised matrix.

Source: Dong, Liang, Yi 2022 (SeparateCov). It is for the matrix in Frobenius norm, where d columns cost
d^(1/4) instead of d; its directions are those of `gauss-cov` at half the budget.
"""

from __future__ import annotations

from collections.abc import Generator

import numpy as np

from eigenveil.algorithms.covariance.noised_gram import (
    Clip,
    covariance,
    matrix_warnings,
    noise_ratio,
    prepared,
    stated_error,
)
from eigenveil.algorithms.shared.preparation import Centred, priced
from eigenveil.numerics.encoding import FloatArray
from eigenveil.numerics.linalg import eigenpairs
from eigenveil.protocol.estimate import Estimate, Steps
from eigenveil.protocol.plan import Plan
from eigenveil.protocol.query import PricedQuery
from eigenveil.protocol.release import Release
from eigenveil.queries import Spectrum


def separate_cov(plan: Plan) -> Steps:
    """Count, mean, radius, then half of what is left for the spectrum and half for a Gram matrix.

    Neighbours: as the study says.
    Privacy: [P7], [P10]; the spectrum is noised at the coordinator, which must be trusted with exact sums.
    Cost: the whole budget, d (d + 1) integers from every site, 8 rounds (7 without clipping).
    """
    start, clip = yield from prepared(plan, noise_ratio(plan))
    return (yield from separately(plan, start, clip))


def separately(plan: Plan, start: Centred, clip: Clip) -> Steps:
    """sum_i values_i v_i v_i^T and its leading components: values and v_i at half of what is left each."""
    k = plan.study.components
    values, _ = yield from spectrum(plan, start, clip, clip.left / 2)
    noised = yield from covariance(plan, start, clip, clip.left / 2)
    _, vectors = eigenpairs(noised.matrix)
    return Estimate(
        components=vectors[:, :k].T,
        explained_variance=values[:k],
        mean=start.mean,
        records=start.records,
        total_variance=float(values.sum()),
        noise_scale=noised.scale,
        sin_error=stated_error(plan, start, clip, values, noised.scale),
        covariance=(vectors * values) @ vectors.T,
        warnings=matrix_warnings(plan, start, clip, values),
    )


def spectrum(
    plan: Plan, start: Centred, clip: Clip, share: float
) -> Generator[PricedQuery, Release, tuple[FloatArray, float]]:
    """Noised eigenvalues of the covariance, put in order and cut off at 0 (d,), and the sd of their noise."""
    query = Spectrum(centre=start.centre, radius=clip.radius, records=plan.most_records)
    release = yield priced(plan, query, share)
    unit = clip.unit(start.records)
    return np.maximum(np.sort(release.values)[::-1] / unit, 0.0), release.sigma / unit
