"""[P35] A plan divides its budget between its rounds and the pool of its spare attempts."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from eigenveil.algorithms.recommended.auto import first_stages
from eigenveil.algorithms.shared.preparation import SMALL_SAMPLE
from eigenveil.errors import Code
from eigenveil.numerics.encoding import canonical, digest
from eigenveil.planning import choose
from eigenveil.planning.choose import dearest, make_plan, possible_rehearsals, rehearse
from eigenveil.planning.error_models import predict_plan_error
from eigenveil.planning.error_models.assumed_records import default_spectrum
from eigenveil.protocol.plan import Plan, plan_for, plan_from_json, plan_to_dict, planned_study
from eigenveil.study.algorithm import Algorithm
from eigenveil.study.composition import affordable
from eigenveil.study.study import Choose, Federation, Study, Trust
from eigenveil.study.toml import parse_study, study_digest, study_to_dict, study_to_toml
from eigenveil.study_authorization import check_plan_matches_study
from tests.support import a_plan, a_study, refused

SITES = ("north", "south", "west")
SUMS = (
    Algorithm.GAUSS_COV,
    Algorithm.REFINED_COV,
    Algorithm.REFINED_PCA,
    Algorithm.DP_PCA,
    Algorithm.PRIVATE_OJA,
)


SLOW = (pytest.mark.slow,)
QUICK = (Algorithm.GAUSS_COV, Algorithm.REFINED_COV, Algorithm.DP_PCA)  # the one that was wrong is among them


def masked(spares: int, **changes: Any) -> Study:
    federation = Federation(sites=SITES, quorum=2)
    return a_study(
        federation=federation, trust=Trust.SECURE_AGGREGATION, spare_attempts=spares, epsilon=2.0, **changes
    )


@pytest.mark.parametrize("spares", [pytest.param(1, marks=SLOW), 2, pytest.param(7, marks=SLOW)])
@pytest.mark.parametrize("algorithm", SUMS)
def test_a_pool_is_for_the_dearest_query_and_the_study_spends_its_budget(
    algorithm: Algorithm, spares: int
) -> None:
    study = masked(spares, algorithm=algorithm)
    plan, total = make_plan(study), affordable(study, algorithm)
    assert plan.spare_micro_rho == spares * dearest(plan)
    assert total.micro_rho - 5 * (1 + spares) <= plan.cost.micro_rho <= total.micro_rho
    assert plan.cost.atto_delta == total.atto_delta == (1 + spares) * plan.atto_delta
    costs = [one.priced.micro_rho for course in possible_rehearsals(plan) for one in course]
    assert max(costs) <= plan.spare_micro_rho // spares
    assert make_plan(study) == plan == plan_from_json(plan.to_json())
    small = make_plan(replace(study, spare_attempts=0))
    assert (small.spare_micro_rho, small.most_attempts, small.cost.micro_rho) == (0, 1, total.micro_rho)


def test_a_study_without_a_query_needs_no_pool() -> None:
    assert make_plan(masked(3, algorithm=Algorithm.ZERO)).spare_micro_rho == 0


# Micro-rho of the rounds and of the pool for one spare attempt: the analyst's program demands exactly these,
# so other numbers are another version of plans.
GOLDEN = {
    Algorithm.GAUSS_COV: (53_176, 47_326),
    Algorithm.REFINED_COV: (59_188, 41_313),
    Algorithm.REFINED_PCA: (64_840, 35_661),
    Algorithm.DP_PCA: (90_952, 9_549),
    Algorithm.PRIVATE_OJA: (52_896, 47_606),
}


def noise(algorithm: str, spares: int) -> str:
    """Noise of a study with spare attempts, times that without any, as the pages state it."""
    return f"{math.sqrt(rounds(algorithm, 0) / rounds(algorithm, spares)):.2f}"


@cache
def rounds(algorithm: str, spares: int) -> int:
    """Micro-rho of all rounds of the study of which the pages speak."""
    study = masked(spares, algorithm=Algorithm(algorithm), expected_records=5000)
    return make_plan(replace(study, epsilon=1.0)).micro_rho


def test_pages_state_the_noise_that_spare_attempts_cost() -> None:
    rows = re.findall(
        r"^\| ([a-z-]+)[^|]* \| (1\.\d+) \| (\d\.\d+) \| (\d\.\d+) \|$", page("docs/spare-attempts.md"), re.M
    )
    assert len(rows) == 4
    for algorithm, *stated in rows:
        assert stated == [noise(algorithm, spares) for spares in (1, 2, 5)], algorithm
    example = " ".join(page("deploy/config/study.example.toml").replace("\n#", "").split())
    two = f"dp-pca has {noise('dp-pca', 2)} times the noise, gauss-cov {noise('gauss-cov', 2)} times"
    assert f"{two} (epsilon = 1, 3 columns, 5,000 expected records" in example


def page(name: str) -> str:
    return (Path(__file__).parents[3] / name).read_text()


@pytest.mark.parametrize("expected", [1000, 100_000])
@pytest.mark.parametrize("algorithm", SUMS)
def test_a_division_stays_as_it_is(algorithm: Algorithm, expected: int) -> None:
    """With fewer and with more records expected than `SMALL_SAMPLE`, and more possible."""
    plan = make_plan(masked(1, algorithm=algorithm, expected_records=expected))
    assert plan.most_records > SMALL_SAMPLE
    assert (plan.micro_rho, plan.spare_micro_rho) == GOLDEN[algorithm]


def test_a_count_may_be_noised_beyond_the_size_at_which_shares_change() -> None:
    study = masked(1, algorithm=Algorithm.GAUSS_COV, expected_records=900, max_records=1500)
    plan = make_plan(study)
    assert plan.most_records < SMALL_SAMPLE
    assert (plan.micro_rho, plan.spare_micro_rho) == GOLDEN[Algorithm.GAUSS_COV]


@pytest.mark.parametrize("expected", [450, 100_000])
@pytest.mark.parametrize(
    "algorithm",
    [pytest.param(one, marks=() if one in QUICK else SLOW) for one in (*SUMS, Algorithm.AUTO)],
)
def test_no_number_of_records_has_a_dearer_query(algorithm: Algorithm, expected: int) -> None:
    """Found here: dp-pca with 1,800 records, 100,000 expected, had a query of three times the pool."""
    during = {"choose": Choose.DURING} if algorithm is Algorithm.AUTO else {}
    plan = make_plan(masked(1, algorithm=algorithm, expected_records=expected, **during))
    for records in (1, 450, 1800, 4999, 5000, 12_000, plan.most_records):
        for first_stage in (None, *first_stages(plan)):
            course = rehearse(plan, records, first_stage)
            assert max(one.priced.micro_rho for one in course) <= plan.spare_micro_rho


def test_no_number_of_records_is_rehearsed_twice() -> None:
    plan = make_plan(masked(1, algorithm=Algorithm.DP_PCA, expected_records=SMALL_SAMPLE))
    with mock.patch.object(choose, "rehearse", side_effect=rehearse) as counted:
        dearest(plan)
    seen = sorted(call.args[1] for call in counted.call_args_list)
    assert seen == [1, SMALL_SAMPLE - 1, SMALL_SAMPLE, plan.most_records]


@pytest.mark.parametrize("spares", [1, 2, 6, 7])
def test_a_query_that_costs_all_rounds_has_a_pool_of_as_many(spares: int) -> None:
    """The rest of the division would be more than a plan may state."""
    study = masked(spares, algorithm=Algorithm.GAUSS_COV)
    total = affordable(study, Algorithm.GAUSS_COV).micro_rho
    with mock.patch.object(choose, "dearest", lambda plan: plan.micro_rho):
        plan = make_plan(study)
    assert plan.micro_rho == total // (1 + spares)
    assert plan.spare_micro_rho == spares * plan.micro_rho


@pytest.mark.parametrize("records", [(900, 1500), (900, 1_000_000), (100_000, 1_000_000)])
@pytest.mark.parametrize("algorithm", [Algorithm.GAUSS_COV, Algorithm.REFINED_COV, Algorithm.DP_PCA])
def test_a_search_predicts_the_error_of_the_plan_that_is_made(
    algorithm: Algorithm, records: tuple[int, int]
) -> None:
    spectrum = default_spectrum(3, 1)
    for spares in (0, 7):
        study = masked(spares, algorithm=algorithm, expected_records=records[0], max_records=records[1])
        made = predict_plan_error(make_plan(study), spectrum)
        assert made is not None
        assert choose._raw(study, algorithm, spectrum) == pytest.approx(made.raw, rel=0.01)


@pytest.mark.parametrize(
    "changes",
    [
        {"spare_micro_rho": 10**9}, {"spare_micro_rho": -1}, {"spare_micro_rho": 1.5},
        {"spare_micro_rho": True}, {"micro_rho": 10**9}, {"spare": 0},
    ],
)  # fmt: skip
def test_a_pool_beyond_the_budget_or_without_spare_attempts_is_refused(changes: dict[str, Any]) -> None:
    raw = plan_to_dict(a_plan(masked(2)))
    if "spare" in changes:
        raw["study"]["privacy"]["spare_attempts"] = 0
    else:
        raw |= changes
    with refused(Code.BAD_STUDY):
        plan_from_json(canonical(raw))


def test_rounds_and_pool_together_may_not_exceed_the_budget() -> None:
    plan = a_plan(masked(2))
    total = affordable(plan.study, plan.algorithm).micro_rho
    replace(plan, spare_micro_rho=total - plan.micro_rho)
    with refused(Code.BAD_STUDY, "may spend"):
        replace(plan, spare_micro_rho=total - plan.micro_rho + 1)


@pytest.mark.parametrize("change", [lambda plan: replace(plan, micro_rho=plan.micro_rho - 1),
                                    lambda plan: replace(plan, spare_micro_rho=plan.spare_micro_rho - 1),
                                    lambda plan: plan_for(plan.study, plan.algorithm, federation="test",
                                                          submission="first")])  # fmt: skip
def test_an_analyst_signs_no_plan_with_another_pool(change: Any) -> None:
    plan, names = a_plan(masked(2)), {"federation": "test", "analyst": "", "submission": "first"}
    check_plan_matches_study(plan, plan.study, **names)
    with refused(Code.PROTOCOL, "it was not signed"):
        check_plan_matches_study(change(plan), plan.study, **names)


# Plans before version 8: `attempts` at each round, each at the cost of all rounds.


def earlier(attempts: int, micro_rho: int, **privacy: Any) -> bytes:
    """The bytes of a plan of version 7."""
    plan = a_plan(masked(0))
    raw = plan_to_dict(replace(plan, version=7)) | {"micro_rho": micro_rho}
    raw["study"]["privacy"] |= {"attempts": attempts, **privacy}
    return canonical(raw)


def test_a_plan_of_version_7_keeps_its_attempts_and_its_bytes() -> None:
    data = earlier(3, 9000)
    plan = plan_from_json(data)
    assert b"spare" not in data
    assert (plan.to_json(), plan.attempts, plan.most_attempts) == (data, 3, 3)
    assert plan.cost.micro_rho == 3 * 9000 == 9000 + plan.spare_micro_rho
    assert plan.cost.atto_delta == 3 * plan.atto_delta
    assert planned_study(plan_to_dict(plan)) == plan.study
    assert study_digest(plan.study) == digest("study", with_attempts(plan.study))


def with_attempts(study: Study) -> dict[str, Any]:
    """The study as version 1.0 writes it."""
    values = study_to_dict(study)
    values["privacy"]["attempts"] = 1
    return values


@pytest.mark.parametrize(
    "data",
    [
        earlier(3, 60_000), earlier(9, 1000), earlier(0, 1000), earlier(3, 9000, spare_attempts=1),
        canonical(plan_to_dict(a_plan(masked(1))) | {"version": 7}),
    ],
    ids=["beyond the budget", "nine", "none", "both", "spare"],
)  # fmt: skip
def test_attempts_of_version_7_beyond_its_limits_are_refused(data: bytes) -> None:
    with pytest.raises(Exception, match=r"attempts|spend|version 8"):
        plan_from_json(data)


def test_a_plan_of_this_version_has_no_attempts() -> None:
    raw = plan_to_dict(a_plan(masked(0)))
    raw["study"]["privacy"]["attempts"] = 1
    with refused(Code.PROTOCOL, "canonical"):
        plan_from_json(canonical(raw))
    with refused(Code.BAD_STUDY, "attempts"):
        replace(a_plan(masked(0)), attempts=2)


def test_a_study_of_version_1_0_is_read_if_it_states_one_attempt() -> None:
    study = masked(0)
    text = study_to_toml(study).replace("[privacy]\n", "[privacy]\nattempts = 1\n")
    assert parse_study(text) == study
    with refused(Code.BAD_STUDY, "state spare_attempts"):
        parse_study(text.replace("attempts = 1", "attempts = 2"))


def test_a_plan_for_sites_of_version_1_0_has_no_spare_attempts() -> None:
    plan = a_plan(masked(0))
    assert b"spare" not in replace(plan, version=7).to_json()
    with refused(Code.BAD_STUDY, "plans from version 8 on"):
        Plan(
            **{name: getattr(a_plan(masked(1)), name) for name in Plan.__dataclass_fields__} | {"version": 7}
        )
