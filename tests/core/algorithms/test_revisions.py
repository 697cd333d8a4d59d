"""[P7] Revisions of refined-cov: 1 and 2 have equal queries and another stated error."""

from __future__ import annotations

from dataclasses import replace
from unittest import mock

import numpy as np
import pytest

from eigenveil import simulation
from eigenveil.algorithms.recommended import refined, refined_cov
from eigenveil.numerics.encoding import FloatArray
from eigenveil.planning.choose import make_plan
from eigenveil.simulation import Simulation
from eigenveil.study.algorithm import Algorithm
from tests.core.algorithms.test_algorithms import run, spectrum, study

REFINED, AUTO = Algorithm.REFINED_COV, Algorithm.AUTO
FALLING = [1 / i for i in range(1, 11)]
# Few records of nearly equal variances, which the first stage confuses; many of a clear spectrum.
WEAK, STRONG = spectrum(500, [1.2, *[1.0] * 9], 1), spectrum(30_000, FALLING)


def run_revision(revision: int, rows: FloatArray) -> Simulation:
    """Return a run of a plan of that revision of refined-cov, on one seed."""
    plan = replace(make_plan(study(10, REFINED)), revision=revision)
    with mock.patch.object(simulation, "make_plan", return_value=plan):
        return run(plan.study, rows)


def stated(found: Simulation) -> float:
    assert found.estimate.sin_error is not None
    return found.estimate.sin_error


@pytest.mark.parametrize("rows", [WEAK, STRONG], ids=["weak", "strong"])
def test_revisions_have_equal_queries_charges_and_released_matrices(rows: FloatArray) -> None:
    first, second = run_revision(1, rows), run_revision(2, rows)
    queries = [
        [replace(query, plan_digest="").digest for query in found.queries] for found in (first, second)
    ]
    assert queries[0] == queries[1]  # each with its cost and round
    for one, two in zip(first.releases, second.releases, strict=True):
        assert (one.micro_rho, one.atto_delta) == (two.micro_rho, two.atto_delta)
        assert np.array_equal(one.values, two.values)
    assert first.estimate.covariance is not None
    assert second.estimate.covariance is not None
    assert np.array_equal(first.estimate.covariance, second.estimate.covariance)
    assert np.array_equal(first.estimate.components, second.estimate.components)


def test_revision_1_states_the_error_of_the_refinement_alone() -> None:
    with mock.patch.object(refined, "stated_sine", wraps=refined.stated_sine) as spy:
        found = run_revision(1, WEAK)
    start, after, _, _ = spy.call_args.args
    assert stated(found) == after.sine(start)


def test_revision_2_states_at_least_what_a_weak_signals_refinement_neglects() -> None:
    with mock.patch.object(refined, "stated_sine", wraps=refined.stated_sine) as spy:
        found = run_revision(2, WEAK)
    start, after, first, _ = spy.call_args.args
    before = first.sine(start)
    assert stated(found) == max(after.sine(start), min(before, 1.5 * before**2))
    assert stated(run_revision(1, WEAK)) < stated(found) <= before


def test_revision_2_states_what_revision_1_does_at_a_strong_signal() -> None:
    assert stated(run_revision(2, STRONG)) == stated(run_revision(1, STRONG))


def test_the_first_revision_of_auto_states_the_error_of_the_refinement_alone() -> None:
    """Its revision is its own: what revision 2 of refined-cov changes is not in it. At this signal that would
    state more, and neither error is 1, at which both revisions agree."""
    rows = spectrum(1000, [1.4, *[1.0] * 9], 1)
    plan = replace(make_plan(study(10, AUTO, choose="during", epsilon=2.0)), revision=1)
    with (
        mock.patch.object(simulation, "make_plan", return_value=plan),
        mock.patch.object(refined_cov, "probe", return_value=(refined_cov.FirstStage.MATRIX, "")),
        mock.patch.object(refined, "stated_sine", wraps=refined.stated_sine) as spy,
    ):
        found = run(plan.study, rows)
    assert found.plan.algorithm is AUTO
    start, after, first, _ = spy.call_args.args
    assert stated(found) == after.sine(start) < 1.5 * first.sine(start) ** 2 < first.sine(start) < 1
