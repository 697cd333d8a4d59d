"""What a site does with a piece of work: decide, compute, write down. No network and no clock here.

The order within one piece of work is the promise: signature, policy and budget before a plan is
accepted; consent, and that the question is the one which this site computes itself, in its round and at its
price, before a record is read; records that do not do
are refused only after the computation that an answer takes; the charge and the egress row are durable before
the caller holds anything it could send.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from eigenveil.aggregation import Contribution
from eigenveil.errors import Code, EigenveilError, InternalError, PeerError
from eigenveil.numerics.encoding import octets
from eigenveil.protocol.plan import Plan
from eigenveil.protocol.query import RoundQuery
from eigenveil.protocol.wire import digest_from_bytes, query_from_proto
from eigenveil.study.price import MAX_ROUNDS
from eigenveil_client.connection.identity import StoredIdentity
from eigenveil_client.site.daemon.agreements import Agreements, PutOff, Waiting
from eigenveil_client.site.daemon.answers import MOST_LOADED, Answers
from eigenveil_client.site.daemon.masked import Masked, MaskedAnswers, Ready
from eigenveil_client.site.daemon.own_session import OwnSession
from eigenveil_client.site.daemon.peer_secrets import PeerChanged
from eigenveil_client.site.daemon.refusals import DeclinedByPerson, Refusal, refusal_of, told
from eigenveil_client.site.engine.contract import Engine
from eigenveil_client.site.policy import Approval, Policy
from eigenveil_client.site.roster.roster import RosterUnusable
from eigenveil_client.site.state.received_plans import Decision
from eigenveil_client.site.state.store import SiteStore
from eigenveil_common.failpoints import failpoint
from eigenveil_common.log import alarm, event, places
from eigenveil_proto.v1 import eigenveil_pb2 as pb

UNKNOWN = "unknown"  # to the coordinator: a study that it never had, or forgot in a restore
ENDS = {
    pb.STUDY_STATE_RELEASED: "released",
    pb.STUDY_STATE_FAILED: "failed",
    pb.STUDY_STATE_CANCELLED: "cancelled",
    pb.STUDY_STATE_UNSPECIFIED: UNKNOWN,
}
Sendable = Contribution | Ready | Masked | Refusal


@dataclass(frozen=True, slots=True, kw_only=True)
class Later:
    """There is nothing to send about a plan now. It is named as a refusal of `round` would be, so that other
    studies have their turn before it comes again."""

    plan_digest: str
    round: int


Reply = Sendable | Later


class SiteWorker:
    """Answers work for one site, one piece at a time. `engine` holds the records of its studies."""

    def __init__(self, member: StoredIdentity, policy: Policy, store: SiteStore, engine: Engine) -> None:
        self._member = member
        self._policy = policy
        self.store = store
        self._engine = engine
        self._answers = Answers(policy, store, engine)
        self._agreements = Agreements(member, policy, store, engine)
        self._outgoing = store.outgoing.requiring(self._agreements.agreed)
        self._masked = MaskedAnswers(member, store, self._outgoing, self._answers)
        self._own: dict[str, OwnSession] = {}

    def known_plans(self) -> list[str]:
        """Plans that are here and have not ended, oldest first."""
        return list(self._agreements.known)

    def held_of_known(self) -> dict[str, int]:
        """The known plans, oldest first, and of how many rounds of each the releases are here: of what was
        declined there are none. One query, for as many plans as may be."""
        stored = self.store.transcript.held_of(
            plan for plan in self._agreements.held if plan not in self._own
        )
        return {
            plan: stored.get(plan, 0) if (own := self._own.get(plan)) is None else own.held
            for plan in self.known_plans()
        }

    def held(self, plan: str) -> int:
        """Of how many rounds of a plan the releases are here."""
        own = self._own.get(plan)
        return self.store.transcript.held(plan) if own is None else own.held

    def lacks(self, response: pb.NextWorkResponse) -> range:
        """The rounds whose releases this site has to fetch before it can tell whether `response` asks what it
        should [R21]; none for a study that is not agreed to."""
        plan = response.query.plan_digest.hex()
        if not response.HasField("query") or self.store.studies.standing(plan) is not Decision.ACCEPTED:
            return range(0)
        inline = response.HasField("release")
        return range(self.held(plan), min(response.query.round - inline, MAX_ROUNDS))

    def awaiting(self) -> frozenset[str]:
        """Plans that wait for a person's word: their questions are of no use yet."""
        if self._policy.approval is Approval.AUTO:
            return frozenset()
        words = self.store.studies.words(self._agreements.held)
        return frozenset(plan for plan, (standing, _) in words.items() if standing is Decision.PENDING)

    def agreed(self) -> dict[str, bool]:
        """Plans that this site agrees to as of now, and whether by a person's word. By the rules alone no
        record was read for that. A person's `approve` counts and checks the file first, so that its word
        tells that the file has the site's minimum of persons and columns that are good enough."""
        words = self.store.studies.words(self._agreements.held)
        return {plan: person for plan, (standing, person) in words.items() if standing is Decision.ACCEPTED}

    def take_checkpoint(self, signed: pb.SignedCheckpoint, parted: bool) -> None:
        """Hold a checkpoint. Raises as `HeldCheckpoints.take`."""
        member = self._member
        self.store.checkpoints.take(signed, member.release_key, member.identity.federation, parted=parted)

    def stands(self, reply: Sendable) -> bool:
        """Whether `reply` may still be sent: an answer leaves only while its study is agreed to, and all that
        `Agreements.agreed` asks holds. Raises as `Agreements.objection`."""
        why = None if isinstance(reply, Refusal) else self._agreements.objection(reply.plan_digest)
        if why is not None:
            event("reply-held-back", logging.WARNING, study=reply.plan_digest, round=reply.round, code=why)
        return why is None

    def work(self, response: pb.NextWorkResponse, fetched: Sequence[pb.SealedRound] = ()) -> Reply | None:
        """Settle what ended, then answer or refuse what is asked; None if nothing is. `fetched` are the
        releases of the rounds that `lacks` named.

        On return everything that must survive a crash is durable, and the reply may be sent. An error
        that nobody foresaw is a refusal too: it would end the process at every start again.

        Raises:
            InternalError: code `storage`; the process must end and nothing may be sent.
            PeerChanged, RosterUnusable: the same.
        """
        try:
            for held in (self._answers, self._masked):
                held.keep(self.agreed())  # what was withdrawn meanwhile, by another process, goes
            for ended in response.ended:
                self._end(digest_from_bytes(ended.plan_digest), ended.state)
            admitted = self._agreements.admit(response.plan) if response.HasField("plan") else None
            if response.consent:
                self._consent(response, admitted)
            if not response.HasField("query"):
                return None
            query = query_from_proto(response.query)
            if admitted is not None and admitted != query.plan_digest:
                raise PeerError(Code.PROTOCOL, "the query is for another plan than the one beside it")
            if admitted is not None and not fetched and self.lacks(response):
                return None  # agreed to only now: asked again, the releases of the rounds before are fetched
            releases = [*fetched, *([response.release] if response.HasField("release") else [])]
            attempt = response.attempt if response.HasField("attempt") else None
            return self._answer(query, response.asked, releases, attempt)
        except Waiting:
            return None
        except PutOff as problem:
            return self._later(response, problem)
        except EigenveilError as problem:
            if problem.code is Code.STORAGE or isinstance(problem, PeerChanged | RosterUnusable):
                raise
            if problem.code is Code.UNREACHABLE:
                self._put_off(response, problem)
                return None
            return self._refuse(response, problem)
        except Exception as surprise:  # noqa: BLE001 - whatever it is, it is logged and refused
            alarm("bug", type=type(surprise).__qualname__, at=places(surprise.__traceback__))
            return self._refuse(response, InternalError(Code.BUG, "see the line above"))

    def _end(self, digest: str, state: pb.StudyState.ValueType) -> None:
        if state not in ENDS:
            raise PeerError(Code.PROTOCOL, f"no study ends in state {state}; is the coordinator newer?")
        seen = self.store.studies.get(digest)
        self._answers.forget(digest)
        self._masked.forget(digest)
        self._own.pop(digest, None)
        if seen is None:
            self.store.end_declined(digest)
        elif seen.standing is not Decision.ENDED:
            self.store.end(digest)
            failpoint("study-ended")
            event("study-ended", study=digest, state=ENDS[state])
        self._agreements.over(digest)

    def _consent(self, response: pb.NextWorkResponse, admitted: str | None) -> None:
        """This site's word on a plan of which nothing is asked yet: whatever is said next names the plan as
        agreed to or waiting, unless it is declined here, which is raised. No record is read."""
        digest = digest_from_bytes(response.consent)
        if response.HasField("query") or admitted not in (None, digest):
            raise PeerError(Code.PROTOCOL, "consent is asked for one plan, and nothing else beside it")
        self._agreements.agreed(digest)

    def _answer(
        self,
        asked: RoundQuery,
        signed: pb.SignedRound,
        releases: Sequence[pb.SealedRound],
        attempt: pb.SignedAttempt | None,
    ) -> Contribution | Ready | Masked:
        if asked.plan_digest not in self._own:
            self.store.ledger.refresh()  # another process may have agreed
            self.store.note_ledger()
        plan = self._agreements.agreed(asked.plan_digest)
        own = self._session(plan)
        own.follow(releases)
        own.expect(asked, signed)
        self._check_order(asked, plan)
        if plan.masked:
            return self._masked.reply(plan, asked, attempt, own)
        if attempt is not None:
            raise PeerError(Code.PROTOCOL, "a set of sites to mask for came with a study that is not masked")
        return self._exact(plan, asked, own)

    def _exact(self, plan: Plan, asked: RoundQuery, own: OwnSession) -> Contribution:
        """What the coordinator may see, where the study says so and this site's rules allow it."""
        values = self._answers.values(plan, asked)
        contribution = Contribution.to(asked, self._member.identity.name, values)
        failpoint("answer-computed")
        self._outgoing.answer(plan, asked, octets(contribution.values), own.unkept())
        own.kept()
        event("round-answered", study=asked.plan_digest, round=asked.round)
        return contribution

    def _session(self, plan: Plan) -> OwnSession:
        """This site's own session of a study; at most `MOST_LOADED` stay in memory."""
        if plan.digest not in self._own:
            while len(self._own) >= MOST_LOADED:
                self._own.pop(next(iter(self._own)))
            self._own[plan.digest] = OwnSession(plan, self._member.release_key, self.store.transcript)
        return self._own[plan.digest]

    def _check_order(self, asked: RoundQuery, plan: Plan) -> None:
        """What was answered before has to say of a question, before a record is touched."""
        federation = plan.study.federation
        may_miss = self._member.identity.name not in federation.required and federation.least < len(
            federation.sites
        )
        self.store.rounds.check_order(asked, may_miss)

    def _put_off(self, response: pb.NextWorkResponse, problem: EigenveilError) -> None:
        """Say nothing, and be asked again: what computes here cannot be reached, which no record decides. To
        the coordinator this site is slow, for as long as it waits for any."""
        self._own.pop(response.query.plan_digest.hex(), None)  # replayed the next time
        event("engine-unreachable", logging.WARNING, round=response.query.round, detail=str(problem))

    @staticmethod
    def _later(response: pb.NextWorkResponse, problem: PutOff) -> Later:
        plan = digest_from_bytes(response.query.plan_digest or response.consent)
        event("study-put-off", logging.WARNING, study=plan, code=problem.code.value, detail=problem)
        return Later(plan_digest=plan, round=response.query.round)

    def _refuse(self, response: pb.NextWorkResponse, problem: EigenveilError) -> Refusal | None:
        """Log, write down and hand back a refusal of what `response` asked."""
        round = response.query.round
        try:
            digest = digest_from_bytes(response.query.plan_digest or response.consent)
        except PeerError:
            alarm("work-unreadable", code=problem.code.value, **told(problem))
            return None
        refusal = refusal_of(problem, digest, round)
        tell = alarm if refusal.reason == pb.DECLINE_REASON_PROTOCOL else event
        tell("declined", study=digest, round=round, code=problem.code.value, **told(problem))
        own = self._own.pop(digest, None)  # whatever it was in the middle of: it is replayed the next time
        self._outgoing.refuse(digest, round, _meaning(problem), () if own is None else own.unkept())
        return refusal


def _meaning(problem: EigenveilError) -> str:
    """What the egress ledger says of a refusal: all that a person said and that leaves, or the code."""
    if isinstance(problem, DeclinedByPerson):
        return ": ".join(filter(None, (problem.word.value, problem.text)))
    return problem.code.value
