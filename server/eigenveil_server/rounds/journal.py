"""The barrier's durable memory of one round, and the step from it to the next: one transaction [P27]."""

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
from eigenveil_server.rounds.offer import Offer, Opening, open_alone, stated
from eigenveil_server.storage import study_writes
from eigenveil_server.storage.repository import Repository
from eigenveil_server.storage.sealed import Sealed

Book = Callable[[RoundQuery, Opening | None, AlsoAt], None]


@dataclass(slots=True, kw_only=True, eq=False)
class RoundJournal:
    """`eigenveil.barrier.Journal` of one round, whose set of sites is frozen.

    `macs` are the HMACs of the answers that are in, `absent` is who is not; `query` is what was asked,
    `after` the digest of the release before, `event` what watchers see of this one; `sign` signs what is
    stated of it. `follow` feeds it to the study, and gives what that asks then, with `seconds` to answer.
    Sites are offered that as `next`; `problem` is why there was no telling. `again`: the round was open in
    an earlier process. `book` writes the ledger's row, and the rest with it; `attempt` is the number of that
    which was answered, 0 where answers are exact.
    """

    study: str
    attempt: int
    macs: Mapping[str, bytes]
    absent: Mapping[str, str]
    query: pb.Query
    after: str
    sign: Sign
    event: pb.StudyEvent
    follow: Callable[[Release], Opening | None]
    book: Book
    seconds: float
    repository: Repository
    again: bool
    next: Offer | None = None
    problem: Exception | None = None

    def sealed(self, round: int) -> Release | None:
        found = self.repository.studies.sealed(self.study, round)
        return None if found is None else found.release

    def seal(self, asked: RoundQuery, release: Release) -> None:
        """Spend the price, store the release with its statement [R21] and the answers that are not stored
        yet, and open the next question: in one transaction, asked for on a tick, because readers see it as
        soon as it is durable. Whatever takes its time after the draw, and could tell of it, comes before.

        What was drawn may have ended a process in which the round was open. So when it is open `again`, its
        release is durable before the study sees it, and the next question is opened by itself.
        """
        if not self.again:
            self._release(asked, release, self._followed(release))
            return
        self._release(asked, release, None)
        opening = self._followed(release)
        if opening is not None:
            self.next = open_alone(opening, self.repository, self.sign, self.seconds)

    def _release(self, asked: RoundQuery, release: Release, opening: Opening | None) -> None:
        failpoint("round-followed")

        def write(change: Connection, tip: Tip) -> None:
            said = stated(asked, tip, self.after, release.digest).signed(self.sign)
            at = self.repository.clock()
            study_writes.release_round(
                change, self.study, release, said, at,
                attempt=self.attempt, macs=self.macs, absent=self.absent,
            )  # fmt: skip
            study_writes.add_event(change, self.study, self.event)
            if opening is not None:
                opening.write(change)
                last = None
                if release.values.nbytes <= INLINE_BYTES:  # a larger one is fetched, whatever else is in it
                    last = Sealed(release=release, stated=said).message()
                    last.query.CopyFrom(self.query)
                self.next = opening.offer(tip, self.sign, self.seconds, last)
            failpoint("round-sealing")

        await_tick()
        self.book(asked, opening, write)
        failpoint("round-sealed")

    def _followed(self, release: Release) -> Opening | None:
        """That a release leads nowhere changes nothing of it: it is sealed, and then the study ends."""
        try:
            return self.follow(release)
        except Exception as problem:  # noqa: BLE001 - raised by `following`, once the release is out
            self.problem = problem
            return None

    def following(self) -> Offer | None:
        """The next question; None if there is none. Raises whatever kept the study from saying it."""
        if self.problem is not None:
            raise self.problem
        return self.next

    def charge(self, asked: RoundQuery) -> None:
        """Spend the price of a draw that failed, and store whose answers it was about."""

        def write(change: Connection, tip: Tip) -> None:
            study_writes.add_answers(change, self.study, asked.round, self.attempt, self.macs)

        self.book(asked, None, write)
        failpoint("failure-charged")
