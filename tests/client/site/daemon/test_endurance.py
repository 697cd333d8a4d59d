"""What must not end the daemon, wear it out or cost it its budget: forgotten studies, bugs, strange files."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from eigenveil.planning.choose import rehearse
from eigenveil.protocol.plan import Plan
from eigenveil_client.records import records
from eigenveil_client.records.tables.source import RecordsConfig
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from tests.client.site.support import Coordinator, Stage, a_plan, a_study, until, work


def first(stage: Stage, plan: Plan) -> pb.NextWorkResponse:
    return work(rehearse(plan)[0], stage.signed(plan))


async def test_a_study_that_the_coordinator_does_not_know_is_settled(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    """It forgot it in a restore: what was set aside would be lost for ever."""
    caplog.set_level(logging.INFO, "eigenveil")
    plan = a_plan()
    unknown = pb.StudyEnd(plan_digest=bytes.fromhex(plan.digest))
    assert unknown.state == pb.STUDY_STATE_UNSPECIFIED
    coordinator = Coordinator(work=[first(stage, plan)])

    async with stage.serving(coordinator), stage.daemon() as store:
        await until(lambda: coordinator.contributions)
        coordinator.work.append(pb.NextWorkResponse(ended=[unknown]))
        await until(lambda: not store.ledger.ledger.reserved)
        assert store.ledger.ledger.spent.micro_rho == rehearse(plan)[0].micro_rho
        await until(lambda: not coordinator.asked[-1].known_plans)
    assert f"study-ended study={plan.digest[:12]} state=unknown" in caplog.messages


@pytest.mark.parametrize("what", ["a study that is not here has ended", "a bug"])
async def test_work_that_leads_to_nothing_is_taken_ever_more_slowly(
    stage: Stage, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = a_plan()
    nothing = pb.NextWorkResponse(ended=[pb.StudyEnd(plan_digest=bytes.fromhex(plan.digest))])
    if what == "a bug":
        monkeypatch.setattr(records, "load", lambda *_, **__: next(iter(())))
        nothing = first(stage, plan)
    coordinator = Coordinator(work=[nothing] * 60)

    async with stage.serving(coordinator), stage.daemon():
        await asyncio.sleep(1.0)
    assert len(coordinator.work) > 20


async def test_a_column_that_no_reader_foresaw_does_not_end_the_process(stage: Stage) -> None:
    path = stage.folder / "records.parquet"
    table = {name: pa.array(np.arange(40.0) % 7) for name in "abc"}
    parquet.write_table(pa.table({"visits": pa.array([[1, 2]] * 40), **table}), path)
    stage.config = replace(stage.config, records=RecordsConfig(source=path))
    stage.rule(person_column="visits")
    strange, plan = a_plan(a_study(person_column="visits")), a_plan()
    coordinator = Coordinator(work=[first(stage, strange), first(stage, plan)])

    async with stage.serving(coordinator), stage.daemon():
        await until(lambda: len(coordinator.declines) == 2)
    assert [d.reason for d in coordinator.declines] == [pb.DECLINE_REASON_FAILURE, pb.DECLINE_REASON_POLICY]
