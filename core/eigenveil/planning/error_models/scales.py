"""What scales that a study estimates add to an error: they turn the components of the correlations."""

from __future__ import annotations

import math

import numpy as np

from eigenveil.algorithms.shared.column_scales import foreseen_error
from eigenveil.algorithms.shared.preparation import drawn_mu, price
from eigenveil.algorithms.shared.standardised import remainder
from eigenveil.algorithms.shared.stated_error import scale_sine
from eigenveil.planning.error_models.spectrum import AssumedSpectrum
from eigenveil.protocol.plan import Plan
from eigenveil.study.algorithm import Algorithm

# The part of the budget that an algorithm's matrix has, whose diagonal is a second look at the scales.
MATRIX = {
    Algorithm.GAUSS_COV: 0.9,
    Algorithm.ANALYZE_GAUSS: 0.9,
    Algorithm.ADAPTIVE_COV: 0.5,
    Algorithm.SEPARATE_COV: 0.5,
    Algorithm.REFINED_COV: 0.3,
    Algorithm.AUTO: 0.3,
}
LONG = 1.5  # the square of a clip radius of rows, in parts of the total variance


def of_scales(plan: Plan, guess: AssumedSpectrum) -> float:
    """The sine for records of that spectrum, whose directions are spread over all columns."""
    d, k = plan.study.dimension, plan.study.components
    mixed = np.full((k, d - k), _error(plan) ** 2 / d)
    return scale_sine(guess.values, mixed)


def _error(plan: Plan) -> float:
    """How far the variances of columns are off in the end, in parts of them."""
    first, share = foreseen_error(plan), MATRIX.get(Algorithm(plan.algorithm), 0.0)
    if share == 0:
        return first
    moved = LONG * plan.study.dimension * plan.study.max_sites_per_person
    second = moved / (drawn_mu(plan, price(remainder(plan), share)) * plan.study.expected_records)
    return first * second / math.hypot(first, second)
