"""[P35] A plan divides its budget between its rounds and the pool of its spare attempts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from eigenveil.errors import Code
from eigenveil.numerics.encoding import canonical, digest
from eigenveil.planning.choose import dearest, make_plan, possible_rehearsals
from eigenveil.planning.error_models import predict_plan_error
from eigenveil.planning.error_models.assumed_records import default_spectrum
from eigenveil.planning.predict import predict
from eigenveil.protocol.plan import Plan, plan_for, plan_from_json, plan_to_dict, planned_study
from eigenveil.study.algorithm import Algorithm
from eigenveil.study.composition import affordable
from eigenveil.study.study import Federation, Study, Trust
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


def masked(spares: int, **changes: Any) -> Study:
    federation = Federation(sites=SITES, quorum=2)
    return a_study(
        federation=federation, trust=Trust.SECURE_AGGREGATION, spare_attempts=spares, epsilon=2.0, **changes
    )


@pytest.mark.parametrize("spares", [1, 2, 7])
@pytest.mark.parametrize("algorithm", SUMS)
def test_a_pool_is_for_the_dearest_query_and_the_study_spends_its_budget(
    algorithm: Algorithm, spares: int
) -> None:
    study = masked(spares, algorithm=algorithm)
    plan, total = make_plan(study), affordable(study, algorithm)
    assert plan.spare_micro_rho == spares * dearest(plan)
    assert total.micro_rho - 5 * (1 + spares) <= plan.cost.micro_rho <= total.micro_rho
    assert plan.cost.atto_delta == total.atto_delta == (1 + spares) * plan.atto_delta
    for course in possible_rehearsals(plan):
        assert all(one.priced.micro_rho <= dearest(plan) for one in course)
    assert make_plan(study) == plan == plan_from_json(plan.to_json())
    small = make_plan(replace(study, spare_attempts=0))
    assert (small.spare_micro_rho, small.most_attempts, small.cost.micro_rho) == (0, 1, total.micro_rho)


def test_a_study_without_a_query_needs_no_pool() -> None:
    assert make_plan(masked(3, algorithm=Algorithm.ZERO)).spare_micro_rho == 0


@pytest.mark.parametrize("algorithm", [Algorithm.GAUSS_COV, Algorithm.DP_PCA])
def test_an_error_is_predicted_for_what_the_pool_leaves(algorithm: Algorithm) -> None:
    spectrum = default_spectrum(3, 1)
    found = []
    for spares in (0, 7):
        study = masked(spares, algorithm=algorithm, expected_records=100_000)
        by_plan, by_study = (
            predict_plan_error(make_plan(study), spectrum),
            predict(study, algorithm, spectrum),
        )
        assert by_plan is not None
        assert by_study.error is not None
        assert by_study.error.raw == pytest.approx(by_plan.raw, rel=0.02)
        found.append(by_plan.raw)
    assert found[0] < found[1]


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
