"""[P33] A masked study that is cancelled while it is fed pays for no attempt that nobody heard of."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from eigenveil.identity import Role
from eigenveil_common.files import disarm
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from tests.server.masked.sites import attempts_of, charges_of, masked_toml, serving_sites, site_of
from tests.server.rig import Rig
from tests.server.studies.test_next_question import Held


@pytest.fixture(autouse=True)
def _disarmed() -> Iterator[None]:
    yield
    disarm()


async def test_no_attempt_at_the_next_round_is_charged_once_a_study_is_cancelled(rig: Rig) -> None:
    ada, clients = await rig.client(Role.ANALYST, "ada"), await rig.sites()
    step = Held("round-followed")
    async with serving_sites({name: site_of(rig, client) for name, client in clients.items()}):
        digest = await ada.submit(masked_toml())
        await step.here()  # its first release is stored and fed; no further question is open
        cancel = pb.CancelStudyRequest(plan_digest=bytes.fromhex(digest))
        cancelled = asyncio.ensure_future(ada.stub.CancelStudy(cancel))
        while not rig.daemon.engine._runs[digest]._cancelled:
            await asyncio.sleep(0.01)
        step.go()
        await cancelled
        last = (await ada.events(digest))[-1]
    assert last.state == pb.STUDY_STATE_CANCELLED
    assert {round for round, *_ in charges_of(rig, digest)} == {0}
    assert {round for round, _ in attempts_of(rig, digest)} == {0}
