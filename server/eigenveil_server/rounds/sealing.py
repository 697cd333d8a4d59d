"""Release of one round at the coordinator: prepared noise, and the durable journal of the barrier [P27]."""

from __future__ import annotations

import asyncio
from concurrent.futures import Executor, Future
from dataclasses import dataclass

from eigenveil.errors import Code, InternalError
from eigenveil.noise.source import NoiseSource, NoiseSpec
from eigenveil.numerics.encoding import FloatArray, IntArray
from eigenveil.protocol.query import RoundQuery
from eigenveil.protocol.rounds import Release, RoundStatement
from eigenveil.signatures import Sign
from eigenveil_common.concurrency import wait_for_tick
from eigenveil_common.files import failpoint
from eigenveil_common.rpc import INLINE_BYTES
from eigenveil_common.storage.database import Connection
from eigenveil_common.storage.ledger_store import LedgerPosition, PositionedWrite
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from eigenveil_server.rounds.round import Round
from eigenveil_server.storage import study_writes
from eigenveil_server.storage.repository import Repository
from eigenveil_server.storage.sealed import SealedRelease
from eigenveil_server.storage.sealed_pieces import store_ahead


class PreparedNoise:
    """Noise source that returns the prepared vector, once, for exactly its specification. The vector is drawn
    while the sites compute. It depends on no data, so its duration reveals nothing [P6]."""

    def __init__(self, source: NoiseSource, threads: Executor) -> None:
        self._source = source
        self._threads = threads
        self._prepared: tuple[NoiseSpec, Future[IntArray]] | None = None

    @property
    def private(self) -> bool:
        return self._source.private

    def prepare(self, spec: NoiseSpec) -> None:
        """Start to draw; a prepared vector that was not used is discarded."""
        self.discard()
        self._prepared = spec, self._threads.submit(self._source.draw, spec)

    async def wait_until_drawn(self) -> None:
        """Wait for the prepared vector. A failure is raised by `draw`, behind the barrier."""
        if self._prepared is not None:
            await asyncio.wait([asyncio.wrap_future(self._prepared[1])])

    def draw(self, spec: NoiseSpec) -> IntArray:
        """Return the prepared vector. Shape: (spec.length,). Blocks until it is drawn. Raises InternalError:
        none is prepared, or with another specification."""
        failpoint("noise-taken")
        prepared, self._prepared = self._prepared, None
        if prepared is None or prepared[0] != spec:
            raise InternalError(Code.BUG, "the requested noise is not the prepared noise")
        return prepared[1].result()

    def uniform(self, count: int) -> FloatArray:
        """Return uniform numbers of the source: a trusted mechanism's need depends on its data."""
        return self._source.uniform(count)

    def discard(self) -> None:
        if self._prepared is not None:
            self._prepared[1].cancel()
            self._prepared = None


@dataclass(slots=True, kw_only=True, eq=False)
class RoundJournal:
    """`eigenveil.barrier.Journal` of a closed round. `after` is the digest of the release before, `event`
    what watchers see of this one. `sign` signs the round statement. `last` is the sealed release that goes to
    sites with the next query; None before it is durable, and where it is too large."""

    opened: Round
    after: str
    sign: Sign
    event: pb.StudyEvent
    repository: Repository
    last: pb.SealedRound | None = None

    def sealed(self, round: int) -> Release | None:
        found = self.repository.studies.sealed(self.opened.round_query.plan_digest, round)
        return None if found is None else found.release

    def seal(self, round_query: RoundQuery, release: Release) -> None:
        """Charge the cost, and store the release, its statement [R21] and the answers not stored yet. All is
        one transaction, begun on a tick, since readers see it as soon as it is durable. Before that, the
        values are only encrypted: what is stored of them is random bytes, as many as the query fixes."""
        statement = None
        piece_key = store_ahead(self.repository.store.writer, round_query.plan_digest, release)

        def write(change: Connection, ledger_position: LedgerPosition) -> None:
            nonlocal statement
            statement = round_statement(round_query, ledger_position, self.after, release.digest).signed(
                self.sign
            )
            study_writes.release_round(
                change, round_query.plan_digest, release, statement, self.repository.clock(),
                attempt=self.opened.number, macs=self.opened.macs(), absent=self.opened.absent(),
                piece_key=piece_key,
            )  # fmt: skip
            study_writes.add_event(change, round_query.plan_digest, self.event)
            failpoint("round-sealing")

        wait_for_tick()
        self._book(round_query, write)
        failpoint("round-sealed")
        if statement is not None and release.values.nbytes <= INLINE_BYTES:  # a larger one is fetched
            self.last = SealedRelease(release=release, signed_round=statement).message()
            self.last.query.CopyFrom(self.opened.message.query)

    def charge(self, round_query: RoundQuery) -> None:
        """Charge the cost of a failed draw, and store which sites had answered."""

        def write(change: Connection, _: LedgerPosition) -> None:
            study, number = round_query.plan_digest, self.opened.number
            study_writes.add_answers(change, study, round_query.round, number, self.opened.macs())

        self._book(round_query, write)
        failpoint("failure-charged")

    def _book(self, round_query: RoundQuery, also: PositionedWrite) -> None:
        """Charge a round in the transaction of `also`; the attempts of a masked one are charged already."""
        ledger = self.repository.ledger
        if self.opened.masked:
            ledger.write_alongside(also)
        else:
            ledger.charge_round(round_query, also)


def round_statement(
    round_query: RoundQuery, ledger_position: LedgerPosition, after: str, release: str = ""
) -> RoundStatement:
    """Return the statement of a round whose last ledger row is `ledger_position` [R21]."""
    return RoundStatement(
        plan=round_query.plan_digest,
        round=round_query.round,
        query=round_query.digest,
        after=after,
        release=release,
        ledger=ledger_position[0],
        size=ledger_position[1],
    )
