"""A site at which a person has to agree first is offered nothing, and those who watch see that it waits."""

from __future__ import annotations

import asyncio
from pathlib import Path

from eigenveil.identity import Role
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from tests.server.rig import answering, made, serving, study_toml


def test_a_site_that_waits_for_approval_is_shown_and_offered_the_round_afterwards(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(made(tmp_path / "c", long_poll_seconds=0.2)) as rig:
            sites = dict(await rig.sites())
            analyst = await rig.client(Role.ANALYST, "ada")
            carl = sites.pop("carl")
            async with answering(sites):
                digest = await analyst.submit(study_toml(deadline_seconds=60.0))
                first = await carl.query()
                waiting = pb.NextWorkRequest(known_plans=carl.known, awaiting=carl.known)
                for _ in range(3):
                    assert not (await carl.stub.NextWork(waiting)).HasField("query")
                again = await carl.query()  # a person agreed
                assert again.digest == first.digest
                async with answering({"carl": carl}):
                    events = await analyst.events(digest)
            assert events[-1].state == pb.STUDY_STATE_RELEASED
            said = [{one.site: one.status for one in event.sites}.get("carl") for event in events]
            assert said.count("waiting for approval") >= 1
            assert said[-1] == "answered"

    asyncio.run(scenario())


def test_a_site_that_is_not_invited_cannot_have_itself_shown(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(made(tmp_path / "c", long_poll_seconds=0.2)) as rig:
            sites = dict(await rig.sites())
            analyst = await rig.client(Role.ANALYST, "ada")
            dora = await rig.client(Role.SITE, "dora")
            async with answering(sites):
                digest = await analyst.submit(study_toml(deadline_seconds=60.0))
                await dora.stub.NextWork(pb.NextWorkRequest(awaiting=[bytes.fromhex(digest)]))
                events = await analyst.events(digest)
            assert "waiting for approval" not in {one.status for event in events for one in event.sites}

    asyncio.run(scenario())
