"""The list of studies, in parts that fit a message [R26].

One caller has one part at a time in the making, and after the first `BURST` so many a second. Calls for the
same part that come meanwhile share the next answer, which is read after they came: sixty at once cost as much
as two, and sixty that ask again and again as much as two a second.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from dataclasses import dataclass, field

from eigenveil.identity import Identity
from eigenveil_common.rpc import MESSAGE_BYTES
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from eigenveil_server.front.allowance import Allowance
from eigenveil_server.rpc.answers import asked_by, federation_budget, study_row, without_texts
from eigenveil_server.studies.engine import Engine
from eigenveil_server.studies.runtime import Runtime

STUDIES_AT_ONCE = 200
ROOM = MESSAGE_BYTES // 2  # for the rows of one answer
LEAST_PAUSE = 0.05  # seconds
BURST, RATE = 40.0, 2.0  # looks of one caller: 8,000 studies at once


class StudyList:
    """Reads off the event loop; what sites say of a study that runs is in memory only."""

    def __init__(self, runtime: Runtime, engine: Engine, budget_delta: float) -> None:
        self._runtime = runtime
        self._repository = runtime.repository
        self._engine = engine
        self._budget_delta = budget_delta
        self._turns: dict[str, CallersTurn] = defaultdict(CallersTurn)
        self._allowances: dict[str, Allowance] = {}  # of those who asked lately

    async def part(self, caller: Identity, after: str) -> pb.ListStudiesResponse:
        """The studies behind the study `after` (from the oldest on, if that is empty), as many as fit.

        Raises:
            RequestError: code `not-found`: there is no such study.
        """
        turn = self._turns[caller.uri]
        look = turn.next.get(after)
        if look is None:
            look = turn.next[after] = self._look(turn, caller, after)
        look.waiting += 1
        try:
            return await asyncio.shield(look.answer)
        finally:
            look.waiting -= 1
            if not look.waiting and turn.next.get(after) is look:  # one that has begun ends in its turn
                del turn.next[after]
                look.answer.cancel()

    def _look(self, turn: CallersTurn, caller: Identity, after: str) -> Look:
        look = Look(answer=asyncio.ensure_future(self._in_turn(turn, caller, after)))
        turn.looks.append(look)

        def ended(answer: asyncio.Future[pb.ListStudiesResponse]) -> None:
            if not answer.cancelled():
                answer.exception()  # seen, though nobody may wait for it any more: asyncio would log it
            turn.looks.remove(look)
            if not turn.looks:
                del self._turns[caller.uri]

        look.answer.add_done_callback(ended)
        return look

    async def _in_turn(self, turn: CallersTurn, caller: Identity, after: str) -> pb.ListStudiesResponse:
        async with turn.lock:
            await self._allowed(caller.uri)
            del turn.next[after]  # whoever comes from here on is answered by a later look
            return await self._part(caller, after)

    async def _allowed(self, caller: str) -> None:
        """Wait until the caller may have another look."""
        if caller not in self._allowances:
            full = [name for name, one in self._allowances.items() if one.full]
            for name in full:
                del self._allowances[name]
            self._allowances[caller] = Allowance(burst=BURST, rate=RATE)
        allowance = self._allowances[caller]
        while not allowance.spend(1.0):
            await asyncio.sleep(max(allowance.seconds, LEAST_PAUSE))

    async def _part(self, caller: Identity, after: str) -> pb.ListStudiesResponse:
        rows = await self._runtime.compute.run(self._rows, after, caller)
        answer = pb.ListStudiesResponse(budget=federation_budget(self._repository, self._budget_delta))
        answer.more, size = len(rows) > STUDIES_AT_ONCE, 0
        for row in rows[:STUDIES_AT_ONCE]:
            run = self._engine.running(row.plan_digest.hex())
            if run is not None:
                run.consent.tell(row)
            if not asked_by(caller, row.analyst):
                without_texts(row)
            size += row.ByteSize()
            if answer.studies and size > ROOM:
                answer.more = True
                break
            answer.studies.append(row)
        return answer

    def _rows(self, after: str, caller: Identity) -> list[pb.StudyRow]:
        """Of one study more than are told at once."""
        studies = self._repository.lists.behind(after, STUDIES_AT_ONCE + 1)
        rounds = self._repository.studies.rounds_of([one.digest for one in studies])
        return [study_row(one, rounds.get(one.digest, 0), self._repository, caller) for one in studies]


@dataclass(slots=True, eq=False)
class Look:
    """One part in the making, and how many calls wait for it. With none, it ends unless it has begun."""

    answer: asyncio.Future[pb.ListStudiesResponse]
    waiting: int = 0


@dataclass(slots=True)
class CallersTurn:
    """The parts of one caller, until the last has ended: `next` are those that have not begun, by what they
    are behind."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    next: dict[str, Look] = field(default_factory=dict)
    looks: list[Look] = field(default_factory=list)

    @property
    def waiting(self) -> int:
        """How many calls wait for any."""
        return sum(look.waiting for look in self.looks)
