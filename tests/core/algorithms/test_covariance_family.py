"""The covariance family in the simulator: its queries, their costs, and its shrunk eigenvalues."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from eigenveil.accounting.zcdp import MICRO, NO_COST, Neighbours
from eigenveil.algorithms.shared.stated_error import predicted_frobenius_error, shrunk_eigenvalues
from eigenveil.errors import Code
from eigenveil.numerics.linalg import eigenpairs, sin_angle
from eigenveil.planning.choose import make_plan, possible_rehearsals, rehearse
from eigenveil.protocol.query import NoiseDistribution, PricedQuery, RoundQuery
from eigenveil.protocol.query_limits import check_affordable
from eigenveil.queries import NAMES, Spectrum
from eigenveil.reporting.explain import explain
from eigenveil.study.algorithm import Algorithm
from eigenveil.study.composition import Composition
from tests.core.algorithms.test_algorithms import run, spectrum, study, truth
from tests.support import changed_query, refused

A = Algorithm
MATRICES = [A.GAUSS_COV, A.ANALYZE_GAUSS, A.SEPARATE_COV, A.ADAPTIVE_COV, A.EM_COV, A.REFINED_COV]
FAMILY = [*MATRICES, A.NOISY_POWER]
PURE = [A.GAUSS_COV, A.SEPARATE_COV, A.ADAPTIVE_COV, A.EM_COV]
EASY = [3.0, 2.0, 1.2] + [0.1] * 5


@pytest.mark.parametrize("algorithm", PURE)
@pytest.mark.parametrize("neighbours", list(Neighbours))
def test_pure_studies_add_up_epsilons_of_laplace_noise(algorithm: Algorithm, neighbours: Neighbours) -> None:
    what = study(8, algorithm, delta=0.0, epsilon=40.0, neighbours=neighbours, components=3)
    result = run(what, spectrum(20_000, EASY))
    spent = sum((2 * release.micro_rho / MICRO) ** 0.5 for release in result.releases)
    assert 0.98 * what.epsilon <= spent <= what.epsilon
    assert result.plan.composition is Composition.BASIC
    assert {query.priced.distribution for query in rehearse(result.plan)} == {NoiseDistribution.LAPLACE}
    assert sin_angle(result.estimate.components, truth(spectrum(20_000, EASY), 3)) < 0.1
    assert explain(result.plan)["guarantee"]["delta"] == 0


@pytest.mark.parametrize("radius", [None, 0.9, 1.0])
@pytest.mark.parametrize("algorithm", FAMILY)
def test_rehearsal_predicts_every_kind_of_query_and_its_cost(
    algorithm: Algorithm, radius: float | None
) -> None:
    """Of every kind that is asked, a twentieth of what rehearsal shows has to be payable."""
    for rows in (spectrum(4000, [2.0] + [0.2] * 7), spectrum(4000, [8.0] + [0.001] * 7), np.zeros((300, 8))):
        for delta in (1e-6, 0.0) if algorithm in PURE else (1e-6,):
            result = run(study(8, algorithm, expected_records=4000, delta=delta, radius=radius), rows)
            least: dict[str, int] = {}
            for query in max(possible_rehearsals(result.plan), key=len):
                kind = NAMES[type(query.query)]
                least[kind] = min(query.priced.micro_rho, least.get(kind, query.priced.micro_rho))
            for round_query in result.document["rounds"]:
                assert round_query["kind"] in least
                assert round_query["micro_rho"] >= least[round_query["kind"]] // 20


def test_the_prediction_prefers_the_shrunk_matrix_and_zero_where_all_is_noise() -> None:
    def error(algorithm: Algorithm, shrink: bool = True, **changes: Any) -> float:
        plan = make_plan(study(50, algorithm, **changes), federation="f", submission="s")
        return predicted_frobenius_error(plan, shrink=shrink)

    assert error(A.GAUSS_COV) < error(A.SEPARATE_COV) < error(A.ZERO)
    weak: dict[str, Any] = {"expected_records": 300, "epsilon": 0.3}
    assert error(A.ZERO, **weak) < error(A.GAUSS_COV, **weak)
    assert error(A.GAUSS_COV, False, epsilon=0.3) > error(A.SEPARATE_COV, False, epsilon=0.3)


def test_one_large_eigenvalue_is_shrunk_to_the_known_formula() -> None:
    d, s = 400, 0.05
    noise = np.random.default_rng(2).normal(size=(d, d)) * s
    values, _ = eigenpairs(np.diag([3.0] + [0.0] * (d - 1)) + (noise + noise.T) / 2**0.5)
    assert shrunk_eigenvalues(values, 2**0.5 * s)[0] == pytest.approx(
        (values[0] ** 2 - 4 * d * s**2) ** 0.5, rel=0.02
    )
    assert shrunk_eigenvalues(np.array([2.0, 1.0, -1.0]), 0.0).tolist() == [2.0, 1.0, 0.0]


def test_where_epsilons_add_up_no_eigenvalue_gets_gaussian_noise() -> None:
    """[P4] Gaussian noise on a spectrum has no epsilon, at delta = 0 or above: the session refuses to ask."""
    for delta in (0.0, 1e-6):
        plan = make_plan(study(4, A.EM_COV, delta=delta), federation="f", submission="s")
        query = Spectrum(centre=np.zeros(4, dtype=np.int64), radius=100, records=10)
        round_query = RoundQuery(
            PricedQuery(query=query, micro_rho=10, distribution=NoiseDistribution.LAPLACE), plan.digest, 0
        )
        check_affordable(plan, round_query, [], NO_COST, 0)
        with refused(Code.BUDGET, "round 1"):
            check_affordable(
                plan, changed_query(round_query, distribution=NoiseDistribution.GAUSSIAN), [], NO_COST, 0
            )
