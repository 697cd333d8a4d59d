"""What is said of one person: no more than the guarantee allows, no less than a known guess reaches."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from statistics import NormalDist

import pytest

from eigenveil.accounting.budget import attack_success, attack_success_gaussian
from eigenveil.accounting.zcdp import ATTO, MICRO, Neighbours
from eigenveil.planning.choose import make_plan
from eigenveil.reporting.explain import budget_inference_odds, guarantee, largest_inference_odds
from eigenveil.study.algorithm import Algorithm
from eigenveil.study.composition import Composition
from eigenveil.study.study import Column, Federation, Study, Trust

STUDY = Study(
    name="pilot", columns=tuple(Column(name=name, unit="mm", lower=-10, upper=10) for name in "abc"),
    epsilon=2.0, delta=1e-6, components=1, federation=Federation(sites=("north",)),
    algorithm=Algorithm.GAUSS_COV,
)  # fmt: skip
KINDS = [Algorithm.GAUSS_COV, Algorithm.ADAPTIVE_COV, Algorithm.EM_COV, Algorithm.SUBSPACE_EXACT]


def a_known_guess(rho: float, steps: int, *, pure: bool) -> float:
    """The success rate of guessing by the side of the midpoint on which one released count lies.

    Its noise costs rho: Gaussian, or Laplace with epsilon = sqrt(2 rho) if `pure`; counts differ by `steps`.
    """
    half = math.sqrt(2 * rho) * steps / 2
    return 1 - math.exp(-half) / 2 if pure else NormalDist().cdf(half)


@pytest.mark.parametrize("neighbours", Neighbours)
@pytest.mark.parametrize("algorithm", KINDS)
def test_it_is_no_more_than_the_promise_over_as_many_records_and_no_less_than_a_known_guess(
    algorithm: Algorithm, neighbours: Neighbours
) -> None:
    plan = make_plan(replace(STUDY, algorithm=algorithm, neighbours=neighbours))
    told, said = guarantee(plan), largest_inference_odds(plan)
    chain = "other_" if neighbours is Neighbours.ADD_REMOVE else ""
    allowed = attack_success(told[f"{chain}epsilon"], min(told[f"{chain}delta"], 0.999))
    assert said <= allowed
    steps = 2 if neighbours is Neighbours.ADD_REMOVE else 1
    pure = plan.composition is Composition.BASIC
    assert a_known_guess(plan.micro_rho / MICRO, steps, pure=pure) <= float(said) * (1 + 1e-12)


def test_whether_somebody_is_in_is_guessed_less_often_than_what_the_record_says() -> None:
    plan = make_plan(STUDY)
    assert attack_success_gaussian(Fraction(2 * plan.micro_rho, MICRO)) < largest_inference_odds(plan)


def test_a_budget_that_pays_for_one_study_says_what_the_study_does() -> None:
    plan = make_plan(STUDY)
    rho = Fraction(plan.micro_rho, MICRO)
    assert budget_inference_odds(rho, Fraction(0), gaussian=True) == largest_inference_odds(plan)
    assert budget_inference_odds(rho, Fraction(0), gaussian=False) >= largest_inference_odds(plan)
    assert budget_inference_odds(2 * rho, Fraction(0), gaussian=True) > largest_inference_odds(plan)
    sites = Federation(sites=("north", "south"))
    masked = make_plan(replace(STUDY, federation=sites, trust=Trust.SECURE_AGGREGATION))
    rho, own = Fraction(masked.cost.micro_rho, MICRO), Fraction(masked.cost.atto_delta, ATTO)
    assert budget_inference_odds(rho, own, gaussian=True) == largest_inference_odds(masked)
