"""A site's rules: each refuses what it should, by name."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest

from eigenveil.accounting import gaussian, zcdp
from eigenveil.accounting.budget import NoiseRule
from eigenveil.dictionary.site_rules import ANY
from eigenveil.errors import TABLE, Code, RequestError, error
from eigenveil.study.algorithm import Algorithm
from eigenveil.study.study import Federation, Trust
from eigenveil_client.site.daemon.decisions import refusal_of
from eigenveil_client.site.policy import Policy
from eigenveil_client.site.policy_sections import KNOWN, TrustRules, Year
from eigenveil_common.config import keys
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from tests.client.site.support import SITE, a_plan, a_study
from tests.support import refused

NOW = 1_800_000_000  # 15 January 2027


def a_policy(**changes: object) -> Policy:
    values: dict[str, object] = {
        "max_columns_per_record": 1.0, "max_epsilon_per_study": 2.0, "minimum_records": 30,
        "maximum_records": 50_000, "analysts": (ANY,),
    }  # fmt: skip
    return Policy(**(values | changes))  # type: ignore[arg-type]


def test_a_plan_within_the_rules_passes_all_of_them() -> None:
    policy = a_policy(columns=("a", "b", "c", "d"))
    policy.require(a_plan(), NOW)
    assert all(verdict.passed for verdict in policy.verdicts(a_plan(), NOW))
    assert {verdict.rule for verdict in policy.verdicts(a_plan(), NOW)} <= keys(Policy).keys()


OJA = {"algorithm": Algorithm.PRIVATE_OJA, "batches": 20, "expected_records": 10**9}
PATIENT: dict[str, object] = {"person_column": "patient"}
COHORT: dict[str, object] = {"federation": Federation(sites=(SITE,), minimum_cohort=31)}
RULES: list[tuple[str, dict[str, object], dict[str, object], str]] = [
    ("columns", {"columns": ("a", "c")}, {}, "columns not allowed: b"),
    ("analysts", {"analysts": ()}, {}, 'allowed: none; to allow it, write in site.toml: analysts = ["ada"]'),
    ("analysts", {"analysts": ("eve",)}, {}, 'write in site.toml: analysts = ["eve", "ada"]'),
    ("approval_ends", {"approval_ends": date(2027, 1, 14)}, {}, "the approval ended on 2027-01-14 (UTC)"),
    ("max_columns_per_record", {"max_columns_per_record": 0.09}, {}, "3 columns; at most 2.7: 0.09 "),
    ("algorithms", {"algorithms": ("dp-pca",)}, {}, "gauss-cov; allowed: dp-pca"),
    ("max_epsilon_per_study", {}, {"epsilon": 2.5}, "epsilon 2.5; at most 2"),
    ("max_delta", {}, {"delta": 1e-4}, "delta 0.0001; at most 1e-05"),
    ("minimum_records", {}, COHORT, "minimum_cohort 31; at most 30: lower it in the study, or raise"),
    ("maximum_records", {}, {"max_records": 49_999}, "max_records 49999; at least 50000: raise it in the"),
    ("minimum_records_per_batch", {"algorithms": ("private-oja",), "minimum_records": 399}, OJA,
     "20 batches of 399 records; at least 20 in each: lower batches in the study"),
    ("person_column", {}, {"person_column": "diagnosis"},
     "in the study column 'diagnosis' names the person, at the site every row is another person"),
    ("person_column", PATIENT, {},
     "in the study every row is another person, at the site column 'patient' names the person"),
    ("person_column", PATIENT | {"columns": ("a", "b", "c")}, {"person_column": "Patient"}, "be equal"),
    ("sites_per_person", {"sites_per_person": 3}, {"max_sites_per_person": 2}, "2; at least 3: raise it"),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "policy", "study", "words"), RULES)
def test_rule_refuses(rule: str, policy: dict[str, object], study: dict[str, object], words: str) -> None:
    plan, rules = a_plan(a_study(**study)), a_policy(**policy)
    assert [verdict.rule for verdict in rules.verdicts(plan, NOW) if not verdict.passed] == [rule]
    with refused(Code.POLICY, "forbids", words):
        rules.require(plan, NOW)


MASKED = {"trust": Trust.SECURE_AGGREGATION, "federation": Federation(sites=(SITE, "b", "c"), quorum=2)}


TRUST_RULES: list[tuple[str, dict[str, object], dict[str, object], str]] = [
    ("trust", {"trust": ("secure-aggregation",)}, {}, "numbers; allowed: secure-aggregation; state trust"),
    ("trust", {"trust": ("central",)}, MASKED, "allowed: central; state trust"),
    ("colluding", {"colluding": 2}, MASKED, "the study's colluding 1; at least 2: raise it in the study"),
    ("minimum_sites", {"minimum_sites": 3}, MASKED, "the study's quorum 2; at least 3: raise it"),
]


@pytest.mark.parametrize(("rule", "limits", "study", "words"), TRUST_RULES)
def test_trust_rule_refuses(rule: str, limits: dict[str, Any], study: dict[str, Any], words: str) -> None:
    plan = a_plan(a_study(**study))
    a_policy().require(plan, NOW)
    both = a_policy(secrecy=TrustRules(trust=KNOWN))
    strict = a_policy(secrecy=TrustRules(**{"trust": KNOWN} | limits))
    with refused(Code.POLICY, "forbids", f"({rule}: ", words):
        strict.require(plan, NOW)
    assert len(strict.verdicts(plan, NOW)) == len(both.verdicts(a_plan(), NOW)) + 2 * bool(study)


@pytest.mark.parametrize("changes", [{"trust": ("nobody",)}, {"colluding": 0}, {"minimum_sites": 1}])
def test_invalid_trust_rules_are_refused(changes: dict[str, Any]) -> None:
    with refused(Code.BAD_CONFIG):
        TrustRules(**changes)


def test_the_limits_of_the_site_and_of_the_study_may_be_equal() -> None:
    federation = Federation(sites=(SITE,), minimum_cohort=30)
    study = a_study(
        federation=federation, max_records=50_000, person_column="patient", max_sites_per_person=2
    )
    a_policy(person_column="patient", sites_per_person=2).require(a_plan(study), NOW)


def test_the_last_day_of_the_approval_is_a_whole_day() -> None:
    last = a_policy(approval_ends=date(2027, 1, 15))
    midnight = 1_800_057_600
    last.require(a_plan(), midnight - 1)
    with pytest.raises(RequestError, match="approval_ends"):
        last.require(a_plan(), midnight)


def test_a_study_that_is_not_submitted_yet_has_no_analyst() -> None:
    a_policy(analysts=("bob",)).require(a_plan(analyst=""), NOW)
    a_policy(analysts=("ada",)).require(a_plan(), NOW)


def test_a_year_is_365_days_or_begins_on_the_first_of_january() -> None:
    assert Year.ROLLING.began(NOW) == NOW - 365 * 86_400
    assert Year.CALENDAR.began(NOW) == 1_798_761_600
    assert a_policy().yearly is None
    limit = a_policy(max_epsilon_per_year=2.0).yearly
    assert limit is not None
    assert limit.budget.mixed.micro_rho == zcdp.micro_rho_for(2.0, 1e-6)
    assert limit.budget.limit(gaussian=True).micro_rho == gaussian.micro_rho_for(2.0, 1e-6)


def test_the_site_counts_against_its_own_numbers_and_tells_no_count() -> None:
    policy = a_policy(minimum_records=30, maximum_records=10_000)
    policy.require_record_count(30)
    policy.require_record_count(10_000)
    for records, code in [(29, Code.TOO_FEW_RECORDS), (10_001, Code.TOO_MANY_RECORDS)]:
        with pytest.raises(RequestError) as caught:
            policy.require_record_count(records)
        assert caught.value.code is code
        assert str(records) not in str(caught.value)


def test_a_budget_is_counted_in_mu_only_where_no_other_noise_is_ever_admitted() -> None:
    """By its own key, not by what is asked: a listed algorithm that has other noise, and delta = 0 with one
    that has not, are refused unless the site says `any`; then the smaller limit of zCDP holds for all."""
    pure = a_plan(a_study(algorithm=Algorithm.GAUSS_COV, delta=0.0))
    policy, open_policy = a_policy(), a_policy(noise=NoiseRule.ANY)
    assert policy.budget.mixed == open_policy.budget.mixed
    assert policy.budget.mixed.micro_rho == zcdp.micro_rho_for(10.0, 1e-6)
    assert policy.budget.limit(gaussian=True).micro_rho == gaussian.micro_rho_for(10.0, 1e-6)
    assert open_policy.budget.gaussian is None
    policy.require(a_plan(), NOW)
    open_policy.require(pure, NOW)
    with pytest.raises(RequestError, match="noise: other noise, at delta 0"):
        policy.require(pure, NOW)
    with pytest.raises(RequestError, match=r'adaptive-cov need noise = "any"'):
        a_policy(algorithms=("gauss-cov", "adaptive-cov"))


@pytest.mark.parametrize(
    "changes",
    [
        {"columns": ()}, {"algorithms": ()}, {"algorithms": ("oja",)}, {"minimum_records": 0},
        {"max_delta": 0.0}, {"max_delta": 1.0}, {"budget_delta": float("nan")},
        {"max_epsilon_per_study": float("inf")}, {"max_epsilon_per_study": float("nan")},
        {"budget_epsilon": -1.0}, {"maximum_records": 29}, {"maximum_records": 2**31 + 1},
        {"max_epsilon_per_year": 0.0}, {"max_columns_per_record": float("nan")},
        {"sites_per_person": 0}, {"sites_per_person": 1001},
    ],
)  # fmt: skip
def test_values_that_cannot_be_meant_are_refused(changes: dict[str, object]) -> None:
    with refused(Code.BAD_CONFIG):
        a_policy(**changes)


@pytest.mark.parametrize("epsilon", [1e7, 1e-3])
@pytest.mark.parametrize("name", ["budget_epsilon", "max_epsilon_per_year"])
def test_a_total_that_is_no_budget_is_refused_before_any_study(name: str, epsilon: float) -> None:
    with pytest.raises(RequestError, match="epsilon"):
        a_policy(**{name: epsilon})


def test_every_error_has_a_reason() -> None:
    reasons = {code: refusal_of(error(code, "x"), "ab" * 32, 0).reason for code in TABLE}
    assert pb.DECLINE_REASON_UNSPECIFIED not in reasons.values()
    assert reasons[Code.POLICY] == pb.DECLINE_REASON_POLICY
    assert reasons[Code.BUDGET] == pb.DECLINE_REASON_BUDGET
    for code in (Code.TOO_FEW_RECORDS, Code.TOO_MANY_RECORDS, Code.BAD_DATA, Code.BUG):
        assert reasons[code] == pb.DECLINE_REASON_FAILURE, "what may depend on records is one word"
    assert reasons[Code.IDENTITY] == pb.DECLINE_REASON_PROTOCOL
    assert reasons[Code.BUG] == pb.DECLINE_REASON_FAILURE
