"""Readiness of sites: a plan is compared with stated settings by the site's own rule [R23]."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eigenveil.dictionary.directory import Directory, SiteStatement
from eigenveil.dictionary.readiness import check_readiness, readiness, sufficient_batches
from eigenveil.dictionary.site_limits import StatedLimits
from eigenveil.dictionary.site_rules import RULES
from eigenveil.errors import Code
from eigenveil.planning.choose import make_plan, possible_rehearsals
from eigenveil.protocol.plan import Plan
from eigenveil.protocol.query import RoundQuery
from eigenveil.study.algorithm import Algorithm
from eigenveil.study.study import MAX_RECORDS, Federation
from tests.support import a_study, refused

SITES = ("alpha", "beta", "gamma")
LIMITS = StatedLimits(
    person_column="", sites_per_person=1, minimum_records=1000, maximum_records=100_000,
    max_columns_per_record=2.0, minimum_records_per_batch=20, memory_mib=64,
)  # fmt: skip
SMALL: dict[str, Any] = {"memory_mib": 1, "maximum_records": 1_000_000}
PASS: dict[str, Any] = {"algorithm": Algorithm.DP_PCA_SINGLE_PASS, "expected_records": 300_000}


def a_plan(*, federation: dict[str, Any] | None = None, **changes: Any) -> Plan:
    settings: dict[str, Any] = {"sites": SITES, "quorum": 2} | (federation or {})
    study = replace(a_study(4), federation=Federation(**settings), **changes)
    return make_plan(study, federation="fed", submission="one", analyst="ada")


def queries(plan: Plan) -> list[RoundQuery]:
    return [one for course in possible_rehearsals(plan) for one in course]


def stated(limits: StatedLimits | None = None, **changes: Any) -> SiteStatement:
    return SiteStatement(
        needs_approval=False, max_missing=1, max_unreadable=1, max_out_of_bounds=1, limits=limits, **changes
    )


def directory(**sites: SiteStatement | None) -> Directory:
    every = dict.fromkeys(SITES) | sites
    return Directory(federation="fed", sites=every, columns=None, approval_seconds=0.0)


def told(plan: Plan, found: Directory) -> list[str]:
    return check_readiness(plan, readiness(plan, found, queries(plan)))


UNFIT: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({"person_column": "patient"}, {}, "alpha: person_column ('patient' at the site, none in the study)"),
    ({"sites_per_person": 2}, {}, "alpha: sites_per_person 2 (this study states max_sites_per_person 1)"),
    ({"minimum_records": 19}, {}, "alpha: minimum_records 19 (this study needs 20, by minimum_cohort)"),
    ({"max_columns_per_record": 0.003}, {},
     "alpha: minimum_records 1000 (this study needs 1334, by max_columns_per_record)"),
    ({"maximum_records": 2**25}, {},
     "alpha: maximum_records 33554432 (this study allows 16777216, its max_records)"),
    ({"minimum_records": 20}, PASS | {"batches": 15},
     "alpha: minimum_records 20 (this study needs 300, by minimum_records_per_batch)"),
    (SMALL, PASS, "alpha: memory_mib 1 (this study needs 8, by maximum_records)"),
]  # fmt: skip


@pytest.mark.parametrize(("limits", "study", "text"), UNFIT)
def test_a_setting_that_does_not_fit_is_named_with_the_value_that_would(
    limits: dict[str, Any], study: dict[str, Any], text: str
) -> None:
    plan, unfit = a_plan(**study), directory(alpha=stated(replace(LIMITS, **limits)))
    (sentence,) = told(plan, unfit)
    assert text in sentence
    with refused(Code.POLICY, text):
        told(a_plan(federation={"required": ("alpha",)}, **study), unfit)
    with refused(Code.POLICY, text):
        told(a_plan(federation={"quorum": 3}, **study), unfit)
    assert told(plan, directory(alpha=stated(LIMITS), beta=stated(LIMITS))) == []
    assert told(a_plan(federation={"quorum": 3}, **study), directory()) == [], "a site of 1.0 states none"


@given(
    least=st.integers(1, 5000),
    wide=st.integers(1, 4096).map(lambda parts: parts / 1024),
    per_batch=st.integers(1, 500),
    mib=st.integers(1, 9),
)
def test_the_value_that_is_needed_is_enough_and_one_less_is_not(
    least: int, wide: float, per_batch: int, mib: int
) -> None:
    limits = replace(
        LIMITS, minimum_records=least, max_columns_per_record=wide, minimum_records_per_batch=per_batch,
        memory_mib=mib,
    )  # fmt: skip
    for verdict in limits.verdicts(ONE_PASS, ONE_PASS_QUERIES):
        if verdict.passed:
            continue
        name, enough = verdict.short.split()[0], int(verdict.short.split("needs ")[1].split(",")[0])
        for value, passes in ((enough, True), (enough - 1, False)):
            changed = replace(limits, **{name: value})  # type: ignore[arg-type]
            again = changed.verdicts(ONE_PASS, ONE_PASS_QUERIES)
            assert {one.rule: one.passed for one in again}[verdict.rule] is passes, (verdict, value)


ONE_PASS = a_plan(**PASS, batches=15)
ONE_PASS_QUERIES = queries(ONE_PASS)


def test_a_hostile_limit_ends_no_comparison() -> None:
    extreme = replace(
        LIMITS, minimum_records=MAX_RECORDS, maximum_records=MAX_RECORDS, max_columns_per_record=5e-324,
        minimum_records_per_batch=2**64 - 1, memory_mib=1, person_column="x" * 200,
    )  # fmt: skip
    with refused(Code.POLICY, "alpha: "):
        told(a_plan(federation={"required": ("alpha",)}, **PASS), directory(alpha=stated(extreme)))
    assert sufficient_batches(a_plan(**PASS), directory(alpha=stated(extreme))) == 15


def test_memory_is_compared_only_if_a_query_needs_all_records_at_once() -> None:
    small, plan = directory(alpha=stated(replace(LIMITS, **SMALL))), a_plan(**PASS)
    unlimited = directory(alpha=stated(replace(LIMITS, **SMALL | {"memory_mib": None})))
    assert told(plan, small)
    assert told(plan, unlimited) == told(a_plan(), small) == []
    assert all(one.ready for one in readiness(plan, small)), "without the queries nothing is said of memory"


def test_a_column_that_no_site_states_to_have_is_named_before_people_are_asked() -> None:
    maps = stated(mapped_columns=("c0", "c1", "c2"))
    (sentence,) = told(a_plan(), directory(alpha=maps, beta=stated(mapped_columns=("c0",))))
    assert "no site states that it has 'c3'" in sentence
    assert "Ask alpha, beta, gamma" in sentence
    assert told(a_plan(), directory(alpha=maps, beta=stated(columns=("c0", "c1", "c2", "c3")))) == []
    assert told(a_plan(), directory(alpha=stated())) == [], "no site states any column"


def test_the_matrix_has_each_site_with_its_columns_and_settings() -> None:
    plan = a_plan()
    unfit = stated(replace(LIMITS, person_column="patient"), columns=("c0", "c1", "c2"))
    alpha, beta, gamma = readiness(plan, directory(alpha=unfit, beta=stated(LIMITS)))
    assert (alpha.ready, alpha.lacking) == (False, ("c3",))
    assert [one.rule for one in alpha.failed] == ["person_column"]
    assert (beta.ready, beta.lacking, beta.unstated, beta.states_settings) == (
        True, (), ("c0", "c1", "c2", "c3"), True,
    )  # fmt: skip
    assert (gamma.ready, gamma.states_columns, gamma.states_settings) == (True, False, False)
    assert alpha.to_dict()["failed"][0]["rule"] == "person_column"


@pytest.mark.parametrize(
    ("least", "batches"),
    [(10_000, None), (1000, None), (999, 49), (300, 15), (299, 15), (1, 15)],
)
def test_free_batches_are_as_many_as_the_stated_settings_allow(least: int, batches: int | None) -> None:
    plan = a_plan(**PASS)
    found = directory(alpha=stated(replace(LIMITS, minimum_records=least)), beta=stated(LIMITS))
    assert plan.batches == 50
    assert sufficient_batches(plan, found) == batches
    assert sufficient_batches(a_plan(**PASS, batches=50), found) is None, "the study states its own"
    assert sufficient_batches(a_plan(), found) is None
    assert sufficient_batches(plan, directory()) is None


def test_a_decline_can_name_every_limit() -> None:
    assert {one.name for one in fields(StatedLimits)} <= RULES
