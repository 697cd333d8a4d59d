"""Decisions about plans at a site, by its rules or by a person, and refusals with a reason code, which
depends on no record. All causes but policy, budget, protocol and a person's reason have one common code: too
few records, an unreadable file, a defect caused by a record."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from eigenveil.dictionary.site_rules import RULES, DeclineReason, ForbiddenByRule
from eigenveil.errors import Code, EigenveilError, PeerError, RequestError, error
from eigenveil.planning.choose import possible_rehearsals
from eigenveil.protocol.plan import Plan, verify_plan
from eigenveil.study_authorization import MOST_SENT, AuthorizationTooLong, authorization_from_proto
from eigenveil_client.connection.identity import CurrentIdentity
from eigenveil_client.records.tables.source import BadRecords
from eigenveil_client.site.daemon.round_checks import refuse_if
from eigenveil_client.site.engine.engine import RecordEngine
from eigenveil_client.site.policy import Approval, Policy
from eigenveil_client.site.policy_sections import LowQualityColumns
from eigenveil_client.site.roster import analysts, peers
from eigenveil_client.site.roster.roster import RosterUnusable
from eigenveil_client.site.state.confirmed_kinds import KINDS
from eigenveil_client.site.state.declined_plans import MOST_OPEN
from eigenveil_client.site.state.received_plans import ConsentStatus, ReceivedPlan
from eigenveil_client.site.state.store import ConsentBasis, SiteStore
from eigenveil_common.log import event, log_error
from eigenveil_proto.v1 import eigenveil_pb2 as pb

REASONS: dict[Code, pb.DeclineReason.ValueType] = {
    Code.POLICY: pb.DECLINE_REASON_POLICY,
    Code.BUDGET: pb.DECLINE_REASON_BUDGET,
    Code.UNSIGNED: pb.DECLINE_REASON_POLICY,
    Code.UNCONFIRMED: pb.DECLINE_REASON_POLICY,
    Code.AUTHORIZATION_EXPIRED: pb.DECLINE_REASON_POLICY,
    Code.AUTHORIZATION: pb.DECLINE_REASON_PROTOCOL,
    Code.PROTOCOL: pb.DECLINE_REASON_PROTOCOL,
    Code.IDENTITY: pb.DECLINE_REASON_PROTOCOL,
    Code.VERSION: pb.DECLINE_REASON_VERSION,
    Code.OVERFLOW: pb.DECLINE_REASON_PROTOCOL,
    Code.BAD_STUDY: pb.DECLINE_REASON_PROTOCOL,
    Code.BAD_CONTRIBUTION: pb.DECLINE_REASON_PROTOCOL,
    Code.CONFLICT: pb.DECLINE_REASON_PROTOCOL,
}
PERSON_DECLINES: dict[DeclineReason, pb.DeclineReason.ValueType] = {
    DeclineReason.PURPOSE: pb.DECLINE_REASON_PERSON_PURPOSE,
    DeclineReason.COLUMNS: pb.DECLINE_REASON_PERSON_COLUMNS,
    DeclineReason.ANALYST: pb.DECLINE_REASON_PERSON_ANALYST,
    DeclineReason.BUDGET: pb.DECLINE_REASON_PERSON_BUDGET,
    DeclineReason.TIMING: pb.DECLINE_REASON_PERSON_TIMING,
    DeclineReason.UNSTATED: pb.DECLINE_REASON_PERSON_UNSTATED,
}
# Errors whose messages are made before a record is read; of all others only the code is logged.
LOGGED_IN_FULL = frozenset({
    Code.POLICY, Code.PROTOCOL, Code.IDENTITY, Code.VERSION, Code.OVERFLOW, Code.BAD_STUDY,
    Code.UNSIGNED, Code.UNCONFIRMED, Code.AUTHORIZATION, Code.AUTHORIZATION_EXPIRED,
})  # fmt: skip


class DeclinedByPerson(RequestError):
    """A study that a person declined or withdrew, with an optional reason; the analyst may read `text`."""

    def __init__(self, word: DeclineReason, text: str) -> None:
        super().__init__(Code.POLICY, f"a person here declined this study: {word.value}")
        self.word = word
        self.text = text


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A refusal to send: of a round, or as round 0 of a study before its start."""

    plan_digest: str
    round: int
    reason: pb.DeclineReason.ValueType
    text: str = ""
    rule: str = ""  # with POLICY


def refusal_of(problem: EigenveilError, plan_digest: str, round: int) -> Refusal:
    """Return the refusal for the coordinator; the error message stays at the site."""
    if isinstance(problem, DeclinedByPerson):
        reason, text = PERSON_DECLINES[problem.word], problem.text
    else:
        reason, text = REASONS.get(problem.code, pb.DECLINE_REASON_FAILURE), ""
    return Refusal(plan_digest=plan_digest, round=round, reason=reason, text=text)


def log_fields(problem: EigenveilError) -> dict[str, Any]:
    """Return the log fields of a refusal: messages about plans, queries and site.toml only."""
    if isinstance(problem, BadRecords) and problem.kind:
        return {"about": problem.about, "type": problem.kind}
    if isinstance(problem, BadRecords | LowQualityColumns):
        return {"about": problem.about}
    return {"detail": str(problem)} if problem.code in LOGGED_IN_FULL else {}


# Declines that no other alarm reports.
ALARMED = frozenset({Code.UNSIGNED, Code.UNCONFIRMED})


class PlanPostponed(Exception):
    """A plan whose signature is not valid by this machine's clock, but may be later or by a correct clock.
    Nothing is sent or stored about it. It is checked again when it arrives again."""

    def __init__(self, problem: EigenveilError) -> None:
        super().__init__(str(problem))
        self.code = problem.code


class AwaitingDecision(Exception):
    """A study that waits for a person's decision: neither an answer nor a refusal is sent."""


PlanStatuses = dict[str, tuple[ConsentStatus, bool]]  # by the plan's digest


class PlanDecisions:
    """Decisions about the plans that one site receives. `engine` checks that it can compute their answers."""

    def __init__(
        self, member: CurrentIdentity, policy: Policy, store: SiteStore, engine: RecordEngine
    ) -> None:
        self._member = member
        self._policy = policy
        self._store = store
        self._engine = engine
        self._plans: dict[str, Plan] = {}
        self._rosters = [str(member.folder / kind.file) for kind in KINDS]
        # The last decision about a study: its basis, and the error code of a refusal.
        self._decided: dict[str, tuple[ConsentBasis, str | None]] = {}
        # Ordered sets: plans that are stored, and plans of which only a digest is stored.
        self._open_plans = dict.fromkeys(store.studies.not_ended())
        self._declined = dict.fromkeys(store.declined.not_ended())
        # With the changes and the open plans as of which they were read: another thread asks, too.
        self._statuses: tuple[object, PlanStatuses] | None = None

    @property
    def open_plans(self) -> list[str]:
        """Plans that wait, were accepted, or were declined by a person, and have not ended."""
        return list(self._open_plans)

    @property
    def known(self) -> list[str]:
        """The plans that the rules declined last, then the open plans."""
        return [*self._declined, *self._open_plans]

    def statuses(self) -> PlanStatuses:
        """Return the present status of each open plan, and if a person set it; read again after a change."""
        plans, known = tuple(self._open_plans), self._statuses
        now = self._store.database.changes(), plans  # before the rows
        if known is None or known[0] != now:
            known = self._statuses = now, self._store.studies.statuses(plans)
        return known[1]

    def is_accepted(self, digest: str) -> bool:
        """Return True if the site accepts a plan now."""
        return self.statuses().get(digest, (None, False))[0] is ConsentStatus.ACCEPTED

    def forget(self, digest: str) -> None:
        for known in (self._plans, self._open_plans, self._declined, self._decided):
            known.pop(digest, None)

    def _remember_declined(self, digest: str) -> None:
        self._declined[digest] = None
        while len(self._declined) > MOST_OPEN:  # sent again, it is declined again
            del self._declined[next(iter(self._declined))]

    def admit(self, signed: pb.SignedPlan, deadline_ms: int = 0) -> str:
        """Decide about a plan once, and return its digest. The coordinator waits for a person until
        `deadline_ms` (Unix milliseconds; 0: not stated). Raises a refusal's reason, or PlanPostponed."""
        plan = verify_plan(signed.plan_json, signed.signature, self._member.release_keys.accepted)
        if self._store.studies.status(plan.digest) is not None:
            return plan.digest
        if self._store.declined.get(plan.digest) is not None:
            self._remember_declined(plan.digest)
            return plan.digest
        received = ReceivedPlan(
            plan=plan.digest,
            plan_json=signed.plan_json,
            signature=signed.signature,
            status=ConsentStatus.PENDING,
            at=self._store.now(),
            authorization=_authorization_bytes(signed),
            decide_until=deadline_ms // 1000,
        )
        proof: ReceivedPlan | None = None  # evidence while the analyst's signature is unverified
        try:
            self._check_invited(plan)
            self._store.confirmed.note_and_require(self._member.folder)
            proof = received
            self._require_signed(plan, signed)
            proof = None
            self._require_policy(plan)
            if (
                self._policy.approval is not Approval.MANUAL
            ):  # a person may confirm key cards before accepting
                self._require_peers(plan)
            possible_queries = possible_rehearsals(plan)  # a plan without predictable queries is not accepted
            self._engine.check(plan, [one for course in possible_queries for one in course]).require()
            if self._policy.approval is Approval.MANUAL:
                self._store.store_pending(received)
            else:
                self._store.accept(plan, received, self._policy.yearly)
                self._plans[plan.digest] = plan
        except EigenveilError as problem:
            if problem.code is Code.AUTHORIZATION_EXPIRED or isinstance(problem, AuthorizationTooLong):
                raise PlanPostponed(problem) from problem
            if problem.code not in (Code.STORAGE, Code.BAD_CONFIG):  # errors of this machine
                self._store_decline(plan, problem, proof)
            raise
        self._open_plans[plan.digest] = None
        state = "study-waits" if self._policy.approval is Approval.MANUAL else "study-accepted"
        event(state, study=plan.digest, algorithm=plan.algorithm.value, analyst=plan.analyst)
        return plan.digest

    def _store_decline(self, plan: Plan, problem: EigenveilError, proof: ReceivedPlan | None) -> None:
        """Store a decline by rule. With `proof`, the plan is stored too: the coordinator signed it in an
        analyst's name without that analyst's key."""
        folder, now = self._member.folder, self._store.clock_time()
        if proof is not None and problem.code is Code.UNCONFIRMED:
            proof = proof if analysts.belongs_to_another_analyst(folder, plan, proof.signed, now) else None
        if proof is not None and problem.code in ALARMED:  # before it is stored: a crash repeats both
            log_error("unsigned-study", study=plan.digest, analyst=plan.analyst, code=problem.code.value)
        named = proof is not None and analysts.ever_confirmed(folder, plan.analyst)
        rule = problem.rule if isinstance(problem, ForbiddenByRule) and problem.rule in RULES else ""
        sent = rule
        # Before an analyst's key was confirmed, plans in that name may be anybody's.
        if rule and not analysts.ever_confirmed(folder, plan.analyst):
            sent = self._policy.stated_failure(plan, rule)
        self._store.decline_by_rule(
            plan, problem.code, rule or problem.code.value, sent=sent, proof=proof, named=named
        )
        self._remember_declined(plan.digest)

    def _check_invited(self, plan: Plan) -> None:
        identity, sites = self._member.identity, plan.study.federation.sites
        elsewhere = plan.federation != identity.federation
        refuse_if(elsewhere, f"the plan is for federation {plan.federation}, not this one")
        refuse_if(identity.name not in sites, "the plan does not invite this site")
        refuse_if(not plan.analyst, "the plan does not name its analyst")

    def accepted(self, digest: str) -> ReceivedPlan:
        """Return the plan if a person or the rules accept it now; it may have been withdrawn."""
        received = self._store.studies.get(digest)
        if received is None:
            declined = self._store.declined.get(digest)
            if declined is not None and not declined.ended:
                raise error(declined.reason, "this study was declined")
            raise PeerError(Code.PROTOCOL, "the coordinator refers to a plan that this site never received")
        match received.status:
            case ConsentStatus.PENDING:
                self._accept_waiting(received)
            case ConsentStatus.DECLINED | ConsentStatus.WITHDRAWN if received.reason_code:
                text = received.text if received.text_disclosed and self._policy.disclose_reasons else ""
                raise DeclinedByPerson(DeclineReason(received.reason_code), text)
            case ConsentStatus.DECLINED | ConsentStatus.WITHDRAWN:
                raise error(Code(received.reason), f"this study was {received.status.value}")
            case ConsentStatus.ENDED:
                raise PeerError(Code.PROTOCOL, "the coordinator refers to a study that has ended")
            case ConsentStatus.ACCEPTED:
                pass
        return received

    def agreed(self, digest: str) -> Plan:
        """Return the plan of a query if it is answered now: when the query arrives, when its answer is
        committed, and when it is sent. A decision is repeated once its basis has changed. Raises as
        `accepted`, `Policy.require` and `analysts.require`."""
        basis = self._store.consent_basis(self._rosters)  # before anything is read
        if self._decided.get(digest) == (basis, None):
            return self._plans[digest]
        received = self.accepted(digest)
        plan = self._parsed_plan(received)
        # Checked again: the time, site.toml, a roster or the program may have changed.
        self._store.confirmed.require(self._member.folder)
        analysts.require(self._member.folder, plan, received.signed, self._store.clock_time())
        self._require_policy(plan)
        self._decided[digest] = basis, None
        return plan

    def refusal_code(self, digest: str) -> str | None:
        """Return the error code of the reason why a study is not answered now, or None. A decision is
        repeated once its basis has changed. Raises InternalError, code `storage`, and RosterUnusable."""
        basis = self._store.consent_basis(self._rosters)  # before anything is read
        decided = self._decided.get(digest)
        if decided is not None and decided[0] == basis:
            return decided[1]
        try:
            self.agreed(digest)
        except AwaitingDecision:
            code = ConsentStatus.PENDING.value
        except EigenveilError as problem:
            if problem.code is Code.STORAGE or isinstance(problem, RosterUnusable):
                raise
            code = problem.code.value
        else:
            return None
        self._decided[digest] = basis, code
        return code

    def _parsed_plan(self, received: ReceivedPlan) -> Plan:
        if received.plan not in self._plans:
            self._plans[received.plan] = received.read_plan()
        return self._plans[received.plan]

    def _accept_waiting(self, received: ReceivedPlan) -> None:
        """Raise AwaitingDecision for a waiting plan; accept it if a person no longer decides."""
        if self._policy.approval is Approval.MANUAL:
            raise AwaitingDecision
        plan = self._parsed_plan(received)
        self._store.confirmed.require(self._member.folder)
        analysts.require(self._member.folder, plan, received.signed, self._store.clock_time())
        self._require_policy(plan)
        self._require_peers(plan)
        self._store.accept(plan, received, self._policy.yearly)

    def _require_signed(self, plan: Plan, sent: pb.SignedPlan) -> None:
        """Apply the rule about the analyst; if a person decides, a new key may be confirmed later."""
        named = sent.HasField("authorization") and sent.authorization.ByteSize() > 0
        signed = authorization_from_proto(sent.authorization) if named else None
        try:
            analysts.require(self._member.folder, plan, signed, self._store.clock_time())
        except RequestError as problem:
            may_wait = self._policy.approval is Approval.MANUAL and problem.code is Code.UNCONFIRMED
            if not may_wait or analysts.ever_confirmed(self._member.folder, plan.analyst):
                raise

    def _require_policy(self, plan: Plan) -> None:
        self._policy.require(plan, self._store.now())
        peers.require_trust(self._member.folder, plan, self._policy.secrecy)

    def _require_peers(self, plan: Plan) -> None:
        peers.require(self._member.folder, self._member.identity.name, plan)


def _authorization_bytes(sent: pb.SignedPlan) -> bytes:
    """Return the authorization as received; empty if it exceeds the limit, as it is refused then."""
    return sent.authorization.SerializeToString() if sent.authorization.ByteSize() <= MOST_SENT else b""
