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
from tests.client.site.support import FEDERATION, Coordinator, a_plan, a_stage, until, work
from tests.server.rig import made, refusal, serving
from tests.support import refused

OLD, NEW, NEXT = 1, 2, 3  # this coordinator or client speaks NEW, and OLD for those not yet updated


@pytest.mark.parametrize(
    ("window", "agreed"),
    [((OLD, OLD), OLD), ((OLD, NEW), NEW), ((NEW, NEW), NEW), ((NEW, NEXT), NEW), ((OLD, NEXT), NEW)],
)
async def test_the_coordinator_agrees_on_the_highest_common_version(
    tmp_path: Path, window: tuple[int, int], agreed: int
) -> None:
    async def scenario() -> int:
        async with serving(made(tmp_path / "c")) as rig:
            site = await rig.client(Role.SITE, "anna")
            query = pb.HelloRequest(version_min=window[0], version_max=window[1])
            return int((await site.stub.Hello(query)).version)

    with mock.patch.multiple(service, VERSION_MIN=OLD, VERSION_MAX=NEW):
        assert (await scenario()) == agreed


@pytest.mark.parametrize("window", [(NEXT, NEXT + 1), (0, 0), (NEXT, OLD)])
async def test_a_peer_outside_the_window_is_told_who_must_be_updated(
    tmp_path: Path, window: tuple[int, int]
) -> None:
    with mock.patch.multiple(service, VERSION_MIN=OLD, VERSION_MAX=NEW):
        async with serving(made(tmp_path / "c")) as rig:
            site = await rig.client(Role.SITE, "anna")
            query = pb.HelloRequest(version_min=window[0], version_max=window[1])
            failure = await refusal(site.stub.Hello(query))
            assert failure.code is Code.VERSION
            assert "update the older" in str(failure)


@pytest.mark.parametrize("version", [OLD, NEW])
async def test_a_site_works_for_a_coordinator_of_its_own_version_or_the_one_before(
    tmp_path: Path, version: int
) -> None:
    stage = a_stage(tmp_path)

    async def scenario() -> Coordinator:
        coordinator = Coordinator(version=version)
        async with stage.serving(coordinator), stage.daemon():
            await until(lambda: coordinator.requests)
        return coordinator

    with mock.patch.multiple(channel, VERSION_MIN=OLD, VERSION_MAX=NEW):
        assert (await scenario()).hellos == 1


@pytest.mark.parametrize("version", [0, NEXT])
async def test_neither_site_nor_analyst_goes_on_with_a_version_it_does_not_speak(
    tmp_path: Path, version: int, caplog: pytest.LogCaptureFixture
) -> None:
    stage = a_stage(tmp_path)
    caplog.set_level(logging.INFO, "eigenveil")

    async def scenario() -> Coordinator:
        coordinator = Coordinator(version=version)
        async with stage.serving(coordinator), stage.daemon():
            await until(lambda: coordinator.hellos)
            stored = load_identity(stage.config.identity)
            ada = Identity(federation=FEDERATION, role=Role.ANALYST, name="ada")
            async with Analyst(replace(stored, identity=ada)) as analyst:
                with refused(Code.VERSION, f"uses protocol version {version}", "update the older"):
                    await analyst.studies()
            await until(lambda: any("disconnected code=version" in line for line in caplog.messages))
        return coordinator

    with mock.patch.multiple(channel, VERSION_MIN=OLD, VERSION_MAX=NEW):
        assert (await scenario()).requests == []


@pytest.mark.parametrize("state", [pb.STUDY_STATE_RUNNING, 99])
def test_an_end_that_is_unknown_here_ends_no_study(
    tmp_path: Path, state: int, caplog: pytest.LogCaptureFixture
) -> None:
    stage = a_stage(tmp_path)
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
