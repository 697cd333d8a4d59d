"""Messages about to leave a site, recorded before they are sent, the rounds answered, and the next cost.
Charge, query and egress row are one transaction, the one sync of a round [P27]. So after a crash the same
query gets the same answer at no further charge, and no other query is answered for that round."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from eigenveil.accounting.zcdp import NO_COST, Cost
from eigenveil.aggregation import Contribution
from eigenveil.errors import Code, InternalError, PeerError, RequestError, round_label
from eigenveil.numerics.encoding import to_memoryview
from eigenveil.protocol.plan import Plan
from eigenveil.protocol.query import RoundQuery
from eigenveil.protocol.query_limits import attempt_cost, check_batch, check_composition
from eigenveil.queries import NAMES, batch_of
from eigenveil.reporting.trust import MASKED
from eigenveil_client.site.state.coordinator_statements import (
    Attempts,
    Transcript,
    VerifiedAttempt,
    VerifiedStatement,
)
from eigenveil_client.site.state.egress import DECLINE, READY, EgressLedger, EgressMessage, KeyedDigests
from eigenveil_client.site.state.received_plans import ConsentStatus, ReceivedPlans
from eigenveil_client.site.state.rollback import CheckpointStore, VerifiedCheckpoint
from eigenveil_common.files import failpoint
from eigenveil_common.storage.database import Connection, Database
from eigenveil_common.storage.ledger_store import LedgerPosition, LedgerStore

SCHEMA = """
CREATE TABLE passes (
  plan TEXT NOT NULL,
  first INTEGER NOT NULL,
  time INTEGER NOT NULL,
  round INTEGER NOT NULL,
  PRIMARY KEY (plan, first, time)
) STRICT;
"""


class AnsweredRounds:
    """Rounds charged in `store`, and the rows in `database` (whose schema includes `SCHEMA`). A row is a
    charge of a pass over disjoint batches: its number (from 1) and the round charged."""

    def __init__(self, database: Database, store: LedgerStore, attempts: Attempts) -> None:
        self._database = database
        self._store = store
        self._attempts = attempts
        self._due: dict[str, int] = {}  # the round after the last answered one, by open study
        for study, round in store.ledger.charged:
            self.mark_answered(study, round)

    def check_order(self, round_query: RoundQuery, may_miss: bool) -> None:
        """Require that a query repeats the last answered one or is later; else raise PeerError.

        For an earlier round a restored coordinator would draw new noise, and publish several noisy answers
        for one charge. `may_miss`: the study can continue without this site, so rounds may be skipped."""
        round, due = round_query.round, self._due.get(round_query.plan_digest, 0)
        known = self._store.ledger.charged.get((round_query.plan_digest, round))
        if known == round_query.digest and round == due - 1:
            return
        if known not in (None, round_query.digest):
            what = f"{round_label(round)} was answered for another query; this query is refused"
            raise PeerError(Code.PROTOCOL, what)
        if round < due or (round > due and not may_miss):
            raise PeerError(
                Code.PROTOCOL,
                f"the coordinator asks for {round_label(round)}, and {round_label(due)} is due; was it "
                "restored from an old copy?",
            )

    def cost(self, plan: Plan, round_query: RoundQuery) -> Cost:
        """Return the cost of the next answer to a query. A pass is charged with its first answered batch, and
        again with the first batch that is answered for another attempt [P33].

        A record is in one batch, so only attempts at that batch concern it. Each batch had at most as many
        attempts as the pass has charges, each at the cost of the first, so no batch costs more. Other queries
        of the round are charged separately."""
        batch = batch_of(round_query.query)
        if batch is None:
            return round_query.priced.cost
        first_pass = self._database.rows(
            "SELECT round FROM passes WHERE (plan, first) = (?, ?) ORDER BY time",
            (plan.digest, batch.first_round),
        )
        first = self._store.ledger.paid[plan.digest, first_pass[0]["round"]].cost if first_pass else None
        check_batch(plan, round_query.priced.cost, batch, first or round_query.priced.cost)
        return attempt_cost(round_query.priced.cost, self._next_attempt(round_query), len(first_pass), first)

    def pool_covers(self, plan: Plan, round_query: RoundQuery) -> bool:
        """Return True unless the next answer is to a repeated attempt that the plan's pool does not pay for
        [P35]."""
        study, round, cost = plan.digest, round_query.round, self.cost(plan, round_query)
        return self._store.read(lambda ledger: ledger.covers(study, round, cost, plan.spare_cost))

    def _next_attempt(self, round_query: RoundQuery) -> int:
        """Return the number of the next answer to a query, from 1; always 1 in a central study."""
        return 1 + len(self._attempts.answered(round_query.plan_digest, round_query.round))

    def charge_pass(self, plan: Plan, round_query: RoundQuery, cost: Cost, change: Connection) -> None:
        """Require that the study's guarantee covers this answer unless it is charged already, and record the
        pass that it charges. Runs within the transaction `change` that charges `cost`, before the answer
        counts as given. Raises as `check_composition`."""
        ledger = self._store.ledger
        if plan.masked or (round_query.plan_digest, round_query.round) not in ledger.charged:
            check_composition(plan, round_query, cost, ledger.pico_by_study[round_query.plan_digest])
        batch = batch_of(round_query.query)
        if batch is not None and cost != NO_COST:
            row = (
                round_query.plan_digest,
                batch.first_round,
                self._next_attempt(round_query),
                round_query.round,
            )
            change.execute("INSERT INTO passes VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING", row)

    def mark_answered(self, study: str, round: int) -> None:
        """Record that a round was answered; the answer is durable."""
        self._due[study] = max(self._due.get(study, 0), round + 1)

    def forget(self, study: str) -> None:
        """Drop what is remembered of a settled study, of which no query is answered."""
        self._due.pop(study, None)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Outgoing:
    """Recorder of outgoing messages in the site's store.

    `stated` holds the coordinator's statements that led to a message; they and its last checkpoint are stored
    with it. `require` checks within the transaction of an answer that the study is still answered: a key may
    have been removed meanwhile. Raises EigenveilError: as `Ledger.charge`, `AnsweredRounds.charge_pass` and
    `require`, or code `site-policy`, the study was withdrawn meanwhile; then nothing may be sent."""

    database: Database
    ledger: LedgerStore
    rounds: AnsweredRounds
    attempts: Attempts
    studies: ReceivedPlans
    egress: EgressLedger
    keyed_digests: KeyedDigests
    checkpoints: CheckpointStore
    transcript: Transcript
    require: Callable[[str], object] = lambda study: None

    def answer(
        self,
        plan: Plan,
        round_query: RoundQuery,
        values: bytes | memoryview,
        stated: Sequence[VerifiedStatement],
    ) -> None:
        """Charge a round and record its exact answer before it is sent; never for a masked study."""
        if plan.masked:
            raise InternalError(Code.BUG, "an exact answer of a masked study was about to leave")
        checkpoint, cost = self.checkpoints.unsaved(), self.rounds.cost(plan, round_query)
        sent = self._message(round_query, values)

        def also(change: Connection) -> None:
            self._write(round_query, sent, stated, checkpoint, change)
            failpoint("answer-charging")
            self.rounds.charge_pass(plan, round_query, cost, change)

        self.ledger.charge(round_query.plan_digest, round_query.round, round_query.digest, cost, also=also)
        failpoint("answer-charged")
        self._mark_sent(round_query, checkpoint)

    def ready(self, round_query: RoundQuery, stated: Sequence[VerifiedStatement]) -> None:
        """Record a message that this site's answer is computed; it costs nothing."""
        checkpoint = self.checkpoints.unsaved()
        text = "an answer is computed and waits for the other sites of its attempt"
        sent = EgressMessage(
            study=round_query.plan_digest, round=round_query.round, kind=READY, query=round_query.digest,
            meaning=f"{text}: {round_query.query.meaning}",
        )  # fmt: skip
        with self.database.transaction() as change:
            self._write(round_query, sent, stated, checkpoint, change)
            failpoint("ready-storing")
        failpoint("ready-stored")
        self.checkpoints.mark_saved(checkpoint)

    def masked(
        self,
        plan: Plan,
        round_query: RoundQuery,
        proved: VerifiedAttempt,
        answer: Contribution,
        stated: Sequence[VerifiedStatement],
        known: Callable[[], object],
    ) -> None:
        """Charge a new attempt and store its masked answer before it is sent. `known` checks within the
        transaction that the sites of the attempt are still confirmed here."""
        checkpoint, cost = self.checkpoints.unsaved(), self.rounds.cost(plan, round_query)
        sent = self._message(round_query, to_memoryview(answer.values), answer.attempt)

        def also(change: Connection, _: LedgerPosition) -> None:
            if self.rounds.cost(plan, round_query) != cost:
                raise RequestError(
                    Code.CONFLICT,
                    f"another process of this site answered {round_label(round_query.round)} of this study "
                    "meanwhile; run only one daemon for a state",
                )
            known()
            self._write(round_query, sent, stated, checkpoint, change)
            self.rounds.charge_pass(plan, round_query, cost, change)
            self.attempts.save(proved, answer, change)
            failpoint("attempt-storing")

        self.ledger.attempt(round_query, cost, plan.spare_cost, also)
        failpoint("attempt-stored")
        self._mark_sent(round_query, checkpoint)

    def resend(
        self, round_query: RoundQuery, answer: Contribution, stated: Sequence[VerifiedStatement]
    ) -> None:
        """Record that a masked answer, charged before, is sent again."""
        checkpoint = self.checkpoints.unsaved()
        sent = self._message(round_query, to_memoryview(answer.values), answer.attempt)
        with self.database.transaction() as change:
            self._write(round_query, sent, stated, checkpoint, change)
        self.checkpoints.mark_saved(checkpoint)

    def refuse(
        self, plan_digest: str, round: int, reason: str, stated: Sequence[VerifiedStatement] = ()
    ) -> None:
        """Record a refusal before it is sent."""
        meaning, checkpoint = f"this site declines: {reason}", self.checkpoints.unsaved()
        sent = EgressMessage(study=plan_digest, round=round, kind=DECLINE, meaning=meaning)
        with self.database.transaction() as change:
            self.checkpoints.save(checkpoint, change)
            self.egress.append(sent, change)
            self.transcript.save(stated, change)
            failpoint("refusal-writing")
        failpoint("refusal-written")
        self.checkpoints.mark_saved(checkpoint)

    def _message(
        self, round_query: RoundQuery, values: bytes | memoryview, attempt: str = ""
    ) -> EgressMessage:
        query = round_query.query
        return EgressMessage(
            study=round_query.plan_digest,
            round=round_query.round,
            kind=NAMES[type(query)],
            meaning=f"{query.meaning}; {MASKED}" if attempt else query.meaning,
            bytes=len(values),
            contribution=self.keyed_digests.of_answer(round_query, values),
            query=round_query.digest,
            attempt=attempt,
        )

    def _write(
        self,
        round_query: RoundQuery,
        sent: EgressMessage,
        stated: Sequence[VerifiedStatement],
        checkpoint: VerifiedCheckpoint | None,
        change: Connection,
    ) -> None:
        self.studies.require(round_query.plan_digest, ConsentStatus.ACCEPTED, change)
        self.require(round_query.plan_digest)
        self.checkpoints.save(checkpoint, change)
        self.transcript.save(stated, change)
        self.egress.append(sent, change)
        self.egress.save_query(round_query, change)

    def _mark_sent(self, round_query: RoundQuery, checkpoint: VerifiedCheckpoint | None) -> None:
        self.checkpoints.mark_saved(checkpoint)
        self.rounds.mark_answered(round_query.plan_digest, round_query.round)
