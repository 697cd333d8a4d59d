"""Which studies this site answers: what the rules or a person decided about each plan, as of this moment."""

from __future__ import annotations

from eigenveil.analyst_signature.authorization import MOST_SENT, LastsTooLong, authorization_from_proto
from eigenveil.dictionary.verdict import ForbiddenByRule
from eigenveil.errors import Code, EigenveilError, PeerError, RequestError, error
from eigenveil.planning.dry_run import courses
from eigenveil.protocol.plan import Plan, plan_from_json
from eigenveil.protocol.signatures import check_plan
from eigenveil.study.consent import DeclineWord
from eigenveil_client.connection.identity import StoredIdentity
from eigenveil_client.site.analysts import rule as analysts
from eigenveil_client.site.daemon.refusals import DeclinedByPerson
from eigenveil_client.site.engine.contract import Engine
from eigenveil_client.site.peers import rule
from eigenveil_client.site.policy import Approval, Policy
from eigenveil_client.site.roster.roster import RosterUnusable
from eigenveil_client.site.state.declined_plans import MOST_OPEN
from eigenveil_client.site.state.received_plans import Decision, ReceivedPlan
from eigenveil_client.site.state.store import SiteStore
from eigenveil_common.log import alarm, event
from eigenveil_proto.v1 import eigenveil_pb2 as pb

# Declines that no other alarm tells of.
ALARMED = frozenset({Code.UNSIGNED, Code.UNCONFIRMED})


class PutOff(Exception):
    """A plan whose signature does not hold by this machine's clock now, and may by a right one or later:
    nothing is said or stored of it, and it is looked at again when it comes again."""

    def __init__(self, problem: EigenveilError) -> None:
        super().__init__(str(problem))
        self.code = problem.code


class Waiting(Exception):
    """A study that waits for a person's word: there is nothing to send, neither an answer nor a refusal."""


class Agreements:
    """Decides about the plans that come to one site. `engine` says whether it could compute their answers."""

    def __init__(self, member: StoredIdentity, policy: Policy, store: SiteStore, engine: Engine) -> None:
        self._member = member
        self._policy = policy
        self._store = store
        self._engine = engine
        self._plans: dict[str, Plan] = {}
        # Ordered sets: plans of which all is stored, and those of which a digest is.
        self._held = dict.fromkeys(store.studies.not_ended())
        self._declined = dict.fromkeys(store.declined.open())

    @property
    def held(self) -> list[str]:
        """Plans that wait for a person, were agreed to or were refused by a person, and have not ended."""
        return list(self._held)

    @property
    def known(self) -> list[str]:
        """The same, and before them the latest that the rules declined."""
        return [*self._declined, *self._held]

    def over(self, digest: str) -> None:
        """Forget a plan whose study has ended."""
        for known in (self._plans, self._held, self._declined):
            known.pop(digest, None)

    def _know_declined(self, digest: str) -> None:
        self._declined[digest] = None
        while len(self._declined) > MOST_OPEN:  # the coordinator may send it again, and it is declined again
            del self._declined[next(iter(self._declined))]

    def admit(self, signed: pb.SignedPlan) -> str:
        """Decide about a plan, once; the digest of the plan. Raises the reason of a refusal, or PutOff."""
        plan = check_plan(signed.plan_json, signed.signature, self._member.release_key)
        if self._store.studies.standing(plan.digest) is not None:
            return plan.digest
        if self._store.declined.get(plan.digest) is not None:
            self._know_declined(plan.digest)
            return plan.digest
        seen = ReceivedPlan(
            plan=plan.digest,
            plan_json=signed.plan_json,
            signature=signed.signature,
            standing=Decision.PENDING,
            at=self._store.now(),
            authorization=_stored(signed),
        )
        proof: ReceivedPlan | None = None  # of what the coordinator signed, while its analyst is in doubt
        try:
            self._invited(plan)
            self._store.confirmed.keep(self._member.folder)
            proof = seen
            self._require_signed(plan, signed)
            proof = None
            self._require_policy(plan)
            if self._policy.approval is not Approval.ASK:  # a person may confirm cards before agreeing
                self._require_peers(plan)
            asked = courses(plan)  # what cannot be foreseen is not agreed to
            self._engine.check(plan, [one for course in asked for one in course])
            if self._policy.approval is Approval.ASK:
                self._store.hold(seen)
            else:
                self._store.accept(plan, seen, self._policy.yearly)
                self._plans[plan.digest] = plan
        except EigenveilError as problem:
            if problem.code is Code.AUTHORIZATION_EXPIRED or isinstance(problem, LastsTooLong):
                raise PutOff(problem) from problem
            if problem.code not in (Code.STORAGE, Code.BAD_CONFIG):  # of this machine, and no word on a plan
                self._decline(plan, problem, proof)
            raise
        self._held[plan.digest] = None
        state = "study-waits" if self._policy.approval is Approval.ASK else "study-accepted"
        event(state, study=plan.digest, algorithm=plan.algorithm.value, analyst=plan.analyst)
        return plan.digest

    def _decline(self, plan: Plan, problem: EigenveilError, proof: ReceivedPlan | None) -> None:
        """Store a decline by rule; as `proof` whole, if the coordinator signed the plan in a name without
        that name's key."""
        folder, now = self._member.folder, self._store.clock_time()
        if proof is not None and problem.code is Code.UNCONFIRMED:
            proof = proof if analysts.is_anothers(folder, plan, proof.signed, now) else None
        if proof is not None and problem.code in ALARMED:  # first: after a crash it is declined again
            alarm("unsigned-study", study=plan.digest, analyst=plan.analyst, code=problem.code.value)
        named = proof is not None and analysts.ever_confirmed(folder, plan.analyst)
        self._store.decline_by_rule(plan, problem.code, _rule(problem), proof=proof, named=named)
        self._know_declined(plan.digest)

    def _invited(self, plan: Plan) -> None:
        identity = self._member.identity
        if plan.federation != identity.federation:
            raise PeerError(Code.PROTOCOL, f"the plan is for federation {plan.federation}")
        if identity.name not in plan.study.federation.sites:
            raise PeerError(Code.PROTOCOL, "the plan does not invite this site")
        if not plan.analyst:
            raise PeerError(Code.PROTOCOL, "the plan does not name its analyst")

    def accepted(self, digest: str) -> ReceivedPlan:
        """The plan, if a person or the rules agreed to it, as of this moment: it may have been withdrawn."""
        seen = self._store.studies.get(digest)
        if seen is None:
            self._refuse_declined(digest)
            raise PeerError(Code.PROTOCOL, "word came of a plan that this site never got")
        match seen.standing:
            case Decision.PENDING:
                self._decide(seen)
            case Decision.DECLINED | Decision.WITHDRAWN if seen.word:
                text = seen.text if seen.told and self._policy.tell_reasons else ""
                raise DeclinedByPerson(DeclineWord(seen.word), text)
            case Decision.DECLINED | Decision.WITHDRAWN:
                raise error(Code(seen.reason), f"this study was {seen.standing.value}")
            case Decision.ENDED:
                raise PeerError(Code.PROTOCOL, "word came of a study that has ended")
            case Decision.ACCEPTED:
                pass
        return seen

    def _refuse_declined(self, digest: str) -> None:
        """Raise the reason for which the rules declined a plan, if they did."""
        declined = self._store.declined.get(digest)
        if declined is not None and not declined.ended:
            raise error(declined.reason, "this study was declined")

    def agreed(self, digest: str) -> Plan:
        """The plan that a question is about, if it is answered: when the question comes, and when its
        answer is committed. Raises as `accepted`; code `site-policy`; or as `analysts.rule.require`."""
        seen = self.accepted(digest)
        plan = self._plan(seen)
        # Again: time passes, and site.toml or a roster may have changed since, or the program.
        self._store.confirmed.require(self._member.folder)
        analysts.require(self._member.folder, plan, seen.signed, self._store.clock_time())
        self._require_policy(plan)
        return plan

    def objection(self, digest: str) -> str | None:
        """The error code for which a study is not answered, as of this moment; None if it is. Raises
        InternalError, code `storage`, and RosterUnusable."""
        try:
            self.agreed(digest)
        except Waiting:
            return Decision.PENDING.value
        except EigenveilError as problem:
            if problem.code is Code.STORAGE or isinstance(problem, RosterUnusable):
                raise
            return str(problem.code.value)
        return None

    def _plan(self, seen: ReceivedPlan) -> Plan:
        if seen.plan not in self._plans:
            self._plans[seen.plan] = plan_from_json(seen.plan_json)
        return self._plans[seen.plan]

    def _decide(self, seen: ReceivedPlan) -> None:
        """A plan that waits goes on waiting; unless a person is not asked any more."""
        if self._policy.approval is Approval.ASK:
            raise Waiting
        plan = self._plan(seen)
        self._store.confirmed.require(self._member.folder)
        analysts.require(self._member.folder, plan, seen.signed, self._store.clock_time())
        self._require_policy(plan)
        self._require_peers(plan)
        self._store.accept(plan, seen, self._policy.yearly)

    def _require_signed(self, plan: Plan, sent: pb.SignedPlan) -> None:
        """The rule about who asks; where a person decides, a key that is new here may be confirmed before."""
        named = sent.HasField("authorization") and sent.authorization.ByteSize() > 0
        signed = authorization_from_proto(sent.authorization) if named else None
        try:
            analysts.require(self._member.folder, plan, signed, self._store.clock_time())
        except RequestError as problem:
            waits = self._policy.approval is Approval.ASK and problem.code is Code.UNCONFIRMED
            if not waits or analysts.ever_confirmed(self._member.folder, plan.analyst):
                raise

    def _require_policy(self, plan: Plan) -> None:
        self._policy.require(plan, self._store.now())
        rule.require_trust(self._member.folder, plan, self._policy.secrecy)

    def _require_peers(self, plan: Plan) -> None:
        rule.require(self._member.folder, self._member.identity.name, plan)


def _stored(sent: pb.SignedPlan) -> bytes:
    """The authorization as it came; nothing of one that is longer than any, which is refused: the coordinator
    signed the plan alone."""
    size = sent.authorization.ByteSize()
    return sent.authorization.SerializeToString() if size <= MOST_SENT else b""


def _rule(problem: EigenveilError) -> str:
    """The first rule of site.toml that a plan fails, or the code of what else forbids it."""
    return problem.rule if isinstance(problem, ForbiddenByRule) else problem.code.value
