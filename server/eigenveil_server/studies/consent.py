"""Consent phase, before the first query: the sites that agree to a study, and the time limit for them [R24].
No round is open meanwhile, so nothing can be answered, charged or learned. A consent is durable before it
counts. So is the time before which no query is sent: no restart shortens it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Set

from eigenveil.errors import Code, RequestError
from eigenveil.study.study import Federation
from eigenveil_common import log
from eigenveil_common.files import failpoint
from eigenveil_common.storage.database import Connection
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from eigenveil_server.config import Config
from eigenveil_server.process import as_datetime
from eigenveil_server.storage import states, study_writes
from eigenveil_server.storage.database import Change, audit_once
from eigenveil_server.storage.repository import Repository
from eigenveil_server.storage.states import (
    DECLINES,
    LOADING,
    NO_CONSENT,
    ConsentState,
    SiteConsent,
    denied_sites,
)
from eigenveil_server.storage.study_reads import StoredStudy
from eigenveil_server.studies.runtime import ChangeEvent, Poll

HOUR_MS, MINUTE_MS = 3_600_000, 60_000
GATHER_SECONDS_PER_SITE = 0.001  # seconds for each invited site that a consent waits for others
LOOK_SECONDS = 5.0  # the wall clock may be set meanwhile
POLICY_HINT = (
    "the rules of {sites} do not allow this study: see `study show` for the rule, contact them, or leave "
    "them out"
)
UPGRADE = "waiting for an upgrade"
EVENTS = {
    ConsentState.WAITING: "site-waits",
    ConsentState.AGREED: "site-agreed",
    ConsentState.DECLINED: "site-declined",
}


class LoadingSites:
    """Sites that load their records before the first query, for `limit` seconds at most. A site that has not
    called this process is awaited until the study's own deadline, as it may load too."""

    def __init__(self, limit: float) -> None:
        self.awaited: frozenset[str] = frozenset()  # that loaded when the wait began
        self._limit = int(1000 * limit)
        self._ends: int | None = None
        self._sites: dict[str, bool] = {}

    def note(self, site: str, loads: bool) -> bool:
        """Note whether a site that agreed loads its records; True if that is new."""
        before, self._sites[site] = self._sites.get(site), loads
        return before is not loads

    def begin(self, agreed: Set[str], now: int) -> bool:
        """Begin the wait for the sites that agreed; True if it begins now, and a site loads."""
        if self._ends is not None:
            return False
        self._ends = now + self._limit
        self.awaited = frozenset(site for site in agreed if self._sites.get(site))
        return bool(self.awaited)

    def seconds(self, agreed: Set[str], now: int, deadline: int) -> float:
        """Return the seconds until the wait ends if no site calls; 0 if all have loaded. Times are in Unix
        milliseconds."""
        assert self._ends is not None
        ends = [self._ends if loads else now for site, loads in self._sites.items() if site in agreed]
        unheard = [min(deadline, self._ends)] if agreed - self._sites.keys() else []
        return (max(*ends, *unheard, now, now) - now) / 1000


class ConsentPhase:
    """Consents of one study's sites. `open` until its first query may be sent. A site that reports that a
    person is being asked has the operator's hours since the study began. A site whose rules only state so has
    them as long as it calls; it counts as gone an hour after its last call, or after this process resumed the
    study. Any other site has the study's own deadline since then, a denied one no time. Once all have stated
    theirs, the first query waits for those that still load their records, as long as the study states. Only
    that they load leaves a site; watchers learn of none when it ended."""

    def __init__(
        self,
        stored: StoredStudy,
        federation: Federation,
        repository: Repository,
        news: ChangeEvent,
        config: Config,
        lacking: Callable[[str], str] = lambda site: "",
    ) -> None:
        self._study = stored
        self._lacking = lacking  # why a site's program cannot run the plan; empty if it can
        self._federation = federation
        self._repository = repository
        self._news = news
        self._start_delay = int(MINUTE_MS * config.start_minutes)
        self._consents = dict.fromkeys(federation.sites, NO_CONSENT)
        self._consents |= states.consents(repository.store.reader, stored.digest)
        self._durable_consents = dict(self._consents)  # only these count
        stated = json.loads(stored.site_rules_json)
        self._asking_persons = {
            site for site, told in stated.items() if told and told["approval"] == "manual"
        }
        now = repository.clock()
        self._last_calls = dict.fromkeys(self._asking_persons, now)
        self._deadline = now + int(1000 * federation.deadline_seconds)
        allowed = max(self._deadline, stored.started_at + int(HOUR_MS * config.approval_hours))
        self._approval_deadline = int(min(allowed, 1000 * federation.decision_deadline))
        self._loading = LoadingSites(federation.loading_seconds)
        self._denied = denied_sites(repository.store.reader)
        self._changed = ChangeEvent()
        self._pending_changes: list[Change] = []
        self._writing: asyncio.Task[None] | None = None
        self.open = repository.studies.rounds(stored.digest) == 0

    def consent_of_site(self, site: str) -> SiteConsent:
        """Return the latest consent of `site`."""
        return self._consents[site]

    def waiting(self) -> list[str]:
        """Return the sites where a person has not decided yet."""
        return [site for site, consent in self._consents.items() if consent.state is ConsentState.WAITING]

    # ------------------------------------------------------------ waiting

    async def complete(self, check: Callable[[], None]) -> None:
        """Return once the first query may be sent; `check` may stop the wait by raising. Raises RequestError:
        code `study-failed`: too few sites agree, and no others can any more."""
        if self.open and self._asking_persons and set(self._consents.values()) == {NO_CONSENT}:
            await self._write_shared(lambda change: None)  # watchers see the awaited sites at once
        while self.open:
            check()
            store = self._repository.store
            self._denied = await store.read(denied_sites, store.reader)
            seconds = self._seconds_to_decision()
            if seconds <= 0:
                seconds = await self._seconds_to_load()
            if seconds > 0:
                await self._changed.wait(min(seconds, LOOK_SECONDS))
            else:
                self.open = False

    def wake(self) -> None:
        """Make `complete` look again."""
        self._changed.notify()

    def _seconds_to_decision(self) -> float:
        """Return the seconds until the next decision if no site sends anything."""
        now = self._repository.clock()
        undecided = self._undecided(now, self._durable_consents)
        self._check_possible(undecided)
        return (max(map(self._deadline_of, undecided), default=self._start_time()) - now) / 1000

    async def _seconds_to_load(self) -> float:
        """Return the seconds for which the first query waits for records, if no site sends anything. Watchers
        learn that they are loaded."""
        now, durable = self._repository.clock(), self._durable_consents
        agreed = {site for site, one in durable.items() if one.state is ConsentState.AGREED} - self._denied
        begins = self._loading.begin(agreed, now)
        if begins:
            await self._write_shared(lambda change: None)
        return self._loading.seconds(agreed, now, self._deadline)

    def _undecided(self, now: int, consents: Mapping[str, SiteConsent]) -> list[str]:
        """Return the sites that may still decide."""
        return [
            site
            for site in self._federation.sites
            if consents[site].state in (ConsentState.UNSTATED, ConsentState.WAITING)
            and self._deadline_of(site) > now
        ]

    def _deadline_of(self, site: str) -> int:
        if site in self._denied:
            return 0
        # A person's agreement counts only once it is stored.
        if ConsentState.WAITING in (self._consents[site].state, self._durable_consents[site].state):
            return self._approval_deadline
        if site not in self._asking_persons:
            return self._deadline
        # A site that calls will report it; one that does not must not delay every study for a week.
        gone_at = self._last_calls[site] + HOUR_MS
        return min(self._approval_deadline, max(self._deadline, gone_at))

    def _start_time(self) -> int:
        """Return the time before which no query is sent: a person who agreed can still withdraw."""
        return max((consent.starts_at for consent in self._consents.values()), default=0)

    def _check_possible(self, undecided: list[str]) -> None:
        sites = self._federation.sites
        agreed = {site for site in sites if self._durable_consents[site].state is ConsentState.AGREED}
        possible = agreed - self._denied | {*undecided}
        if len(possible) < self._federation.least or not possible.issuperset(self._federation.required):
            missing = [site for site in sites if site not in possible]
            pending = f"; not decided yet: {', '.join(undecided)}" if undecided else ""
            words = f"{self._reasons(missing)}; no query was sent to any site{pending}{self._hint(missing)}"
            raise RequestError(Code.STUDY_FAILED, words)

    def _reasons(self, missing: list[str]) -> str:
        """Return why each of these sites has not agreed, as text."""
        denied = [site for site in missing if site in self._denied]
        missing = [site for site in missing if site not in denied]
        waited = [site for site in missing if self._consents[site].state is ConsentState.WAITING]
        until = f"{as_datetime(self._approval_deadline):%Y-%m-%d %H:%M} (UTC)"
        reasons = [f"waited for approval at {', '.join(waited)} until {until}"] if waited else []
        return "; ".join(
            reasons
            + [f"{site}: denied by the coordinator's operator" for site in denied]
            + [f"{site}: {self._status(site)}" for site in missing if site not in waited]
        )

    def _status(self, site: str) -> str:
        """Return the consent of a site as text; one that is too old is not asked before it is upgraded."""
        consent, why = self._consents[site], self._lacking(site)
        if self.open and consent.state is ConsentState.AGREED and site in self._loading.awaited:
            return LOADING
        asked = consent.state is not ConsentState.UNSTATED
        return consent.status if asked or not why else f"{UPGRADE}: it {why}"

    def _hint(self, missing: list[str]) -> str:
        """Return the advice about sites whose rules decline."""
        policy_declined = [
            site for site in missing if self._consents[site].reason == DECLINES[pb.DECLINE_REASON_POLICY]
        ]
        return f"; {POLICY_HINT.format(sites=', '.join(policy_declined))}" if policy_declined else ""

    # ------------------------------------------------------------ sites

    def assignment(self, site: str, poll: Poll) -> pb.NextWorkResponse | None:
        """Return the request for the consent of an invited site that has not stated one; else None."""
        study = self._study.digest
        consent = study in poll.agreed or study in poll.awaiting_approval or (study, 0, 0) in poll.answered
        if (
            consent
            or self._lacking(site)
            or site not in self._federation.sites
            or self._consents[site].state is ConsentState.DECLINED
        ):
            return None
        return pb.NextWorkResponse(consent=bytes.fromhex(study), consent_ends_unix_ms=self._approval_deadline)

    def newly_stated(self, site: str, poll: Poll) -> SiteConsent | None:
        """Return the consent that `site` states, if it is new; only a site with the plan can state one."""
        study = self._study.digest
        if site in self._last_calls:
            self._last_calls[site] = self._repository.clock()
        if study not in poll.known or site not in self._federation.sites:
            return None
        if self.open and study in poll.agreed and self._loading.note(site, study in poll.loading):
            self.wake()
        if study in poll.agreed:
            starts_at = self._start_after_agreement() if poll.agreed[study] else 0
            new = SiteConsent(state=ConsentState.AGREED, starts_at=starts_at)
        else:
            new = SiteConsent(state=ConsentState.WAITING) if study in poll.awaiting_approval else NO_CONSENT
        return new if new.follows(self._consents[site]) else None

    def _start_after_agreement(self) -> int:
        """Return the start if a person agreed now: a whole minute, as analysts must not learn when a
        person was at work; 0, at once, if the operator wants no wait."""
        start = self._repository.clock() + self._start_delay
        return -(-start // MINUTE_MS) * MINUTE_MS if self._start_delay else 0

    async def note(
        self, site: str, consent: SiteConsent, event_writer: Callable[[], Change] | None = None
    ) -> None:
        """Store the consent of a site; what `event_writer` returns at once runs within the transaction."""
        study, at = self._study.digest, self._repository.clock()
        self._consents[site] = consent
        also = None if event_writer is None else event_writer()

        def change(connection: Connection) -> None:
            states.store_consent(connection, study, site, consent, at)
            if consent.state is ConsentState.DECLINED:
                why = " ".join(filter(None, (consent.reason, consent.rule)))
                audit_once(connection, at, "declined", f"site/{site}", f"study {study}: {why}")
            if also is not None:
                also(connection)
            failpoint("consent-storing")

        await self._write_shared(change)
        failpoint("consent-stored")
        self._durable_consents[site] = consent
        log.event(EVENTS[consent.state], study=study, site=site)
        self.wake()

    async def _write_shared(self, also: Change) -> None:
        """Store a consent. Those of the same moment share one transaction and one event of all sites."""
        self._pending_changes.append(also)
        if self._writing is None:
            self._writing = self._repository.begin(self._write())
        await asyncio.shield(self._writing)

    async def _write(self) -> None:
        await asyncio.sleep(GATHER_SECONDS_PER_SITE * len(self._federation.sites))
        due, self._pending_changes, self._writing = self._pending_changes, [], None
        study, event = self._study.digest, self._study.begun
        self.add_consent_status(event)

        def change(connection: Connection) -> None:
            for also in due:
                also(connection)
            study_writes.add_early_event(connection, study, event)

        await self._repository.writer.write(change)
        self._news.notify()

    def add_consent_status(self, message: pb.StudyEvent | pb.StudyRow) -> None:
        """Add the consent of every site, and the time limits, to a message."""
        for site in self._federation.sites:
            consent = self._consents[site]
            status = pb.SiteStatus(site=site, status=self._status(site), text=consent.text, rule=consent.rule)
            message.consent.append(status)
        if self.open:
            undecided = self._undecided(self._repository.clock(), self._consents)
            message.consent_ends_unix_ms = max(map(self._deadline_of, undecided), default=0)
            message.starts_unix_ms = 0 if undecided else self._start_time()
