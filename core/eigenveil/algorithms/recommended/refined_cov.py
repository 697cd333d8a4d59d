"""refined-cov, and the choice of a first stage by a first part of the matrix: the rest of it, or gradients.

refined-cov chooses on wide tables, `auto` on all. Gradients are better if the total variance is many times
the wanted variances, which a first part of the matrix shows. Two parts are as exact as one matrix."""

from __future__ import annotations

import math
from dataclasses import replace
from enum import Enum

import numpy as np

from eigenveil.algorithms.recommended.gauss_cov import (
    GaussCovariance,
    combine_matrices,
    covariance,
    gauss_cov,
)
from eigenveil.algorithms.recommended.refined import (
    PREPARED,
    WIDE_MATRIX,
    by_gradients,
    matrix_clip,
    matrix_share,
    refined_matrix,
)
from eigenveil.algorithms.shared.preparation import LocationEstimate, keeps_fractions, locate
from eigenveil.algorithms.shared.refinement import refinement_steps
from eigenveil.numerics.linalg import eigenvalues
from eigenveil.protocol.estimate import Steps
from eigenveil.protocol.plan import Plan
from eigenveil.study.algorithm import Algorithm

# First part of a matrix: of its share; of a wide one, of the budget after the mean.
PROBE, WIDE_PROBE = 1 / 3, 0.05
# Height of the last component above the other variances, in sd sqrt(d) of that part; noise alone reaches 2
# (Wigner). FLAT is the total variance, in k sd sqrt(d), from which gradients find hidden components
# (measured).
SEEN, FLAT = 2.3, 30.0
# Of a wide matrix: height of the first component. On twelve generated spectra of 1,000 and 1,100 columns, by
# a first part of .1, gradients had .98 to 3.3 times the error of the rest of the matrix from 2.04 on, but for
# two studies, and .47 to 1.2 times below, but for two with twenty near-equal variances. A part of .05 costs
# gradients less. Noise alone reached 2.04 on one of five studies of 2,000 columns. Other spectra and seeds:
# `python -m benchmarks.wide_accuracy`.
WIDE_SEEN = 2.08


class FirstStage(Enum):
    """First stage, chosen by the first releases."""

    MATRIX = "matrix"
    GRADIENTS = "gradients"


def is_wide(plan: Plan) -> bool:
    """Return True if a plan with a matrix has the rule for many columns."""
    return plan.study.dimension >= WIDE_MATRIX and keeps_fractions(plan)


def chooses_stage(plan: Plan) -> bool:
    """Return True if the releases of refined-cov choose its first stage. A prior needs the whole matrix."""
    return plan.algorithm is Algorithm.REFINED_COV and is_wide(plan) and plan.study.prior is None


def refined_cov(plan: Plan, first_stage: FirstStage | None = None) -> Steps:
    """Run refined-cov: count, mean, a Gram matrix, a histogram, 1, 2 or (weak matrix) 8 cross covariances. On
    a wide table the matrix has two parts, and gradients replace the second where the first shows nothing.

    `first_stage` is that of a dry run, with the most queries.
    Privacy: [P7], [P28]; each query is charged and answered behind the barrier.
    Cost: the whole budget, d (d + 1) / 2 + 2 d k integers from every site, 8 or 9 rounds; 15
    after a weak matrix; of a wide table d (d + 1) and a round more, or half of that and those of refined-pca.
    """
    if plan.study.components == plan.study.dimension:  # no direction is left outside
        return (yield from gauss_cov(plan))
    start = yield from locate(plan, PREPARED)
    if chooses_stage(plan):
        return (yield from matrix_or_gradients(start, first_stage))
    share = matrix_share(start)
    clip = matrix_clip(start, share)
    noised = yield from covariance(clip, clip.left * share)
    steps = None if first_stage is None else refinement_steps(1.0)
    return (yield from refined_matrix(noised, clip.left * (1 - share), steps))


def matrix_or_gradients(start: LocationEstimate, first_stage: FirstStage | None) -> Steps:
    """Run a first part of a matrix, then the first stage that suits its spectrum, and the refinement."""
    steps = None if first_stage is None else refinement_steps(1.0)
    share, wide = matrix_share(start), is_wide(start.plan)
    clip = matrix_clip(start, share)
    if wide:
        part = WIDE_PROBE
        costs = clip.left * part, clip.left * (share - part)
    else:  # in the order of revision 1: the last bit of a product can decide a micro-rho
        part = share * PROBE
        costs = clip.left * share * PROBE, clip.left * share * (1 - PROBE)
    first = yield from covariance(clip, costs[0])
    probed, reason = probe_wide(first) if wide else probe(first)
    if (first_stage or probed) is FirstStage.GRADIENTS:
        found = yield from by_gradients(start, clip.left * (1 - part), steps)
        return replace(found, decision=f"gradients, then their refinement: {reason}")
    rest = yield from covariance(clip, costs[1])
    noised = combine_matrices(first, rest)
    found = yield from refined_matrix(noised, clip.left * (1 - share), steps)
    return replace(found, decision=f"the rest of the matrix, then its refinement: {reason}")


def noise_level(noised: GaussCovariance) -> float:
    """Return the sd of an entry off the diagonal times sqrt(d)."""
    return noised.scale * math.sqrt(len(noised.matrix) / 2)


def probe_wide(first: GaussCovariance) -> tuple[FirstStage, str]:
    """Return the first stage that suits the first part of a wide matrix, and the reason: the height of the
    first component, which the edge of the noise bounds more sharply the more columns there are."""
    values = eigenvalues(first.matrix)
    height = float(values[0] - np.median(values)) / noise_level(first)
    reason = (
        f"in the first part of the matrix the first component stands {height:.2f} noise levels above the rest"
    )
    return FirstStage.MATRIX if height >= WIDE_SEEN else FirstStage.GRADIENTS, reason


def probe(first: GaussCovariance) -> tuple[FirstStage, str]:
    """Return the first stage that suits the first part of a matrix, and the reason. By the height of
    component k above the other variances, and the total variance a component, both in units of the noise's sd
    sqrt(d)."""
    start, level = first.clip.start, noise_level(first)
    k = start.plan.study.components
    values = eigenvalues(first.matrix)
    height = float(values[k - 1] - np.median(values)) / level
    flatness = max(first.trace - start.squared_centre_error, 0.0) / (k * level)
    reason = (
        f"in the first third of the matrix the last component stands {height:.1f} noise levels above the "
        f"rest, the total variance {flatness:.0f} a component"
    )
    hidden = height < SEEN and flatness > FLAT
    return FirstStage.GRADIENTS if hidden else FirstStage.MATRIX, reason
