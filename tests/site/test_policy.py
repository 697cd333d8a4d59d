"""A site's rules: each refuses what it should, by name."""

from __future__ import annotations

import pytest

from eigenveil.accounting import micro_rho_for
from eigenveil.errors import TABLE, Code, RequestError, error
from eigenveil.study import Federation
from eigenveil_client.policy import Policy, reason_of
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from tests.site.support import SITE, a_plan, a_study


def a_policy(**changes: object) -> Policy:
    values: dict[str, object] = {
        "columns": ("*",), "algorithms": ("gauss-cov", "dp-pca"), "max_epsilon_per_study": 2.0,
        "max_delta": 1e-5, "minimum_records": 30, "budget_epsilon": 10.0, "budget_delta": 1e-6,
    }  # fmt: skip
    return Policy(**(values | changes))  # type: ignore[arg-type]


def test_a_plan_within_the_rules_passes_all_of_them() -> None:
    policy = a_policy(columns=("a", "b", "c", "d"))
    policy.require(a_plan())
    assert all(verdict.passed for verdict in policy.verdicts(a_plan()))


@pytest.mark.parametrize(
    ("rule", "policy", "study", "words"),
    [
        ("columns", {"columns": ("a", "c")}, {}, "columns not allowed: b"),
        ("algorithms", {"algorithms": ("dp-pca",)}, {}, "gauss-cov; allowed: dp-pca"),
        ("max_epsilon_per_study", {}, {"epsilon": 2.5}, "epsilon 2.5; at most 2"),
        ("max_delta", {}, {"delta": 1e-4}, "delta 0.0001; at most 1e-05"),
    ],
)
def test_each_rule_refuses(
    rule: str, policy: dict[str, object], study: dict[str, object], words: str
) -> None:
    plan = a_plan(a_study(**study))
    rules, failed = a_policy(**policy), []
    failed = [verdict for verdict in rules.verdicts(plan) if not verdict.passed]
    assert [verdict.rule for verdict in failed] == [rule]
    with pytest.raises(RequestError, match="forbids") as caught:
        rules.require(plan)
    assert caught.value.code is Code.POLICY
    assert words in str(caught.value)


def test_the_larger_minimum_holds_and_the_number_is_not_told() -> None:
    policy = a_policy(minimum_records=30)
    strict = a_plan(a_study(federation=Federation(sites=(SITE,), minimum_cohort=100)))
    assert policy.minimum(a_plan()) == 30
    assert policy.minimum(strict) == 100
    policy.require_enough(30, a_plan())
    with pytest.raises(RequestError) as caught:
        policy.require_enough(97, strict)
    assert caught.value.code is Code.TOO_FEW_RECORDS
    assert "97" not in str(caught.value)
    with pytest.raises(RequestError, match="max_records") as caught:
        policy.require_enough(10_001, a_plan())
    assert "10001" not in str(caught.value)


def test_the_budget_is_the_rho_that_the_pair_allows() -> None:
    assert a_policy().budget.micro_rho == micro_rho_for(10.0, 1e-6)


@pytest.mark.parametrize(
    "changes",
    [
        {"columns": ()}, {"algorithms": ()}, {"algorithms": ("oja",)}, {"minimum_records": 0},
        {"max_delta": 0.0}, {"max_delta": 1.0}, {"budget_delta": float("nan")},
        {"max_epsilon_per_study": float("inf")}, {"max_epsilon_per_study": float("nan")},
        {"budget_epsilon": -1.0},
    ],
)  # fmt: skip
def test_values_that_cannot_be_meant_are_refused(changes: dict[str, object]) -> None:
    with pytest.raises(RequestError) as caught:
        a_policy(**changes)
    assert caught.value.code is Code.BAD_CONFIG


def test_every_error_has_a_reason() -> None:
    reasons = {code: reason_of(error(code, "x")) for code in TABLE}
    assert pb.DECLINE_REASON_UNSPECIFIED not in reasons.values()
    assert reasons[Code.POLICY] == pb.DECLINE_REASON_POLICY
    assert reasons[Code.BUDGET] == pb.DECLINE_REASON_BUDGET
    assert reasons[Code.TOO_FEW_RECORDS] == pb.DECLINE_REASON_TOO_FEW_RECORDS
    assert reasons[Code.BAD_DATA] == pb.DECLINE_REASON_DATA
    assert reasons[Code.IDENTITY] == pb.DECLINE_REASON_PROTOCOL
    assert reasons[Code.BUG] == pb.DECLINE_REASON_FAILURE
