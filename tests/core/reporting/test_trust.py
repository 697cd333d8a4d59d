"""The guarantee of a masked study covers every attempt and states the sites that may collude."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from eigenveil import Simulation, simulate
from eigenveil.accounting import gaussian
from eigenveil.accounting.budget import attack_success
from eigenveil.accounting.zcdp import ATTO, MICRO, Neighbours
from eigenveil.errors import Code
from eigenveil.numerics.encoding import canonical, digest_of, frozen
from eigenveil.planning.choose import dearest, make_plan
from eigenveil.protocol.estimate import no_release
from eigenveil.protocol.plan import Plan
from eigenveil.protocol.rounds import Release, RoundStatement
from eigenveil.protocol.wire import query_to_proto, round_to_proto
from eigenveil.reporting.document import (
    ReleaseContent,
    RoundRecord,
    charged_micro_rho,
    check_attempts,
    release_document,
    release_row,
)
from eigenveil.reporting.explain import (
    budget_inference_odds,
    document_guarantee,
    explain,
    guarantee,
    largest_inference_odds,
)
from eigenveil.reporting.report import render
from eigenveil.reporting.result import result_of
from eigenveil.reporting.summary import release_summary_html, release_summary_text
from eigenveil.reporting.trust import CENTRAL, EXACT, MASKED, colluding, visibility_table
from eigenveil.reporting.verify import RoundLog, SignedRelease, verify_release
from eigenveil.study.algorithm import Algorithm
from eigenveil.study.composition import Composition
from eigenveil.study.study import Column, Federation, Study, Trust
from eigenveil_client.analyst.display import explanation_text
from eigenveil_client.analyst.python.plan import plan_of
from tests.support import a_plan, a_study, refused

SITES = ("north", "south", "west")


def a_masked_plan(*, spares: int = 0, colluding: int | None = None, **changes: Any) -> Plan:
    """Of three sites, two of which are enough unless `changes` say otherwise."""
    study = a_study(sites=SITES, trust=Trust.SECURE_AGGREGATION, spare_attempts=spares, colluding=colluding)
    return a_plan(replace(study, **{"federation": Federation(sites=SITES, quorum=2), **changes}))


EMPTY = result_of(a_plan(), no_release(a_plan(), 100.0, "nothing stood out"))


def a_document(plan: Plan, *rounds: tuple[int, int], present: tuple[str, ...] = SITES) -> dict[str, Any]:
    """Of releases at so much micro-rho each, and the attempts at them."""
    releases = [
        Release(
            round=i, query="ab" * 32, values=frozen([1]), sigma=1.0, micro_rho=charge, atto_delta=0,
            present=present,
        )
        for i, (charge, _) in enumerate(rounds)
    ]  # fmt: skip
    records = [RoundRecord(kind="count", absent={}, attempts=tried) for _, tried in rounds]
    return release_document(plan, EMPTY, releases, rounds=records, private=True)


def shown(document: dict[str, Any]) -> ReleaseContent:
    return ReleaseContent(document=document, result=EMPTY)


@pytest.mark.parametrize("spares", [0, 2, 7])
@pytest.mark.parametrize("epsilon", [0.3, 2.0, 50.0])
def test_the_promise_is_of_the_whole_pool_and_within_the_study(epsilon: float, spares: int) -> None:
    """[P35]"""
    plan = a_masked_plan(spares=spares, epsilon=epsilon)
    response, pool = guarantee(plan), spares * dearest(plan)
    assert (response["micro_rho"], response["delta"]) == (plan.micro_rho + pool, plan.study.delta)
    assert response["epsilon"] <= epsilon
    assert (response["mu"] - 1e-6) ** 2 < 2 * response["micro_rho"] / MICRO <= response["mu"] ** 2
    # It is true: mu of all attempts, at what is left of delta, whatever shares of noise take of it.
    left = Fraction(plan.study.delta) - Fraction(plan.cost.atto_delta, ATTO)
    assert gaussian.satisfies_dp(
        Fraction(2 * response["micro_rho"], MICRO), response["epsilon"], float(left) * (1 - 1e-15)
    )
    # And it is not loose: with one attempt more it would not hold.
    more = response["micro_rho"] + dearest(plan)
    assert gaussian.epsilon_at(more, plan.study.delta) > response["epsilon"]


def test_inference_odds_count_the_whole_pool() -> None:
    once, thrice = a_masked_plan(), a_masked_plan(spares=2)
    paid = replace(thrice, spare_micro_rho=0)
    assert largest_inference_odds(paid) < largest_inference_odds(thrice)
    assert abs(largest_inference_odds(once) - largest_inference_odds(thrice)) < Fraction(1, 10**4)


def test_a_masked_plan_and_a_central_one_state_what_the_coordinator_sees() -> None:
    masked, central = explain(a_masked_plan(spares=1, colluding=1)), explain(a_plan())
    assert (masked["message"], masked["calls_per_site"]) == (MASKED, len(masked["rounds"]) + 1)
    assert "without noise that hides each person" in masked["trust"], "two attempts may differ by one site"
    assert "the coordinator adds noise" not in explanation_text(masked)
    assert (central["message"], central["trust"]) == (EXACT, CENTRAL)
    assert central["calls_per_site"] == len(central["rounds"])
    assert "coordinator" not in central["guarantee"]["text"]


def test_a_document_lists_attempts_of_each_round_and_visibility() -> None:
    plan = a_masked_plan(spares=1)
    document = a_document(plan, (plan.cost.micro_rho // 8, 2), (plan.cost.micro_rho // 4, 1))
    assert [row["attempts"] for row in document["rounds"]] == [2, 1]
    assert "nobody sees a site's totals" in document["trust"]
    page = render(shown(document))
    assert "it is trusted with this" not in page
    assert page.count("50.0 %") == 2 + len(SITES), (
        "of both attempts, in words, in a picture, and of each site"
    )
    for party, _, _ in visibility_table(plan.study):
        assert party in page
    assert "nobody saw a site's totals" in release_summary_text(shown(document))
    assert "attempts" not in a_document(a_plan(), (1000, 0), present=("north",))["rounds"][0]


def test_every_attempt_is_charged_and_a_pass_once_for_each_attempt_number() -> None:
    def rows(*rounds: tuple[int, int]) -> list[dict[str, Any]]:
        return [{"micro_rho": charge, "attempts": tried} for charge, tried in rounds]

    assert charged_micro_rho(rows((10, 1), (20, 3))) == 70
    assert charged_micro_rho(rows((10, 1), (0, 3), (0, 2), (5, 1))) == 35
    assert charged_micro_rho([{"micro_rho": 10}, {"micro_rho": 0}]) == 10


def test_a_site_is_charged_for_attempts_repeated_without_it_and_for_a_pass_it_joined_late() -> None:
    pass_of_two = [{"micro_rho": 10, "present": ["north"]}, {"micro_rho": 0, "present": ["north", "south"]}]
    assert [charged_micro_rho(pass_of_two, site) for site in ("north", "south", "west")] == [10, 10, 0]
    again = [{"micro_rho": 10, "attempts": 3, "present": ["north"]}]
    assert [charged_micro_rho(again, site) for site in ("north", "south")] == [30, 20]


@pytest.mark.parametrize(
    ("rounds", "present", "why"),
    [
        ([(10, 8), (10, 9)], SITES, "9 attempts"),
        ([(10, 0)], SITES, "0 attempts"),
        ([(10, 2**60)], SITES, f"{2**60} attempts"),
        ([(10, 1)], SITES[:1], "1 of the 2 sites"),
        ([(10, 1)], (*SITES, "east"), "not invited"),
        ([(10, 1)], ("north", "north"), "names a site twice"),
        ([(10**12, 1)], SITES, "the plan allows"),
        ([(30_000, 1), (10, 1)], SITES, "cost 30010 micro-rho and repeated attempts 0"),
        ([(10_000, 5)], SITES, "cost 10000 micro-rho and repeated attempts 40000"),
    ],
)
def test_a_document_with_attempts_sites_or_cost_beyond_its_plan_is_refused(
    rounds: list[tuple[int, int]], present: tuple[str, ...], why: str
) -> None:
    plan = a_masked_plan(spares=1)
    assert 10_000 < plan.micro_rho < 30_000 < 30_000 + plan.spare_micro_rho < plan.micro_rho + 40_000
    check_attempts(a_document(plan, (10, 2), (10, 8)))
    with refused(Code.BAD_RELEASE, why):
        check_attempts(a_document(plan, *rounds, present=present))


KEY = Ed25519PrivateKey.from_private_bytes(bytes(32))
PUBLIC = KEY.public_key().public_bytes_raw()


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (
            lambda response: response["plan"]["study"]["privacy"].update(colluding=2),
            "does not have the stated digest",
        ),
        (lambda response: response["plan"].update(micro_rho=1), "does not have the stated digest"),
        (lambda response: response["guarantee"].update(epsilon=0.1), "does not follow from its plan"),
        (lambda response: response["guarantee"].update(micro_rho=1), "does not follow from its plan"),
        (lambda response: response["guarantee"].pop("mu"), "does not follow from its plan"),
    ],
)
def test_a_document_with_another_plan_or_promise_than_sites_agreed_to_is_refused(
    change: Any, why: str
) -> None:
    """Found here: a t, a price or an epsilon could be signed that no site has seen."""
    document = a_document(a_masked_plan(spares=1), (10, 2))
    verify_release(SignedRelease(document=document, result=EMPTY, public_key=PUBLIC), PUBLIC)
    change(document)
    with refused(Code.BAD_RELEASE, why):
        verify_release(SignedRelease(document=document, result=EMPTY, public_key=PUBLIC), PUBLIC)


def test_the_guarantee_shown_follows_the_plan_and_not_the_document() -> None:
    central, masked = a_document(a_plan(), (10, 0), present=("north",)), a_document(a_masked_plan(), (10, 1))
    against = "even if it works together with any one other site"
    assert document_guarantee(masked) == masked["guarantee"]
    central["guarantee"]["text"] = masked["guarantee"]["text"]
    assert against not in render(shown(central))
    assert against in render(shown(masked))
    assert against not in document_guarantee(central)["text"]
    assert "STATES IT DIFFERENTLY" in document_guarantee(central)["text"]
    verify_release(SignedRelease(document=central, result=EMPTY, public_key=PUBLIC), PUBLIC)


def test_a_plan_of_another_version_is_marked_unchecked_and_an_invalid_one_is_refused() -> None:
    document = a_document(a_masked_plan(), (10, 1))
    other = document | {"plan": document["plan"] | {"version": 5}}
    assert "unchecked: plan version 5" in document_guarantee(other)["text"]
    assert "unchecked: plan version 5" in render(shown(other))
    document["plan"] |= {"algorithm": "magic"}
    document["plan_digest"] = digest_of("plan", canonical(document["plan"]))
    with refused(Code.BAD_RELEASE, "the plan in this release is invalid"):
        verify_release(SignedRelease(document=document, result=EMPTY, public_key=PUBLIC), PUBLIC)


def a_log(run: Simulation, releases: tuple[Release, ...]) -> bytes:
    """Signed log of a study that released these."""
    messages, after = [], ""
    for round_query, release in zip(run.queries, releases, strict=True):
        stated = RoundStatement(
            plan=run.plan.digest, round=round_query.round, query=round_query.digest, after=after,
            release=release.digest,
            ledger="0" * 64, size=1 + round_query.round,
        )  # fmt: skip
        message = round_to_proto(release, stated.signed(KEY.sign))
        message.query.CopyFrom(query_to_proto(round_query))
        messages.append(message)
        after = release.digest
    return RoundLog(plan=run.plan.digest, messages=tuple(messages)).to_json()


def test_noise_of_a_masked_sum_must_match_its_shares() -> None:
    study, generator = a_masked_plan(spares=1, epsilon=5.0).study, np.random.default_rng(0)
    records = {name: generator.normal(50, 10, size=(400, 3)) for name in SITES}
    run = simulate(study, records, seed=1, drop_outs={1: ["west"]})
    honest = SignedRelease(document=run.document, result=run.result, public_key=PUBLIC)
    found = verify_release(honest, PUBLIC, a_log(run, run.releases))
    assert found is not None
    assert found.result
    first, *rest = run.releases
    stronger = replace(first, sigma=2 * first.sigma)
    run.document["rounds"][0] |= release_row(stronger)
    with refused(Code.BAD_RELEASE, "shares of 3 sites add up to"):
        verify_release(honest, PUBLIC, a_log(run, (stronger, *rest)))
    run.document["rounds"][0]["attempts"] = 9
    with refused(Code.BAD_RELEASE, "9 attempts"):
        verify_release(honest, PUBLIC)


@pytest.mark.parametrize("colluders", [1, 2])
def test_every_view_of_a_masked_study_states_the_number_of_colluding_sites(colluders: int) -> None:
    sites = (*SITES, "east")
    study = a_study(sites=sites, trust=Trust.SECURE_AGGREGATION, colluding=colluders)
    plan = a_plan(replace(study, federation=Federation(sites=sites, quorum=3)))
    document, response, named = a_document(plan), explain(plan), colluding(plan.study)
    assert response["colluders"] == colluders
    views = {
        "trust": response["trust"],
        "guarantee": response["guarantee"]["text"],
        "text": explanation_text(response),
        "lines": release_summary_text(shown(document)),
        "card": release_summary_html(shown(document)),
        "report": render(shown(document)),
        "plan in Python": repr(plan_of(plan.study)),
    }
    assert [view for view, words in views.items() if named not in words] == []
    assert explain(a_plan(a_study()))["colluders"] is None


# Inference odds about one person.


STUDY = Study(
    name="pilot", columns=tuple(Column(name=name, unit="mm", lower=-10, upper=10) for name in "abc"),
    epsilon=2.0, delta=1e-6, components=1, federation=Federation(sites=("north",)),
    algorithm=Algorithm.GAUSS_COV,
)  # fmt: skip
KINDS = [Algorithm.GAUSS_COV, Algorithm.ADAPTIVE_COV, Algorithm.EM_COV, Algorithm.SUBSPACE_EXACT]


def a_known_guess(rho: float, steps: int, *, pure: bool) -> float:
    """The success rate of guessing by the side of the midpoint on which one released count lies. Its noise
    costs rho: Gaussian, or Laplace with epsilon = sqrt(2 rho) if `pure`; counts differ by `steps`."""
    half = math.sqrt(2 * rho) * steps / 2
    return 1 - math.exp(-half) / 2 if pure else NormalDist().cdf(half)


@pytest.mark.parametrize("neighbours", Neighbours)
@pytest.mark.parametrize("algorithm", KINDS)
def test_inference_odds_lie_between_a_known_attack_and_the_guarantee(
    algorithm: Algorithm, neighbours: Neighbours
) -> None:
    plan = make_plan(replace(STUDY, algorithm=algorithm, neighbours=neighbours))
    response, text = guarantee(plan), largest_inference_odds(plan)
    chain = "other_" if neighbours is Neighbours.ADD_REMOVE else ""
    allowed = attack_success(response[f"{chain}epsilon"], min(response[f"{chain}delta"], 0.999))
    assert text <= allowed
    steps = 2 if neighbours is Neighbours.ADD_REMOVE else 1
    pure = plan.composition is Composition.BASIC
    assert a_known_guess(plan.micro_rho / MICRO, steps, pure=pure) <= float(text) * (1 + 1e-12)


def test_odds_of_a_budget_for_one_study_equal_those_of_the_study() -> None:
    plan = make_plan(STUDY)
    rho = Fraction(plan.micro_rho, MICRO)
    assert budget_inference_odds(rho, Fraction(0), gaussian=True) == largest_inference_odds(plan)
    assert budget_inference_odds(rho, Fraction(0), gaussian=False) >= largest_inference_odds(plan)
    assert budget_inference_odds(2 * rho, Fraction(0), gaussian=True) > largest_inference_odds(plan)
    sites = Federation(sites=("north", "south"))
    masked = make_plan(replace(STUDY, federation=sites, trust=Trust.SECURE_AGGREGATION))
    rho, own = Fraction(masked.cost.micro_rho, MICRO), Fraction(masked.cost.atto_delta, ATTO)
    assert budget_inference_odds(rho, own, gaussian=True) == largest_inference_odds(masked)
