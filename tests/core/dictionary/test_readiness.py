"""Readiness of sites: a plan is compared with stated settings by the site's own rule [R23]."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eigenveil.dictionary.directory import Directory, SiteStatement
from eigenveil.dictionary.readiness import (
    check_readiness,
    left_out_warnings,
    readiness,
    refusal,
    sufficient_batches,
)
from eigenveil.dictionary.site_limits import StatedLimits
from eigenveil.errors import Code
from eigenveil.planning.choose import make_plan, possible_rehearsals
from eigenveil.protocol.plan import Plan
from eigenveil.protocol.query import RoundQuery
from eigenveil.study.algorithm import Algorithm
from eigenveil.study.study import MAX_RECORDS, Federation
from tests.core.dictionary.test_rules import CLOSED, OPEN
from tests.support import a_study, limits, refused

SITES = ("alpha", "beta", "gamma")
LIMITS = limits(minimum_records=1000)
SMALL: dict[str, Any] = {"memory_mib": 1, "maximum_records": 1_000_000}
PASS: dict[str, Any] = {"algorithm": Algorithm.DP_PCA_SINGLE_PASS, "expected_records": 300_000}


def a_plan(*, federation: dict[str, Any] | None = None, **changes: Any) -> Plan:
    settings: dict[str, Any] = {"sites": SITES, "quorum": 2} | (federation or {})
    study = replace(a_study(4), federation=Federation(**settings), **changes)
    return make_plan(study, federation="fed", submission="one", analyst="ada")


def queries(plan: Plan) -> list[RoundQuery]:
    return [one for course in possible_rehearsals(plan) for one in course]


def stated(own: StatedLimits | None = None, **changes: Any) -> SiteStatement:
    return SiteStatement(
        needs_approval=False, max_missing=1, max_unreadable=1, max_out_of_bounds=1, limits=own, **changes
    )


def limited(**changes: Any) -> SiteStatement:
    return stated(replace(LIMITS, **changes))


def ruled(**changes: Any) -> SiteStatement:
    return stated(study_rules=replace(OPEN, **changes))


def directory(**sites: SiteStatement | None) -> Directory:
    every = dict.fromkeys(SITES) | sites
    return Directory(federation="fed", sites=every, columns=None, approval_seconds=0.0)


def told(plan: Plan, found: Directory) -> list[str]:
    return check_readiness(plan, readiness(plan, found, queries(plan)))


UNFIT: list[tuple[SiteStatement, dict[str, Any], str]] = [
    (limited(person_column="patient"), {}, "alpha: person_column ('patient' at the site, none in the study)"),
    (limited(sites_per_person=2), {}, "alpha: sites_per_person 2 (this study states max_sites_per_person 1)"),
    (limited(minimum_records=19), {}, "alpha: minimum_records 19 (this study needs 20, by minimum_cohort)"),
    (limited(max_columns_per_record=0.003), {},
     "alpha: minimum_records 1000 (this study needs 1334, by max_columns_per_record)"),
    (limited(maximum_records=2**25), {},
     "alpha: maximum_records 33554432 (this study allows 16777216, its max_records)"),
    (limited(minimum_records=20), PASS | {"batches": 15},
     "alpha: minimum_records 20 (this study needs 300, by minimum_records_per_batch)"),
    (limited(**SMALL), PASS, "alpha: memory_mib 1 (this study needs 8, by maximum_records)"),
    (stated(study_rules=CLOSED), {}, "alpha: analysts"),
    (ruled(max_epsilon_per_study=0.5), {}, "alpha: max_epsilon_per_study 0.5 (this study needs 1)"),
    (ruled(max_delta=1e-9), {}, "alpha: max_delta 1e-09 (this study needs 1e-06)"),
    (ruled(algorithms=("dp-pca",)), {}, "alpha: algorithms dp-pca (this study needs gauss-cov)"),
    (ruled(trust=("secure-aggregation",)), {}, "alpha: trust secure-aggregation (this study states central)"),
]  # fmt: skip


@pytest.mark.parametrize(("alpha", "study", "text"), UNFIT)
def test_a_setting_that_does_not_fit_is_named_with_the_value_that_would(
    alpha: SiteStatement, study: dict[str, Any], text: str
) -> None:
    plan, unfit = a_plan(**study), directory(alpha=alpha)
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
    before = replace(
        LIMITS, minimum_records=least, max_columns_per_record=wide, minimum_records_per_batch=per_batch,
        memory_mib=mib,
    )  # fmt: skip
    for verdict in before.verdicts(ONE_PASS, ONE_PASS_QUERIES):
        if verdict.passed:
            continue
        name, enough = verdict.short.split()[0], int(verdict.short.split("needs ")[1].split(",")[0])
        for value, passes in ((enough, True), (enough - 1, False)):
            changed = replace(before, **{name: value})  # type: ignore[arg-type]
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


def test_sites_left_out_and_sites_that_state_nothing_are_named() -> None:
    plan = a_plan(federation={"sites": ("alpha",), "quorum": 1})
    every = tuple(f"c{number}" for number in range(4))
    beta, own = stated(LIMITS, columns=("c0", "c1", "c2")), stated(LIMITS, columns=every)
    here = directory(alpha=own, beta=beta)
    first, second = left_out_warnings(plan, here)
    assert first.endswith("beta: no column 'c3'")
    assert "3 sites the study asks alpha alone" in second
    assert left_out_warnings(a_plan(), here) == [], "they are asked"
    texts = [one.ready_text for one in readiness(a_plan(), here)]
    assert texts == ["yes", "no", "not known"]


def test_the_matrix_has_each_site_with_its_columns_and_settings() -> None:
    lacking = stated(replace(LIMITS, person_column="patient"), columns=("c0", "c1", "c2"))
    every = tuple(f"c{number}" for number in range(4))
    found = readiness(a_plan(), directory(alpha=lacking, beta=stated(LIMITS, columns=every)))
    assert [(one.ready, one.columns_text, one.settings_text.split(" (")[0]) for one in found] == [
        (False, "no column 'c3'", "person_column"), (True, "all", "fit"), (True, "not stated", "not stated"),
    ]  # fmt: skip
    assert [one.to_dict()["columns_not_stated"] for one in found] == [0, 0, 4]


def test_a_column_that_one_site_does_not_offer_forbids_the_study_whatever_its_quorum() -> None:
    lacking = directory(alpha=stated(columns=("c0", "c1", "c2")))
    with refused(Code.POLICY, "not submitted: ", "alpha: no column 'c3'"):
        told(a_plan(), lacking)
    assert refusal(a_plan(), readiness(a_plan(), lacking)).startswith("sites state"), "of a plan, no error's"


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
