"""Masked rounds over a connection: one trip where it can be one, and an end where a person must decide."""

from __future__ import annotations

import asyncio
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from eigenveil.errors import RequestError
from eigenveil_client.connection.identity import load_identity
from eigenveil_client.site.daemon import connection
from eigenveil_client.site.daemon.service import SiteDaemon
from eigenveil_common.files import arm, disarm
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from tests.client.site.masking import OTHERS, PLAN, QUESTIONS, Peers, assignment, confirm, keys_of, left
from tests.client.site.support import SITE, Context, Coordinator, a_stage, until

FIRST, SECOND, *_ = QUESTIONS


@pytest.fixture
def peers(tmp_path: Path) -> Peers:
    return Peers(a_stage(tmp_path))


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How odd the work was that made the site pause, each time."""
    made: list[int] = []

    def pause(odd: int) -> float:
        made.append(odd)
        return 0.0

    monkeypatch.setattr(connection, "backoff_seconds", pause)
    return made


def script(peers: Peers) -> list[pb.NextWorkResponse]:
    """A round that is made ready and tried twice, and one whose set comes with its question."""
    return [
        assignment(FIRST, None, peers.stage.signed(PLAN)),
        assignment(FIRST, peers.attempt(FIRST, 1)),
        assignment(FIRST, peers.attempt(FIRST, 2)),
        assignment(SECOND, peers.attempt(SECOND, 1)),
    ]


async def test_what_is_ready_and_what_is_masked_bring_the_next_question_along(
    peers: Peers, pauses: list[int]
) -> None:
    coordinator = Coordinator(work=script(peers), lose=["Ready"])

    async with peers.stage.serving(coordinator), peers.stage.daemon():
        await until(lambda: len(coordinator.contributions) == 3 and len(coordinator.asked) == 5)
    ready, again = coordinator.readies
    assert ready == again, "the answer to the first was lost"
    assert (ready.round, ready.query_digest.hex()) == (0, FIRST.digest)
    assert ready.card_digest.hex() == peers.keys[SITE].card.digest
    sent = coordinator.contributions
    assert [ready.next, *(one.next for one in sent)] == coordinator.asked[1:]
    told = [(one.round, one.attempt) for wish in coordinator.asked[1:] for one in wish.answered]
    assert told == [(0, 0), (0, 1), (0, 2), (1, 1)]
    numbers = [(FIRST, 1), (FIRST, 2), (SECOND, 1)]
    assert [one.attempt_digest.hex() for one in sent] == [peers.attempt(*one).digest for one in numbers]
    assert pauses == [], "nothing of that is odd"


class Narrow(Coordinator):
    """Takes a few bytes a call."""

    async def Hello(self, request: pb.HelloRequest, context: Context) -> pb.HelloResponse:
        hello = await super().Hello(request, context)
        hello.limits.inline_bytes, hello.limits.chunk_bytes = 8, 48
        return hello


async def test_a_large_masked_answer_goes_in_chunks_that_name_its_attempt(peers: Peers) -> None:
    coordinator = Narrow(work=[*script(peers)[:2], assignment(SECOND, peers.attempt(SECOND, 1))])

    async with peers.stage.serving(coordinator), peers.stage.daemon():
        await until(lambda: len(coordinator.contributions) == 2)
    assert [one.attempt_digest.hex() for one in coordinator.opened] == [peers.attempt(SECOND).digest]
    assert len(coordinator.contributions[-1].values) == 8 * SECOND.query.length




async def test_another_card_of_a_peer_ends_the_daemon_until_a_person_has_decided(peers: Peers) -> None:
    new = keys_of(peers.stage, OTHERS[1], "moved")
    lie = assignment(FIRST, peers.attempt(FIRST, cards={OTHERS[1]: new.card.digest}))
    coordinator = Coordinator(work=[script(peers)[0], lie])

    async def served() -> None:
        with closing(peers.stage.store()) as store:
            daemon = SiteDaemon(peers.stage.worker(store), lambda: load_identity(peers.stage.config.identity))
            await asyncio.wait_for(daemon.run(), 100)

    async with peers.stage.serving(coordinator):
        for _ in range(2):
            with pytest.raises(RequestError, match="another key card of hospital-c"):
                await served()
        assert coordinator.hellos == 1, "it does not even greet"
        confirm(peers.roster, peers.keys[OTHERS[1]], peers.keys[SITE])
        coordinator.work.append(assignment(FIRST, peers.attempt(FIRST)))
        async with peers.stage.daemon():
            await until(lambda: coordinator.contributions)
    assert (len(coordinator.readies), len(coordinator.declines)) == (1, 0)
    assert [one.attempt_digest.hex() for one in coordinator.contributions] == [peers.attempt(FIRST).digest]


@pytest.mark.parametrize("point", ["ready-storing", "ready-stored", "ready-sending", "ready-sent"])
async def test_a_crash_around_ready_costs_nothing_and_it_is_said_again(peers: Peers, point: str) -> None:
    class Killed(BaseException):
        pass

    passed: list[str] = []

    def die() -> None:
        passed.append(point)
        raise Killed

    coordinator = Coordinator(work=[script(peers)[0], script(peers)[0], script(peers)[1]])

    async with peers.stage.serving(coordinator):
        arm(point, die)
        try:
            with closing(peers.stage.store()) as store:
                daemon: Any = SiteDaemon(
                    peers.stage.worker(store), lambda: load_identity(peers.stage.config.identity)
                )
                with pytest.raises(Killed):
                    await asyncio.wait_for(daemon.run(), 100)
        finally:
            disarm()
        del coordinator.work[:-2]
        async with peers.stage.daemon() as store:
            await until(lambda: len(coordinator.contributions) == 1)
            assert left(store)[0] == FIRST.micro_rho
    assert passed == [point]
