"""A study is checked against the public directory of a federation."""

from __future__ import annotations

import json
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eigenveil.dictionary.directory import (
    PERSON_SECONDS,
    Directory,
    SiteStatement,
    check_study,
    directory_from_dict,
    statement_from_proto,
)
from eigenveil.dictionary.site_limits import MAX_MEMORY_MIB, StatedLimits
from eigenveil.dictionary.site_rules import StatedRules
from eigenveil.errors import Code
from eigenveil.study.checks import plain_fields
from eigenveil.study.study import MAX_MULTIPLICITY, MAX_RECORDS, Federation
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from tests.support import a_study, limits, refused

SITES = ("north", "south")
STUDY = a_study(3, SITES)  # columns c0, c1, c2
shares = st.floats(0, 1)


def stated(offered: tuple[str, ...] | None = None, *, manual: bool = False) -> SiteStatement:
    return SiteStatement(
        columns=offered, needs_approval=manual, max_missing=0.5, max_unreadable=0.01, max_out_of_bounds=0.05
    )


def directory(**changes: Any) -> Directory:
    values = {"sites": dict.fromkeys(SITES), "columns": None, "approval_seconds": 0.0}
    return Directory(federation="fed", **(values | changes))


@st.composite
def site_rules(draw: st.DrawFn) -> StatedRules:
    return StatedRules(
        analysts=tuple(draw(st.lists(st.sampled_from(["ada", "eve", "*"])))),
        algorithms=tuple(draw(st.lists(st.sampled_from(["gauss-cov", "dp-pca"])))),
        noise=draw(st.sampled_from(["gaussian", "any"])),
        max_epsilon_per_study=draw(st.floats(0.01, 10)),
        max_delta=draw(st.floats(1e-9, 0.1)),
        trust=tuple(draw(st.lists(st.sampled_from(["central", "secure-aggregation"])))),
        colluding=draw(st.integers(0, 9)),
        minimum_sites=draw(st.integers(0, 9)),
    )


@st.composite
def site_limits(draw: st.DrawFn) -> StatedLimits:
    least = draw(st.integers(1, MAX_RECORDS))
    return StatedLimits(
        person_column=draw(st.sampled_from(["", "patient", "PatNr [a]"])),
        sites_per_person=draw(st.integers(1, MAX_MULTIPLICITY)),
        minimum_records=least,
        maximum_records=draw(st.integers(least, MAX_RECORDS)),
        max_columns_per_record=draw(st.floats(0, exclude_min=True)),
        minimum_records_per_batch=draw(st.integers(1, 2**63)),
        memory_mib=draw(st.none() | st.integers(1, MAX_MEMORY_MIB)),
    )


@st.composite
def statements(draw: st.DrawFn) -> SiteStatement:
    offered = draw(st.none() | st.lists(st.sampled_from(["c0", "c1", "c2", "other [x]"])).map(tuple))
    return SiteStatement(
        columns=offered,
        needs_approval=draw(st.booleans()),
        max_missing=draw(shares),
        max_unreadable=draw(shares),
        max_out_of_bounds=draw(shares),
        study_rules=draw(st.none() | site_rules()),
        limits=draw(st.none() | site_limits()),
    )


@given(statements(), st.none() | st.lists(st.sampled_from("abc")).map(tuple))
def test_a_statement_arrives_as_it_was_made(one: SiteStatement, columns: tuple[str, ...] | None) -> None:
    message = pb.SiteStatement.FromString(one.to_proto().SerializeToString())
    assert statement_from_proto(message) == one
    public = directory(sites={"north": one, "south": None}, columns=columns)
    assert directory_from_dict(json.loads(json.dumps(public, default=plain_fields))) == public


LIMITS = limits(person_column="patient", maximum_records=100).to_dict()
NONSENSE: list[dict[str, Any]] = [
    {"person_column": "a\x1b[2J"},
    {"person_column": "x" * 201},
    {"sites_per_person": 0},
    {"sites_per_person": 2**32 - 1},
    {"minimum_records": 0},
    {"minimum_records": 101},
    {"maximum_records": 2**64 - 1},
    {"max_columns_per_record": float("nan")},
    {"max_columns_per_record": -1.0},
    {"minimum_records_per_batch": 0},
    {"memory_mib": 2**64 - 1},
]


@pytest.mark.parametrize(
    "bad",
    [
        pb.SiteStatement(columns_stated=True, columns=["a\x1b[2J"]),
        pb.SiteStatement(columns_stated=True, columns=["a\u202eb"]),
        pb.SiteStatement(columns_stated=True, columns=["x" * 201]),
        pb.SiteStatement(columns_stated=True, columns=["x" * 100] * 1000),
        pb.SiteStatement(columns_stated=False, columns=["x" * 70_000]),
        pb.SiteStatement(max_missing=1.5),
        pb.SiteStatement(max_unreadable=float("nan")),
        pb.SiteStatement(max_out_of_bounds=-0.1),
    ],
    ids=range(8),
)
def test_a_hostile_statement_is_refused(bad: pb.SiteStatement) -> None:
    with refused(Code.PROTOCOL):
        statement_from_proto(bad)


@pytest.mark.parametrize("nonsense", NONSENSE)
def test_nonsense_about_limits_is_refused(nonsense: dict[str, Any]) -> None:
    assert statement_from_proto(pb.SiteStatement(limits=pb.SiteLimits(**LIMITS))).limits is not None
    with refused(Code.PROTOCOL):
        statement_from_proto(pb.SiteStatement(limits=pb.SiteLimits(**(LIMITS | nonsense))))


@given(
    statements(),
    statements(),
    st.none() | st.sets(st.sampled_from(["c0", "c1", "c2", "d"])),
    st.floats(0, 9e3),
)
def test_a_study_is_admitted_exactly_if_its_columns_and_deadlines_fit_the_directory(
    one: SiteStatement, other: SiteStatement, columns: set[str] | None, seconds: float
) -> None:
    """The rule in other words: every name is known somewhere, every site that says has all of them, and a
    site that asks a person gives them an hour."""
    listed = None if columns is None else tuple(columns)
    public = directory(
        sites=dict(zip(SITES, (one, other), strict=True)), columns=listed, approval_seconds=seconds
    )
    names = {column.name for column in STUDY.columns}
    offered = [set(site.columns) for site in (one, other) if site.columns is not None]
    known = columns is None or names <= columns.union(*offered)
    in_time = (
        not (one.needs_approval or other.needs_approval)
        or max(seconds, STUDY.federation.deadline_seconds) >= PERSON_SECONDS
    )
    admitted = known and all(names <= have for have in offered) and in_time
    with nullcontext() if admitted else refused(Code.BAD_STUDY):
        check_study(STUDY, public)


def test_every_problem_is_named_at_once_and_an_officer_has_an_hour() -> None:
    sites = {"north": stated(("c0", "c1")), "south-2": None}
    with refused(Code.BAD_STUDY, "'south-2'", "'c22'"):
        check_study(STUDY, directory(sites=sites, columns=("c0", "c1", "c22", "hba1c")))
    with refused(Code.BAD_STUDY, "south does not offer 'c1', 'c2'"):
        check_study(STUDY, directory(sites={"north": None, "south": stated(("c0",))}))
    slow = {"north": stated(manual=True), "south": None}
    with refused(Code.BAD_STUDY, "north", f"{PERSON_SECONDS:.0f}"):
        check_study(STUDY, directory(sites=slow))
    patient = replace(STUDY, federation=Federation(sites=SITES, deadline_seconds=PERSON_SECONDS))
    check_study(patient, directory(sites=slow))
    check_study(STUDY, directory(sites=slow, approval_seconds=PERSON_SECONDS))
