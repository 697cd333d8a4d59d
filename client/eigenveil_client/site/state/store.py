"""A site's memory: its budget, the plans it has seen, and one row for every message that left.

What leaves is written down first (`outgoing`). Everything is in one file, so that what belongs together is
one transaction.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

from eigenveil.accounting.budget import Budget
from eigenveil.accounting.digits import percent_up
from eigenveil.accounting.ledger import EntryKind, Ledger
from eigenveil.accounting.zcdp import NOTHING, Cost
from eigenveil.errors import Code, InternalError, RequestError
from eigenveil.protocol.plan import Plan, plan_from_json
from eigenveil.study.consent import DeclineWord
from eigenveil_client.records.tables.table import BadRecords
from eigenveil_client.site.state import (
    answered_rounds,
    attempts,
    checkpoints,
    confirmed_kinds,
    declined_plans,
    declined_proofs,
    egress,
    received_plans,
    traffic,
    transcript,
)
from eigenveil_client.site.state.answered_rounds import AnsweredRounds
from eigenveil_client.site.state.attempts import Attempts
from eigenveil_client.site.state.confirmed_kinds import ConfirmedKinds
from eigenveil_client.site.state.declined_plans import UNANSWERED, DeclinedPlans
from eigenveil_client.site.state.declined_proofs import DeclinedProofs
from eigenveil_client.site.state.egress import Fingerprints
from eigenveil_client.site.state.outgoing import Outgoing
from eigenveil_client.site.state.received_plans import Decision, PersonsWord, ReceivedPlan, ReceivedPlans
from eigenveil_client.site.state.rollback_guard import RollbackGuard, Seen, lost_study
from eigenveil_client.site.state.transcript import Transcript
from eigenveil_client.site.yearly_limit import YearlyLimit
from eigenveil_common.failpoints import failpoint
from eigenveil_common.storage import ledger_store
from eigenveil_common.storage.database import Connection
from eigenveil_common.storage.ledger_store import LedgerStore
from eigenveil_common.storage.migrations import Migrations, TooOld
from eigenveil_common.storage.sqlite import Database

# 8 knows attempts, and nothing older can be read.
VERSION = 10
MIGRATIONS: Migrations = (
    (9, received_plans.SIGNED_PLANS + declined_plans.SCHEMA),
    (10, received_plans.ENDING_IDS + declined_proofs.SCHEMA + confirmed_kinds.SCHEMA),
)
SCHEMA = "".join(
    room.SCHEMA
    for room in (
        ledger_store,
        egress,
        traffic,
        received_plans,
        declined_plans,
        declined_proofs,
        checkpoints,
        transcript,
        answered_rounds,
        attempts,
        confirmed_kinds,
    )
)
CHANGE_OVER = (
    "here you need not count: move it and egress.key away, keep both as evidence, and run eigenveil-site "
    "accept-loss --config site.toml, which charges what was spent"
)
NOTE_SECONDS = 1.0
TIMED = ("ledger", "egress", "studies", "declined", "chatter")  # tables with the time of each row


class SiteStore:
    """Everything a site must not forget, in one SQLite file; its key for digests lies beside it. What its
    ledger had come to is told to `guard`, too.

    Raises:
        InternalError: code `storage`; the process must end.
        RequestError: code `bad-config`, the key is gone or can be read by others.
    """

    def __init__(
        self,
        path: Path,
        budget: Budget,
        guard: RollbackGuard,
        clock: Callable[[], int] = lambda: int(time.time()),
    ) -> None:
        self._clock = clock
        self._guard = guard
        self._noted: Seen | None = None
        self.fingerprints = Fingerprints(path.with_name("egress.key"), path)
        try:
            self.database = Database(path, SCHEMA, VERSION, migrations=MIGRATIONS)
        except TooOld as problem:
            raise InternalError(Code.STORAGE, f"{problem}; {CHANGE_OVER}") from problem
        self.database.check_whole()  # before a row of it is believed
        last = "SELECT COALESCE(MAX(at), 0) FROM"
        self._latest: int = max(self.database.rows(f"{last} {table}")[0][0] for table in TIMED)
        self.ledger = LedgerStore(self.database, budget, self.now)
        self.egress = egress.EgressLedger(self.database, self.now)
        self.traffic = traffic.Traffic(self.database, self.now)
        self.declined = DeclinedPlans(self.database, self.now)
        self.proofs = DeclinedProofs(self.database)
        self.studies = ReceivedPlans(self.database, self.declined, self.now)
        self.checkpoints = checkpoints.HeldCheckpoints(self.database)
        self.transcript = Transcript(self.database)
        self.attempts = Attempts(self.database)
        self.confirmed = ConfirmedKinds(self.database)
        self.rounds = AnsweredRounds(self.database, self.ledger, self.attempts)
        self.outgoing = Outgoing(
            database=self.database, ledger=self.ledger, rounds=self.rounds, attempts=self.attempts,
            studies=self.studies, egress=self.egress, fingerprints=self.fingerprints,
            checkpoints=self.checkpoints, transcript=self.transcript,
        )  # fmt: skip

    def now(self) -> int:
        """Unix seconds: the later of the system's clock and everything written here, so that a clock that
        is set back gives no second year and revives no approval."""
        self._latest = max(self._latest, self._clock())
        return self._latest

    def clock_time(self) -> int:
        """Unix seconds by the system's clock alone, by which analysts' signatures end: by `now`, a clock that
        was ahead once would end all of them for as long as it was ahead. An id runs once by any clock."""
        return self._clock()

    def hold(self, seen: ReceivedPlan) -> None:
        """Remember a plan that waits for a person's word."""
        with self.database.transaction() as change:
            self.studies.decide(seen, Decision.PENDING, change)

    def accept(
        self,
        plan: Plan,
        seen: ReceivedPlan,
        yearly: YearlyLimit | None,
        *,
        person: PersonsWord | None = None,
    ) -> None:
        """Reserve the study's whole price and agree to `plan`, new or pending, in one transaction.

        `person`: by whose word; None: by the rules alone.

        Raises:
            RequestError: code `budget-exhausted`, or `conflict` if it was decided about before; nothing was
                changed.
        """

        def also(change: Connection) -> None:
            self._check_year(plan, yearly)
            self.studies.decide(seen, Decision.ACCEPTED, change, person=person)

        self.ledger.reserve(plan.digest, plan.cost, also=also, gaussian=plan.gaussian)
        failpoint("plan-accepted")
        self.note_ledger()

    def note_ledger(self) -> None:
        """Note outside of the database how far its ledger is."""
        now = self.ledger.read(Seen.of)
        if now != self._noted:
            self._guard.note(now)
            self._noted = now

    async def keep_noted(self) -> None:
        """Every second, and at the end, make durable what need not be before an answer leaves: how far the
        ledger is, and the last checkpoint. For ever, in a thread. Raises InternalError, code `storage`."""
        try:
            while True:
                await asyncio.sleep(NOTE_SECONDS)
                await asyncio.to_thread(self._note)
        finally:
            self._note()

    def _note(self) -> None:
        self.checkpoints.flush()
        self.note_ledger()

    def this_year(self, yearly: YearlyLimit) -> int:
        """Micro-rho spent in the current year or set aside, which may all be spent before the year ends."""
        return self.ledger.read(lambda ledger: self._of_year(yearly, ledger))

    def _of_year(self, yearly: YearlyLimit, ledger: Ledger) -> int:
        """The same, by who holds the ledger's lock."""
        kinds = ", ".join(f"'{kind.value}'" for kind in EntryKind if kind.spends)
        statement = f"SELECT COALESCE(SUM(micro_rho), 0) FROM ledger WHERE kind IN ({kinds}) AND at >= ?"
        spent: int = self.database.rows(statement, (yearly.year.began(self.now()),))[0][0]
        return spent + sum(reserved.micro_rho for reserved in ledger.reserved.values())

    def _check_year(self, plan: Plan, yearly: YearlyLimit | None) -> None:
        """Within the transaction that reserves, which holds the ledger's lock."""
        if yearly is None:
            return
        ledger = self.ledger.ledger
        committed, left = self._of_year(yearly, ledger), self._left_of_year(plan, yearly, ledger)
        if plan.cost.micro_rho > left:
            raise RequestError(
                Code.BUDGET,
                "the study would exceed what this site allows in one year, of which "
                f"{percent_up(committed, committed + left)} % are spent or set aside; nothing was charged",
            )

    def left_this_year(self, plan: Plan, yearly: YearlyLimit) -> int:
        """Micro-rho that studies with the noise of `plan` may still take this year; below 0 if over."""
        return self.ledger.read(lambda ledger: self._left_of_year(plan, yearly, ledger))

    def _left_of_year(self, plan: Plan, yearly: YearlyLimit, ledger: Ledger) -> int:
        most = yearly.budget.limit(gaussian=plan.gaussian and ledger.gaussian)
        return most.micro_rho - self._of_year(yearly, ledger)

    def decline(self, seen: ReceivedPlan, reason: Code, *, person: PersonsWord) -> None:
        """Remember that `person` refused a plan that waits. Raises as `ReceivedPlans.move`."""
        with self.database.transaction() as change:
            self.studies.move(seen.plan, Decision.DECLINED, change, reason.value, person=person)

    def decline_by_rule(
        self, plan: Plan, reason: Code, rule: str, *, proof: ReceivedPlan | None = None, named: bool = False
    ) -> None:
        """Store the digest of a new plan that `rule` refused, and count it; of the plan nothing stays, unless
        it is `proof` of what the coordinator signed. `named`: people here know its analyst."""
        with self.database.transaction() as change:
            self.declined.add(plan.digest, reason, change, analyst=plan.analyst, rule=rule)
            if proof is not None:
                self.proofs.add(proof, reason, change, analyst=plan.analyst, named=named)
            failpoint("plan-declining")

    def withdraw(self, digest: str, person: PersonsWord) -> Cost:
        """Answer a study no more, by a person's word; what was set aside for it is free and returned.

        Raises:
            RequestError: code `conflict`, it was declined, withdrawn or ended before.
        """
        freed = self._close(digest, Decision.WITHDRAWN, Code.POLICY.value, person)
        self.note_ledger()
        return freed

    def end_declined(self, digest: str) -> None:
        """The study of a plan that the rules declined is over."""
        with self.database.transaction() as change:
            self.declined.end(digest, change)

    def _forget_unanswered(self, digest: str, change: Connection) -> None:
        """Drop the plan of a study that is over, if no person decided about it and nothing left this site for
        it; its digest stays, and a count."""
        if self.egress.any_of(digest, change):
            return
        plan_json = self.studies.forget_undecided(digest, change, self.clock_time())
        if plan_json is not None:
            analyst = plan_from_json(plan_json).analyst
            self.declined.add(digest, Code.PROTOCOL, change, analyst=analyst, rule=UNANSWERED, ended=True)

    def end(self, digest: str) -> Cost:
        """Settle a study; what was set aside for it and not charged is free again, and returned. The plan
        stays if a person decided about it, or anything left this site for it."""
        freed = self._close(digest, Decision.ENDED, "")
        self.note_ledger()
        return freed

    def accept_loss(self) -> Cost:
        """Go on with a ledger that lost rows, by the operator's word: every study that is open in it is
        withdrawn, and what the lost rows had spent or set aside is charged, and returned. May be repeated.

        Raises:
            RequestError: code `conflict`, nothing is lost; or the budget does not hold it.
            InternalError: code `storage`.
        """
        loss = lost_study(self._guard.lost(self.ledger))
        for study in self.ledger.ledger.reserved.keys() - {loss}:
            if self.studies.get(study) is None:  # another loss, whose charge was cut short in this copy
                self.ledger.settle(study)
            else:
                self._close(
                    study,
                    Decision.WITHDRAWN,
                    Code.POLICY.value,
                    PersonsWord(by="", word=DeclineWord.UNSTATED),
                )
        return self._guard.accept_loss(self.ledger)

    def _close(self, digest: str, standing: Decision, reason: str, person: PersonsWord | None = None) -> Cost:
        freed = NOTHING

        def also(change: Connection) -> None:
            nonlocal freed
            self.studies.move(digest, standing, change, reason, person=person)
            self.attempts.forget(digest, change)
            if standing is Decision.ENDED:
                self._forget_unanswered(digest, change)
            freed = self.ledger.ledger.reserved.get(digest, NOTHING)
            failpoint("study-ending")

        self.ledger.settle(digest, also=also)
        return freed

    def keep_records(self, plan: Plan, file: bytes) -> None:
        """Hold a study to the records it began with, by their digest (`Held.file`): all of them, whatever the
        study looks at, so that no choice of columns tells who was changed; and its rows, should a file
        change while it is read.

        Raises:
            BadRecords: the records have changed since.
        """
        digest = self.fingerprints.of_records(plan.digest, file)
        seen = self.studies.get(plan.digest)
        if seen is None or seen.records == digest:
            return
        if seen.records:
            raise BadRecords(
                "the records or their rules have changed since this study began, or their SELECT gives other "
                "rows each time; a study runs over one state of them",
                about="changed",
            )
        self.studies.keep_records(plan.digest, digest)

    def check_whole(self) -> None:
        """Insist that what is kept here under a digest is what that names; the pages were looked at before.
        Raises InternalError, code `storage`."""
        self.egress.check_questions(self.egress.rows())
        self.studies.check_whole()
        self.proofs.check_whole()
        self.transcript.check_whole()
        self.attempts.check_whole()

    def close(self) -> None:
        self.traffic.flush()
        self.database.close()
