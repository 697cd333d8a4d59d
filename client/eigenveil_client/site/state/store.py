"""Store of a site: its budget, the received plans, and one row for every message that left. All is in one
file, so that related changes are one transaction."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from eigenveil.accounting.budget import PrivacyBudget
from eigenveil.accounting.formatting import percent_up
from eigenveil.accounting.ledger import EntryKind, Ledger
from eigenveil.accounting.zcdp import NO_COST, Cost
from eigenveil.dictionary.site_rules import DeclineReason
from eigenveil.errors import Code, InternalError, RequestError
from eigenveil.protocol.plan import Plan
from eigenveil_client.records.tables.source import BadRecords
from eigenveil_client.site.policy_sections import YearlyLimit
from eigenveil_client.site.state import (
    confirmed_kinds,
    coordinator_statements,
    declined_plans,
    egress,
    line_decisions,
    outgoing,
    person_counts,
    received_plans,
    rollback,
    study_keys,
)
from eigenveil_client.site.state.confirmed_kinds import ConfirmedKinds
from eigenveil_client.site.state.coordinator_statements import Attempts, Transcript
from eigenveil_client.site.state.declined_plans import UNANSWERED, DeclinedPlans, DeclinedProofs
from eigenveil_client.site.state.egress import KeyedDigests
from eigenveil_client.site.state.line_decisions import LineDecisions
from eigenveil_client.site.state.outgoing import AnsweredRounds, Outgoing
from eigenveil_client.site.state.person_counts import PersonCounts
from eigenveil_client.site.state.received_plans import (
    ConsentStatus,
    PersonDecision,
    ReceivedPlan,
    ReceivedPlans,
)
from eigenveil_client.site.state.rollback import NotedPosition, RollbackGuard, loss_id
from eigenveil_client.site.state.study_keys import StudyKeys
from eigenveil_common.files import FileVersion, failpoint, file_version
from eigenveil_common.storage import ledger_store
from eigenveil_common.storage.database import Connection, Expect, Migrations, SchemaTooOld
from eigenveil_common.storage.ledger_store import LedgerStore
from eigenveil_common.storage.sqlite import SqliteDatabase

VERSION = 14
# From 12, the version of 1.0; older versions cannot be read.
MIGRATIONS: Migrations = (
    (13, "ALTER TABLE declined ADD COLUMN rule TEXT NOT NULL DEFAULT ''"),
    (
        14,
        f"""{line_decisions.SCHEMA}{person_counts.SCHEMA}
        ALTER TABLE studies ADD COLUMN decide_until INTEGER NOT NULL DEFAULT 0;
        ALTER TABLE studies ADD COLUMN reminded INTEGER NOT NULL DEFAULT 0""",
    ),
)
OF_PLANS = (
    received_plans,
    declined_plans,
    rollback,
    coordinator_statements,
    outgoing,
    confirmed_kinds,
    line_decisions,
    study_keys,
    person_counts,
)
SCHEMA = "".join(module.SCHEMA for module in (ledger_store, egress, *OF_PLANS))
UPGRADE_ADVICE = (
    "move it and egress.key away, store both as evidence, and run eigenveil-site "
    "accept-loss --config site.toml, which charges what was spent"
)


NOTE_SECONDS = 1.0
# Tables that decide if a study is answered. The accepting daemon and people's commands write them.
CONSENT_TABLES = ("studies", "declined", *confirmed_kinds.TABLES)
TIMED_TABLES = ("ledger", "egress", "studies", "declined", "calls")  # tables with the time of each row


class ConsentBasis(NamedTuple):
    """All that decides if a study is answered and may change while a daemon runs: rows, files of key cards,
    and the seconds by both clocks. The rules of site.toml stay the same, and so does a plan."""

    rows: tuple[int, int]
    rosters: tuple[FileVersion | None, ...]
    now: int
    clock: int


def open_database(path: Path, expect: Expect = Expect.ANY) -> SqliteDatabase:
    """Open a site's database. Raises InternalError, code `storage`; UpgradeNeeded, as `expect` says."""
    try:
        return SqliteDatabase(path, SCHEMA, VERSION, migrations=MIGRATIONS, expect=expect)
    except SchemaTooOld as problem:
        raise InternalError(Code.STORAGE, f"{problem}; {UPGRADE_ADVICE}") from problem


class SiteStore:
    """Durable state of a site in one SQLite file, with the key of its digests beside it. `guard` notes the
    position of its ledger, too. `database`: one that is open already. Raises InternalError, code `storage`:
    the process must end; or as `KeyedDigests`."""

    def __init__(
        self,
        path: Path,
        budget: PrivacyBudget,
        guard: RollbackGuard,
        clock: Callable[[], int] = lambda: int(time.time()),
        database: SqliteDatabase | None = None,
    ) -> None:
        self._clock = clock
        self._guard = guard
        self._last_noted: NotedPosition | None = None
        self.keyed_digests = KeyedDigests(path.with_name("egress.key"), path)
        self.database = open_database(path) if database is None else database
        self.database.check_whole()  # before any row is used
        self.database.watch(*CONSENT_TABLES)
        last = "SELECT COALESCE(MAX(at), 0) FROM"
        self._latest: int = max(self.database.rows(f"{last} {table}")[0][0] for table in TIMED_TABLES)
        self.ledger = LedgerStore(self.database, budget, self.now)
        self.egress = egress.EgressLedger(self.database, self.now)
        self.traffic = egress.Traffic(self.database, self.now)
        self.declined = DeclinedPlans(self.database, self.now)
        self.proofs = DeclinedProofs(self.database)
        self.studies = ReceivedPlans(self.database, self.declined.with_prefix, self.now)
        self.checkpoints = rollback.CheckpointStore(self.database)
        self.transcript = Transcript(self.database)
        self.attempts = Attempts(self.database)
        self.confirmed = ConfirmedKinds(self.database)
        self.study_keys = StudyKeys(self.database)
        self.line_decisions = LineDecisions(self.database, self.keyed_digests)
        self.person_counts = PersonCounts(self.database, self.ledger, self.now)
        self._log_is_due = True  # to be emptied: it may have a key that was deleted before a crash
        self.rounds = AnsweredRounds(self.database, self.ledger, self.attempts)
        self.outgoing = Outgoing(
            database=self.database, ledger=self.ledger, rounds=self.rounds, attempts=self.attempts,
            studies=self.studies, egress=self.egress, keyed_digests=self.keyed_digests,
            checkpoints=self.checkpoints, transcript=self.transcript,
        )  # fmt: skip

    def now(self) -> int:
        """Return Unix seconds: the later of the system's clock and every time stored here. So a clock set
        back neither repeats a year nor revives an approval."""
        self._latest = max(self._latest, self._clock())
        return self._latest

    def clock_time(self) -> int:
        """Return Unix seconds by the system's clock alone, by which analysts' signatures expire. By `now`, a
        clock that was ahead once would expire all of them for that time."""
        return self._clock()

    def consent_basis(self, rosters: Iterable[str]) -> ConsentBasis:
        """Return the present basis of consent, with the files of key cards `rosters`. A decision that is made
        after it holds while it stays the same [TM23]."""
        versions = tuple(map(file_version, rosters))
        return ConsentBasis(self.database.changes(), versions, self.now(), self.clock_time())

    def store_pending(self, received: ReceivedPlan) -> None:
        """Store a plan that waits for a person's decision."""
        with self.database.transaction() as change:
            self.studies.decide(received, ConsentStatus.PENDING, change)

    def accept(
        self,
        plan: Plan,
        received: ReceivedPlan,
        yearly: YearlyLimit | None,
        person: PersonDecision | None = None,
    ) -> None:
        """Reserve the study's whole cost and accept `plan`, new or pending, in one transaction. `person`
        decided; None: the rules alone. Raises RequestError: code `budget-exhausted`, or `conflict` if it was
        decided before; nothing changed."""

        def also(change: Connection) -> None:
            self._check_year(plan.cost, yearly, gaussian=plan.gaussian)
            self.studies.decide(received, ConsentStatus.ACCEPTED, change, person=person)

        self.ledger.reserve(plan.digest, plan.cost, also=also, gaussian=plan.gaussian)
        failpoint("plan-accepted")
        self.note_ledger()

    def note_ledger(self) -> None:
        """Note the ledger's position outside of the database."""
        if (now := self.ledger.read(NotedPosition.of)) != self._last_noted:
            self._guard.note(now)
            self._last_noted = now

    async def note_periodically(self) -> None:
        """Note the ledger's position and save the last checkpoint every second and at the end, in a thread.
        Raises InternalError, code `storage`."""
        try:
            while True:
                await asyncio.sleep(NOTE_SECONDS)
                await asyncio.to_thread(self._note)
        finally:
            self._note()

    def _note(self) -> None:
        self.checkpoints.flush()
        self.note_ledger()
        if self._log_is_due:
            self._log_is_due = not self.database.empty_log()

    def this_year(self, yearly: YearlyLimit) -> int:
        """Return the micro-rho spent this year or reserved; all reservations may be spent this year."""
        return self.ledger.read(lambda ledger: self._of_year(yearly, ledger))

    def _of_year(self, yearly: YearlyLimit, ledger: Ledger) -> int:
        kinds = ", ".join(f"'{kind.value}'" for kind in EntryKind if kind.spends)
        statement = f"SELECT COALESCE(SUM(micro_rho), 0) FROM ledger WHERE kind IN ({kinds}) AND at >= ?"
        spent: int = self.database.rows(statement, (yearly.year.began(self.now()),))[0][0]
        return spent + sum(reserved.micro_rho for reserved in ledger.reserved.values())

    def noised_persons(
        self, count: Callable[[], int], micro_rho: int, yearly: YearlyLimit | None
    ) -> tuple[int, float]:
        """Return as `PersonCounts.noised`, within the yearly limit."""
        cost = Cost(micro_rho=micro_rho)
        found = self.person_counts.noised(
            count, micro_rho, also=lambda change: self._check_year(cost, yearly, gaussian=True)
        )
        self.note_ledger()
        return found

    def _check_year(self, cost: Cost, yearly: YearlyLimit | None, *, gaussian: bool) -> None:
        """Check the yearly limit within the reserving transaction, which holds the ledger's lock."""
        if yearly is None:
            return
        committed = self._of_year(yearly, self.ledger.ledger)
        left = self._left_of_year(yearly, self.ledger.ledger, gaussian=gaussian)
        if cost.micro_rho > left:
            raise RequestError(
                Code.BUDGET,
                "this would exceed what this site allows in one year, of which "
                f"{percent_up(committed, committed + left)} % are spent or reserved; nothing was charged",
            )

    def left_this_year(self, plan: Plan, yearly: YearlyLimit) -> int:
        """Return the micro-rho left this year for studies with the noise of `plan`; negative if exceeded."""
        return self.ledger.read(lambda ledger: self._left_of_year(yearly, ledger, gaussian=plan.gaussian))

    def _left_of_year(self, yearly: YearlyLimit, ledger: Ledger, *, gaussian: bool) -> int:
        most = yearly.budget.limit(gaussian=gaussian and ledger.gaussian)
        return most.micro_rho - self._of_year(yearly, ledger)

    def decline(self, received: ReceivedPlan, person: PersonDecision) -> None:
        """Record that `person` declined a pending plan. Raises as `ReceivedPlans.set_status`."""
        declined, reason = ConsentStatus.DECLINED, Code.POLICY.value
        with self.database.transaction() as change:
            self.studies.set_status(received.plan, declined, change, reason, person)

    def decline_by_rule(
        self,
        plan: Plan,
        reason: Code,
        rule: str,
        *,
        sent: str = "",
        proof: ReceivedPlan | None = None,
        named: bool = False,
    ) -> None:
        """Store the digest of a new plan that `rule` declined, and count it. `sent` is the rule that the
        coordinator is told, or empty. The plan is stored only as `proof` of what the coordinator signed.
        `named`: its analyst is known here."""
        with self.database.transaction() as change:
            self.declined.add(plan.digest, reason, change, analyst=plan.analyst, rule=rule, sent=sent)
            if proof is not None:
                self.proofs.add(proof, reason, change, named=named)
            failpoint("plan-declining")

    def withdraw(self, digest: str, person: PersonDecision) -> Cost:
        """Withdraw from a study by a person's decision; free its reservation and return it. Raises
        RequestError, code `conflict`, if it was declined or withdrawn before, or has ended."""
        freed = self._close(digest, ConsentStatus.WITHDRAWN, Code.POLICY.value, person)
        self.note_ledger()
        return freed

    def end_declined(self, digest: str) -> None:
        """Record that the study of a plan declined by rule is over."""
        with self.database.transaction() as change:
            self.declined.end(digest, change)

    def _forget_unanswered(self, digest: str, change: Connection) -> None:
        """Delete the plan of an ended study without a person's decision and without a message from this site.
        Its digest and a count stay."""
        if self.egress.has_rows(digest, change):
            return
        for gone in self.studies.forget_undecided(digest, change, self.clock_time()):
            named = {"analyst": gone.read_plan().analyst, "rule": UNANSWERED, "sent": UNANSWERED}
            self.declined.add(digest, Code.PROTOCOL, change, **named, ended=True)

    def end(self, digest: str) -> Cost:
        """Settle a study; free the uncharged part of its reservation and return it. The plan stays if a
        person decided about it, or a message left this site for it."""
        freed = self._close(digest, ConsentStatus.ENDED, "")
        self.note_ledger()
        return freed

    def accept_loss(self) -> Cost:
        """Accept a ledger that lost rows, by the operator's decision. Withdraw every open study; charge and
        return what the lost rows had spent or reserved. May be repeated. Raises as
        `RollbackGuard.accept_loss`."""
        loss = loss_id(self._guard.lost(self.ledger))
        operator = PersonDecision(by="", reason_code=DeclineReason.UNSTATED)
        for study in self.ledger.ledger.reserved.keys() - {loss}:
            if self.studies.get(study) is None:  # another loss, whose charge was interrupted
                self.ledger.settle(study)
            else:
                self._close(study, ConsentStatus.WITHDRAWN, Code.POLICY.value, operator)
        return self._guard.accept_loss(self.ledger)

    def _close(
        self, digest: str, status: ConsentStatus, reason: str, person: PersonDecision | None = None
    ) -> Cost:
        freed = NO_COST

        def also(change: Connection) -> None:
            nonlocal freed
            self.studies.set_status(digest, status, change, reason, person)
            self.attempts.forget(digest, change)
            self.study_keys.delete(digest, change)
            if status is ConsentStatus.ENDED:
                self._forget_unanswered(digest, change)
            freed = self.ledger.ledger.reserved.get(digest, NO_COST)
            failpoint("study-ending")

        had_key = self.study_keys.has(digest)
        self.ledger.settle(digest, also=also)
        self.rounds.forget(digest)
        if had_key:
            self._log_is_due = not self.database.empty_log()
        return freed

    def pin_records(self, plan: Plan, file: bytes) -> None:
        """Pin the records of a study by their digest, and require the pinned ones; else raise BadRecords.

        The digest covers all columns, so that no choice of columns reveals which record was changed. It
        covers the rows too, in case a file changes while it is read."""
        digest, received = self.keyed_digests.of_records(plan.digest, file), self.studies.get(plan.digest)
        if received is None or received.records == digest:
            return
        if received.records:
            raise BadRecords(
                "the records or their rules have changed since this study began, or their SELECT returns "
                "other rows each time; a study needs unchanged records",
                about="changed",
            )
        self.studies.pin_records(plan.digest, digest)

    def check_whole(self) -> None:
        """Check all stored data against its digests; the database pages were checked before. Raises
        InternalError, code `storage`."""
        self.egress.check_queries(self.egress.rows())
        self.studies.check_whole()
        self.proofs.check_whole()
        self.transcript.check_whole()
        self.attempts.check_whole()

    def close(self) -> None:
        self.traffic.flush()
        self.database.close()
