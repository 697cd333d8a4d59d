"""[P7] refined-cov with a prior: nearer with a right one, the same as without with a wrong one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eigenveil.algorithms.recommended.prior import LEAST_WEIGHT, USUAL, PriorEstimate, RotatedMatrix
from eigenveil.algorithms.recommended.refined import on_axes, without_shared
from eigenveil.algorithms.shared import refinement
from eigenveil.algorithms.shared.clip_radius import NormGrid, NormHistogram
from eigenveil.numerics.encoding import FloatArray
from eigenveil.numerics.linalg import eigenpairs, sin_angle
from eigenveil.planning.choose import make_plan
from eigenveil.priors import prior_from_rows
from eigenveil.protocol.estimate import PriorUse
from eigenveil.protocol.rounds import Release
from eigenveil.queries.limits import BINS
from eigenveil.reporting.report import render
from eigenveil.session import Session
from eigenveil.simulation import Simulation, simulate
from eigenveil.study.algorithm import Algorithm
from eigenveil.study.prior import PriorSource, encode_axes
from eigenveil.study.study import Federation, Scaling, Study, Trust
from tests.support import a_column

D, N = 12, 400
VARIANCES = np.array([9.0, 3.0, *([0.5] * (D - 2))])
AXES = np.linalg.qr(np.random.default_rng(8).normal(size=(D, D)))[0]


def people(n: int, seed: int) -> FloatArray:
    rows = np.random.default_rng(seed).normal(size=(n, D)) * np.sqrt(VARIANCES)
    return np.clip(rows @ AXES.T, -10, 10)


def study(**changes: Any) -> Study:
    values: dict[str, Any] = {
        "name": "prior", "columns": tuple(a_column(f"c{i}", -10, 10) for i in range(D)), "epsilon": 0.7,
        "delta": 1e-6, "components": 1, "algorithm": Algorithm.REFINED_COV, "scaling": Scaling.BOUNDS,
        "federation": Federation(sites=("north", "south"), minimum_cohort=1), "expected_records": N,
    }  # fmt: skip
    return Study(**(values | changes))


def informed(rows: FloatArray, one: Study | None = None) -> Study:
    one = one or study()
    return replace(one, prior=prior_from_rows(rows, one))


def run(one: Study, seed: int, n: int = N) -> Simulation:
    rows = people(n, seed)
    return simulate(one, {"north": rows[: n // 2], "south": rows[n // 2 :]}, seed=seed)


def part(found: Simulation) -> PriorUse:
    assert found.result.prior is not None
    return found.result.prior


def stated(found: Simulation) -> float:
    assert found.result.sin_error is not None
    return found.result.sin_error


def error(found: Simulation) -> float:
    return sin_angle(found.estimate.components, AXES[:, :1].T)


def test_rows_of_the_same_population_bring_the_component_nearer() -> None:
    one, plain = informed(people(100, 99)), study()
    ratios = [error(run(one, seed)) / error(run(plain, seed)) for seed in range(11)]
    assert np.median(ratios) < 0.8


def test_a_prior_of_standardised_columns_brings_their_component_nearer() -> None:
    plain, correlation = study(scaling=Scaling.STANDARD), np.asarray(np.corrcoef(people(10**5, 7).T))
    exact = eigenpairs(correlation)[1][:, :1].T
    for seed in (2, 3):
        near, far = run(informed(people(100, 99), plain), seed), run(plain, seed)
        assert part(near).used
        assert sin_angle(near.estimate.components, exact) < sin_angle(far.estimate.components, exact)


WRONG = people(100, 98) @ np.linalg.qr(np.random.default_rng(4).normal(size=(D, D)))[0]


def test_random_axes_change_no_query_and_no_number() -> None:
    for seed in range(5):
        plain, wrong = run(study(epsilon=2.0), seed), run(informed(WRONG, study(epsilon=2.0)), seed)
        for one, other in zip(wrong.releases, plain.releases, strict=True):
            assert (one.micro_rho, one.values.tolist()) == (other.micro_rho, other.values.tolist())
        assert np.array_equal(wrong.result.components, plain.result.components)
        assert stated(wrong) == stated(plain)
        assert (part(wrong).used, part(wrong).shares) == (False, (0.0,))
        assert "contradict" in part(wrong).text


def test_a_false_bin_of_short_parts_is_no_evidence_for_the_releases(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: the one significant bin of the parts' norms is far below all of them."""

    def false_bin(release: Release, grid: NormGrid) -> NormHistogram:
        counts = np.zeros(BINS)
        counts[-1] = N
        return NormHistogram(grid=grid, counts=counts, sigma=release.sigma)

    right = part(run(informed(people(100, 99), study(epsilon=0.2)), 3))
    monkeypatch.setattr(refinement, "read_histogram", false_bin)
    found = part(run(informed(people(100, 99), study(epsilon=0.2)), 3))
    assert right.used
    assert found.used
    assert found.shares[0] > 0.3 < right.shares[0]


def test_the_cost_is_that_of_a_study_without_a_prior() -> None:
    one, plain = run(informed(people(100, 99)), 3), run(study(), 3)
    assert sum(release.micro_rho for release in one.releases) <= plain.plan.micro_rho == one.plan.micro_rho


def test_a_site_computes_the_same_queries_from_plan_and_releases() -> None:
    for trust in (Trust.CENTRAL, Trust.SECURE_AGGREGATION):
        found = run(informed(people(100, 99), study(trust=trust)), 5)
        replica = Session.replay(found.plan, found.releases)
        assert [one.digest for one in replica.queries] == [one.digest for one in found.queries]
        assert np.array_equal(replica.result.components, found.estimate.components)


def test_a_result_states_the_part_of_the_prior_and_keeps_it() -> None:
    found = run(informed(people(100, 99)), 2)
    assert part(found).used
    assert 0 < part(found).shares[0] < 1
    assert type(found.result).from_dict(found.result.to_dict()).prior == part(found)
    assert part(found).text in repr(found)
    assert part(found).text in render(found)
    plain, without = run(study(), 2), "No guarantee covers it"
    assert plain.result.prior is None
    assert "prior" not in plain.result.to_dict()
    assert (without in render(found), without in render(plain)) == (True, False)


def test_a_release_of_the_same_sites_adds_nothing_to_what_is_stated() -> None:
    one = informed(people(100, 99))
    assert one.prior is not None
    released = replace(one.prior, source=PriorSource.RELEASE, signer="ab" * 32)
    shared = replace(released, shared_sites=("north",))
    own, same = (run(replace(one, prior=prior), 2) for prior in (released, shared))
    assert np.array_equal(own.result.components, same.result.components)
    assert stated(own) < stated(same)
    assert "same persons" in part(same).text


def test_a_prior_that_noise_hides_is_not_confirmed() -> None:
    """With 40 records at epsilon 0.1 a matrix is all noise: it can judge no prior, right or wrong, and does
    not blur one."""
    for rows, most in ((people(100, 99), 0.3), (WRONG, 1.0)):
        for seed in range(6):
            found = run(informed(rows, study(epsilon=0.1)), seed, n=40)
            assert (part(found).used, part(found).confirmed) == (True, False)
            assert stated(found) > 0.9
            assert error(found) <= most


def rotated(variances: FloatArray, matrix: FloatArray, noise: float) -> RotatedMatrix:
    residuals = (matrix - np.diag(variances)) ** 2
    residuals[np.diag_indices(len(matrix))] /= 2
    return RotatedMatrix(
        axes=np.eye(len(matrix)), variances=variances, matrix=matrix, residuals=residuals, noise=noise**2
    )


def test_a_prior_that_fits_has_about_the_evidence_that_is_predicted() -> None:
    ratios = []
    for seed in range(20):
        entries = np.random.default_rng(seed).normal(size=(D, D)) / np.sqrt(2)
        entries *= np.sqrt(USUAL * np.outer(VARIANCES, VARIANCES) + 0.04)
        made = rotated(VARIANCES, np.diag(VARIANCES) + entries + entries.T, 0.2)
        ratios.append(made.evidence() / made.predicted_evidence())
    assert 0.7 < np.mean(ratios) < 1.3


@given(st.integers(3, 10), st.integers(1, 2), st.integers(0, 2**32 - 1), st.floats(0.01, 10))
@settings(max_examples=25)
def test_weights_are_shares_and_follow_the_noise(d: int, k: int, seed: int, noise: float) -> None:
    generator = np.random.default_rng(seed)
    variances = np.sort(generator.exponential(size=d))[::-1]
    entries = generator.normal(size=(d, d))
    matrix = np.diag(variances) + (entries + entries.T) * noise
    made = rotated(variances, matrix, noise)
    weights = made.weights(k)
    assert np.array_equal(weights, weights.T)
    assert LEAST_WEIGHT <= weights.min() <= weights.max() <= 1
    exact = replace(made, noise=1e-12 * noise**2).weights(k)
    assert exact.min() > 0.9  # a release without noise overrules a prior


def test_a_prior_that_lacks_the_component_is_not_used() -> None:
    """Its axes are the records' own, and its order is not: the first axis has the least variance."""
    turned = np.roll(AXES, 1, axis=1)
    one = informed(people(100, 99))
    assert one.prior is not None
    m = len(one.prior.variances)
    wrong = replace(one, epsilon=4.0, prior=replace(one.prior, axes=encode_axes(turned.T[:m])))
    assert not part(run(wrong, 1)).used


def test_a_prior_of_which_little_fits_is_not_used() -> None:
    """Its first axis is the records' own, and its next two of as much variance have the least."""
    one = informed(people(100, 99), study(epsilon=2.0))
    assert one.prior is not None
    order, variances = [0, 5, 6, 7, 8, 9, 10, 11, 1, 2, 3, 4], (1.0,) * 3 + (0.06,) * (D - 3)
    wrong = replace(one.prior, axes=encode_axes(AXES[:, order].T), variances=variances, level=0.06)
    for seed in (1, 2, 3):
        assert not part(run(replace(one, prior=wrong), seed)).used


def test_a_prior_of_even_variances_foretells_nothing_and_is_not_used() -> None:
    one = informed(people(100, 99), study(epsilon=2.0))
    assert one.prior is not None
    m = len(one.prior.variances)
    even = replace(one.prior, axes=encode_axes(AXES.T[:m]), variances=(1.0,) * m, level=1.0)
    for seed in range(3):
        assert not part(run(replace(one, prior=even), seed)).used


def test_a_prior_counts_in_the_stated_error_only_if_the_releases_confirm_it() -> None:
    found = on_axes(np.eye(D), VARIANCES, 1, 0.5)
    half = np.full((1, D - 1), 0.5 / found.sd[0, 0] ** 2)  # of the precision of each entry
    plan = make_plan(informed(people(100, 99)))
    for confirmed, factor in ((True, 1.0), (False, 2**0.5)):
        estimate = PriorEstimate(estimate=found, precision=half, confirmed=confirmed)
        assert np.allclose(without_shared(plan, estimate, found).sd, factor * found.sd)
        assert estimate.shares(found) == pytest.approx((0.5,))
