"""[P24] One record at a time in a secret order: the bound, the order, and the noise of one answer. False
alarms: the order's uniformity is tested with secrets that are counted up, so nothing is random."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest
from scipy import stats

from eigenveil.accounting.amplification import amplified_epsilon, local_micro_rho, max_local_epsilon
from eigenveil.accounting.zcdp import ATTO, MICRO, Neighbours
from eigenveil.errors import Code
from eigenveil.mechanisms.papers import single_pass
from eigenveil.numerics.encoding import FloatArray, frozen
from eigenveil.planning.choose import rehearse
from eigenveil.protocol.query import PricedQuery, RoundQuery
from eigenveil.queries import Batch, Gradient, ShuffledRecord
from eigenveil.queries.gradients import pass_key
from eigenveil.session import Session
from eigenveil.simulation import simulate
from eigenveil.site.batches import shuffle_slots
from eigenveil.site.site import Site
from eigenveil.study.algorithm import Algorithm
from eigenveil.study.grid import S
from eigenveil.study.study import Federation, Study
from tests.core.records import Case, hostile_rows, site_answer, verdict
from tests.support import DIGEST, FixedNoise, a_field, a_plan, a_study, random_rows, refused

KEY = pass_key(DIGEST, 0, 8)
SECRET = bytes(range(32))


def test_a_secret_order_and_a_dealing_of_one_pass_are_two() -> None:
    """Whichever of the two a site was asked for first."""
    rows, part = random_rows(40, 4), Batch(first_round=0, index=1, batches=8, key=KEY)
    kinds = (Gradient, ShuffledRecord)
    queries = [kind(spec=a_field(4, 2), radius=2**27, batch=part) for kind in kinds]
    alone = [Site(rows, secret=SECRET).answer(query).tolist() for query in queries]
    for first in (0, 1):
        site = Site(rows, secret=SECRET)
        site.answer(queries[first])
        assert site.answer(queries[1 - first]).tolist() == alone[1 - first]


# --- the bound


def shuffled_bits(local: float, n: int, ones: int) -> FloatArray:
    """The law of how many of n randomised bits are 1, `ones` of them truly. Shape: (n + 1,)."""
    remaining = math.exp(local) / (1 + math.exp(local))
    left = stats.binom.pmf(np.arange(n - ones + 1), n - ones, 1 - remaining)
    return np.convolve(left, stats.binom.pmf(np.arange(ones + 1), ones, remaining))


def exact_delta(local: float, n: int, epsilon: float) -> float:
    """The exact delta of n shuffled randomised bits at `epsilon`: one bit changed among zeros."""
    one, other = shuffled_bits(local, n, 0), shuffled_bits(local, n, 1)
    excess = [np.maximum(p - math.exp(epsilon) * q, 0).sum() for p, q in ((one, other), (other, one))]
    return float(max(excess))


@pytest.mark.parametrize("n", [500, 3000])
@pytest.mark.parametrize("share", [0.2, 0.6, 1.0])
def test_the_closed_form_covers_shuffled_bits_exactly(n: int, share: float) -> None:
    delta = 1e-4
    local = share * max_local_epsilon(delta, n)
    claim = amplified_epsilon(local, delta, n)
    assert exact_delta(local, n, claim) <= delta
    assert exact_delta(local, n, claim / 12) > delta  # it is no empty claim


def test_an_epsilon_that_no_order_reaches_is_refused_in_words() -> None:
    with refused(Code.BAD_STUDY, "more records than a study may have"):
        local_micro_rho(1000.0, 1e-6, 200)


def test_outside_the_range_of_the_theorem_amplification_is_refused() -> None:
    with refused(Code.BAD_STUDY, "got 5"):
        amplified_epsilon(0.5, 1e-6, 5)
    with refused(Code.BAD_STUDY, "got 1000"):
        amplified_epsilon(8.0, 1e-6, 1000)
    with refused(Code.BAD_STUDY, "n = 300", "it needs about"):
        local_micro_rho(1.0, 1e-6, 300)


# --- the order


def test_the_order_is_a_permutation_by_the_secret() -> None:
    order = shuffle_slots(50, 50, KEY, SECRET)
    assert sorted(order.tolist()) == list(range(50))
    assert order.tolist() == shuffle_slots(50, 50, KEY, SECRET).tolist()
    assert order.tolist() != shuffle_slots(50, 50, KEY, bytes(32)).tolist()
    assert order.tolist() != shuffle_slots(50, 50, pass_key(DIGEST, 1, 8), SECRET).tolist()


def test_every_record_is_as_likely_in_every_slot() -> None:
    """Chi-square over 4,000 secrets, 25 cells of 5 x 5: 16 degrees of freedom, limit at one in a million."""
    orders = [shuffle_slots(5, 5, KEY, i.to_bytes(32, "little")) for i in range(4000)]
    counts = np.array([np.bincount(slot, minlength=5) for slot in np.array(orders).T])
    assert ((counts - 800) ** 2 / 800).sum() < stats.chi2.isf(1e-6, 16)


@pytest.mark.parametrize(("records", "slots"), [(3, 8), (8, 8), (20, 8), (0, 8)])
def test_slots_are_filled_once_and_the_rest_is_empty(records: int, slots: int) -> None:
    rows = random_rows(records, 4)
    site = Site(rows, secret=SECRET)
    answers = [site.answer(a_slot(i, slots)).tolist() for i in range(slots)]
    each = [Site(rows[i : i + 1]).answer(plain(a_slot(0, slots))).tolist() for i in range(records)]
    stored = [answer for answer in answers if any(answer)]
    assert len(stored) == min(records, slots)
    assert all(answer in each for answer in stored)


def a_slot(index: int = 0, slots: int = 8, radius: int = 2**24) -> ShuffledRecord:
    part = Batch(first_round=0, index=index, batches=slots, key=pass_key(DIGEST, 0, slots))
    return ShuffledRecord(spec=a_field(4, 2, pulls=False), radius=radius, batch=part)


def plain(query: ShuffledRecord) -> Gradient:
    return Gradient(spec=query.spec, radius=query.radius)


# --- the noise


def test_no_two_records_differ_by_more_than_declared() -> None:
    cases = []
    for seed, radius in enumerate((7, 2**13, 2**24, 2**29)):
        query = a_slot(0, 1, radius)
        rows = hostile_rows(3400, query.spec.centre, S, seed)
        cases.append(Case(query=cast("Any", query), rows=rows))  # the checker asks for no more than a length

    def declared(query: Any) -> int:
        return int(query.diameter_squared())

    found = verdict(cases, Neighbours.REPLACE_ONE, site_answer, declared)
    assert found.pairs >= 10_000
    assert 0.9**2 <= found.worst <= 1


def test_one_answer_gets_its_noise_under_replace_one_alone() -> None:
    study, query = a_study(neighbours=Neighbours.REPLACE_ONE), a_slot(0, 8192)
    round_query = RoundQuery(PricedQuery(query=query, micro_rho=500_000, atto_delta=ATTO // 10**6), DIGEST, 0)
    outcome = single_pass.release_shuffled_record(
        round_query.priced, query, frozen([5] * query.length), study, FixedNoise(start=6)
    )
    assert outcome.values.tolist() == [12] * query.length
    with refused(Code.BAD_STUDY, "replace-one"):
        single_pass.shuffled_noise_spec(
            round_query.priced, query, replace(study, neighbours=Neighbours.ADD_REMOVE)
        )


# --- the algorithm


def a_shuffled_study(**changes: object) -> Study:
    values: dict[str, object] = {
        "algorithm": Algorithm.PRIVATE_OJA_SHUFFLED, "federation": Federation(sites=("a",)), "epsilon": 1.0,
        "neighbours": Neighbours.REPLACE_ONE, "expected_records": 900, "centring": False, "delta": 1e-3,
    }  # fmt: skip
    return a_study(3, **(values | changes))  # type: ignore[arg-type]


def test_a_study_that_cannot_run_in_a_secret_order_is_refused_at_planning() -> None:
    for changes, words in (
        ({"neighbours": Neighbours.ADD_REMOVE}, ("replace-one",)),
        ({"expected_records": 100, "delta": 1e-6}, ("n = 100",)),
    ):
        with refused(Code.BAD_STUDY, *words):
            Session(a_plan(a_shuffled_study(**changes)))
    with refused(Code.BAD_STUDY, "one site"):
        a_plan(a_shuffled_study(federation=Federation(sites=("a", "b"))))


def test_a_study_in_a_secret_order_is_charged_once() -> None:
    rng = np.random.default_rng(1)
    rows = 50 + rng.choice([-1, 1], 900)[:, None] * np.array([45.0, 0.0, 0.0]) + rng.normal(size=(900, 3))
    result = simulate(a_shuffled_study(), {"a": rows}, seed=2)
    round_query = rehearse(result.plan)
    assert sum(isinstance(query.query, ShuffledRecord) for query in round_query) == 900
    charged = [release for release in result.releases if release.micro_rho]
    assert len(charged) == len(result.releases) - 899
    assert sum(math.sqrt(2 * r.micro_rho / MICRO) for r in charged) <= 1.0
    assert sum(r.atto_delta for r in charged) <= result.plan.atto_delta
