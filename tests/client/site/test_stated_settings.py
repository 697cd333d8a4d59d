"""Stated settings of a site: never of its records, compared with a plan by the site's own rule; and the names
of rules in a decline, which reveal no more than the statement [R23] [R9]."""

from __future__ import annotations

import math
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eigenveil.dictionary.directory import Directory, statement_from_proto
from eigenveil.dictionary.readiness import readiness
from eigenveil.dictionary.site_rules import ANY
from eigenveil.errors import Code
from eigenveil.planning.choose import rehearse
from eigenveil.protocol.plan import Plan
from eigenveil.study.algorithm import Algorithm
from eigenveil.study.study import Column, Federation
from eigenveil_client.records.recoding.rule import ColumnRule
from eigenveil_client.records.tables.source import RecordsConfig
from eigenveil_client.site.commands import consent, study_list
from eigenveil_client.site.config import EngineConfig, EngineKind, SiteConfig, statement_of
from eigenveil_client.site.daemon.decisions import Refusal
from eigenveil_client.site.policy import Approval, Policy
from eigenveil_client.site.state.received_plans import ConsentStatus
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from tests.client.site.command_line import site, written
from tests.client.site.daemon.test_answers import SPOILS
from tests.client.site.support import SITE, Stage, a_plan, a_stage, a_study, reason_of, work, write_records
from tests.support import refused

PLAN = a_plan()
WHEREVER = RecordsConfig(source=Path("records.csv"))
UNKNOWN = a_plan(
    a_study(columns=tuple(Column(name=one, unit="cm", lower=0, upper=250) for one in ("height", "b2")))
)


def wanted(stage: Stage, plan: Plan = PLAN) -> pb.NextWorkResponse:
    return pb.NextWorkResponse(plan=stage.signed(plan), consent=bytes.fromhex(plan.digest))


@pytest.mark.parametrize("rows", [20, 40, 4000])
def test_a_statement_is_of_settings_and_the_same_for_all_records(stage: Stage, rows: int) -> None:
    stage.rule(disclose_settings=True, person_column="patient", minimum_records=30)
    stage.config = replace(stage.config, column=(ColumnRule(name="age"),))
    write_records(stage.records, rows=rows)
    before = statement_of(stage.config)
    stage.records.unlink()
    assert statement_of(stage.config) == before
    assert before.limits is not None
    assert (before.limits.person_column, before.limits.minimum_records) == ("patient", 30)
    assert before.columns is None, "of what it maps, it states what `offers` names"
    stage.config = replace(stage.config, offers=("age", "bmi"))
    assert statement_of(stage.config).columns == ("age", "bmi")


def test_a_site_toml_of_1_0_states_no_more_than_before(stage: Stage) -> None:
    stage.config = replace(stage.config, column=(ColumnRule(name="age"),))
    assert statement_of(stage.config).limits is None


@pytest.mark.parametrize("kind", [EngineKind.AUTO, EngineKind.DISK, EngineKind.MEMORY])
def test_memory_without_a_limit_is_not_stated(stage: Stage, kind: EngineKind) -> None:
    stage.rule(disclose_settings=True)
    stage.config = replace(stage.config, engine=EngineConfig(kind=kind, memory_mib=7))
    stated = statement_of(stage.config).limits
    assert stated is not None
    assert stated.memory_mib == (None if kind is EngineKind.MEMORY else 7)


@st.composite
def policies(draw: st.DrawFn) -> Policy:
    least = draw(st.sampled_from([1, 19, 20, 39, 40, 300]))
    return Policy(
        analysts=(ANY,), algorithms=("gauss-cov", "private-oja"), disclose_settings=True,
        person_column=draw(st.sampled_from(["", "patient"])), sites_per_person=draw(st.integers(1, 3)),
        minimum_records=least, maximum_records=draw(st.sampled_from([300, 100_000, 100_001])),
        max_columns_per_record=draw(st.sampled_from([0.01, 0.15, 2.0, math.inf])),
        minimum_records_per_batch=draw(st.integers(20, 40)),
    )  # fmt: skip


PLANS = [
    a_plan(a_study(**changes))
    for changes in (
        {},
        {"person_column": "patient", "max_sites_per_person": 2},
        {"federation": Federation(sites=(SITE,), minimum_cohort=39)},
        {"algorithm": Algorithm.PRIVATE_OJA, "batches": 2, "centring": False},
    )
]


@given(policy=policies(), plan=st.sampled_from(PLANS))
def test_the_coordinator_predicts_the_decision_of_the_site(policy: Policy, plan: Plan) -> None:
    config = SiteConfig(
        name=SITE, records=WHEREVER, identity=Path("identity"), state=Path("state"), policy=policy
    )
    message = pb.SiteStatement.FromString(statement_of(config).to_proto().SerializeToString())
    sites = {SITE: statement_from_proto(message)}
    directory = Directory(federation="f", sites=sites, columns=None, approval_seconds=0.0)
    predicted = {one.rule for one in readiness(plan, directory)[0].failed}
    own = {one.rule for one in policy.verdicts(plan, 0) if not one.passed}
    assert predicted == own


@pytest.mark.parametrize("discloses", [True, False])
@pytest.mark.parametrize(
    ("changes", "named", "always"),
    [
        ({"person_column": "patient"}, "person_column", False),
        ({"minimum_records": 10}, "minimum_records", False),
        ({"algorithms": ("dp-pca",)}, "algorithms", True),
        ({"columns": ("a",)}, "", False),
        ({"columns": ("a",), "person_column": "patient"}, "person_column", False),
    ],
)
def test_a_decline_names_a_stated_setting_to_an_analyst_who_is_not_known(
    tmp_path: Path, changes: dict[str, Any], named: str, always: bool, discloses: bool
) -> None:
    stage = a_stage(tmp_path, disclose_settings=discloses, **changes)
    with stage.process() as (store, worker):
        refusal = worker.work(wanted(stage))
        assert isinstance(refusal, Refusal)
        expected = named if discloses or always else ""
        assert (refusal.reason, refusal.rule) == (pb.DECLINE_REASON_POLICY, expected)
        assert store.egress.rows()[-1].meaning.endswith(expected or "site-policy"), (
            "the ledger says what left"
        )


@pytest.mark.parametrize("discloses", [True, False])
def test_memory_that_is_too_small_is_named_before_anything_is_loaded(tmp_path: Path, discloses: bool) -> None:
    stage = a_stage(tmp_path, disclose_settings=discloses, algorithms=("private-oja",), minimum_records=40)
    stage.rule(maximum_records=10**6)
    stage.config = replace(stage.config, engine=EngineConfig(memory_mib=1))
    plan = a_plan(a_study(algorithm=Algorithm.PRIVATE_OJA, centring=False, batches=2, max_records=10**6))
    stage.records.unlink()
    with stage.process() as (_, worker):
        refusal = worker.work(wanted(stage, plan))
        assert isinstance(refusal, Refusal)
        assert (refusal.reason, refusal.rule) == (
            pb.DECLINE_REASON_POLICY, "memory_mib" if discloses else "",
        )  # fmt: skip


def test_a_decline_because_of_records_is_one_word_for_every_cause(tmp_path: Path) -> None:
    found = set()
    for name in SPOILS.keys() - {"nothing"}:
        folder = tmp_path / name
        folder.mkdir()
        stage = a_stage(folder, disclose_settings=True, disclose_reasons=True)
        SPOILS[name](stage)
        with stage.process() as (_, worker):
            assert worker.work(wanted(stage)) is None
            refusal = worker.work(work(rehearse(PLAN)[0]))
            assert isinstance(refusal, Refusal)
            found.add(refusal)
    (only,) = found
    assert (only.reason, only.rule, only.text) == (pb.DECLINE_REASON_FAILURE, "", "")


def missing(stage: Stage) -> Plan:
    return UNKNOWN


def another_unit(stage: Stage) -> Plan:
    stage.records.write_text("a [kg],b,c\n" + "1,2,3\n" * 40)
    return PLAN


def unreadable(stage: Stage) -> Plan:
    stage.records.unlink()
    return PLAN


def without_the_person(stage: Stage) -> Plan:
    stage.rule(person_column="patient")
    stage.records.write_text("Pat Nr,a,b,c\n" + "p,1,2,3\n" * 40)
    return a_plan(a_study(person_column="patient"))


def of_the_person(stage: Stage) -> Plan:
    """A study names as a column what the records call the person column."""
    stage.rule(person_column="patient")
    stage.config = replace(stage.config, records=replace(stage.config.records, person="MRN"))
    stage.records.write_text("MRN,a,b,c\n" + "1,1,2,3\n" * 40)
    return a_plan(a_study(columns=(Column(name="MRN", unit="", lower=0, upper=9),), person_column="patient"))


@pytest.mark.parametrize(
    ("prepare", "text", "refusal"),
    [
        (missing, "not in the records: 'height', 'b2' (did you mean 'b'?)", "column 'height' is not in the"),
        (another_unit, "column 'a' is in 'kg' in the records and in 'mmol/L' in the study", ""),
        (unreadable, "records.csv", ""),
        (without_the_person, 'Write [records] person = "Pat Nr"', ""),
        (of_the_person, "the site has rules for MRN", ""),
    ],
)
def test_a_column_that_the_records_lack_is_shown_by_explain_and_nothing_of_it_leaves(
    asking: Stage, prepare: Any, text: str, refusal: str
) -> None:
    plan, code = prepare(asking), Code.POLICY if prepare is of_the_person else Code.BAD_DATA
    with asking.process() as (store, worker):
        assert worker.work(wanted(asking, plan)) is None
        assert (worker.consent().accepted, store.egress.rows()) == ({}, []), "it waits, as ever"
        for contents in (True, False):  # without them, the headers alone decide alike
            policy = consent.explain_plan(asking.config, store, plan, None, contents=contents)["policy"]
            failed = [one for one in policy if not one["passed"]]
            assert [one["rule"] for one in failed] == ["records"]
            assert text in failed[0]["text"]
        assert "records" in study_list.studies(asking.config, store)["studies"][0]["reason"]
        with refused(code, refusal or text):
            consent.approve(asking.config, store, store.studies.find(plan.digest), by="Dr. Grau")
        assert store.studies.status(plan.digest) is ConsentStatus.PENDING
        assert (worker.consent().accepted, store.egress.rows()) == ({}, [])
    shown = site(written(asking, 'approval = "manual"'), "explain", plan.digest[:12])
    assert "FAILS" in shown.out


def test_records_with_every_column_pass_in_explain(asking: Stage) -> None:
    with asking.process() as (store, worker):
        worker.work(wanted(asking))
        policy = consent.explain_plan(asking.config, store, PLAN, None)["policy"]
        assert {"records", "memory_mib"} <= {one["rule"] for one in policy if one["passed"]}
        consent.approve(asking.config, store, store.studies.find(PLAN.digest), by="Dr. Grau")


def test_memory_that_was_lowered_since_a_study_came_is_shown_and_not_approved(tmp_path: Path) -> None:
    stage = a_stage(tmp_path, approval=Approval.MANUAL, algorithms=("private-oja",), minimum_records=40)
    plan = a_plan(a_study(algorithm=Algorithm.PRIVATE_OJA, centring=False, batches=2, max_records=10**6))
    with stage.process() as (_, worker):
        assert worker.work(wanted(stage, plan)) is None
    stage.rule(maximum_records=10**6)
    stage.config = replace(stage.config, engine=EngineConfig(memory_mib=1))
    stage.records.unlink()  # nothing is loaded
    with closing(stage.store()) as store:
        policy = consent.explain_plan(stage.config, store, plan, None)["policy"]
        assert [one["rule"] for one in policy if not one["passed"]] == ["records", "memory_mib"]
        assert "records, memory_mib" in study_list.studies(stage.config, store)["studies"][0]["reason"]
        with refused(Code.POLICY, "site.toml allows 1 (memory_mib)"):
            consent.approve(stage.config, store, store.studies.find(plan.digest), by="Dr. Grau")


def test_a_setting_that_changed_since_the_statement_decides_at_the_site(tmp_path: Path) -> None:
    stage = a_stage(tmp_path, disclose_settings=True)
    directory = Directory(
        federation="f", sites={SITE: statement_of(stage.config)}, columns=None, approval_seconds=0.0
    )
    assert readiness(PLAN, directory)[0].ready
    stage.rule(minimum_records=10)
    with stage.process() as (_, worker):
        refusal = worker.work(wanted(stage))
        assert reason_of(refusal) == pb.DECLINE_REASON_POLICY
