"""The barrier's durable memory of one round: charge with the close, then the seal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from eigenveil.protocol.query import RoundQuery
from eigenveil.protocol.release import Release
from eigenveil.protocol.round import RoundState
from eigenveil.protocol.statements import RoundStatement, Sign
from eigenveil_common.failpoints import failpoint
from eigenveil_common.storage.database import Connection
from eigenveil_common.storage.ledger_store import LedgerStore
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from eigenveil_server.storage import study_writes
from eigenveil_server.storage.repository import Repository


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundJournal:
    """`eigenveil.barrier.Journal` of one round; two transactions, each durable on return.

    `macs` are the HMACs of the contributions that are in; `after` is the digest of the release before;
    `sign` signs what is stated of this one. `sealed` is for watchers, but only once the
    round is released: when a seal was done tells how long the noise took.
    """

    study: str
    macs: Mapping[str, bytes]
    after: str
    sign: Sign
    absent: Mapping[str, str]
    closed_at: int
    closed_event: pb.StudyEvent
    sealed_event: pb.StudyEvent
    repository: Repository

    def sealed(self, round: int) -> Release | None:
        found = self.repository.studies.sealed(self.study, round)
        return None if found is None else found.release

    def charge(self, asked: RoundQuery) -> None:
        """Freeze the set of sites and spend the price, in one transaction. An answer that arrived last
        is stored here, too.

        The study charges while its noise is being drawn; when the barrier does, before it takes that noise,
        the round is closed and this has no effect.
        """
        if self.repository.studies.round_state(self.study, asked.round) is RoundState.CLOSED:
            return

        def close(change: Connection) -> None:
            for site, mac in self.macs.items():
                study_writes.add_answer(change, self.study, asked.round, site, mac)
            study_writes.close_round(change, asked, self.absent, self.closed_at)
            study_writes.add_event(change, self.study, self.closed_event)
            failpoint("round-charging")

        self.repository.ledger.charge_round(asked, close)

    def seal(self, release: Release) -> None:
        """Store the release with its statement [R21]; neither can ever change afterwards."""
        ledger, at = self.repository.ledger, self.repository.clock
        stated = state(ledger, self.study, release.round, release.query, self.after, release.digest)
        signed = stated.signed(self.sign)
        with self.repository.store.writer.transaction() as change:
            study_writes.seal_round(change, self.study, release, signed, at(), self.sealed_event)
            failpoint("round-sealing")


def state(
    ledger: LedgerStore, study: str, round: int, query: str, after: str, release: str = ""
) -> RoundStatement:
    """What is stated of a round now, with the ledger's last row [R21]."""
    head, size = ledger.tip
    return RoundStatement(
        plan=study, round=round, query=query, after=after, release=release, ledger=head, size=size
    )
