"""What sites send to a running study, checked before anything is believed [R6] [R7] [R9]."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import ParamSpec, TypeVar
from weakref import WeakKeyDictionary

from eigenveil.aggregation import Contribution, validate
from eigenveil.errors import Code, PeerError, RequestError, spoken
from eigenveil.protocol.plan import Plan
from eigenveil.protocol.query import RoundQuery
from eigenveil.queries import Count
from eigenveil_common import log
from eigenveil_common.failpoints import failpoint
from eigenveil_common.storage.database import Connection
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from eigenveil_server.masked.masked_round import READY, MaskedRound
from eigenveil_server.rounds.open_round import DifferentAnswer, LateAnswer, OpenRound
from eigenveil_server.storage import study_writes
from eigenveil_server.storage.consents import Consent, Standing
from eigenveil_server.storage.database import audit_once
from eigenveil_server.storage.states import Decline
from eigenveil_server.storage.study_reads import StoredStudy
from eigenveil_server.studies.runtime import Runtime
from eigenveil_server.studies.study_run import StudyRun

P = ParamSpec("P")
T = TypeVar("T")
PATIENCE = 0.1  # seconds in which it waits for a release: a long draw keeps no site from its other studies
GATHER = 0.02  # seconds in which an answer waits for the rest of its round, to be stored with the release
GATHER_EACH = 0.001  # and so much more for each invited site: what taking one answer costs
ANSWERED = "answered"
Untold = dict[str, set[str]]  # which sites answered, or got ready, by the event of the log
AT_ONCE_BYTES = 64 * 1024  # checked in well under a millisecond; larger answers leave the event loop


class Contributions:
    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._repository = runtime.repository
        # What each site counted in a study under way, in this process's memory only [0014].
        self._counted: WeakKeyDictionary[StudyRun, dict[str, int]] = WeakKeyDictionary()
        # The transaction for which the answers of a round gather now, and whose the log has not told of.
        self._gathering: WeakKeyDictionary[OpenRound, tuple[asyncio.Task[None], Untold]] = WeakKeyDictionary()

    def due(self, run: StudyRun, site: str, round: int, attempt: str) -> OpenRound:
        """The open round, of which an answer is announced; `attempt` is the digest of what it is masked for.

        Raises:
            RequestError: `site` is not invited, or the round, or the attempt, is not open.
            PeerError: there is no such attempt.
        """
        opened = self._opened(run, site, round, attempt)
        if attempt != ("" if opened.attempt is None else opened.attempt.digest):
            raise PeerError(
                Code.BAD_CONTRIBUTION, f"{spoken(round)} has no such set of sites for site {site}"
            )
        return opened

    def _opened(self, run: StudyRun, site: str, round: int, attempt: str = "") -> OpenRound:
        invited(run.plan, site)
        if run.opened is None or round > run.opened.asked.round:
            raise RequestError(Code.NOT_FOUND, f"{spoken(round)} of study {run.digest[:12]} is not open")
        if round < run.opened.asked.round or run.opened.passed(attempt):
            raise LateAnswer(site, round)
        return run.opened

    def get_ready(self, run: StudyRun, site: str, round: int, query: str, card: str) -> None:
        """Note that a site can answer a masked round, with the digests of the question and of its card; in
        memory only, for it says so again if nobody knows of it.

        Raises:
            RequestError: its study is not masked, `site` is not invited, the round is not open, or the site
                declined it.
            PeerError: it got ready for another question.
        """
        opened = self._opened(run, site, round)
        if not isinstance(opened, MaskedRound):
            raise RequestError(
                Code.BAD_ARGUMENT, f"answers to study {run.digest[:12]} are not masked; send the answer"
            )
        news = opened.get_ready(site, query, card)
        failpoint("ready-taken")
        if news:  # else a site could fill the disk with events, by saying it again
            self._stored(run, opened, site, READY)

    async def contribute(
        self, run: StudyRun, contribution: Contribution, claimed: str, added: Callable[[], None]
    ) -> bool:
        """Take one site's answer; whether the same one was here before. `claimed` is its digest; `added` is
        called once its values are needed no more.

        Raises:
            PeerError: the contribution is not what it says, or nothing that its records can add up to; the
                operator is told.
            RequestError: the round is not open, or the site answered differently before.
            LateAnswer: the round is over; that the answer came is audited, and it is not added.
        """
        site, round = contribution.site, contribution.round
        try:
            if await self._answered_before(run, contribution):
                return True
            opened = self._opened(run, site, round, contribution.attempt)
            repeated = await self._take(run, opened, contribution, claimed)
        except DifferentAnswer:
            await self._alarm("different-second-answer", run.digest, site, round)
            raise
        except PeerError:
            await self._alarm("answer-refused", run.digest, site, round)
            raise
        except LateAnswer:
            await self._note_late(contribution)
            raise
        del contribution  # it is in the sum: from here on nobody needs its values any more
        added()
        failpoint("answer-taken")
        if not opened.holds(site):
            await asyncio.shield(self._stored(run, opened, site))
        return repeated

    async def _take(self, run: StudyRun, opened: OpenRound, contribution: Contribution, claimed: str) -> bool:
        """Check an answer and add it; whether it was here before."""
        site, asked = contribution.site, opened.asked
        small = contribution.values.nbytes <= AT_ONCE_BYTES
        work = _at_once if small else self._runtime.compute.run
        attempt = "" if opened.attempt is None else opened.attempt.digest
        await work(_check, asked, contribution, self._records(run, asked, site), attempt, claimed)
        mac = self._runtime.keys.mac(claimed)
        adding = opened.put(site, mac, contribution.values, work)
        repeated = await (adding if small else self._repository.finish(adding))
        if isinstance(asked.query, Count) and not attempt:
            self._counted.setdefault(run, {})[site] = int(contribution.values[0])
        return repeated

    def _records(self, run: StudyRun, asked: RoundQuery, site: str) -> range:
        """Where the number of records of `site` lies: a study runs over one file at each site."""
        counted = None if isinstance(asked.query, Count) else self._counted.get(run, {}).get(site)
        most = run.plan.study.max_records
        return range(most + 1) if counted is None else range(counted, counted + 1)

    async def _answered_before(self, run: StudyRun, contribution: Contribution) -> bool:
        """A site that lost our reply may send again although the round, or the attempt, has ended [R7]."""
        opened, attempt = run.opened, contribution.attempt
        if opened is not None and contribution.round >= opened.asked.round and not opened.passed(attempt):
            return False
        invited(run.plan, contribution.site)
        return await self._known(contribution)

    async def _known(self, contribution: Contribution) -> bool:
        site, round = contribution.site, contribution.round
        read, studies = self._repository.store.read, self._repository.studies
        study, attempt = contribution.plan_digest, contribution.attempt
        number = await read(studies.attempt_number, study, round, attempt) if attempt else 0
        if number is None:
            return False
        known = (await read(studies.answers, study, round, number)).macs.get(site)
        if known not in (None, await self._mac(contribution)):
            raise DifferentAnswer(site, round)
        return known is not None

    async def _mac(self, contribution: Contribution) -> bytes:
        return self._runtime.keys.mac(await self._runtime.compute.run(lambda: contribution.digest))

    async def contribute_afterwards(self, stored: StoredStudy, contribution: Contribution) -> bool:
        """An answer to a study that has ended; whether it was taken while its round was open.

        Raises:
            RequestError: the site is not invited, there was no such round, or it answered differently.
            LateAnswer: as in `contribute`.
        """
        site, round = contribution.site, contribution.round
        invited(await self._runtime.plan(stored), site)
        studies = self._repository.studies
        if await self._repository.store.read(studies.query_digest, stored.digest, round) is None:
            raise RequestError(Code.NOT_FOUND, f"study {stored.digest[:12]} had no {spoken(round)}")
        try:
            if await self._known(contribution):
                return True
        except DifferentAnswer:
            await self._alarm("different-second-answer", stored.digest, site, round)
            raise
        await self._note_late(contribution)
        raise LateAnswer(site, round)

    async def _note_late(self, contribution: Contribution) -> None:
        """Audit that an answer came too late, and a keyed digest of it; its values are dropped [R7].

        One row for a site and a round, so that nobody fills the disk with answers.
        """
        study, site, round = contribution.plan_digest, contribution.site, contribution.round
        about, mac = f"study {study} round {round} mac ", await self._mac(contribution)
        at, subject = self._repository.clock(), f"site/{site}"

        def change(connection: Connection) -> None:
            noted = "SELECT 1 FROM audit WHERE (kind, subject, substr(detail, 1, ?)) = (?, ?, ?)"
            if not connection.execute(noted, (len(about), "late-answer", subject, about)):
                audit_once(connection, at, "late-answer", subject, about + mac.hex())

        await self._repository.finish(self._repository.writer.write(change))
        failpoint("answer-late")
        log.event("late-answer", study=study, round=round, site=site)

    def _stored(self, run: StudyRun, opened: OpenRound, site: str, did: str = ANSWERED) -> asyncio.Task[None]:
        """Done when all answers that are here by now are durable: they share one transaction, one event, for
        each says where every site stands, and one line of the log."""
        if opened not in self._gathering:
            sites: Untold = {}
            self._gathering[opened] = self._repository.begin(self._store(run, opened, sites)), sites
        storing, untold = self._gathering[opened]
        untold.setdefault(did, set()).add(site)
        return storing

    async def _store(self, run: StudyRun, opened: OpenRound, untold: Untold) -> None:
        study, round = run.digest, opened.asked.round
        gather = GATHER + GATHER_EACH * len(run.plan.study.federation.sites)
        # Once nobody is awaited any more, the release's transaction stores all of it.
        complete = await opened.complete(gather)
        _tell(opened, untold)
        whole = complete and await opened.stored_with_the_rest(PATIENCE)
        _tell(opened, untold)
        del self._gathering[opened]  # whoever answers from here on waits for the next one
        if whole:
            return
        macs = opened.unstored()
        event = self._news(run, opened)

        def change(connection: Connection) -> None:
            study_writes.add_answers(connection, study, round, opened.number, macs)
            if event is not None:
                study_writes.add_news(connection, study, round, event)
            failpoint("answer-storing")

        await self._repository.writer.write(change)
        failpoint("answer-stored")
        opened.stored(macs)
        self._runtime.signals.news.ring()

    def _news(self, run: StudyRun, opened: OpenRound) -> pb.StudyEvent | None:
        """Where every site stands; nothing once the round is closed, of which its release tells [P27]."""
        return None if opened.closed else run.news(opened)

    async def _alarm(self, kind: str, study: str, site: str, round: int) -> None:
        log.event(kind, logging.ERROR, study=study, round=round, site=site)
        at, detail = self._repository.clock(), f"study {study} round {round}"
        await self._repository.writer.write(
            lambda change: audit_once(change, at, kind, f"site/{site}", detail)
        )

    async def decline(self, run: StudyRun, site: str, round: int, said: Decline) -> None:
        """Note that a site will not answer a round; before the first one, or by a person's word, the study.

        Raises:
            RequestError: the round is not open, or the site answered it.
        """
        word = Consent(standing=Standing.DECLINED, reason=said.reason, text=said.text)
        if run.consent.open and round == 0:
            invited(run.plan, site)
            if word.follows(run.consent.word(site)):
                await self._repository.finish(run.consent.note(site, word))
            return
        opened = self._opened(run, site, round)
        opened.decline(site, said.reason)
        if not opened.holds(site):
            await self._repository.finish(self._store_decline(run, opened, site, said.reason))
        if said.person and word.follows(run.consent.word(site)):
            await self._repository.finish(run.consent.note(site, word))

    async def _store_decline(self, run: StudyRun, opened: OpenRound, site: str, reason: str) -> None:
        study, round = run.digest, opened.asked.round
        event, at = self._news(run, opened), self._repository.clock()

        def change(connection: Connection) -> None:
            study_writes.add_decline(connection, study, round, site, reason)
            if event is not None:
                study_writes.add_news(connection, study, round, event)
            audit_once(connection, at, "declined", f"site/{site}", f"study {study} round {round}: {reason}")
            failpoint("decline-storing")

        await self._repository.writer.write(change)
        failpoint("decline-stored")
        opened.stored([site])
        log.event("declined", study=study, round=round, site=site, reason=reason)
        self._runtime.signals.news.ring()


def invited(plan: Plan, site: str) -> None:
    """Raises RequestError, code `not-found`, unless the plan invites `site`."""
    if site not in plan.study.federation.sites:
        raise RequestError(Code.NOT_FOUND, f"study {plan.digest[:12]} does not invite site {site}")


def _tell(opened: OpenRound, untold: Untold) -> None:
    """Log whose answers came since the last line, and who got ready."""
    for did, sites in untold.items():
        asked, said = opened.asked, ",".join(sorted(sites))
        log.event(did, study=asked.plan_digest, round=asked.round, sites=said)
    untold.clear()


async def _at_once(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """On the event loop: nothing comes between, and nothing can be cancelled."""
    return work(*args, **kwargs)


def _check(asked: RoundQuery, contribution: Contribution, records: range, attempt: str, claimed: str) -> None:
    validate(asked, contribution, records, attempt)
    if contribution.digest != claimed:
        raise PeerError(
            Code.BAD_CONTRIBUTION,
            f"site {contribution.site}: the contribution is not the one its digest names; nothing was added",
        )
