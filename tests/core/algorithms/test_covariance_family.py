"""The covariance family in the simulator: right, in order, within budget, defined on degenerate data.

Medians are over seeded runs, so nothing here fails by chance; the margins say how far the figures may move
when an algorithm changes.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from eigenveil.accounting.zcdp import MICRO, NO_COST, Neighbours
from eigenveil.algorithms.shared.preparation import cost_of_share, noise_distribution
from eigenveil.algorithms.shared.stated_error import (
    gauss_error,
    predicted_frobenius_error,
    separate_error,
    shrunk_eigenvalues,
)
from eigenveil.errors import Code
from eigenveil.numerics.encoding import FloatArray
from eigenveil.numerics.linalg import eigenpairs, sin_angle
from eigenveil.planning.choose import make_plan, possible_rehearsals, rehearse
from eigenveil.protocol.plan import plan_from_json
from eigenveil.protocol.query import NoiseDistribution, RoundQuery
from eigenveil.protocol.query_limits import check_affordable
from eigenveil.queries import NAMES, Spectrum
from eigenveil.reporting.explain import explain
from eigenveil.simulation import simulate
from eigenveil.study.algorithm import Algorithm
from eigenveil.study.composition import Composition
from eigenveil.study.study import Federation
from tests.core.algorithms.test_algorithms import run, spectrum, study, truth
from tests.support import refused

A = Algorithm
MATRICES = [A.GAUSS_COV, A.ANALYZE_GAUSS, A.SEPARATE_COV, A.ADAPTIVE_COV, A.EM_COV, A.REFINED_COV]
FAMILY = [*MATRICES, A.NOISY_POWER]
PURE = [A.GAUSS_COV, A.SEPARATE_COV, A.ADAPTIVE_COV, A.EM_COV]
EASY = [3.0, 2.0, 1.2] + [0.1] * 5


@pytest.mark.parametrize("algorithm", FAMILY)
@pytest.mark.parametrize("k", [1, 3])
def test_finds_the_leading_subspace_with_its_variances(algorithm: Algorithm, k: int) -> None:
    rows = spectrum(20_000, EASY) + 1.0
    found = run(study(8, algorithm, components=k, epsilon=20.0), rows).estimate
    assert sin_angle(found.components, truth(rows, k)) < 0.1
    assert np.allclose(found.components @ found.components.T, np.eye(k), atol=1e-9)
    exact = np.sort(np.var(rows, axis=0))[::-1] / 36
    assert np.allclose(found.explained_variance, exact[:k], rtol=0.15)
    assert found.total_variance == pytest.approx(exact.sum(), rel=0.1)
    assert np.allclose(found.mean, 1 / 6, atol=0.02)
    assert found.sin_error is not None
    assert found.sin_error < 0.12
    if algorithm is not A.NOISY_POWER:
        assert found.covariance is not None
        assert np.allclose(found.covariance, found.covariance.T)


@pytest.mark.parametrize("algorithm", PURE)
@pytest.mark.parametrize("neighbours", list(Neighbours))
def test_pure_studies_add_up_epsilons_of_laplace_noise(algorithm: Algorithm, neighbours: Neighbours) -> None:
    what = study(8, algorithm, delta=0.0, epsilon=40.0, neighbours=neighbours, components=3)
    result = run(what, spectrum(20_000, EASY))
    spent = sum((2 * release.micro_rho / MICRO) ** 0.5 for release in result.releases)
    assert 0.98 * what.epsilon <= spent <= what.epsilon
    assert result.plan.composition is Composition.BASIC
    assert {query.law for query in rehearse(result.plan)} == {NoiseDistribution.LAPLACE}
    assert sin_angle(result.estimate.components, truth(spectrum(20_000, EASY), 3)) < 0.1
    assert explain(result.plan)["guarantee"]["delta"] == 0


@pytest.mark.parametrize("algorithm", [A.ANALYZE_GAUSS, A.NOISY_POWER, A.REFINED_COV, A.REFINED_PCA])
def test_what_is_made_for_gaussian_noise_cannot_be_pure(algorithm: Algorithm) -> None:
    with refused(Code.BAD_STUDY, "cannot run at delta = 0"):
        run(study(4, algorithm, delta=0.0), spectrum(100, [1.0] * 4))


@pytest.mark.parametrize("algorithm", FAMILY)
@pytest.mark.parametrize("neighbours", list(Neighbours))
def test_never_spends_more_than_the_budget(algorithm: Algorithm, neighbours: Neighbours) -> None:
    result = run(study(8, algorithm, neighbours=neighbours, components=2), spectrum(4000, [2.0] + [0.2] * 7))
    spent = sum(release.micro_rho for release in result.releases)
    assert spent <= result.plan.micro_rho
    if result.plan.composition is not Composition.BASIC:
        assert spent >= 0.98 * result.plan.micro_rho


@pytest.mark.parametrize("radius", [None, 0.9, 1.0])
@pytest.mark.parametrize("algorithm", FAMILY)
def test_a_site_foresees_every_kind_of_question_and_its_price(
    algorithm: Algorithm, radius: float | None
) -> None:
    """Of every kind that is asked, a twentieth of what rehearsal shows has to be payable."""
    for rows in (spectrum(4000, [2.0] + [0.2] * 7), spectrum(4000, [8.0] + [0.001] * 7), np.zeros((300, 8))):
        for delta in (1e-6, 0.0) if algorithm in PURE else (1e-6,):
            result = run(study(8, algorithm, expected_records=4000, delta=delta, radius=radius), rows)
            least: dict[str, int] = {}
            for query in max(possible_rehearsals(result.plan), key=len):
                kind = NAMES[type(query.query)]
                least[kind] = min(query.micro_rho, least.get(kind, query.micro_rho))
            for asked in result.document["rounds"]:
                assert asked["kind"] in least
                assert asked["micro_rho"] >= least[asked["kind"]] // 20


def kinds(algorithm: Algorithm, **changes: Any) -> list[str]:
    result = run(study(6, algorithm, **changes), spectrum(3000, [2.0] + [0.2] * 5))
    return [entry["kind"] for entry in result.document["rounds"]]


def test_without_clipping_no_radius_is_asked_for() -> None:
    mean = ["row-norms", "clipped-sum"] * 2
    assert kinds(A.GAUSS_COV, radius=1.0) == ["count", *mean, "gram"]
    assert kinds(A.GAUSS_COV, radius=1.0, centring=False) == ["count", "gram"]
    assert kinds(A.GAUSS_COV) == ["count", *mean, "row-norms", "gram"]
    assert kinds(A.EM_COV, radius=1.0, centring=False) == ["count", "spectrum", "eigenvectors"]
    assert kinds(A.ADAPTIVE_COV, radius=1.0, centring=False)[:2] == ["count", "energy"]
    assert kinds(A.ADAPTIVE_COV)[5:8] == ["radius-search", "energy", "radius-search"]


@pytest.mark.parametrize("algorithm", MATRICES)
def test_without_clipping_records_at_the_bounds_stay_whole(algorithm: Algorithm) -> None:
    rows = np.where(np.random.default_rng(3).integers(0, 2, (2000, 3)) == 1, 6.0, -6.0)
    found = run(study(3, algorithm, radius=1.0, epsilon=1000.0, components=3), rows).estimate
    assert found.total_variance == pytest.approx(3, rel=0.03)
    assert found.warnings == ()


DEGENERATE = {
    "all equal": np.full((300, 5), 2.0),
    "all at zero": np.zeros((300, 5)),
    "rank one": np.outer(np.linspace(-1, 1, 300), [1.0, 2.0, 0.0, -1.0, 0.5]),
    "at the bounds": np.where(np.arange(1500).reshape(300, 5) % 2 == 0, 6.0, -6.0),
    "beyond the bounds": np.full((300, 5), 1e9),
    "one record": np.array([[1.0, 2.0, 3.0, 4.0, 5.0]]),
    "no gap": spectrum(300, [1.0] * 5),
    "no record": np.empty((0, 5)),
}


@pytest.mark.parametrize("algorithm", [*PURE, A.ZERO, A.SMOOTH_CAUCHY])
@pytest.mark.parametrize("name", DEGENERATE)
def test_degenerate_data_give_a_defined_pure_result(algorithm: Algorithm, name: str) -> None:
    """With Gaussian noise: test_degenerate.py."""
    for k, radius in ((1, None), (5, 1.0)):
        sites = Federation(sites=("a",), minimum_cohort=1)
        if len(DEGENERATE[name]) < 1:
            sites = Federation(sites=("a", "b"), minimum_cohort=1, quorum=1)
        what = study(5, algorithm, components=k, radius=radius, delta=0.0, federation=sites)
        parts = dict.fromkeys(sites.sites, DEGENERATE["one record"]) | {"a": DEGENERATE[name]}
        found = simulate(what, parts, seed=3).estimate
        shown = 0 if found.declined else k
        assert found.components.shape == (shown, 5)
        assert np.allclose(found.components @ found.components.T, np.eye(shown), atol=1e-8)
        assert np.isfinite(found.explained_variance).all()
        assert (found.explained_variance >= 0).all()
        assert found.covariance is None or np.isfinite(found.covariance).all()
        assert found.sin_error is not None
        assert 0 <= found.sin_error <= 1


def test_zero_asks_nothing_and_costs_nothing() -> None:
    for delta in (1e-6, 0.0):
        result = run(study(4, A.ZERO, delta=delta, components=2), spectrum(100, [1.0] * 4))
        assert result.releases == ()
        assert not result.estimate.covariance.any()  # type: ignore[union-attr]
        assert rehearse(result.plan) == ()
    unseeded = run(study(4, A.ZERO), spectrum(100, [1.0] * 4), None)
    assert unseeded.document["rounds"] == []


# ------------------------------------------------------------------ accuracy, relative to gauss-cov


@cache
def table(n: int, d: int, decay: float, seed: int) -> tuple[FloatArray, FloatArray]:
    """Records, and their covariance on the scale of the bounds."""
    rows = spectrum(n, np.arange(1.0, d + 1) ** -decay * 2, seed)  # type: ignore[arg-type]
    return rows, np.cov(rows.T, bias=True) / 36


@cache
def medians(algorithm: Algorithm, n: int, d: int, decay: float, epsilon: float) -> tuple[float, float, float]:
    """Sine, Frobenius error, and that of the shrunk matrix, relative to the exact one: medians of 9 runs."""
    sines, errors, shrunken = [], [], []
    for seed in range(9):
        rows, exact = table(n, d, decay, seed)
        found = run(study(d, algorithm, epsilon=epsilon), rows, seed).estimate
        sines.append(sin_angle(found.components, eigenpairs(exact)[1][:, :1].T))
        covariance = found.covariance if found.covariance is not None else 0 * exact
        values, vectors = eigenpairs(covariance)
        better = (vectors * shrunk_eigenvalues(values, found.noise_scale)) @ vectors.T
        size = np.linalg.norm(exact)
        errors.append(float(np.linalg.norm(covariance - exact) / size))
        shrunken.append(float(np.linalg.norm(better - exact) / size))
    return float(np.median(sines)), float(np.median(errors)), float(np.median(shrunken))


CELLS = [pytest.param((10_000, 30, 1.0, 1.0), marks=pytest.mark.slow), (4000, 20, 0.5, 1.0)]


@pytest.mark.parametrize("cell", CELLS)
def test_references_are_as_much_worse_as_their_noise_says(cell: tuple[int, int, float, float]) -> None:
    """Flat noise and half the budget: sqrt 2, less what the radius gives back; noisy power: 3 or more."""
    best = medians(A.GAUSS_COV, *cell)[0]
    assert 1.15 <= medians(A.ANALYZE_GAUSS, *cell)[0] / best <= 1.6
    assert 1.2 <= medians(A.SEPARATE_COV, *cell)[0] / best <= 1.9
    assert medians(A.NOISY_POWER, *cell)[0] / best >= 2
    assert medians(A.EM_COV, *cell)[0] / best >= 3


@pytest.mark.parametrize("cell", [*CELLS, pytest.param((10_000, 60, 1.0, 0.5), marks=pytest.mark.slow)])
def test_shrinking_beats_separate_eigenvalues_in_frobenius_norm(cell: tuple[int, int, float, float]) -> None:
    _, noised, shrunken = medians(A.GAUSS_COV, *cell)
    assert shrunken <= noised
    assert shrunken < medians(A.SEPARATE_COV, *cell)[1]


@pytest.mark.slow
def test_separate_wins_over_the_noised_matrix_for_many_columns_and_adaptive_follows() -> None:
    few, many = (20_000, 5, 1.0, 1.0), (10_000, 60, 0.2, 0.5)
    gauss, separate, adaptive = (
        [medians(algorithm, *cell)[1] for cell in (few, many)]
        for algorithm in (A.GAUSS_COV, A.SEPARATE_COV, A.ADAPTIVE_COV)
    )
    assert gauss[0] < separate[0]
    assert gauss[1] > 1.2 * separate[1]
    assert adaptive[0] <= 1.75 * gauss[0]  # not all Gaussian: less for its epsilon
    assert adaptive[1] <= 1.5 * separate[1]


def test_rows_far_below_the_bound_are_found_by_the_adaptive_radius() -> None:
    rows = spectrum(10_000, [0.02] + [0.005] * 9)
    tight, loose = (run(study(10, A.ADAPTIVE_COV, radius=radius), rows).estimate for radius in (None, 1.0))
    assert tight.noise_scale < loose.noise_scale / 50
    assert sin_angle(tight.components, truth(rows, 1)) < 0.1


@pytest.mark.parametrize("algorithm", PURE[:2])
def test_the_foreseen_noise_is_the_released_noise(algorithm: Algorithm) -> None:
    for delta, neighbours in ((1e-6, Neighbours.ADD_REMOVE), (0.0, Neighbours.REPLACE_ONE)):
        what = study(12, algorithm, delta=delta, neighbours=neighbours, radius=1.0, centring=False)
        result = run(what, spectrum(20_000, [0.01] * 12))
        left = 0.99 if delta else 0.98
        radius, found = 12**0.5, result.estimate
        exact = np.zeros((12, 12)) + np.eye(12) * 0.01 / 36
        assert found.covariance is not None
        error = float(np.linalg.norm(found.covariance - exact)) * 20_000
        if algorithm is A.GAUSS_COV:
            assert error == pytest.approx(
                gauss_error(result.plan, cost_of_share(result.plan, left), radius), rel=0.2
            )
        else:
            trace = 12 * 0.01 / 36 * 20_000
            half = cost_of_share(result.plan, left / 2)
            assert error <= 2 * separate_error(result.plan, half, radius, trace)


def test_foresight_prefers_the_shrunk_matrix_and_zero_where_all_is_noise() -> None:
    def error(algorithm: Algorithm, shrink: bool = True, **changes: Any) -> float:
        plan = make_plan(study(50, algorithm, **changes), federation="f", submission="s")
        return predicted_frobenius_error(plan, shrink=shrink)

    assert error(A.GAUSS_COV) < error(A.SEPARATE_COV) < error(A.ZERO)
    weak: dict[str, Any] = {"expected_records": 300, "epsilon": 0.3}
    assert error(A.ZERO, **weak) < error(A.GAUSS_COV, **weak)
    assert error(A.GAUSS_COV, False, epsilon=0.3) > error(A.SEPARATE_COV, False, epsilon=0.3)


def matrix(values: FloatArray, s: float, seed: int) -> FloatArray:
    """diag(values) plus symmetric Gaussian noise, sd s off the diagonal."""
    noise = np.random.default_rng(seed).normal(size=(len(values),) * 2) * s
    return np.diag(values) + (noise + noise.T) / 2**0.5


def test_shrunk_eigenvalues_are_near_the_best_there_are() -> None:
    d, s = 100, 0.01
    exact = 1 / np.arange(1, d + 1)
    values, vectors = eigenpairs(matrix(exact, s, 1))
    best = (vectors**2 * exact[:, None]).sum(axis=0)  # v_i' A v_i
    tried = (values, shrunk_eigenvalues(values, 2**0.5 * s), best)
    miss = [float(np.linalg.norm((vectors * v) @ vectors.T - np.diag(exact))) for v in tried]
    assert miss[1] < 0.5 * miss[0]
    assert miss[1] < 1.25 * miss[2]
    assert (np.diff(shrunk_eigenvalues(values, s)) <= 0).all()


def test_one_large_eigenvalue_is_shrunk_to_the_known_formula() -> None:
    d, s = 400, 0.05
    exact = np.zeros(d)
    exact[0] = 3.0
    values, _ = eigenpairs(matrix(exact, s, 2))
    assert shrunk_eigenvalues(values, 2**0.5 * s)[0] == pytest.approx(
        (values[0] ** 2 - 4 * d * s**2) ** 0.5, rel=0.02
    )
    assert shrunk_eigenvalues(np.array([2.0, 1.0, -1.0]), 0.0).tolist() == [2.0, 1.0, 0.0]


def test_where_epsilons_add_up_no_eigenvalue_gets_gaussian_noise() -> None:
    """[P4] Gaussian noise on a spectrum has no epsilon, at delta = 0 or above: the session refuses to ask."""
    for delta in (0.0, 1e-6):
        plan = make_plan(study(4, A.EM_COV, delta=delta), federation="f", submission="s")
        query = Spectrum(centre=np.zeros(4, dtype=np.int64), radius=100, records=10)
        asked = RoundQuery(
            plan_digest=plan.digest, round=0, query=query, micro_rho=10, law=NoiseDistribution.LAPLACE
        )
        check_affordable(plan, asked, [], NO_COST, 0)
        with refused(Code.BUDGET, "round 1"):
            check_affordable(plan, replace(asked, law=NoiseDistribution.GAUSSIAN), [], NO_COST, 0)


def test_the_largest_epsilon_is_a_plan_that_can_be_written_down() -> None:
    for algorithm in PURE:
        plan = make_plan(study(4, algorithm, delta=0.0, epsilon=1e6), federation="f", submission="s")
        assert plan_from_json(plan.to_json()) == plan


def test_shares_of_epsilon_and_of_rho() -> None:
    pure = make_plan(study(4, A.GAUSS_COV, delta=0.0, epsilon=2.0), federation="f", submission="s")
    both = make_plan(study(4, A.GAUSS_COV), federation="f", submission="s")
    assert cost_of_share(pure, 0.5) == pytest.approx(pure.micro_rho / 4, abs=2)
    assert cost_of_share(both, 0.5) == both.micro_rho // 2
    assert (noise_distribution(pure), noise_distribution(both)) == (
        NoiseDistribution.LAPLACE,
        NoiseDistribution.GAUSSIAN,
    )
