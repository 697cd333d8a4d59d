"""Handling of work at a site: decide, compute, store. No network and no clock here.

The order of the steps is guaranteed:

1. Signature, policy and budget are checked before a plan is accepted.
2. Consent is checked before a record is read; records are loaded from acceptance on. Before an answer is
   computed the query must equal the one that this site computes, in its round and at its cost.
3. Unsuitable records are refused only after the computation of an answer.
4. The charge and the egress row are durable before the caller gets a reply to send."""

from __future__ import annotations

import logging
from collections.abc import Container, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import NamedTuple

from eigenveil.aggregation import Contribution
from eigenveil.errors import Code, EigenveilError, InternalError, PeerError
from eigenveil.numerics.encoding import to_memoryview
from eigenveil.protocol.plan import Plan
from eigenveil.protocol.query import RoundQuery
from eigenveil.protocol.wire import digest_from_bytes, query_from_proto
from eigenveil.study.composition import MAX_ROUNDS
from eigenveil_client.connection.identity import CurrentIdentity, StoredIdentity
from eigenveil_client.site.daemon.answers import (
    MAX_LOADED_STUDIES,
    MaskedAnswer,
    MaskedReplies,
    Ready,
    RecordAnswers,
)
from eigenveil_client.site.daemon.decisions import (
    AwaitingDecision,
    DeclinedByPerson,
    PlanDecisions,
    PlanPostponed,
    Refusal,
    log_fields,
    refusal_of,
)
from eigenveil_client.site.daemon.round_checks import PeerChanged, SessionReplica, refuse_if
from eigenveil_client.site.engine.engine import RecordEngine
from eigenveil_client.site.policy import Approval, Policy
from eigenveil_client.site.roster.roster import RosterUnusable
from eigenveil_client.site.state.received_plans import ConsentStatus
from eigenveil_client.site.state.store import SiteStore
from eigenveil_common.files import failpoint
from eigenveil_common.log import event, frame_locations, log_error
from eigenveil_common.storage.sqlite import WouldWait
from eigenveil_proto.v1 import eigenveil_pb2 as pb

END_STATES = {
    pb.STUDY_STATE_RELEASED: "released",
    pb.STUDY_STATE_FAILED: "failed",
    pb.STUDY_STATE_CANCELLED: "cancelled",
    pb.STUDY_STATE_UNSPECIFIED: "unknown",  # to the coordinator, for example after a restore
}
MOST_UNIX_MS = 253_402_300_799_999  # the last one of the year 9999, which a date can show
Sendable = Contribution | Ready | MaskedAnswer | Refusal


@dataclass(frozen=True, slots=True, kw_only=True)
class Postponed:
    """No reply about a plan now. It is reported like a refusal of `round`, so that other studies come
    first."""

    plan_digest: str
    round: int


Reply = Sendable | Postponed
QUICK_BYTES = 2**15  # of a query and a release that are checked in some milliseconds


LEVELS = {  # of refusals that this site's operator must see
    pb.DECLINE_REASON_PROTOCOL: logging.ERROR,
    pb.DECLINE_REASON_VERSION: logging.WARNING,
}


class Consent(NamedTuple):
    """Plans that wait for a person's decision, whose queries cannot be answered yet, and those that this site
    accepts; True if a person decided."""

    waiting: frozenset[str]
    accepted: dict[str, bool]


class SiteWorker:
    """Worker of one site, for one piece of work at a time. `engine` stores the records of its studies, which
    `loader` loads ahead (None: a thread)."""

    def __init__(
        self,
        member: StoredIdentity,
        policy: Policy,
        store: SiteStore,
        engine: RecordEngine,
        loader: Executor | None = None,
    ) -> None:
        self._member = current = CurrentIdentity(member)
        self._policy = policy
        self.store = store
        self._engine = engine
        self._decisions = PlanDecisions(current, policy, store, engine)
        self._answers = RecordAnswers(policy, store, engine, self._decisions.agreed, loader)
        self.ahead = self._answers.ahead
        self._outgoing = replace(store.outgoing, require=self._decisions.agreed)
        self._masked = MaskedReplies(current, store, self._outgoing, self._answers)
        self._sessions: dict[str, SessionReplica] = {}

    def follow_identity(self, stored: StoredIdentity) -> None:
        """Use the identity that is in the folder now. Other release keys are for every later message: running
        studies are replayed with them."""
        if stored.release_keys != self._member.release_keys:
            self._sessions.clear()
        self._member.stored = stored

    def known_plans(self) -> list[str]:
        """Return the known plans that have not ended, oldest first."""
        return list(self._decisions.known)

    def known_release_counts(self) -> dict[str, int]:
        """Return the known plans, oldest first, with the numbers of stored releases; 0 for declined plans.
        One database query for all plans."""
        return dict.fromkeys(self.known_plans(), 0) | self._release_counts(self._decisions.open_plans)

    def _release_counts(self, plans: Sequence[str]) -> dict[str, int]:
        unloaded = set(plans) - self._sessions.keys()
        stored = self.store.transcript.count_releases_of(unloaded) if unloaded else {}
        return stored | {plan: self._sessions[plan].release_count for plan in plans if plan in self._sessions}

    def is_quick(self, response: pb.NextWorkResponse) -> bool:
        """True if `work` takes some milliseconds and needs nothing more: the next query of a study that was
        answered before, about few records."""
        plan, round = response.query.plan_digest.hex(), response.query.round
        further = response.HasField("plan") or response.consent or response.ended
        large = response.ByteSize() > QUICK_BYTES
        if large or further or response.HasField("attempt") or plan not in self._sessions:
            return False
        known = self._sessions[plan].release_count + response.HasField("release")
        return known == round and self._answers.is_quick(plan, response.query)

    def missing_rounds(self, response: pb.NextWorkResponse) -> range:
        """Return the rounds whose releases must be fetched before the query of `response` can be checked
        [R21]. None for a study that is not accepted."""
        plan = response.query.plan_digest.hex()
        if not response.HasField("query") or not self._decisions.is_accepted(plan):
            return range(0)
        inline = response.HasField("release")
        return range(
            self._release_counts([plan]).get(plan, 0), min(response.query.round - inline, MAX_ROUNDS)
        )

    def missing_keys(self, response: pb.NextWorkResponse) -> list[str]:
        """Return the digests of other sites' keys that must be fetched before `response` can be answered
        [R36]. None for a study that is not accepted, or an attempt that is refused anyway."""
        plan = response.query.plan_digest.hex()
        if not response.HasField("attempt") or not self._decisions.is_accepted(plan):
            return []
        with suppress(PeerError):  # `work` refuses it
            return self._masked.missing_keys(response.attempt)
        return []

    def consent(self) -> Consent:
        """Return the plans that wait or are accepted now. They are as of one moment.

        A decision by the rules reads no record. `approve` by a person first checks the number of persons and
        the quality of the columns, so that decision reveals that the file passes."""
        found, may_wait = self._decisions.statuses().items(), self._policy.approval is not Approval.AUTO
        waiting = (plan for plan, (status, _) in found if may_wait and status is ConsentStatus.PENDING)
        accepted = {plan: person for plan, (status, person) in found if status is ConsentStatus.ACCEPTED}
        return Consent(waiting=frozenset(waiting), accepted=accepted)

    def load_ahead(self, agreed: Container[str]) -> frozenset[str]:
        """Begin to load the records of studies that this site accepts now, oldest first, and return those
        under way. Raises as `PlanDecisions.refusal_code`."""
        for plan in filter(self._answers.may_load_ahead, self._decisions.open_plans):
            if plan in agreed and self._decisions.refusal_code(plan) is None:
                self.ahead.begin(self._decisions.agreed(plan))
        return self.ahead.under_way

    def tidy(self) -> None:
        """Drop kept records that are too old, or that a study used from which a person withdrew."""
        self._answers.tidy()

    def take_checkpoint(self, signed: pb.SignedCheckpoint, parted: bool) -> None:
        """Store a checkpoint. Raises as `CheckpointStore.advance`."""
        member = self._member
        self.store.checkpoints.advance(signed, member.release_keys, member.identity.federation, parted=parted)

    def may_send(self, reply: Sendable) -> bool:
        """True if `reply` may still be sent: an answer is sent only while its study is accepted. Raises as
        `PlanDecisions.refusal_code`."""
        reason = None if isinstance(reply, Refusal) else self._decisions.refusal_code(reply.plan_digest)
        if reason is not None:
            event("reply-held-back", logging.WARNING, study=reply.plan_digest, round=reply.round, code=reason)
        return reason is None

    def work_at_once(self, response: pb.NextWorkResponse) -> Reply | None:
        """Do quick work as `work`, but without waiting for a transaction of another process. Raises
        WouldWait: nothing was answered or refused, and `work` may do it; or as `work`."""
        try:
            with self.store.database.without_waiting():
                return self.work(response)
        except WouldWait:
            self._sessions.pop(response.query.plan_digest.hex(), None)  # replayed the next time
            raise

    def work(
        self,
        response: pb.NextWorkResponse,
        fetched: Sequence[pb.SealedRound] = (),
        keys: Sequence[pb.SignedStudyKey] = (),
    ) -> Reply | None:
        """End finished studies, then answer or refuse the query, if there is one.

        `fetched` are the releases of the rounds of `missing_rounds`, `keys` those of `missing_keys`. On
        return everything that must survive a crash is durable, and the reply may be sent. An unexpected error
        is refused too: otherwise it would end the process again after every start.

        Raises:
            InternalError: code `storage`; the process must end and nothing may be sent.
            PeerChanged, RosterUnusable: the same."""
        try:
            agreed = self.consent().accepted  # another process may have withdrawn plans
            self._answers.retain(agreed)
            self._masked.retain(agreed)
            for ended in response.ended:
                self._end(digest_from_bytes(ended.plan_digest), ended.state)
            was_accepted = self._decisions.is_accepted(response.query.plan_digest.hex())
            until = response.consent_ends_unix_ms
            refuse_if(not 0 <= until <= MOST_UNIX_MS, "the coordinator states an impossible time limit")
            admitted = self._decisions.admit(response.plan, until) if response.HasField("plan") else None
            if response.consent:
                self._answer_consent(response, admitted)
            if not response.HasField("query"):
                return None
            query = query_from_proto(response.query)
            other_plan = admitted not in (None, query.plan_digest)
            refuse_if(other_plan, "the query belongs to another plan than the one sent")
            unfetched = (not fetched and self.missing_rounds(response)) or (
                not keys and self.missing_keys(response)
            )
            if unfetched and not was_accepted:
                return None  # accepted only now: releases and keys are fetched at the next request
            releases = [*fetched, *([response.release] if response.HasField("release") else [])]
            attempt = response.attempt if response.HasField("attempt") else None
            if attempt is not None and keys:
                self._masked.receive_keys(attempt, keys)
            return self._answer(query, response.signed_round, releases, attempt)
        except AwaitingDecision:
            return None
        except PlanPostponed as problem:
            plan = digest_from_bytes(response.query.plan_digest or response.consent)
            event("study-put-off", logging.WARNING, study=plan, code=problem.code.value, detail=problem)
            return Postponed(plan_digest=plan, round=response.query.round)
        except EigenveilError as problem:
            if problem.code is Code.STORAGE or isinstance(problem, PeerChanged | RosterUnusable):
                raise
            if problem.code is not Code.UNREACHABLE:
                return self._refuse(response, problem)
            # This depends on no record: nothing is sent, and the coordinator repeats the query.
            self._sessions.pop(response.query.plan_digest.hex(), None)  # replayed the next time
            event("engine-unreachable", logging.WARNING, round=response.query.round, detail=str(problem))
            return None
        except Exception as unexpected:  # noqa: BLE001 - it is logged and refused
            log_error("bug", type=type(unexpected).__qualname__, at=frame_locations(unexpected.__traceback__))
            return self._refuse(response, InternalError(Code.BUG, "see the log line above"))

    def _end(self, digest: str, state: pb.StudyState.ValueType) -> None:
        refuse_if(state not in END_STATES, f"unknown end state {state} of a study; is the coordinator newer?")
        received = self.store.studies.get(digest)
        self._answers.forget(digest)
        self._masked.forget(digest)
        self._sessions.pop(digest, None)
        if received is None:
            self.store.end_declined(digest)
        elif received.status is not ConsentStatus.ENDED:
            self.store.end(digest)
            failpoint("study-ended")
            event("study-ended", study=digest, state=END_STATES[state])
        self._decisions.forget(digest)

    def _answer_consent(self, response: pb.NextWorkResponse, admitted: str | None) -> None:
        """Decide about a plan before its first query; a decline is raised. No record is read. The next
        request reports the plan as accepted or waiting."""
        digest = digest_from_bytes(response.consent)
        broken = response.HasField("query") or admitted not in (None, digest)
        refuse_if(broken, "a request for consent must contain one plan and no query")
        self._decisions.agreed(digest)

    def _answer(
        self,
        round_query: RoundQuery,
        signed: pb.SignedRound,
        releases: Sequence[pb.SealedRound],
        attempt: pb.SignedAttempt | None,
    ) -> Contribution | Ready | MaskedAnswer:
        if round_query.plan_digest not in self._sessions:
            self.store.ledger.refresh()  # another process may have accepted a plan
            self.store.note_ledger()
        plan = self._decisions.agreed(round_query.plan_digest)
        session = self._session_of(plan)
        session.follow(releases)
        session.expect(round_query, signed)
        # Before an answer is computed.
        federation, name = plan.study.federation, self._member.identity.name
        may_miss = name not in federation.required and federation.least < len(federation.sites)
        self.store.rounds.check_order(round_query, may_miss)
        if plan.masked:
            return self._masked.reply(plan, round_query, attempt, session)
        refuse_if(attempt is not None, "a set of sites for masks came with a study without masks")
        contribution = Contribution.to(round_query, name, self._answers.values(plan, round_query))
        failpoint("answer-computed")
        self._outgoing.answer(plan, round_query, to_memoryview(contribution.values), session.unsaved())
        session.mark_saved()
        event("round-answered", study=round_query.plan_digest, round=round_query.round)
        return contribution

    def _session_of(self, plan: Plan) -> SessionReplica:
        """Return this site's session of a study; at most `MAX_LOADED_STUDIES` stay in memory."""
        if plan.digest not in self._sessions:
            while len(self._sessions) >= MAX_LOADED_STUDIES:
                self._sessions.pop(next(iter(self._sessions)))
            keys = self._member.release_keys
            self._sessions[plan.digest] = SessionReplica(plan, keys, self.store.transcript)
        return self._sessions[plan.digest]

    def _refuse(self, response: pb.NextWorkResponse, problem: EigenveilError) -> Refusal | None:
        """Log, store and return the refusal of `response`."""
        round = response.query.round
        try:
            digest = digest_from_bytes(response.query.plan_digest or response.consent)
        except PeerError:
            log_error("work-unreadable", code=problem.code.value, **log_fields(problem))
            return None
        refusal = refusal_of(problem, digest, round)
        if problem.code is Code.POLICY and (declined := self.store.declined.get(digest)) is not None:
            refusal = replace(refusal, rule=declined.rule)
        level = LEVELS.get(refusal.reason, logging.INFO)
        event("declined", level, study=digest, round=round, code=problem.code.value, **log_fields(problem))
        session = self._sessions.pop(digest, None)  # its session is replayed the next time
        stated = () if session is None else session.unsaved()
        self._outgoing.refuse(digest, round, _egress_text(problem, refusal), stated)
        return refusal


def _egress_text(problem: EigenveilError, refusal: Refusal) -> str:
    """Return the text of a refusal in the egress ledger: what is sent of a person's reason, or the code and
    the rule."""
    reason = problem.word.value if isinstance(problem, DeclinedByPerson) else problem.code.value
    return ": ".join(filter(None, (reason, refusal.text, refusal.rule)))
