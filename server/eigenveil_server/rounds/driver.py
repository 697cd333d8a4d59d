"""How a study goes from round to round: what differs by whether anybody may see a sum."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from eigenveil.protocol.query import RoundQuery
from eigenveil.protocol.release import Release
from eigenveil.signed import Sign
from eigenveil.study.study import Federation
from eigenveil_common.storage.ledger_store import AlsoAt
from eigenveil_server.following.session import StudySession
from eigenveil_server.rounds.offer import Offer, Opening, Tell, open_first, opening
from eigenveil_server.storage.repository import Repository


class RoundDriver(Protocol):
    """From one open question to the next."""

    def first(self, session: StudySession) -> Offer | None:
        """Open the question at which this process takes up a study; None if it asks nothing more. Off the
        event loop."""

    async def answered(self, offer: Offer) -> Offer:
        """Wait until nobody is awaited any more, or for the deadline; what was offered last."""

    def spent(self, asked: RoundQuery, session: StudySession) -> int:
        """Micro-rho that the study has spent once the release of `asked` is out."""

    def following(self, offer: Offer, session: StudySession) -> Callable[[Release], Opening | None]:
        """What feeds that release to the study, and says what it asks then; itself off the event loop."""

    def book(self, asked: RoundQuery, opening: Opening | None, also: AlsoAt) -> None:
        """Write the ledger's row of a release, if it has one, with the next question and what `also` writes,
        in one transaction. Without a next question it can be that a draw failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactDriver:
    """Every site sends exact sums; a round is charged with its release, or with the draw that failed."""

    federation: Federation
    repository: Repository
    sign: Sign
    tell: Tell

    def first(self, session: StudySession) -> Offer | None:
        return open_first(session, self.repository, self.sign, self.tell)

    async def answered(self, offer: Offer) -> Offer:
        await offer.opened.complete(self.federation.deadline_seconds)
        return offer

    def spent(self, asked: RoundQuery, session: StudySession) -> int:
        return session.spent.micro_rho + asked.cost.micro_rho

    def following(self, offer: Offer, session: StudySession) -> Callable[[Release], Opening | None]:
        def follow(release: Release) -> Opening | None:
            session.feed(release)
            return opening(session, self.repository, self.tell, session.spent.micro_rho)

        return follow

    def book(self, asked: RoundQuery, opening: Opening | None, also: AlsoAt) -> None:
        self.repository.ledger.charge_round(asked, also)
