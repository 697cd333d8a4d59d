"""The sets of sites of one study's masked rounds: chosen, made durable and charged, then told [R29] [P33].

The order never changes: nobody is awaited any more, or the deadline is over -> the stage is closed -> the
next set is chosen -> one transaction: the attempt stored, its price charged, the answers to the last one
noted -> its members are told. So whatever a member may ever send is paid for, and no number has two sets.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

from eigenveil.accounting.zcdp import Cost
from eigenveil.errors import Code, InternalError, RequestError, spoken
from eigenveil.protocol.query import RoundQuery
from eigenveil.protocol.release import Release
from eigenveil.secure_aggregation.attempt import Attempt
from eigenveil.signed import Sign
from eigenveil.study.study import Study
from eigenveil_common.storage.database import Connection
from eigenveil_common.storage.ledger_store import AlsoAt, Tip
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from eigenveil_server.compute import Compute
from eigenveil_server.following.session import StudySession
from eigenveil_server.masked.masked_round import MaskedRound
from eigenveil_server.masked.opening import NOBODY, opening
from eigenveil_server.masked.price import price_of
from eigenveil_server.rounds.offer import Offer, Opening, Tell, open_alone, signed_attempt
from eigenveil_server.storage import study_writes
from eigenveil_server.storage.consents import shut_out
from eigenveil_server.storage.repository import Repository


@dataclass(frozen=True, slots=True, kw_only=True)
class MaskedDriver:
    """A `RoundDriver` whose rounds are charged for each attempt, before it.

    `tell` says what watchers see of a stage, `waiting` at which sites a person has not decided; `check`
    raises if the study was called off, and `switch` is told of each offer that takes the place of the last.
    """

    study: Study
    repository: Repository
    compute: Compute
    sign: Sign
    tell: Tell
    waiting: Callable[[], Collection[str]]
    check: Callable[[], None]
    switch: Callable[[Offer], None]

    def first(self, session: StudySession) -> Offer | None:
        """Raises as `opening`."""
        first, seconds = opening(session, self.repository, self.tell), self.study.federation.deadline_seconds
        return None if first is None else open_alone(first, self.repository, self.sign, seconds)

    async def answered(self, offer: Offer) -> Offer:
        """The offer whose answers are all in: of this attempt, or of one after it.

        Raises:
            RequestError: code `study-failed`: too few sites are left, or the round was tried as often as it
                may be.
        """
        while True:
            stage = stage_of(offer)
            overdue = not await stage.complete(self.study.federation.deadline_seconds)
            await stage.close()
            self.check()
            if stage.whole:
                return offer
            offer = await self._next(offer, stage, overdue)
            self.switch(offer)
            self.check()

    async def _next(self, offer: Offer, last: MaskedRound, overdue: bool) -> Offer:
        """What is offered once the next set is durable and charged; `overdue`: the deadline is over."""
        store, asked = self.repository.store, last.asked
        last.deny(await store.read(shut_out, store.reader))
        able = last.able(overdue=overdue)
        self._check_able(last, able)
        due = await self.compute.run(price_of, asked, last.number + 1, self.repository)
        attempt = Attempt.at(asked, last.number + 1, able)
        stage = last.fixed(attempt)
        stage.take_over(last)  # as watchers are to see it
        spent = self.repository.ledger.spent(asked.plan_digest) + due.micro_rho
        at, event = self.repository.clock(), self.tell(stage, spent)
        await self.compute.run(self._fix, last, attempt, due, at, event)
        last.settle(durable=True)
        stage.take_over(last)  # others may have got ready meanwhile
        message = pb.NextWorkResponse()
        message.CopyFrom(offer.message)
        message.attempt.CopyFrom(signed_attempt(attempt, self.sign))
        message.deadline_unix_ms = at + int(1000 * self.study.federation.deadline_seconds)
        return replace(offer, opened=stage, message=message)

    def _check_able(self, last: MaskedRound, able: Collection[str]) -> None:
        """Raises RequestError, unless there may be a next attempt, for the sites that are `able`."""
        made, asked = last.number, last.asked
        reasons = last.reasons(self.waiting())
        if made and made == self.study.attempts:
            raise RequestError(
                Code.STUDY_FAILED,
                f"{spoken(asked.round)} lost {', '.join(last.lost())} in attempt {made} of {made}, and what "
                f"was attempted stays charged ({reasons}); {self.study.federation.further_attempts}",
            )
        try:
            self.study.federation.check_present(able, made)
        except RequestError as problem:
            raise RequestError(problem.code, f"{spoken(asked.round)}: {problem} ({reasons})") from problem

    def _fix(self, last: MaskedRound, attempt: Attempt, due: Cost, at: int, event: pb.StudyEvent) -> None:
        """Store and charge the attempt after the `last`, off the event loop and in one transaction."""

        def write(change: Connection, tip: Tip) -> None:
            study_writes.add_answers(change, attempt.plan, attempt.round, last.number, last.macs())
            study_writes.fix_set(change, attempt, at)
            study_writes.add_event(change, attempt.plan, event)

        self.repository.ledger.attempt(last.asked, due, write)

    def spent(self, asked: RoundQuery, session: StudySession) -> int:
        return self.repository.ledger.spent(asked.plan_digest)

    def following(self, offer: Offer, session: StudySession) -> Callable[[Release], Opening | None]:
        """The next question goes to the same set and who is ready besides: that saves a trip. Where the round
        was open before, whoever is left gets ready again."""
        stage = stage_of(offer)
        able = NOBODY if offer.again else stage.able()

        def follow(release: Release) -> Opening | None:
            session.feed(release)
            return opening(session, self.repository, self.tell, able)

        return follow

    def book(self, asked: RoundQuery, opening: Opening | None, also: AlsoAt) -> None:
        """What was released is paid for; the first attempt at the next question is due."""
        ledger = self.repository.ledger
        if opening is None or opening.due is None:
            ledger.beside(also)
        else:
            ledger.attempt(opening.opened.asked, opening.due, also)


def stage_of(offer: Offer) -> MaskedRound:
    """Its round, which is masked."""
    if not isinstance(offer.opened, MaskedRound):
        raise InternalError(Code.BUG, "a round of exact answers was driven as a masked one")
    return offer.opened
