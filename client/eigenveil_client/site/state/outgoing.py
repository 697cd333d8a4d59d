"""What is about to leave a site, written down first.

What a message costs, what it answers and what left are one transaction, durable before the message is sent:
after a crash at any moment the same question gets the same answer at no further charge, and no other question
is answered for that round. That transaction is the one sync of a round [P27].
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from eigenveil.aggregation import Contribution
from eigenveil.errors import Code, InternalError, RequestError, spoken
from eigenveil.numerics.encoding import octets
from eigenveil.protocol.plan import Plan
from eigenveil.protocol.query import RoundQuery
from eigenveil.queries import NAMES
from eigenveil.reporting.trust import MASKED
from eigenveil_client.site.state.answered_rounds import AnsweredRounds
from eigenveil_client.site.state.attempts import Attempts, Proved
from eigenveil_client.site.state.checkpoints import HeldCheckpoints, Taken
from eigenveil_client.site.state.egress import DECLINE, READY, EgressLedger, Fingerprints, Sent
from eigenveil_client.site.state.received_plans import Decision, ReceivedPlans
from eigenveil_client.site.state.transcript import Stated, Transcript
from eigenveil_common.failpoints import failpoint
from eigenveil_common.storage.database import Connection, Database
from eigenveil_common.storage.ledger_store import LedgerStore, Tip


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Outgoing:
    """The rooms of one site's store that have a part in it. `stated` is what the coordinator stated to be
    told this; the last checkpoint that it showed is kept along. `require` insists, within the
    transaction that commits an answer, that a study is still answered: meanwhile a key may have been removed.

    Raises:
        EigenveilError: as `Ledger.charge`, `AnsweredRounds.pay` and `require`, or code `site-policy`: the
            study was withdrawn meanwhile; then nothing may be sent.
    """

    database: Database
    ledger: LedgerStore
    rounds: AnsweredRounds
    attempts: Attempts
    studies: ReceivedPlans
    egress: EgressLedger
    fingerprints: Fingerprints
    checkpoints: HeldCheckpoints
    transcript: Transcript
    require: Callable[[str], object] = lambda study: None

    def requiring(self, require: Callable[[str], object]) -> Outgoing:
        """The same, with this last look at the rules, which is given the digest of the plan."""
        return replace(self, require=require)

    def answer(
        self,
        plan: Plan,
        asked: RoundQuery,
        values: bytes | memoryview,
        stated: Sequence[Stated],
    ) -> None:
        """Charge a round and write down the exact answer that is about to leave. Of a masked study none ever
        does."""
        if plan.masked:
            raise InternalError(Code.BUG, "an exact answer of a masked study was about to leave")
        taken, cost = self.checkpoints.unkept(), self.rounds.cost(plan, asked)
        sent = self._sent(asked, values)

        def also(change: Connection) -> None:
            self._write(asked, sent, stated, taken, change)
            failpoint("answer-charging")
            self.rounds.pay(plan, asked, cost, change)

        self.ledger.charge(asked.plan_digest, asked.round, asked.digest, cost, also=also)
        failpoint("answer-charged")
        self._left(asked, taken)

    def ready(self, asked: RoundQuery, stated: Sequence[Stated]) -> None:
        """Write down that this site is about to say that its answer is computed; that costs nothing."""
        taken = self.checkpoints.unkept()
        said = f"an answer is computed and waits for the sites that it is masked for: {asked.query.meaning}"
        with self.database.transaction() as change:
            self._write(asked, _about(asked, READY, said), stated, taken, change)
            failpoint("ready-storing")
        failpoint("ready-stored")
        self.checkpoints.kept(taken)

    def masked(
        self,
        plan: Plan,
        asked: RoundQuery,
        proved: Proved,
        answer: Contribution,
        stated: Sequence[Stated],
        known: Callable[[], object],
    ) -> None:
        """Charge an attempt that was not answered before; keep the masked answer that is about to leave.
        `known` insists, within the transaction, that people here still know the sites of the attempt."""
        taken, cost = self.checkpoints.unkept(), self.rounds.cost(plan, asked)
        sent = self._sent(asked, octets(answer.values), answer.attempt)

        def also(change: Connection, _: Tip) -> None:
            if self.rounds.cost(plan, asked) != cost:
                raise RequestError(
                    Code.CONFLICT,
                    f"another process answered {spoken(asked.round)} of this study from here meanwhile; "
                    "run one daemon for a state",
                )
            known()
            self._write(asked, sent, stated, taken, change)
            self.rounds.pay(plan, asked, cost, change)
            self.attempts.keep(proved, answer, change)
            failpoint("attempt-storing")

        self.ledger.attempt(asked, cost, also)
        failpoint("attempt-stored")
        self._left(asked, taken)

    def again(self, asked: RoundQuery, answer: Contribution, stated: Sequence[Stated]) -> None:
        """Write down that a masked answer, charged before, is about to leave once more."""
        taken = self.checkpoints.unkept()
        sent = self._sent(asked, octets(answer.values), answer.attempt)
        with self.database.transaction() as change:
            self._write(asked, sent, stated, taken, change)
        self.checkpoints.kept(taken)

    def refuse(self, plan_digest: str, round: int, reason: str, stated: Sequence[Stated] = ()) -> None:
        """Write down that a refusal is about to leave."""
        sent = Sent(
            study=plan_digest, round=round, kind=DECLINE, bytes=0, contribution="", query="",
            attempt="", meaning=f"this site declines: {reason}",
        )  # fmt: skip
        taken = self.checkpoints.unkept()
        with self.database.transaction() as change:
            self.checkpoints.keep(taken, change)
            self.egress.append(sent, change)
            self.transcript.keep(stated, change)
            failpoint("refusal-writing")
        failpoint("refusal-written")
        self.checkpoints.kept(taken)

    def _sent(self, asked: RoundQuery, values: bytes | memoryview, attempt: str = "") -> Sent:
        meaning = f"{asked.query.meaning}; {MASKED}" if attempt else asked.query.meaning
        print_of = self.fingerprints.of_answer(asked, values)
        return _about(asked, NAMES[type(asked.query)], meaning, len(values), print_of, attempt)

    def _write(
        self, asked: RoundQuery, sent: Sent, stated: Sequence[Stated], taken: Taken | None, change: Connection
    ) -> None:
        self.studies.require(asked.plan_digest, Decision.ACCEPTED, change)
        self.require(asked.plan_digest)
        self.checkpoints.keep(taken, change)
        self.transcript.keep(stated, change)
        self.egress.append(sent, change)
        self.egress.keep_question(asked, change)

    def _left(self, asked: RoundQuery, taken: Taken | None) -> None:
        self.checkpoints.kept(taken)
        self.rounds.passed(asked.plan_digest, asked.round)


def _about(
    asked: RoundQuery, kind: str, meaning: str, size: int = 0, contribution: str = "", attempt: str = ""
) -> Sent:
    return Sent(
        study=asked.plan_digest, round=asked.round, kind=kind, bytes=size, contribution=contribution,
        query=asked.digest, attempt=attempt, meaning=meaning,
    )  # fmt: skip
