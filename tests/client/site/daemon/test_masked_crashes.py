"""[P31] [P33] A site masks for peers that its people confirmed, once for each attempt, and pays for each."""

from __future__ import annotations

import asyncio
from contextlib import closing

import numpy as np
import pytest

from eigenveil_client.site.daemon.answers import MaskedAnswer, Ready
from eigenveil_client.site.daemon.decisions import Refusal
from tests.client.site.daemon.test_masked import FIRST, SECOND, script
from tests.client.site.masking import ATTEMPTS, EVERY, QUESTIONS, Peers, left, process, reply_to, row_count
from tests.client.site.scripted import Coordinator
from tests.client.site.support import SITE, killed_at, until


@pytest.mark.parametrize("seed", range(4))
def test_each_attempt_has_one_answer_and_one_charge(peers: Peers, seed: int) -> None:
    draw = np.random.default_rng(seed)
    sent: dict[tuple[int, int], str] = {}
    for _ in range(3):
        with process(peers.stage) as (store, worker):
            for _ in range(12):
                round_query = QUESTIONS[draw.integers(3)]
                members = [name for name in EVERY if name == SITE or draw.random() < 0.8]
                number = int(draw.integers(1, ATTEMPTS + 2))
                attempt = peers.attempt(round_query, number, members) if len(members) > 1 else None
                reply = reply_to(worker, round_query, attempt)
                assert isinstance(reply, Ready | MaskedAnswer | Refusal)
                if isinstance(reply, MaskedAnswer):
                    place = (round_query.round, reply.number)
                    assert place >= max(sent, default=place)
                    assert sent.setdefault(place, reply.contribution.digest) == reply.contribution.digest
            assert left(store)[0] == sum(QUESTIONS[round].priced.micro_rho for round, _ in sent)
            assert row_count(store, "attempts") == len(sent)
            store.egress.verify(store.ledger.ledger)
    assert sent


async def test_ready_and_masked_answers_carry_the_next_request(peers: Peers, pauses: list[int]) -> None:
    coordinator = Coordinator(work=script(peers), lose=["Ready"])
    async with peers.stage.serving(coordinator), peers.stage.daemon():
        await until(lambda: len(coordinator.contributions) == 3 and len(coordinator.requests) == 5)
    ready, again = coordinator.readies
    assert ready == again, "the answer to the first was lost"
    assert (ready.round, ready.query_digest.hex()) == (0, FIRST.digest)
    assert ready.key_card_digest.hex() == peers.keys[SITE].card.digest
    sent = coordinator.contributions
    assert [ready.next, *(one.next for one in sent)] == coordinator.requests[1:]
    result = [(one.round, one.attempt) for request in coordinator.requests[1:] for one in request.answered]
    assert result == [(0, 0), (0, 1), (0, 2), (1, 1)]
    numbers = [(FIRST, 1), (FIRST, 2), (SECOND, 1)]
    assert [one.attempt_digest.hex() for one in sent] == [peers.attempt(*one).digest for one in numbers]
    assert pauses == [], "nothing of that is odd"


@pytest.mark.parametrize("point", ["ready-storing", "ready-stored", "ready-sending", "ready-sent"])
async def test_a_crash_around_ready_costs_nothing_and_ready_is_resent(peers: Peers, point: str) -> None:
    coordinator = Coordinator(work=[script(peers)[0], script(peers)[0], script(peers)[1]])
    async with peers.stage.serving(coordinator):
        with closing(peers.stage.store()) as store, killed_at(point, any_thread=True):
            await asyncio.wait_for(peers.stage.make_daemon(store).run(), 100)
        del coordinator.work[:-2]
        async with peers.stage.daemon() as store:
            await until(lambda: len(coordinator.contributions) == 1)
            assert left(store)[0] == FIRST.priced.micro_rho
