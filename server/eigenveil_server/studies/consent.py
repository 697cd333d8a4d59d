"""Before the first question: which sites agree to a study, and how long it waits for them [R24].

Nothing is open meanwhile, so nothing can be answered, charged or learned. What a site says is durable before
it counts, and so is the time before which nothing is asked: no restart makes either less.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass

from eigenveil.errors import Code, RequestError
from eigenveil.study.study import Federation
from eigenveil_common import log
from eigenveil_common.failpoints import failpoint
from eigenveil_common.storage.database import Connection
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from eigenveil_server.clock import as_datetime
from eigenveil_server.config import Config
from eigenveil_server.storage import consents, study_writes
from eigenveil_server.storage.consents import UNHEARD, Consent, Standing, shut_out
from eigenveil_server.storage.database import Change, audit_once
from eigenveil_server.storage.repository import Repository
from eigenveil_server.storage.states import DECLINES
from eigenveil_server.storage.study_reads import StoredStudy
from eigenveil_server.studies.poll import Poll
from eigenveil_server.studies.signal import Signal

HOUR_MS, MINUTE_MS = 3_600_000, 60_000
GATHER_EACH = 0.001  # seconds for each invited site in which a word waits for others
LOOK_SECONDS = 5.0  # the clock on the wall may be set meanwhile
RULED = (
    "the rules of {sites} do not allow this study, such as its algorithm, epsilon or analyst: ask there, or "
    "leave it out"
)
EVENTS = {Standing.WAITING: "site-waits", Standing.AGREED: "site-agreed", Standing.DECLINED: "site-declined"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long a study waits for persons, and after the last person's agreement. Milliseconds."""

    approval: int
    start: int

    @classmethod
    def of(cls, config: Config) -> Patience:
        """As the operator says."""
        approval, start = HOUR_MS * config.approval_hours, MINUTE_MS * config.start_minutes
        return cls(approval=int(approval), start=int(start))


class ConsentPhase:
    """The words of one study's sites. `open` until its first question may be asked.

    A site that says that a person is being asked has the operator's hours since the study began to run; one
    that only stated so, as long as it calls: an hour after its last call, or since this process took the
    study up, it counts as gone. Any other has the study's own deadline since then, a denied one no time.
    """

    def __init__(
        self,
        stored: StoredStudy,
        federation: Federation,
        repository: Repository,
        news: Signal,
        patience: Patience,
    ) -> None:
        self._study = stored
        self._federation = federation
        self._repository = repository
        self._news = news
        self._patience = patience
        self._said = consents.consents(repository.store.reader, stored.digest)
        self._durable = dict(self._said)  # what counts
        stated = json.loads(stored.stated)
        self._asks = {site for site, told in stated.items() if told and told["approval"] == "ask"}
        now = repository.clock()
        self._called = dict.fromkeys(self._asks, now)
        self._soon = now + int(1000 * federation.deadline_seconds)
        self._late = max(self._soon, stored.begun_at + patience.approval)
        self._denied = shut_out(repository.store.reader)
        self._changed = Signal()
        self._due: list[Change] = []
        self._writing: asyncio.Task[None] | None = None
        self.open = repository.studies.rounds(stored.digest) == 0

    def word(self, site: str) -> Consent:
        """What `site` said last."""
        return self._said.get(site, UNHEARD)

    def waiting(self) -> list[str]:
        """Sites at which a person has not decided yet."""
        return [site for site, said in self._said.items() if said.standing is Standing.WAITING]

    # ------------------------------------------------------------ waiting

    async def complete(self, check: Callable[[], None]) -> None:
        """Return once the first question may be asked; `check` stops that by what it raises.

        Raises:
            RequestError: code `study-failed`: too few sites agree, and no others can any more.
        """
        if self.open and self._asks and not self._said:
            await self._written(lambda change: None)  # who watches sees at once whom it waits for
        while self.open:
            check()
            store = self._repository.store
            self._denied = await store.read(shut_out, store.reader)
            seconds = self._left()
            if seconds > 0:
                await self._changed.wait(min(seconds, LOOK_SECONDS))
            else:
                self.open = False

    def wake(self) -> None:
        """Have `complete` look again."""
        self._changed.ring()

    def _left(self) -> float:
        """Seconds until something is decided if nobody says another word."""
        now = self._repository.clock()
        undecided = self._undecided(now, self._counted)
        self._check_possible(undecided)
        return (max(map(self._ends, undecided), default=self._starts()) - now) / 1000

    def _undecided(self, now: int, word: Callable[[str], Consent]) -> list[str]:
        """Sites that may still come to a word."""
        return [
            site
            for site in self._federation.sites
            if word(site).standing in (Standing.SILENT, Standing.WAITING) and self._ends(site) > now
        ]

    def _counted(self, site: str) -> Consent:
        return self._durable.get(site, UNHEARD)

    def _ends(self, site: str) -> int:
        if site in self._denied:
            return 0
        # A person who agrees is still waited for while that is being stored.
        if Standing.WAITING in (self.word(site).standing, self._counted(site).standing):
            return self._late
        # Who asks and calls will say so; who does not call would hold every study for a week.
        gone = self._called[site] + HOUR_MS if site in self._asks else 0
        return min(self._late, max(self._soon, gone))

    def _starts(self) -> int:
        """Before which nothing is asked: a person who agreed can still withdraw."""
        return max((said.starts_at for said in self._said.values()), default=0)

    def _check_possible(self, undecided: list[str]) -> None:
        sites = self._federation.sites
        agreed = {site for site in sites if self._counted(site).standing is Standing.AGREED}
        possible = agreed - self._denied | {*undecided}
        if len(possible) < self._federation.least or not possible.issuperset(self._federation.required):
            lacking = [site for site in sites if site not in possible]
            unsaid = f"; not decided yet: {', '.join(undecided)}" if undecided else ""
            words = f"{self._why(lacking)}; nothing was asked of any site{unsaid}{self._hint(lacking)}"
            raise RequestError(Code.STUDY_FAILED, words)

    def _why(self, lacking: list[str]) -> str:
        """Why each of these has not agreed."""
        denied = [site for site in lacking if site in self._denied]
        lacking = [site for site in lacking if site not in denied]
        waited = [site for site in lacking if self.word(site).standing is Standing.WAITING]
        until = f"{as_datetime(self._late):%Y-%m-%d %H:%M} (UTC)"
        why = [f"waited for approval at {', '.join(waited)} until {until}"] if waited else []
        return "; ".join(
            why
            + [f"{site}: shut out by the coordinator's operator" for site in denied]
            + [f"{site}: {self.word(site).status}" for site in lacking if site not in waited]
        )

    def _hint(self, lacking: list[str]) -> str:
        """What to do about sites whose rules decline."""
        ruled = [site for site in lacking if self.word(site).reason == DECLINES[pb.DECLINE_REASON_POLICY]]
        return f"; {RULED.format(sites=', '.join(ruled))}" if ruled else ""

    # ------------------------------------------------------------ sites

    def offer(self, site: str, poll: Poll) -> pb.NextWorkResponse | None:
        """Ask for the word of a site that is invited and does not say one."""
        study = self._study.digest
        said = study in poll.agreed or study in poll.awaiting or (study, 0, 0) in poll.answered
        if said or site not in self._federation.sites or self.word(site).standing is Standing.DECLINED:
            return None
        return pb.NextWorkResponse(consent=bytes.fromhex(study))

    def heard(self, site: str, poll: Poll) -> Consent | None:
        """What `site` says of the study now, if that is new. Only who holds the plan can say anything."""
        study = self._study.digest
        if site in self._called:
            self._called[site] = self._repository.clock()
        if study not in poll.known or site not in self._federation.sites:
            return None
        if study in poll.agreed:
            starts_at = self._start() if poll.agreed[study] else 0
            new = Consent(standing=Standing.AGREED, starts_at=starts_at)
        else:
            new = Consent(standing=Standing.WAITING) if study in poll.awaiting else UNHEARD
        return new if new.follows(self.word(site)) else None

    def _start(self) -> int:
        """Before which nothing is asked if a person agreed now: a whole minute, since analysts read it, and
        when exactly somebody was at work is not theirs to know. 0, at once, if the operator wants no wait."""
        start = self._patience.start
        return -(-(self._repository.clock() + start) // MINUTE_MS) * MINUTE_MS if start else 0

    async def note(self, site: str, said: Consent, telling: Callable[[], Change] | None = None) -> None:
        """Remember the word of a site for good, and have watchers see it; `telling` is called as soon as the
        word is said, and what it returns within the transaction."""
        study, at = self._study.digest, self._repository.clock()
        self._said[site] = said
        also = None if telling is None else telling()

        def change(connection: Connection) -> None:
            consents.store_consent(connection, study, site, said, at)
            if said.standing is Standing.DECLINED:
                audit_once(connection, at, "declined", f"site/{site}", f"study {study}: {said.reason}")
            if also is not None:
                also(connection)
            failpoint("consent-storing")

        await self._written(change)
        failpoint("consent-stored")
        self._durable[site] = said
        log.event(EVENTS[said.standing], study=study, site=site)
        self.wake()

    async def _written(self, also: Change) -> None:
        """Write a word durably. Those that come in the same moment share one transaction and one event, which
        says of every site where it stands."""
        self._due.append(also)
        if self._writing is None:
            self._writing = self._repository.begin(self._write())
        await asyncio.shield(self._writing)

    async def _write(self) -> None:
        await asyncio.sleep(GATHER_EACH * len(self._federation.sites))
        due, self._due, self._writing = self._due, [], None
        study, event = self._study.digest, self._study.begun
        self.tell(event)

        def change(connection: Connection) -> None:
            for also in due:
                also(connection)
            study_writes.add_early_event(connection, study, event)

        await self._repository.writer.write(change)
        self._news.ring()

    def tell(self, message: pb.StudyEvent | pb.StudyRow) -> None:
        """Say of every site what it said, and what is waited for."""
        for site in self._federation.sites:
            said = self.word(site)
            message.consent.append(pb.SiteStatus(site=site, status=said.status, text=said.text))
        if self.open:
            undecided = self._undecided(self._repository.clock(), self.word)
            message.consent_ends_unix_ms = max(map(self._ends, undecided), default=0)
            message.starts_unix_ms = 0 if undecided else self._starts()
