"""Data that leave an algorithm nothing to find: each ends with a defined result, charged as declared.

Data-driven over `ALGORITHMS`: a new algorithm is tried on all of them without a word here."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pytest

from eigenveil.accounting.zcdp import NO_COST, Neighbours, pico_epsilon
from eigenveil.algorithms import ALGORITHMS
from eigenveil.errors import Code
from eigenveil.numerics.encoding import FloatArray, canonical
from eigenveil.planning.choose import make_plan, possible_rehearsals
from eigenveil.protocol.query import RoundQuery
from eigenveil.queries import CrossCovariance
from eigenveil.simulation import Simulation, simulate
from eigenveil.study.algorithm import Algorithm
from eigenveil.study.composition import Composition
from eigenveil.study.grid import whole_bounds
from eigenveil.study.study import Column, Federation, Study
from tests.support import refused

D, K, N = 4, 2, 24
SITES = ("north", "south", "west")
# They ask on only if the last release gives them a reason to.
STOP = {
    Algorithm.PROPOSE_TEST_RELEASE,
    Algorithm.SUBSPACE_EXACT,
    Algorithm.SUBSPACE_EXACT_RANK,
    Algorithm.SUBSPACE_REFERENCE,
    Algorithm.SUBSPACE_APPROX,
    Algorithm.SUBSPACE_APPROX_RANK,
}
CHOOSE = {Algorithm.ADAPTIVE_COV, Algorithm.AUTO}  # between two ways of spending the rest
foreseen_by = cache(possible_rehearsals)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Case:
    """Records of each site in turn, and how many components are asked for. Shape: (n_i, D) each."""

    parts: tuple[FloatArray, ...]
    components: int = K


def thirds(rows: FloatArray, components: int = K) -> Case:
    """The same records dealt to the sites in turn."""
    return Case(parts=tuple(rows[i::3] for i in range(3)), components=components)


RNG = np.random.default_rng(8)
PLAIN = np.rint(RNG.normal(size=(N, D)) * [900.0, 500.0, 100.0, 100.0])
NONE = np.empty((0, D))
CASES: dict[str, Case] = {
    "all equal": thirds(np.full((N, D), 700.0)),
    "all at zero": thirds(np.zeros((N, D))),
    "rank one": thirds(np.outer(np.arange(N) - N // 2, [100.0, 200.0, 0.0, -100.0])),
    "repeated": thirds(np.repeat(PLAIN[:3], N // 3, axis=0)),
    "k = d": thirds(PLAIN, D),
    "no gap": thirds(np.tile(1000.0 * np.vstack([np.eye(D), -np.eye(D)]), (N // (2 * D), 1))),
    "two equal eigenvalues": thirds(np.tile(np.array([[800.0, 0, 0, 0], [0, 800.0, 0, 0]]), (N // 2, 1))),
    "an empty site": Case(parts=(PLAIN, NONE, PLAIN[:5])),
    "a site smaller than k": Case(parts=(PLAIN, PLAIN[:1], PLAIN[:1])),
    "one record": Case(parts=(PLAIN[:1], NONE, NONE)),
    "fewer records than k": Case(parts=(PLAIN[:1], PLAIN[1:2], NONE), components=3),
    "at the bounds": thirds(np.where(np.arange(N * D).reshape(N, D) % 2 == 0, 4096.0, -4096.0)),
    "beyond the bounds": thirds(np.where(PLAIN > 0, 1e9, -1e300)),
}


def study(algorithm: Algorithm, components: int, delta: float = 1e-6) -> Study:
    """A small study; a secret order needs a hundred slots, and a delta that no real study would have."""
    lower, upper = whole_bounds(4096)
    slots = algorithm.properties.single_records
    sites = SITES[:1] if algorithm.properties.one_site else SITES
    return Study(
        name="degenerate",
        columns=tuple(Column(name=f"x{i}", unit="1", lower=lower, upper=upper) for i in range(D)),
        epsilon=0.5 if slots else 1.0,
        delta=0.1 if slots else delta,
        components=components,
        neighbours=Neighbours.REPLACE_ONE if slots else Neighbours.ADD_REMOVE,
        federation=Federation(sites=sites, minimum_cohort=1, quorum=1),
        max_records=2 * N,
        expected_records=100,
    ).with_algorithm(algorithm)


def run(algorithm: Algorithm, case: Case, delta: float = 1e-6) -> Simulation:
    """One site gets everything where an algorithm runs at one site only."""
    what = study(algorithm, case.components, delta)
    alone = len(what.federation.sites) == 1
    parts = (np.concatenate(case.parts),) if alone else case.parts
    return simulate(what, dict(zip(what.federation.sites, parts, strict=True)), seed=3)


def check_charged(done: Simulation, algorithm: Algorithm) -> None:
    """No more than was declared, and the rounds and prices of the rehearsal where the plan says so."""
    plan, paid = done.plan, [(r.micro_rho, r.atto_delta) for r in done.releases]
    assert sum(atto for _, atto in paid) <= plan.atto_delta
    assert sum(rho for rho, _ in paid) <= plan.micro_rho
    if plan.composition is Composition.BASIC:
        assert sum(pico_epsilon(rho) for rho, _ in paid) <= plan.study.epsilon * 10**12
    longest = max(foreseen_by(plan), key=len)
    assert len(paid) <= len(longest)
    if algorithm not in CHOOSE:
        (round_query, attempts), (predicted, all_turns) = costs_of(done.queries), costs_of(longest)
        assert round_query == (predicted[: len(round_query)] if algorithm in STOP else predicted)
        assert abs(attempts - all_turns) <= len(longest)  # as much in one step as in many, but for rounding


def costs_of(queries: Sequence[RoundQuery]) -> tuple[list[tuple[int, int]], int]:
    """Of each query, and of all turns of a refinement together."""
    attempts = [one for one in queries if isinstance(one.query, CrossCovariance)]
    others = [
        (one.cost.micro_rho, one.cost.atto_delta)
        for one in queries
        if not isinstance(one.query, CrossCovariance)
    ]
    return others, sum(one.priced.micro_rho for one in attempts)


def check_defined(done: Simulation, components: int) -> None:
    """Orthonormal components and finite numbers, or none and a sentence that says why."""
    found, chosen = done.estimate, len(done.estimate.components)
    assert (found.declined is None) == (chosen > 0)
    assert found.declined is None or len(found.declined) > 20
    assert chosen <= components
    assert found.components.shape == (chosen, D)
    assert np.allclose(found.components @ found.components.T, np.eye(chosen), atol=1e-8)
    assert found.explained_variance.shape == (chosen,)
    assert (found.explained_variance >= 0).all()
    assert np.isfinite(found.explained_variance).all()
    assert np.isfinite(found.mean).all()
    assert np.isfinite([found.records, found.total_variance, found.noise_scale]).all()
    assert found.sin_error is None or 0 <= found.sin_error <= 1
    assert found.covariance is None or np.isfinite(found.covariance).all()


# Every algorithm on these, and on the others in `make test-all`.
QUICK = {"rank one", "no gap", "an empty site", "one record", "fewer records than k", "beyond the bounds"}


RUNS = [*((one, 1e-6) for one in ALGORITHMS), *((one, 0.0) for one in ALGORITHMS if one.properties.pure)]


@pytest.mark.parametrize(("algorithm", "delta"), RUNS)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in QUICK else [pytest.mark.slow]) for name in CASES]
)
def test_the_result_is_defined_and_charged_as_declared(algorithm: Algorithm, delta: float, name: str) -> None:
    case = CASES[name]
    done = run(algorithm, case, delta)
    check_charged(done, algorithm)
    check_defined(done, case.components)
    written = json.loads(canonical(done.document))
    assert written["results"]["pca"]["declined"] == done.estimate.declined
    assert len(written["rounds"]) == len(done.releases)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_without_any_record_nothing_is_queried_or_charged(algorithm: Algorithm) -> None:
    """Sites without their minimum of records do not answer, and a study without answers ends there."""
    if algorithm is Algorithm.ZERO:
        assert run(algorithm, Case(parts=(NONE,) * 3)).releases == ()
        return
    with refused(Code.STUDY_FAILED, "nothing was charged"):
        run(algorithm, Case(parts=(NONE,) * 3))


@pytest.mark.parametrize("neighbours", Neighbours)
@pytest.mark.parametrize("algorithm", [one for one in ALGORITHMS if one is not Algorithm.ZERO])
def test_the_budget_is_spent_and_never_exceeded(algorithm: Algorithm, neighbours: Neighbours) -> None:
    """In every plan that may be chosen during the study; rounding and unused trials leave at most 2 %."""
    what = study(algorithm, K)
    if not algorithm.properties.single_records:
        what = replace(what, neighbours=neighbours, epsilon=8.0, max_records=2**17, expected_records=20_000)
    plan = make_plan(what)
    for round_query in possible_rehearsals(plan):
        costs = [one.cost for one in round_query]
        assert sum(costs, NO_COST).fits(plan.cost)
        if plan.composition is Composition.BASIC:
            spent = sum(pico_epsilon(one.micro_rho) for one in costs) / 10**12
            assert 0.98 * plan.study.epsilon <= spent <= plan.study.epsilon
        else:
            assert sum(one.micro_rho for one in costs) >= 0.98 * plan.micro_rho
