"""The barrier's durable memory of one round: charge with the close, seal with its event."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass

from eigenveil.query import Query
from eigenveil.release import Release
from eigenveil_common.sqlite import Database
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from eigenveil_server import changes
from eigenveil_server.books import Books
from eigenveil_server.clock import Clock
from eigenveil_server.studies import Studies


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundJournal:
    """`eigenveil.barrier.Journal` of one round; two transactions, each durable on return."""

    study: str
    absent: Mapping[str, str]
    closed_at: int
    sealed_event: pb.StudyEvent
    books: Books
    studies: Studies
    database: Database
    clock: Clock

    def sealed(self, round: int) -> Release | None:
        """The stored release of a round, if any."""
        return self.studies.sealed(self.study, round)

    def charge(self, query: Query) -> None:
        """Spend the price and freeze the set of sites, in one transaction."""

        def close(change: sqlite3.Connection) -> None:
            changes.close_round(change, query, self.absent, self.closed_at)

        self.books.charge(query, close)

    def seal(self, release: Release) -> None:
        """Store the release; it can never change afterwards."""
        with self.database.transaction() as change:
            changes.seal_round(change, self.study, release, self.clock())
            changes.add_event(change, self.study, self.sealed_event)
