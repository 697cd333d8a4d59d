"""Versions N-1, N and N+1 of the protocol meet; what one end does not know is refused, not guessed."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest

from eigenveil.errors import Code
from eigenveil.identity import Identity, Role
from eigenveil_client.analyst.client import Analyst
from eigenveil_client.connection import channel
from eigenveil_client.connection.identity import load_identity
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from eigenveil_server.rpc import service
from tests.client.site.support import FEDERATION, Coordinator, Stage, a_plan, until, work
from tests.server.rig import made, refusal, serving
from tests.support import refused

OLD, NEW, NEXT = 1, 2, 3  # this coordinator or client speaks NEW, and OLD for those not yet updated


WINDOWS = [((OLD, OLD), OLD), ((OLD, NEW), NEW), ((NEW, NEXT), NEW), ((OLD, NEXT), NEW)]


async def test_the_coordinator_takes_the_highest_common_version_or_names_the_older(
    tmp_path: Path,
) -> None:
    with mock.patch.multiple(service, VERSION_MIN=OLD, VERSION_MAX=NEW):
        async with serving(made(tmp_path / "c")) as rig:
            site = await rig.client(Role.SITE, "anna")
            for (least, most), agreed in WINDOWS:
                query = pb.HelloRequest(version_min=least, version_max=most)
                assert (await site.stub.Hello(query)).version == agreed
            for least, most in ((NEXT, NEXT + 1), (0, 0), (NEXT, OLD)):
                query = pb.HelloRequest(version_min=least, version_max=most)
                failure = await refusal(site.stub.Hello(query))
                assert (failure.code, "update the older" in str(failure)) == (Code.VERSION, True)


@pytest.mark.parametrize("version", [OLD, NEW])
async def test_a_site_works_for_a_coordinator_of_its_own_version_or_the_one_before(
    stage: Stage, version: int
) -> None:
    coordinator = Coordinator(version=version)
    with mock.patch.multiple(channel, VERSION_MIN=OLD, VERSION_MAX=NEW):
        async with stage.serving(coordinator), stage.daemon():
            await until(lambda: coordinator.requests)
    assert coordinator.hellos == 1


@pytest.mark.parametrize("version", [0, NEXT])
async def test_neither_site_nor_analyst_goes_on_with_a_version_it_does_not_speak(
    stage: Stage, version: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "eigenveil")
    coordinator = Coordinator(version=version)
    with mock.patch.multiple(channel, VERSION_MIN=OLD, VERSION_MAX=NEW):
        async with stage.serving(coordinator), stage.daemon():
            await until(lambda: coordinator.hellos)
            stored = load_identity(stage.config.identity)
            ada = Identity(federation=FEDERATION, role=Role.ANALYST, name="ada")
            async with Analyst(replace(stored, identity=ada)) as analyst:
                with refused(Code.VERSION, f"uses protocol version {version}", "update the older"):
                    await analyst.studies()
            await until(lambda: any("disconnected code=version" in line for line in caplog.messages))
    assert coordinator.requests == []


@pytest.mark.parametrize("state", [pb.STUDY_STATE_RUNNING, 99])
def test_an_end_that_is_unknown_here_ends_no_study(
    stage: Stage, state: int, caplog: pytest.LogCaptureFixture
) -> None:
    plan = a_plan()
    store = stage.store()
    try:
        worker = stage.worker(store)
        worker.work(work(None, stage.signed(plan)))
        known = worker.known_plans()
        end = pb.StudyEnd(plan_digest=bytes.fromhex(plan.digest), state=state)  # type: ignore[arg-type]
        assert worker.work(pb.NextWorkResponse(ended=[end])) is None
        assert worker.known_plans() == known
        assert len(known) == 1
    finally:
        store.close()
    assert "code=protocol" in caplog.text
