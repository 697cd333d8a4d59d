"""The barrier's durable memory of one round: its charge and its release in one transaction [P27]."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from eigenveil.protocol.query import RoundQuery
from eigenveil.protocol.release import Release
from eigenveil.signed import Sign
from eigenveil_common.failpoints import failpoint
from eigenveil_common.rpc import INLINE_BYTES
from eigenveil_common.storage.database import Connection
from eigenveil_common.storage.ledger_store import AlsoAt, Tip
from eigenveil_common.tick import await_tick
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from eigenveil_server.rounds.offer import stated
from eigenveil_server.storage import study_writes
from eigenveil_server.storage.repository import Repository
from eigenveil_server.storage.sealed import Sealed

Book = Callable[[RoundQuery, AlsoAt], None]


@dataclass(slots=True, kw_only=True, eq=False)
class RoundJournal:
    """`eigenveil.barrier.Journal` of one round, whose set of sites is frozen.

    `macs` are the HMACs of the answers that are in, `absent` is who is not; `query` is what was asked,
    `after` the digest of the release before, `event` what watchers see of this one; `sign` signs what is
    stated of it. `book` writes the ledger's row, and the rest with it; `attempt` is the number of that
    which was answered, 0 where answers are exact. `last` is the sealed release as sites get it with the next
    question, None before it is durable and where it is too large for that.
    """

    study: str
    attempt: int
    macs: Mapping[str, bytes]
    absent: Mapping[str, str]
    query: pb.Query
    after: str
    sign: Sign
    event: pb.StudyEvent
    book: Book
    repository: Repository
    last: pb.SealedRound | None = None

    def sealed(self, round: int) -> Release | None:
        found = self.repository.studies.sealed(self.study, round)
        return None if found is None else found.release

    def seal(self, asked: RoundQuery, release: Release) -> None:
        """Spend the price, and store the release with its statement [R21] and the answers that are not stored
        yet: in one transaction, asked for on a tick, because readers see it as soon as it is durable. Nothing
        looks at the values before: how many bytes they are stored in follows from the question.
        """
        said = None

        def write(change: Connection, tip: Tip) -> None:
            nonlocal said
            said = stated(asked, tip, self.after, release.digest).signed(self.sign)
            study_writes.release_round(
                change, self.study, release, said, self.repository.clock(),
                attempt=self.attempt, macs=self.macs, absent=self.absent,
            )  # fmt: skip
            study_writes.add_event(change, self.study, self.event)
            failpoint("round-sealing")

        await_tick()
        self.book(asked, write)
        failpoint("round-sealed")
        if said is not None and release.values.nbytes <= INLINE_BYTES:  # a larger one is fetched
            self.last = Sealed(release=release, stated=said).message()
            self.last.query.CopyFrom(self.query)

    def charge(self, asked: RoundQuery) -> None:
        """Spend the price of a draw that failed, and store whose answers it was about."""

        def write(change: Connection, tip: Tip) -> None:
            study_writes.add_answers(change, self.study, asked.round, self.attempt, self.macs)

        self.book(asked, write)
        failpoint("failure-charged")
