"""[P11] [P23] Stability histograms, judged by the discrete law itself.

`spend` is the checker: the exact delta at an epsilon of what is published about two neighbouring sets of
counts, over every outcome. It knows the law of the noise and the rule of `stability.release`, and none of the
derivation of its threshold. It says so for the planted faults too."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest

from eigenveil.accounting.zcdp import ATTO, MICRO
from eigenveil.errors import Code
from eigenveil.mechanisms.papers.single_pass import release_stability_histogram, scale_and_threshold
from eigenveil.numerics.encoding import FloatArray, frozen
from eigenveil.protocol.query import NoiseDistribution, PricedQuery
from eigenveil.queries import CoordinateHistograms, RowNorms, SquaredNormSum
from eigenveil.study.composition import micro_rho_of
from tests.support import FixedNoise, a_study, refused

DELTA = 1e-4  # large enough that every outcome that matters is far above rounding


def outcomes(count: int, scale: float, threshold: int, reach: int) -> FloatArray:
    """The law of what one bin publishes: silence (0), then each value from the threshold to `reach`."""
    out = np.zeros(2 + reach - threshold)
    if count == 0:
        out[0] = 1.0
        return out
    noise = np.arange(threshold, reach) - count
    base = math.tanh(1 / (2 * scale))  # of the discrete Laplace law
    out[1:-1] = base * np.exp(-np.abs(noise) / scale)
    out[-1] = math.exp(-(reach - count) / scale) / (1 + math.exp(-1 / scale))  # all from `reach` on
    out[0] = 1 - out[1:].sum()
    return out


def spend(one: list[int], other: list[int], scale: float, threshold: int, epsilon: float) -> float:
    """The exact delta at `epsilon` between what is published of two sets of counts, either way round."""
    reach = threshold + max(*one, *other) + math.ceil(4 * scale)
    models = [[outcomes(c, scale, threshold, reach) for c in counts] for counts in (one, other)]
    left, right = (np.array(distribution[0]) for distribution in models)
    for a, b in zip(models[0][1:], models[1][1:], strict=True):
        left, right = np.multiply.outer(left, a).reshape(-1), np.multiply.outer(right, b).reshape(-1)
    excess = [np.maximum(p - math.exp(epsilon) * q, 0).sum() for p, q in ((left, right), (right, left))]
    return float(max(excess))


def tuned(l1: int, epsilon: float, delta: float = DELTA) -> tuple[float, int]:
    return scale_and_threshold(l1, micro_rho_of(epsilon), math.floor(delta * ATTO))


EPSILONS = [0.3, 1.0, 3.0, 8.0]


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("changed", [1, 2, 3, 6, 20])
def test_changed_counts_cost_no_more_than_declared(epsilon: float, changed: int) -> None:
    """A record more, one that leaves a bin and joins another, and one bin that takes the whole change.

    Found here: a threshold for many bins of one record each was too low for one bin of many, at a large
    epsilon: a person at several sites, or both votes of a replaced record."""
    scale, threshold = tuned(changed, epsilon)
    pairs = [([0], [changed]), ([0, 0], [1, changed - 1])]
    if changed == 1:
        pairs = [([count], [count + 1]) for count in (0, 1, 2, 40, threshold - 1, threshold)]
    if changed == 2:
        for left, joined in product((1, 2, threshold // 2, threshold), (0, 1, threshold // 2, threshold)):
            pairs.append(([left, joined], [left - 1, joined + 1]))
    for one, other in pairs:
        assert spend(one, other, scale, threshold, epsilon) <= DELTA, (one, other)


def test_the_threshold_is_not_wasteful() -> None:
    """Three less would break the promise at epsilon = 1: the checker sees it."""
    scale, threshold = tuned(1, 1.0)
    assert spend([0], [1], scale, threshold - 3, 1.0) > DELTA


@pytest.mark.parametrize("epsilon", [0.5, 2.0, 8.0])
@pytest.mark.parametrize("l1", [2, 4])
def test_a_record_that_changes_parts_costs_half_in_each(epsilon: float, l1: int) -> None:
    """[P9]: tuned for a replaced record, half of the change costs half of epsilon and half of delta."""
    scale, threshold = tuned(l1, epsilon)
    half = l1 // 2  # so many counts move in either part, each by one
    for base in (0, 1, threshold):
        before, after = [base] * half, [base + 1] * half
        assert spend(before, after, scale, threshold, epsilon / 2) <= DELTA / 2
    if half == 2:  # a vote moves from bin to bin
        assert spend([threshold, 0], [threshold - 1, 1], scale, threshold, epsilon / 2) <= DELTA / 2


@pytest.mark.parametrize("histograms", [1, 4, 50])
def test_several_histograms_add_up_as_zcdp(histograms: int) -> None:
    """Each costs epsilon_j^2 / 2, together the price; their bins share one delta."""
    cost = micro_rho_of(2.0)
    scale, threshold = scale_and_threshold(histograms, cost, math.floor(DELTA * ATTO), histograms)
    rho = histograms * (1 / scale) ** 2 / 2
    assert cost / MICRO * (1 - 1e-9) <= rho <= cost / MICRO
    assert histograms * spend([0], [1], scale, threshold, 0.0) <= DELTA


def a_query(query: RowNorms | SquaredNormSum | CoordinateHistograms, atto_delta: int = 10**12) -> PricedQuery:
    return PricedQuery(
        query=query, micro_rho=500_000, atto_delta=atto_delta, distribution=NoiseDistribution.STABILITY
    )


def norms() -> RowNorms:
    return RowNorms(centre=frozen([0]), edges=frozen([1, 2]))


def test_empty_and_small_bins_are_suppressed() -> None:
    noise = FixedNoise(start=-1)  # every draw is 0
    _, threshold = scale_and_threshold(1, 500_000, 10**12)
    outcome = release_stability_histogram(
        a_query(norms()), frozen([0, threshold - 1, threshold]), a_study(), noise
    )
    assert outcome.values.tolist() == [0, 0, threshold]
    noisy = release_stability_histogram(
        a_query(norms()), frozen([0, 0, 0]), a_study(), FixedNoise(start=10**9)
    )
    assert not noisy.values.any()


def test_a_stability_histogram_needs_counts_and_a_delta() -> None:
    with refused(Code.BAD_STUDY, "delta"):
        release_stability_histogram(a_query(norms(), 0), frozen([0, 0, 0]), a_study(), FixedNoise())
    with refused(Code.BUG, "counts"):
        release_stability_histogram(
            a_query(SquaredNormSum(centre=frozen([0]), radius=5)), frozen([0]), a_study(), FixedNoise()
        )
