"""Contributions of sites to a running study, checked before use [R6] [R7] [R9]."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from functools import partial
from typing import ParamSpec, TypeVar
from weakref import WeakKeyDictionary

from eigenveil.aggregation import Contribution, validate
from eigenveil.errors import Code, PeerError, RequestError, round_label
from eigenveil.protocol.plan import Plan
from eigenveil.protocol.query import RoundQuery
from eigenveil.queries import Count
from eigenveil.secure_aggregation.study_keys import SignedStudyKey
from eigenveil_common import log
from eigenveil_common.files import failpoint
from eigenveil_common.rpc import INLINE_BYTES
from eigenveil_common.storage.database import Connection
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from eigenveil_server.process import CHECK_THREADS
from eigenveil_server.rounds.round import ANSWERED, READY, DifferentAnswer, LateAnswer, Round
from eigenveil_server.storage import study_writes
from eigenveil_server.storage.database import audit_once
from eigenveil_server.storage.states import SiteConsent
from eigenveil_server.storage.study_reads import StoredStudy
from eigenveil_server.studies.runtime import Runtime
from eigenveil_server.studies.study_run import MOST_AHEAD, StudyRun

P = ParamSpec("P")
T = TypeVar("T")
RELEASE_WAIT_SECONDS = (
    0.1  # seconds to wait for a release: a long draw must not delay the sites' other studies
)
GATHER_SECONDS = 0.02  # seconds that an answer waits for the other answers, to be stored with the release
GATHER_SECONDS_PER_SITE = 0.001  # in addition, for each invited site: the time to add one answer
UnloggedSites = dict[str, set[str]]  # sites that answered, or got ready, by log event
MOST_STUDY_KEYS = 8  # of one site for one study; a new one after its key card was replaced
SIGNATURE_BYTES = 64
INLINE_CHECK_BYTES = 64 * 1024  # checked in well under a millisecond; larger answers leave the event loop


class Contributions:
    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._repository = runtime.repository
        # The task that will store a round's answers, and the sites not logged yet.
        self._gathering: WeakKeyDictionary[Round, tuple[asyncio.Task[None], UnloggedSites]] = (
            WeakKeyDictionary()
        )

    def expected_round(self, run: StudyRun, site: str, round: int, attempt: str) -> Round:
        """Return the open round that an announced answer is for; `attempt` is the digest of its attempt.
        Raises RequestError: `site` is not invited, or the round, or the attempt, is not open; PeerError:
        there is no such attempt."""
        opened = self._find_open_round(run, site, round, attempt)
        if attempt != opened.attempt_digest:
            raise PeerError(
                Code.BAD_CONTRIBUTION, f"{round_label(round)} has no such attempt for site {site}"
            )
        return opened

    def _find_open_round(self, run: StudyRun, site: str, round: int, attempt: str = "") -> Round:
        check_invited(run.plan, site)
        if run.opened is None or round > run.opened.round_query.round:
            raise RequestError(Code.NOT_FOUND, f"{round_label(round)} of study {run.digest[:12]} is not open")
        if round < run.opened.round_query.round or run.opened.is_earlier_attempt(attempt):
            raise LateAnswer(site, round)
        return run.opened

    async def note_ready(self, run: StudyRun, site: str, round: int, query: str, key: SignedStudyKey) -> None:
        """Note that a site can answer a masked round, in memory only, and its key for the study, durably;
        `query` is a digest. Raises RequestError: not masked, not open, or `site` is not invited or declined
        it; PeerError: it is ready for another query, or the key is not of this site and study."""
        opened = self._find_open_round(run, site, round)
        if not opened.masked:
            raise RequestError(
                Code.BAD_ARGUMENT, f"answers to study {run.digest[:12]} are not masked; send the answer"
            )
        digest = await self._stored_key(run, site, key)
        news = self._find_open_round(run, site, round).note_ready(site, query, digest)
        failpoint("ready-taken")
        if news:  # a repetition must not fill the disk with events
            self._stored(run, opened, site, READY)

    async def _stored_key(self, run: StudyRun, site: str, key: SignedStudyKey) -> str:
        """Store a site's key for a study before an attempt can name it; return its digest. The signature is
        for the other sites, which know the key cards."""
        if len(key.signed_json) > key.most_bytes or len(key.signature) > SIGNATURE_BYTES:
            raise PeerError(Code.PROTOCOL, "the site's key for a study is too long")
        stated = key.read()
        if (stated.plan, stated.site) != (run.digest, site):
            raise PeerError(Code.PROTOCOL, "the site's key is of another site or study")
        digest, studies = stated.digest, self._repository.studies
        stored = await self._repository.store.read(studies.keys_of_site, run.digest, site)
        if digest not in stored:
            if len(stored) >= MOST_STUDY_KEYS:
                raise RequestError(
                    Code.CONFLICT,
                    f"site {site} has made {MOST_STUDY_KEYS} keys for this study already; what loses them?",
                )
            row: dict[str, object] = {"study": run.digest, "digest": digest, "site": site}
            row |= {"signed_json": key.signed_json, "signature": key.signature}
            write = partial(study_writes.add_study_key, row=row)
            await self._repository.finish(self._repository.writer.write(write))
        return digest

    async def contribute(
        self, run: StudyRun, contribution: Contribution, claimed: str, added: Callable[[], None]
    ) -> bool:
        """Add one site's answer; True if the same one was added before. `claimed` is its digest; `added` is
        called once its values are no longer needed. Raises PeerError: the contribution does not match its
        digest, or is impossible for its records; the operator is notified; RequestError: the round is not
        open, or the site answered differently before; LateAnswer: the round is over; the answer is audited
        and not added."""
        site = contribution.site
        async with self._refusals_audited(contribution):
            if await self._answered_before(run, contribution):
                return True
            opened = self._find_open_round(run, site, contribution.round, contribution.attempt)
            repeated = await self._take(run, opened, contribution, claimed)
        del contribution  # its values are in the sum and no longer needed
        added()
        failpoint("answer-taken")
        if not opened.is_stored(site):
            await asyncio.shield(self._stored(run, opened, site))
        return repeated

    async def _take(self, run: StudyRun, opened: Round, contribution: Contribution, claimed: str) -> bool:
        """Check an answer and add it; True if it was added before."""
        site, round_query = contribution.site, opened.round_query
        size, compute = contribution.values.nbytes, self._runtime.compute
        small = size <= INLINE_CHECK_BYTES
        work = _run_inline if small else compute.check if size > INLINE_BYTES else compute.run
        attempt = opened.attempt_digest
        await work(_check, round_query, contribution, self._records(run, round_query, site), attempt, claimed)
        mac = self._runtime.keys.mac(claimed)
        adding = opened.add_answer(site, mac, contribution.values, work)
        repeated = await (adding if small else self._repository.finish(adding))
        if isinstance(round_query.query, Count) and not attempt:
            run.record_counts[site] = int(contribution.values[0])
        return repeated

    def _records(self, run: StudyRun, round_query: RoundQuery, site: str) -> range:
        """Return the possible record counts of `site`: a study reads one file at each site."""
        counted = None if isinstance(round_query.query, Count) else run.record_counts.get(site)
        most = run.plan.study.max_records
        return range(most + 1) if counted is None else range(counted, counted + 1)

    async def _answered_before(self, run: StudyRun, contribution: Contribution) -> bool:
        """True if the answer is a repetition after its round ended, as our reply may be lost [R7]."""
        opened, attempt = run.opened, contribution.attempt
        if (
            opened is not None
            and contribution.round >= opened.round_query.round
            and not opened.is_earlier_attempt(attempt)
        ):
            return False
        check_invited(run.plan, contribution.site)
        return await self._is_known(contribution)

    async def _is_known(self, contribution: Contribution) -> bool:
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
        """Return True if an answer to an ended study was added while its round was open. Raises RequestError:
        the site is not invited, there was no such round, or it answered differently; LateAnswer: as in
        `contribute`."""
        site, round = contribution.site, contribution.round
        check_invited(await self._runtime.plan(stored), site)
        studies = self._repository.studies
        if await self._repository.store.read(studies.query_digest, stored.digest, round) is None:
            raise RequestError(Code.NOT_FOUND, f"study {stored.digest[:12]} had no {round_label(round)}")
        async with self._refusals_audited(contribution):
            if await self._is_known(contribution):
                return True
            raise LateAnswer(site, round)

    @asynccontextmanager
    async def _refusals_audited(self, contribution: Contribution) -> AsyncIterator[None]:
        """Audit a refused contribution before its site hears of it; report it unless it is late."""
        try:
            yield
        except LateAnswer:
            await self._note_late(contribution)
            raise
        except (DifferentAnswer, PeerError) as problem:
            kind = "different-second-answer" if isinstance(problem, DifferentAnswer) else "answer-refused"
            study, site, round = contribution.plan_digest, contribution.site, contribution.round
            log.event(kind, logging.ERROR, study=study, round=round, site=site)
            at, detail = self._repository.clock(), f"study {study} round {round}"
            await self._repository.writer.write(
                lambda change: audit_once(change, at, kind, f"site/{site}", detail)
            )
            raise

    async def _note_late(self, contribution: Contribution) -> None:
        """Audit a late answer with its keyed digest [R7]; one row for a round cannot fill the disk."""
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

    def _stored(
        self, run: StudyRun, opened: Round, site: str, event_name: str = ANSWERED
    ) -> asyncio.Task[None]:
        """Return the task that stores all answers by now, with one transaction, event and log line."""
        if opened not in self._gathering:
            sites: UnloggedSites = {}
            self._gathering[opened] = self._repository.begin(self._store(run, opened, sites)), sites
        storing, unlogged = self._gathering[opened]
        unlogged.setdefault(event_name, set()).add(site)
        return storing

    async def _store(self, run: StudyRun, opened: Round, unlogged: UnloggedSites) -> None:
        study, round = run.digest, opened.round_query.round
        whole = await self._is_released_soon(run, opened, unlogged)
        _log_sites(opened, unlogged)
        del self._gathering[opened]  # later answers wait for the next task
        if whole:
            return
        macs = opened.unstored()
        event = self._news(run, opened)

        def change(connection: Connection) -> None:
            study_writes.add_answers(connection, study, round, opened.number, macs)
            study_writes.add_round_event(connection, study, round, event)
            failpoint("answer-storing")

        await self._repository.writer.write(change)
        failpoint("answer-stored")
        opened.stored(macs)
        self._runtime.news.notify()

    async def _is_released_soon(self, run: StudyRun, opened: Round, unlogged: UnloggedSites) -> bool:
        """Wait a moment for the other answers and the release; True if its transaction has stored all. The
        noise of a large query is drawn only now, and takes longer."""
        if opened.round_query.query.length > MOST_AHEAD:
            return False
        complete = await opened.complete(
            GATHER_SECONDS + GATHER_SECONDS_PER_SITE * len(run.plan.study.federation.sites)
        )
        _log_sites(opened, unlogged)
        return complete and await opened.wait_until_settled(RELEASE_WAIT_SECONDS)

    def _news(self, run: StudyRun, opened: Round) -> pb.StudyEvent | None:
        """Return the event of the round; None once that is frozen: its release reports that [P27]."""
        return None if opened.frozen else run.event(opened)

    async def decline(
        self, run: StudyRun, site: str, round: int, decline: SiteConsent, by_person: bool
    ) -> None:
        """Note that a site declines a round; or the study, before the first or if a person declines. Raises
        RequestError: the round is not open, or the site answered it."""
        before_first = run.consent.open and round == 0
        if before_first:
            check_invited(run.plan, site)
        else:
            opened = self._find_open_round(run, site, round)
            opened.decline(site, decline.reason)
            if not opened.is_stored(site):
                await self._repository.finish(self._store_decline(run, opened, site, decline.reason))
        if (before_first or by_person) and decline.follows(run.consent.consent_of_site(site)):
            await self._repository.finish(run.consent.note(site, decline))

    async def _store_decline(self, run: StudyRun, opened: Round, site: str, reason: str) -> None:
        study, round = run.digest, opened.round_query.round
        event, at = self._news(run, opened), self._repository.clock()

        def change(connection: Connection) -> None:
            study_writes.add_decline(connection, study, round, site, reason)
            study_writes.add_round_event(connection, study, round, event)
            audit_once(connection, at, "declined", f"site/{site}", f"study {study} round {round}: {reason}")
            failpoint("decline-storing")

        await self._repository.writer.write(change)
        failpoint("decline-stored")
        opened.stored([site])
        log.event("declined", study=study, round=round, site=site, reason=reason)
        self._runtime.news.notify()


def check_invited(plan: Plan, site: str) -> None:
    """Raise RequestError, code `not-found`, unless the plan invites `site`."""
    if site not in plan.study.federation.sites:
        raise RequestError(Code.NOT_FOUND, f"study {plan.digest[:12]} does not invite site {site}")


def _log_sites(opened: Round, unlogged: UnloggedSites) -> None:
    """Log the sites that answered, or got ready, since the last line."""
    for event_name, sites in unlogged.items():
        round_query, said = opened.round_query, ",".join(sorted(sites))
        log.event(event_name, study=round_query.plan_digest, round=round_query.round, sites=said)
    unlogged.clear()


async def _run_inline(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run `work` on the event loop: nothing comes between, and nothing can be cancelled."""
    return work(*args, **kwargs)


def _threads_for(contribution: Contribution) -> AbstractContextManager[ThreadPoolExecutor | None]:
    """Return threads for the check of a larger answer."""
    large = contribution.values.nbytes > INLINE_CHECK_BYTES
    return ThreadPoolExecutor(CHECK_THREADS) if large else nullcontext()


def _check(
    round_query: RoundQuery, contribution: Contribution, records: range, attempt: str, claimed: str
) -> None:
    with _threads_for(contribution) as threads:
        digesting = None if threads is None else threads.submit(lambda: contribution.digest)
        validate(round_query, contribution, records, attempt, map if threads is None else threads.map)
        digest = contribution.digest if digesting is None else digesting.result()
    if digest != claimed:
        raise PeerError(
            Code.BAD_CONTRIBUTION,
            f"site {contribution.site}: the contribution does not match its digest; nothing was added",
        )
