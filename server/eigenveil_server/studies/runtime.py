"""Runtime shared by the studies of one process, events that wake calls, and polls of sites [R5] [R24]."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from eigenveil.errors import Code, PeerError
from eigenveil.noise.source import NoiseSource
from eigenveil.protocol.capabilities import Capabilities
from eigenveil.protocol.plan import Plan
from eigenveil.protocol.wire import digest_from_bytes
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from eigenveil_server.metrics import Metrics
from eigenveil_server.pki.keys import Keys
from eigenveil_server.planning.pool import PlanningPool
from eigenveil_server.process import Compute
from eigenveil_server.storage.repository import Repository
from eigenveil_server.storage.study_reads import StoredStudy


class ChangeEvent:
    """Event for changes: look, then `wait`, then look again. No notification between look and wait is missed,
    because both happen in one step of the event loop."""

    def __init__(self) -> None:
        self._waiting = defaultdict[str, set[asyncio.Future[None]]](set)

    def notify(self, subscribers: Iterable[str] | None = None) -> None:
        """Wake all waiters, or those that wait as one of `subscribers`."""
        for name in self._waiting if subscribers is None else subscribers:
            for waiter in self._waiting.get(name, ()):
                _wake(waiter)

    async def wait(self, seconds: float, name: str = "") -> None:
        """Return at the next notification, or after `seconds`."""
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()
        timer = loop.call_later(seconds, _wake, waiter)
        self._waiting[name].add(waiter)
        try:
            await waiter
        finally:
            timer.cancel()
            self._waiting[name].discard(waiter)
            if not self._waiting[name]:
                del self._waiting[name]


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """Services made once and shared by every study; a class that needs few of them gets only those. `work`
    is the event for sites, `news` for watchers of studies. `capabilities` are the versions that each site
    stated last."""

    repository: Repository
    keys: Keys
    noise: NoiseSource
    compute: Compute
    planning: PlanningPool
    metrics: Metrics
    work: ChangeEvent = field(default_factory=ChangeEvent)
    news: ChangeEvent = field(default_factory=ChangeEvent)
    capabilities: dict[str, Capabilities] = field(default_factory=dict)

    async def plan(self, stored: StoredStudy) -> Plan:
        """Return the parsed plan of a study. Raises as `Studies.plan_of`."""
        return await self.compute.run(self.repository.studies.plan_of, stored)

    def close(self) -> None:
        """Wait for the work under way, then close the database."""
        self.planning.close()
        self.compute.close()
        self.repository.close()


MOST_LISTED = 4096  # plans or rounds that one NextWork may name
AttemptKey = tuple[str, int, int]  # a study's digest, a round, and an attempt at it; 0 where there is none


@dataclass(frozen=True, slots=True, kw_only=True)
class Poll:
    """State of a site. `known` are the stored plans, with the number of rounds whose releases are stored.
    `answered` are attempts whose answers are on their way. `awaiting_approval` are plans that wait for a
    person, and `agreed` are plans that a person (True) or the rules alone have agreed to; of these, the
    records of those in `loading` are still being loaded. Raises PeerError:
    code `protocol`: it contradicts itself."""

    known: Mapping[str, int]
    answered: frozenset[AttemptKey]
    awaiting_approval: frozenset[str]
    agreed: Mapping[str, bool]
    loading: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        if not self.agreed.keys() <= self.known.keys() or self.agreed.keys() & self.awaiting_approval:
            raise PeerError(
                Code.PROTOCOL, "a site agrees to a plan that it does not store, or still waits for"
            )
        if not self.loading <= self.agreed.keys():
            raise PeerError(Code.PROTOCOL, "a site loads the records of a plan that it does not agree to")


def parse_poll(request: pb.NextWorkRequest) -> Poll:
    """Return the poll in `request`. Raises PeerError as `Poll`, and if it names too much."""
    listed = (
        request.known_plans,
        request.answered,
        request.awaiting_approval,
        request.stored_releases,
        request.agreed,
        request.loading,
    )
    if max(map(len, listed)) > MOST_LISTED:
        raise PeerError(Code.PROTOCOL, f"at most {MOST_LISTED} plans or rounds may be named")
    known = dict.fromkeys(map(digest_from_bytes, request.known_plans), 0)
    known |= zip(known, request.stored_releases, strict=False)
    return Poll(
        known=known,
        answered=frozenset(
            (digest_from_bytes(one.plan_digest), one.round, one.attempt) for one in request.answered
        ),
        awaiting_approval=frozenset(map(digest_from_bytes, request.awaiting_approval)),
        agreed={digest_from_bytes(one.plan_digest): one.person for one in request.agreed},
        loading=frozenset(map(digest_from_bytes, request.loading)),
    )
