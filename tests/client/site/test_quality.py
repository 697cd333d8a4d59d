"""Columns as hospitals break them: named by `check`, not answered about, and mended by rules."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eigenveil.aggregation import Contribution
from eigenveil.errors import Code
from eigenveil.planning.choose import rehearse
from eigenveil.study.study import Column, Study
from eigenveil_client.records.column_quality import ColumnQuality, PlausibleRange
from eigenveil_client.records.recoding.rule import ColumnRule
from eigenveil_client.records.tables.source import RecordsConfig
from eigenveil_client.site import config as site_config
from eigenveil_client.site.commands import consent, study_list
from eigenveil_client.site.config import plausible_ranges
from eigenveil_client.site.policy_sections import QualityRules
from eigenveil_client.site.state.received_plans import ConsentStatus
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from tests.client.records import support as records
from tests.client.site.command_line import site, written
from tests.client.site.daemon.test_worker import reply_to
from tests.client.site.support import Log, Stage, a_plan, a_study, reason_of
from tests.support import refused

MENDED = """
[column.body_weight]
decimal = ","
[column.total_cholesterol]
factor = 38.67
[column.systolic_bp]
missing = ["-999"]
"""
BROKEN = {
    "body_weight": "max_unreadable",
    "total_cholesterol": "max_out_of_bounds",
    "systolic_bp": "max_out_of_bounds",
}
BOUNDS = {
    "body_weight": (20, 300, "kg"),
    "total_cholesterol": (20, 1000, "mg/dL"),
    "systolic_bp": (40, 300, "mm[Hg]"),
}


def people(*, broken: bool) -> str:
    lines = ["body_weight,total_cholesterol,systolic_bp"]
    for n in range(60):
        weight, fat, pressure = f"{60 + n / 8}", 3 + n / 16, 100 + n if n % 6 else None
        if broken:
            lines.append(f'"{weight.replace(".", ",")}",{fat},{-999 if pressure is None else pressure}')
        else:
            lines.append(f"{weight},{fat * 38.67!r},{'' if pressure is None else pressure}")
    return "\n".join(lines) + "\n"


def of_columns(**bounds: tuple[float, float, str]) -> Study:
    return a_study(
        columns=tuple(Column(name=n, unit=u, lower=low, upper=up) for n, (low, up, u) in bounds.items())
    )


@pytest.mark.parametrize("name", BROKEN)
def test_broken_column_is_named_to_the_site_alone(name: str, stage: Stage, caplog: Log) -> None:
    caplog.set_level(logging.INFO, "eigenveil")
    stage.records.write_text(people(broken=True))
    plan = a_plan(of_columns(**{name: BOUNDS[name]}))
    with stage.process() as (store, worker):
        assert reason_of(reply_to(stage, worker, rehearse(plan)[0], plan)) == pb.DECLINE_REASON_FAILURE
        assert store.ledger.ledger.spent.micro_rho == 0
        assert (
            study_list.studies(stage.config, store)["studies"][0]["reason"]
            == "this site declines: low-quality-column"
        )
    assert caplog.messages[-1].endswith(f"code=low-quality-column about='{name} ({BROKEN[name]})'")
    result = {row["check"]: row for row in site(written(stage), "check", "--json").json["checks"]}
    assert result[f"column {name!r}"]["level"] == "warn"
    assert BROKEN[name] in result[f"column {name!r}"]["text"]


def test_recoded_columns_are_answered_as_whole_ones(stage: Stage) -> None:
    plan = a_plan(of_columns(**BOUNDS))
    answers = []
    for broken in (False, True):
        stage.records.write_text(people(broken=broken))
        stage.config = replace(
            site_config.load(written(stage, MENDED if broken else "")), state=stage.folder / f"{broken}.db"
        )
        with stage.process() as (_, worker):
            for query in rehearse(plan):
                answer = reply_to(stage, worker, query, plan)
                assert isinstance(answer, Contribution)
                answers.append(answer.values)
    half = len(answers) // 2
    assert half == len(rehearse(plan))
    assert all(map(np.array_equal, answers[:half], answers[half:]))
    assert not any(row["check"].startswith("column") for row in site(
        written(stage, MENDED), "check", "--json").json["checks"])  # fmt: skip


def test_study_of_a_broken_column_cannot_be_approved(stage: Stage) -> None:
    stage.records.write_text(people(broken=True))
    stage.config = site_config.load(written(stage, 'approval = "manual"'))
    plan = a_plan(of_columns(**BOUNDS))
    with stage.process() as (store, worker):
        assert reply_to(stage, worker, rehearse(plan)[0], plan) is None
        with refused(Code.LOW_QUALITY_COLUMN, *BROKEN):
            consent.approve(stage.config, store, store.studies.find(plan.digest), by="Dr. Grau")
        assert store.studies.status(plan.digest) is ConsentStatus.PENDING
        assert store.ledger.ledger.committed().micro_rho == 0


@given(lower=st.floats(0, 50), width=st.floats(1, 400), within=st.sampled_from([(0.0, 30.0), (12.0, 14.5)]))
def test_study_bounds_do_not_change_quality_rules(
    lower: float, width: float, within: tuple[float, float], tmp_path_factory: pytest.TempPathFactory
) -> None:
    file = tmp_path_factory.mktemp("q") / "records.csv"
    file.write_text("a,b\n" + "".join(f"{n / 4},{n}\n" for n in range(80)))
    study = of_columns(a=(lower, lower + width, "kg"))
    plausible = {"a": PlausibleRange(lower=within[0], upper=within[1], unit="kg")}
    (found,) = records.read(file, study, plausible=plausible).quality
    assert found.implausible == sum(not within[0] <= n / 4 <= within[1] for n in range(80))


@given(persons=st.integers(1, 400), share=st.floats(0, 1), counts=st.tuples(*[st.integers(0, 400)] * 3))
def test_quality_rule_fails_beyond_its_share(
    persons: int, share: float, counts: tuple[int, int, int]
) -> None:
    gone, unreadable, far = (min(count, persons) for count in counts)
    gone = max(gone, unreadable)  # who has a cell that cannot be read has no value
    rules = QualityRules(max_missing=share, max_unreadable=share, max_out_of_bounds=share)
    column = ColumnQuality(name="a", persons=persons, missing=gone, unreadable=unreadable, implausible=far)
    expected = {
        rule
        for rule, found in [
            ("max_missing", gone - unreadable), ("max_unreadable", unreadable), ("max_out_of_bounds", far),
        ]
        if found > 5 and found / persons > share
    }  # fmt: skip
    assert {one.rule for one in rules.failures([column])} == expected


@pytest.mark.parametrize("unit", ["mmol/L", "x", ""])
def test_no_unit_of_a_study_avoids_the_quality_check(unit: str, stage: Stage) -> None:
    for cells in ("5.2\n", "200\n"):
        stage.records.write_text("total_cholesterol\n" + cells * 40)
        plan = a_plan(of_columns(total_cholesterol=(0, 1000, unit)))
        stage.config = replace(stage.config, state=stage.folder / f"{len(cells)}.db")
        with stage.process() as (_, worker):
            assert reason_of(reply_to(stage, worker, rehearse(plan)[0], plan)) == pb.DECLINE_REASON_POLICY
    spelled = of_columns(total_cholesterol=(0, 1000, "MG/dl"))
    (found,) = records.read(
        RecordsConfig(source=stage.records), spelled, plausible=plausible_ranges(stage.config)
    ).quality
    assert found.implausible == 0


def test_no_study_names_a_column_past_the_rule_about_it(tmp_path: Path) -> None:
    file = tmp_path / "records.csv"
    file.write_text("RAW,weight [kg],b [1]\n" + "-999,70,1\n" * 20)
    plausible = {"weight": PlausibleRange(lower=2, upper=400, unit="kg")}
    rules = (ColumnRule(name="pressure", source="RAW", missing=("-999",)),)
    for name in ("RAW", "weight [kg]"):
        with refused(Code.POLICY, "Name columns as the site does"):
            records.read(file, of_columns(**{name: (0, 300, "kg")}), rules=rules,
                plausible=plausible,
            )  # fmt: skip
    assert records.read(file, of_columns(weight=(0, 300, "kg")), rules=rules).persons == 20
    brackets = of_columns(**{"b [1]": (0, 2, "1")})  # a name of which the site says nothing may have them
    assert records.read(file, brackets, rules=rules, plausible=plausible).persons == 20
