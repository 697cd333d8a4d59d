"""A stated norm: what is not asked any more, what a record that breaks it can do, and one comparison."""

from __future__ import annotations

import math
from typing import Any

import pytest

from eigenveil.accounting.zcdp import Neighbours
from eigenveil.planning.choose import make_plan, rehearse
from eigenveil.queries import NAMES, Eigenvectors, Gram, Spectrum, SquaredNormSum, Subspace
from eigenveil.queries.limits import least_row_radius
from eigenveil.reporting.explain import explain
from eigenveil.study.algorithm import Algorithm
from eigenveil.study.grid import S
from eigenveil.study.radius import PublicNorm
from eigenveil.study.study import Study
from tests.support import a_column, a_study

A = Algorithm
NORM = 0.8
OF_ROWS = (Gram, Spectrum, Eigenvectors, Subspace, SquaredNormSum)


def a_normed(d: int, algorithm: Algorithm, norm: float | None = NORM, **changes: Any) -> Study:
    """Bounds of 1, so that analysis units are the records' own; without centring unless changed."""
    values: dict[str, Any] = {"algorithm": algorithm, "centring": False, "max_records": 2**20}
    values["columns"] = tuple(a_column(f"x{i}", -1.0, 1.0) for i in range(d))
    values["radius"] = None if norm is None else PublicNorm(norm=norm)
    return a_study(sites=("all",), **(values | changes))


UNASKED = {
    A.GAUSS_COV: "count gram",
    A.ANALYZE_GAUSS: "count gram",
    A.SEPARATE_COV: "count spectrum gram",
    A.EM_COV: "count spectrum eigenvectors",
    A.NOISY_POWER: "count gradient squared-norm-sum",
    A.SMOOTH_GAUSSIAN: "count spectrum subspace gradient",
    A.DP_PCA: "count gradient-norms gradient squared-norm-sum",
    A.REFINED_COV: "count gram cross-norms cross-covariance",
    A.REFINED_PCA: "count gradient-norms gradient squared-norm-sum cross-norms cross-covariance",
    A.PRIVATE_OJA: "count gradient-norms gradient squared-norm-sum",
}


@pytest.mark.parametrize("algorithm", [*UNASKED, A.ADAPTIVE_COV])
@pytest.mark.parametrize("neighbours", list(Neighbours))
def test_about_the_public_middle_no_row_norms_are_queried(
    algorithm: Algorithm, neighbours: Neighbours
) -> None:
    """Every row is shortened to the norm, and the saved price goes to what else is asked."""
    plan = make_plan(a_normed(4, algorithm, neighbours=neighbours, expected_records=4000))
    round_query = rehearse(plan)
    kinds = {NAMES[type(one.query)] for one in round_query}
    assert not kinds & {"row-norms", "radius-search", "clipped-sum"}
    assert algorithm not in UNASKED or kinds == set(UNASKED[algorithm].split())
    for one in round_query:
        if isinstance(one.query, OF_ROWS):
            assert one.query.radius == math.floor(NORM * S)
            assert not one.query.centre.any()
    if len(round_query) == 2:  # a count and a matrix, which gets all but the count's hundredth
        assert round_query[1].priced.micro_rho >= 99 * round_query[0].priced.micro_rho - 100
        assert sum(one.priced.micro_rho for one in round_query) >= plan.micro_rho - 2


@pytest.mark.parametrize("algorithm", UNASKED)
@pytest.mark.parametrize("centring", [False, True])
def test_the_least_norm_that_may_be_stated_can_be_queried(algorithm: Algorithm, centring: bool) -> None:
    """The session refuses edges that do not rise, or are off the public grid by more than whole numbers."""
    for d in (1, 4):
        for norm in (least_row_radius(d) / S, 0.01, 0.1):
            assert rehearse(make_plan(a_normed(d, algorithm, norm, centring=centring, epsilon=8.0)))


@pytest.mark.parametrize("centring", [False, True])
def test_an_explanation_states_the_norm_and_its_origin(centring: bool) -> None:
    message = explain(make_plan(a_normed(3, A.GAUSS_COV, centring=centring)))["clip"]
    assert "0.8 in scaled units" in message
    assert "stated by the analyst, not from data" in message
    assert ("private mean" in message) == centring
