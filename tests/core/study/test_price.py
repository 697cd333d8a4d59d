"""[P4] [P9] The affordable cost of a study, in integers: both compositions, deltas, free batches."""

from __future__ import annotations

import math
import re
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from eigenveil.accounting.zcdp import ATTO, MICRO, NO_COST, PICO, Cost, Neighbours, delta_at, pico_epsilon
from eigenveil.algorithms.shared.preparation import noise_distribution
from eigenveil.errors import Code
from eigenveil.planning.choose import check_all_sizes, dearest, rehearse
from eigenveil.protocol.plan import Plan
from eigenveil.protocol.query import NoiseDistribution, RoundQuery
from eigenveil.protocol.query_limits import check_affordable, check_composition
from eigenveil.queries import Count, Query, RadiusSearch, Spectrum
from eigenveil.reporting.explain import explain, guarantee
from eigenveil.study.algorithm import Algorithm
from eigenveil.study.composition import (
    MASKED_ATTEMPT_DELTA,
    Composition,
    affordable,
    micro_rho_of,
    remaining_delta,
)
from eigenveil.study.radius import PublicNorm
from eigenveil.study.study import Federation, Trust
from tests.core.conversions import epsilon_for, for_two_changes, gaussian_epsilon, log_lost
from tests.support import a_plan, a_query, a_study, refused

ONE = ("north",)


def a_plan_of(algorithm: Algorithm, **changes: Any) -> Plan:
    return a_plan(sites=ONE, algorithm=algorithm, **changes)


def a_count(
    plan: Plan, micro_rho: int, noise: NoiseDistribution = NoiseDistribution.LAPLACE, atto_delta: int = 0
) -> RoundQuery:
    return a_priced_query(plan, Count(), noise, micro_rho=micro_rho, atto_delta=atto_delta)


def a_priced_query(
    plan: Plan, query: Query, noise: NoiseDistribution = NoiseDistribution.GAUSSIAN, **priced: int
) -> RoundQuery:
    return a_query(query, plan_digest=plan.digest, distribution=noise, **{"micro_rho": 1, **priced})


@given(st.integers(1, 10**15))
def test_an_epsilon_is_rounded_up_and_by_less_than_a_step(micro_rho: int) -> None:
    epsilon = pico_epsilon(micro_rho)
    exact_square = Fraction(2 * micro_rho, MICRO) * PICO**2
    assert (epsilon - 1) ** 2 < exact_square <= epsilon**2


@pytest.mark.parametrize("algorithm", [a for a in Algorithm if a.properties.private])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
def test_the_affordable_cost_satisfies_epsilon_and_delta(algorithm: Algorithm, epsilon: float) -> None:
    study = a_study(sites=ONE, algorithm=algorithm, epsilon=epsilon, delta=1e-6)
    cost = affordable(study, algorithm)
    own = cost.atto_delta / ATTO
    if algorithm.properties.gaussian:
        assert log_lost(math.sqrt(2 * cost.micro_rho / MICRO), epsilon) <= math.log(1e-6)
    elif algorithm.properties.basic:
        assert pico_epsilon(cost.micro_rho) <= math.floor(Fraction(epsilon) * PICO)
        assert own <= 1e-6
    else:
        assert delta_at(cost.micro_rho / MICRO, epsilon) + own <= 1e-6 * (1 + 1e-12)
    assert (own > 0) is algorithm.properties.delta


@given(st.floats(1e-15, 0.5), st.integers(0, 2**15))
def test_a_reserved_delta_is_subtracted_exactly(delta: float, own: int) -> None:
    """To the nearest float would leave a study more than it promises, every other time."""
    assume(Fraction(own, ATTO) < Fraction(delta))  # else it is refused
    left = Fraction(remaining_delta(a_study(delta=delta), own)) + Fraction(own, ATTO)
    assert left <= Fraction(delta) < left + Fraction(math.ulp(delta))


def test_no_delta_means_pure_mechanisms_only() -> None:
    with refused(Code.BAD_STUDY, "dp-pca", "delta = 0"):
        a_plan_of(Algorithm.DP_PCA, delta=0.0)
    plan = a_plan_of(Algorithm.GAUSS_COV, delta=0.0)
    assert (plan.composition, noise_distribution(plan)) == (Composition.BASIC, NoiseDistribution.LAPLACE)
    with refused(Code.BUDGET, "no epsilon"):
        check_affordable(plan, a_count(plan, 1, NoiseDistribution.GAUSSIAN), (), NO_COST, 0)


def test_a_guarantee_in_mu_is_for_gaussian_noise_alone() -> None:
    """Whatever else a query asks for is refused before it is asked: another law, a delta of its own, or a
    mechanism that decides on its noise. Under zCDP each of them may be asked."""
    gauss, mixed = a_plan_of(Algorithm.SEPARATE_COV), a_plan_of(Algorithm.ADAPTIVE_COV)
    assert (gauss.composition, mixed.composition) == (Composition.GAUSSIAN, Composition.ZCDP)
    centre = np.zeros(3, dtype=np.int64)
    spectrum = Spectrum(centre=centre, radius=10**4, records=100)
    search = RadiusSearch(centre=centre, edges=np.array([1, 2]), limits=np.array([3, 4]))
    for plan in (gauss, mixed):
        for query in (Count(), spectrum):
            check_composition(plan, a_priced_query(plan, query), NO_COST, 0)
    for round_query in (
        a_count(gauss, 1),
        a_count(gauss, 1, NoiseDistribution.STABILITY),
        a_count(gauss, 1, NoiseDistribution.GAUSSIAN, atto_delta=1),
        a_priced_query(gauss, spectrum, NoiseDistribution.LAPLACE),
        a_priced_query(gauss, search),
    ):
        check_composition(mixed, round_query, NO_COST, 0)
        with refused(Code.BUDGET, "not Gaussian"):
            check_composition(gauss, round_query, NO_COST, 0)
        with refused(Code.BUDGET):
            check_affordable(gauss, round_query, (), NO_COST, 0)


def test_epsilons_add_up_as_they_are() -> None:
    """Two halves of epsilon cost a quarter of rho each; a third half is refused although rho would do."""
    plan = a_plan_of(Algorithm.GAUSS_COV, delta=0.0)
    half = a_count(plan, micro_rho_of(0.5))
    check_affordable(plan, half, (), half.cost, pico_epsilon(half.priced.micro_rho))
    assert (half.cost + half.cost + half.cost).fits(plan.cost)
    with refused(Code.BUDGET, "epsilon"):
        check_affordable(plan, half, (), half.cost + half.cost, 2 * pico_epsilon(half.priced.micro_rho))


def test_own_deltas_add_up() -> None:
    plan = a_plan_of(Algorithm.SUBSPACE_EXACT, delta=1e-6)
    query = a_count(plan, 1, atto_delta=plan.atto_delta)
    check_affordable(plan, query, (), NO_COST, 0)
    with refused(Code.BUDGET):
        check_affordable(plan, query, (), Cost(micro_rho=0, atto_delta=1), 0)


def test_a_plan_names_for_every_query_the_round_that_pays_for_it() -> None:
    rounds = explain(a_plan_of(Algorithm.PRIVATE_OJA, batches=4))["rounds"]
    free = [one for one in rounds if one["micro_rho"] == 0]
    assert len(free) == 3
    assert [one["charged_with_round"] for one in free] == [free[0]["round"] - 1] * 3
    assert all(one["charged_with_round"] == one["round"] for one in rounds if one["micro_rho"])


def test_an_explanation_shows_the_longest_rehearsal() -> None:
    plan = a_plan_of(Algorithm.GAUSS_COV)
    path = rehearse(plan)
    result = explain(plan, [path[:2], path])
    assert len(result["rounds"]) == result["calls_per_site"] == len(path)
    assert result["bytes_per_site"] == sum(8 * one.query.length for one in path)
    assert f"at most {len(path)} rounds and {result['bytes_per_site']} bytes" in result["dependence"]


@pytest.mark.parametrize(
    ("radius", "words"),
    [
        (None, "to a radius that balances noise"),
        (0.9, "about 90% of the records unclipped"),
        (1.0, "no record is clipped"),
        (PublicNorm(norm=0.5), "of at most 0.5 in scaled units"),
    ],
)
def test_an_explanation_states_how_records_are_clipped(radius: Any, words: str) -> None:
    plan = a_plan_of(Algorithm.GAUSS_COV, radius=radius)
    assert words in explain(plan, [rehearse(plan)[:1]])["clip"]


def test_a_guarantee_states_its_composition() -> None:
    plan = a_plan_of(Algorithm.SMOOTH_GAUSSIAN, delta=1e-6)
    message = guarantee(plan)
    assert (message["epsilon"], message["delta"], message["composition"]) == (
        1.0,
        pytest.approx(1e-6),
        "basic",
    )
    pure = guarantee(a_plan_of(Algorithm.EM_COV, delta=0.0))
    assert (pure["epsilon"], pure["delta"]) == (1.0, 0.0)
    assert "except" not in pure["text"]
    assert "who may be" not in pure["text"]
    several = guarantee(a_plan_of(Algorithm.GAUSS_COV, delta=1e-6, max_sites_per_person=2))
    assert "(who may be at up to 2 sites)" in several["text"]
    floats = (Algorithm.SMOOTH_GAUSSIAN, Algorithm.SMOOTH_CAUCHY, Algorithm.PROPOSE_TEST_RELEASE)
    words = [guarantee(a_plan_of(one, delta=1e-6))["text"] for one in floats]
    assert all("floating point" in message for message in (pure["text"], *words))
    assert "floating point" not in guarantee(a_plan_of(Algorithm.GAUSS_COV, delta=0.0))["text"]


@given(
    st.floats(0.05, 2000), st.floats(-12, -1.01).map(lambda x: 10.0**x), st.sampled_from(["dp-pca", "em-cov"])
)
def test_a_worded_guarantee_is_rounded_to_the_safe_side(epsilon: float, delta: float, name: str) -> None:
    message = guarantee(a_plan_of(Algorithm(name), epsilon=epsilon, delta=delta))
    stated = re.search(r"\((\S+), (\S+)\)-differential privacy", message["text"])
    assert stated is not None
    for word, true, step in zip(
        stated.groups(), (message["epsilon"], message["delta"]), (1e-3, 1e-2), strict=True
    ):
        assert true <= float(word) <= true * (1 + 1.01 * step)
    assert f"e^{stated.group(1)}" in message["text"]


@pytest.mark.parametrize("algorithm", [a for a in Algorithm if a.properties.private])
@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_a_guarantee_claims_what_its_costs_add_up_to(algorithm: Algorithm, delta: float) -> None:
    """Gaussian where every query's noise is, zCDP where every mechanism has it, approximate zCDP where
    some have a delta of their own, and none of these where epsilons are added up. A plan of pure mechanisms
    excepts nothing."""
    traits = algorithm.properties
    if delta == 0 and not traits.pure:
        return
    slots = {"neighbours": Neighbours.REPLACE_ONE} if traits.single_records else {}
    plan = a_plan_of(algorithm, delta=delta, **slots)
    queries = [] if algorithm is Algorithm.ZERO or traits.single_records else rehearse(plan)
    words, own = guarantee(plan)["technical"], sum(query.cost.atto_delta for query in queries)
    adds_epsilons = traits.basic or delta == 0
    models = {(query.priced.distribution, query.cost.atto_delta) for query in queries}
    assert ("-Gaussian" in words) is (traits.gaussian and not adds_epsilons)
    assert ("zCDP" in words) is not (adds_epsilons or traits.gaussian)
    assert "-Gaussian" not in words or models <= {(NoiseDistribution.GAUSSIAN, 0)}
    if adds_epsilons:
        assert words == "the sum of its queries' privacy losses"
    else:
        spent = math.sqrt(2 * plan.micro_rho / MICRO) if traits.gaussian else plan.micro_rho / MICRO
        assert 0 <= float(words.split()[-1 if "zCDP" in words else 0].split("-")[0]) - spent < 1.1e-6
    assert words.startswith("5e-07-approximate ") is (own > 0 and not adds_epsilons)
    assert "zCDP" not in guarantee(plan)["text"]
    assert ("except with probability" in guarantee(plan)["text"]) is (
        delta > 0 and (not adds_epsilons or traits.delta)
    )
    if queries and not adds_epsilons and not own:
        assert all(query.priced.distribution is not NoiseDistribution.STABILITY for query in queries)


@pytest.mark.parametrize("algorithm", [a for a in Algorithm if a.properties.private])
def test_the_reading_under_replacement_is_that_of_two_changes(algorithm: Algorithm) -> None:
    """Computed apart: 2 mu, 4 rho under zCDP, else 2 epsilon and delta (1 + e^epsilon)."""
    for epsilon, delta in ((0.3, 1e-9), (1.0, 1e-6), (4.0, 1e-3)):
        plan = a_plan_of(algorithm, epsilon=epsilon, delta=delta)
        message, traits = guarantee(plan), algorithm.properties
        rho, own = plan.micro_rho / MICRO, plan.atto_delta / ATTO
        kind = "gaussian" if traits.gaussian else "basic" if traits.basic else "zcdp"
        wanted = for_two_changes(epsilon, delta, rho, own, kind=kind)
        assert (message["other_epsilon"], message["other_delta"]) == pytest.approx(wanted, rel=1e-6)
        mu = math.sqrt(2 * rho)
        if kind != "basic":
            least = gaussian_epsilon(mu, delta) if traits.gaussian else epsilon_for(rho, delta - own)
        assert message["epsilon"] == pytest.approx(epsilon if kind == "basic" else least, rel=1e-6)
        assert message["mu"] is None if kind != "gaussian" else mu <= message["mu"] < mu + 1e-6


def test_a_budget_too_small_for_one_share_is_refused_before_anything_is_spent() -> None:
    """The mean's share depends on the noised count: 15 % below 5,000 records, 5 % from there on."""
    small = a_plan_of(Algorithm.GAUSS_COV, delta=1e-6, epsilon=0.08, expected_records=400)
    round_query = rehearse(small)
    with refused(Code.BAD_STUDY, "below one micro-rho"):
        check_all_sizes(small, round_query)
    large = a_plan_of(Algorithm.GAUSS_COV, delta=1e-6)
    check_all_sizes(large, rehearse(large))
    tiny = a_plan_of(Algorithm.PRIVATE_OJA, delta=1e-6, epsilon=0.054, centring=False)
    with refused(Code.BAD_STUDY, "below one micro-rho"):
        rehearse(tiny)


def test_a_reference_without_privacy_makes_no_plan() -> None:
    with refused(Code.BAD_STUDY, "not private"):
        a_plan_of(Algorithm.OJA)


@pytest.mark.parametrize("algorithm", [one for one in Algorithm if one.properties.federated])
def test_secure_aggregation_runs_gaussian_sums_only(algorithm: Algorithm) -> None:
    traits, masked = algorithm.properties, {"delta": 1e-6, "trust": Trust.SECURE_AGGREGATION}
    sites = ("a",) if traits.one_site else ("a", "b", "c")
    if algorithm is Algorithm.AUTO or traits.one_site:
        return
    if traits.trusted:
        with refused(Code.BAD_STUDY, "needs exact sums at the coordinator"):
            a_plan_of(algorithm, federation=Federation(sites=sites), **masked)
        return
    plan = a_plan_of(algorithm, federation=Federation(sites=sites), spare_attempts=2, **masked)
    round_query = rehearse(plan)
    assert plan.gaussian
    pool = Cost(micro_rho=2 * dearest(plan), atto_delta=2 * plan.atto_delta)
    assert plan.cost == plan.single_attempt_cost + pool
    assert all(one.priced.atto_delta == MASKED_ATTEMPT_DELTA for one in round_query)
    assert sum((one.cost for one in round_query), NO_COST).fits(plan.single_attempt_cost)
