"""Answers of a site to queries, computed from the records: exact, or masked for each attempt [R29]. An error
of the records is raised only after the computation, so that the time of a refusal reveals no more than the
refusal."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from functools import partial

from eigenveil.aggregation import Contribution
from eigenveil.errors import Code, EigenveilError, InternalError, PeerError, RequestError, round_label
from eigenveil.noise.source import OsNoise, share_spec
from eigenveil.numerics.encoding import IntArray
from eigenveil.protocol.plan import Plan
from eigenveil.protocol.query import RoundQuery
from eigenveil.queries import KINDS
from eigenveil.secure_aggregation.masking import Attempt, SignedAttempt, masked
from eigenveil.secure_aggregation.study_keys import SignedStudyKey
from eigenveil_client.connection.identity import CurrentIdentity
from eigenveil_client.site.daemon.loading import LoadsAhead
from eigenveil_client.site.daemon.round_checks import PeerSecrets, SessionReplica, refuse_if
from eigenveil_client.site.engine.engine import LoadedRecords, RecordEngine, zeros
from eigenveil_client.site.policy import Policy
from eigenveil_client.site.roster.peers import SiteKeys
from eigenveil_client.site.state.coordinator_statements import VerifiedAttempt
from eigenveil_client.site.state.outgoing import Outgoing
from eigenveil_client.site.state.store import SiteStore
from eigenveil_client.site.state.study_keys import OwnStudyKey
from eigenveil_common.concurrency import wait_for_tick
from eigenveil_common.files import failpoint
from eigenveil_common.log import event, log_error
from eigenveil_proto.v1 import eigenveil_pb2 as pb

MAX_LOADED_STUDIES = 4  # studies with loaded records; one more unloads the oldest


@dataclass(eq=False)
class RecordAnswers:
    """Answers of one site, from the records that `engine` stores. `require` raises an error once a study is
    not answered any more."""

    _policy: Policy
    _store: SiteStore
    _engine: RecordEngine
    _require: Callable[[str], object]
    _loader: Executor | None = None
    ahead: LoadsAhead = field(init=False)
    _loaded_records: dict[str, LoadedRecords] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self.ahead = LoadsAhead(self._read, self._loader)

    def may_load_ahead(self, plan: str) -> bool:
        """True if no load of this study has begun, and no other has to be unloaded for it."""
        room = MAX_LOADED_STUDIES - len(self._loaded_records)  # of loads ahead
        return plan not in self._loaded_records and self.ahead.may_begin(plan, room)

    def values(self, plan: Plan, round_query: RoundQuery) -> IntArray:
        """Return the answer; load and compute in any case, and only then raise an error of the records."""
        records, problem = self._load_or_cached(plan)
        try:
            values = records.answer(round_query.query, round_query.priced.frame)
        except Exception:
            self.forget(plan.digest)  # unreadable records are loaded again the next time
            self._engine.forget([plan.digest])
            records.close()
            raise
        if problem is not None:
            records.close()
            raise problem
        return values

    def is_quick(self, plan: str, query: pb.Query) -> bool:
        """True if the answer to a query takes some milliseconds; False while its records are not loaded."""
        field = query.WhichOneof("kind") or ""
        records, kind = self._loaded_records.get(plan), KINDS.get(field.replace("_", "-"))
        return records is not None and kind is not None and records.is_quick(kind, query.ByteSize() // 8)

    def forget(self, plan: str) -> None:
        """Release the records of a study."""
        self.ahead.forget(plan)
        if plan in self._loaded_records:
            self._loaded_records.pop(plan).close()

    def retain(self, plans: Container[str]) -> None:
        """Release all records except those of `plans`."""
        self.ahead.retain(plans)
        for plan in [records for records in self._loaded_records if records not in plans]:
            self.forget(plan)

    def _load_or_cached(self, plan: Plan) -> tuple[LoadedRecords, EigenveilError | None]:
        """Return the records of a study and their error, with which they are loaded again the next time."""
        if plan.digest in self._loaded_records:
            return self._loaded_records[plan.digest], None
        self._make_room(plan.digest)
        records, problem = self._load(plan)
        if problem is None:
            self._loaded_records[plan.digest] = records
            failpoint("records-loaded")
        return records, problem

    def _make_room(self, plan: str) -> None:
        """Release the oldest records of other studies, first of those that were queried, until one more study
        has room."""
        others = [one for one in (*self._loaded_records, *self.ahead.plans) if one != plan]
        for oldest in others[: max(0, len(others) + 1 - MAX_LOADED_STUDIES)]:
            self.forget(oldest)

    def tidy(self) -> None:
        """Drop kept records that are too old, or that a study used from which a person withdrew."""
        self._engine.tidy(self._store.studies.withdrawn)

    def _read(self, plan: Plan) -> LoadedRecords:
        """Return the records of a study; none that are kept after a withdrawal. A load ends once its study is
        not answered any more. Raises PeerError, code `unreachable`, once the daemon stops: what its end does
        to a load is refused to nobody."""

        def require() -> None:
            self.ahead.require_open()
            self._require(plan.digest)

        self.tidy()
        try:
            return self._engine.load(plan, require)
        except Exception:
            self.ahead.require_open()
            raise

    def _load(self, plan: Plan) -> tuple[LoadedRecords, EigenveilError | None]:
        """Load the records, and return them with their error; zeros stand in for unreadable records.

        The number of persons and the quality of columns are checked on the whole file, by the site's own
        thresholds and ranges. Otherwise the analyst could choose the persons that a refusal is about."""
        try:
            records = self.ahead.take(plan.digest) or self._read(plan)
        except RequestError as problem:
            return zeros(self._policy.minimum_records, plan.study), problem
        try:
            self._policy.require_record_count(records.persons)
            self._store.line_decisions.require(self._policy.lines, records)
            self._policy.quality.require(records.quality)
            self._store.pin_records(plan, records.file)
        except RequestError as problem:
            return records, problem
        return records, None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """Notice that an answer is computed and waits for the set of sites; `key` is for their masks."""

    plan_digest: str
    round: int
    query: str
    key: SignedStudyKey


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MaskedAnswer:
    """A masked answer, and the number of its attempt."""

    contribution: Contribution
    number: int

    def __post_init__(self) -> None:
        if not self.contribution.attempt:
            raise InternalError(Code.BUG, "an answer without masks was about to be sent as a masked one")

    @property
    def plan_digest(self) -> str:
        return self.contribution.plan_digest

    @property
    def round(self) -> int:
        return self.contribution.round


class MaskedReplies:
    """Replies to the queries of masked studies. `answers` computes exact answers; `outgoing` stores replies.

    A masked round [R29] has first a ready message, without numbers, then one masked answer for each attempt,
    stored before it is sent. The coordinator states the set of sites of an attempt. It is not trusted: a
    person here must have confirmed the key card of each site. Each attempt of a round has one set only [P31],
    and is charged [P33]. A single masked answer is noise."""

    def __init__(
        self, member: CurrentIdentity, store: SiteStore, outgoing: Outgoing, answers: RecordAnswers
    ) -> None:
        self._member = member
        self._store = store
        self._outgoing = outgoing
        self._answers = answers
        self._secrets = PeerSecrets(member)
        # The latest query of a plan, and its answer.
        self._exact_answers: dict[str, tuple[str, IntArray]] = {}

    def retain(self, plans: Container[str]) -> None:
        for plan in [stored for stored in self._exact_answers if stored not in plans]:
            self.forget(plan)
        self._secrets.retain(plans)

    def forget(self, plan: str) -> None:
        self._exact_answers.pop(plan, None)
        self._secrets.forget(plan)

    def missing_keys(self, signed: pb.SignedAttempt) -> list[str]:
        """Return the digests of the keys that an answer to an attempt needs and that are not here. Raises
        PeerError: code `protocol`, it is not an attempt."""
        return self._secrets.missing(self._checked(signed))

    def receive_keys(self, signed: pb.SignedAttempt, keys: Sequence[pb.SignedStudyKey]) -> None:
        """Note keys of the sites of an attempt. Raises PeerError: code `protocol`, it is not an attempt, or a
        key cannot be read."""
        sent = [SignedStudyKey(signed_json=one.signed_json, signature=one.signature) for one in keys]
        self._secrets.receive(self._checked(signed), sent)

    def _checked(self, signed: pb.SignedAttempt) -> Attempt:
        stated = SignedAttempt(signed_json=signed.signed_json, signature=signed.signature)
        return stated.check(self._member.release_keys.accepted)

    def reply(
        self, plan: Plan, round_query: RoundQuery, signed: pb.SignedAttempt | None, session: SessionReplica
    ) -> Ready | MaskedAnswer:
        """Return that the answer to the query is ready, or the answer masked for the sites of an attempt.

        The answer of an attempt is made once; a repeated query gets the same.

        Raises:
            PeerError: an honest coordinator does not send this.
            PeerChanged, RosterUnusable: the process must end and nothing may be sent.
            EigenveilError: as `RecordAnswers.values` and `Outgoing`."""
        own = self._store.study_keys.get_or_make(plan.digest, SiteKeys.read(self._member.folder))
        if signed is None:
            self._exact_values(plan, round_query)
            self._outgoing.ready(round_query, session.unsaved())
            session.mark_saved()
            plan_digest, round = round_query.plan_digest, round_query.round
            event("round-ready", study=plan_digest, round=round)
            return Ready(plan_digest=plan_digest, round=round, query=round_query.digest, key=own.signed)
        stated = SignedAttempt(signed_json=signed.signed_json, signature=signed.signature)
        attempt = stated.check(self._member.release_keys.accepted)
        refuse_if(not attempt.is_of(round_query), "the set of sites belongs to another query")
        checked_attempt = VerifiedAttempt(attempt, stated)
        try:
            self._secrets.shared_secrets(plan, attempt, own)
            previous = self._previous_answer(plan, round_query, attempt)
        except (PeerError, RequestError):
            self._store.attempts.refuse(checked_attempt)
            raise
        if previous is None:
            return self._make_answer(plan, round_query, checked_attempt, own, session)
        self._outgoing.resend(round_query, previous, session.unsaved())
        session.mark_saved()
        return MaskedAnswer(contribution=previous, number=attempt.number)

    def _previous_answer(self, plan: Plan, round_query: RoundQuery, attempt: Attempt) -> Contribution | None:
        """Return the answer sent for this attempt before; None if the attempt may be answered now."""
        number, answered = attempt.number, self._store.attempts.answered(attempt.plan, attempt.round)
        if answered.get(number, attempt.digest) != attempt.digest:
            log_error(
                "second-set", study=attempt.plan, round=attempt.round, here=answered[number],
                there=attempt.digest,
            )  # fmt: skip
            raise PeerError(
                Code.PROTOCOL,
                f"attempt {number} at {round_label(attempt.round)} was answered for another set of sites; "
                "both signed statements are stored as evidence",
            )
        sent = self._store.attempts.sent(attempt, self._member.identity.name) if number in answered else None
        if sent is None:
            label, latest = f"attempt {number} at {round_label(attempt.round)}", max(answered, default=0)
            refuse_if(
                not latest < number <= plan.most_attempts,
                f"{label} is not next: attempts up to {latest} were answered, and the study allows "
                f"{plan.most_attempts}",
            )
            refuse_if(
                not self._store.rounds.pool_covers(plan, round_query),
                f"{label} costs more than is left of what the study set aside for repeated attempts",
            )
        return sent

    def _make_answer(
        self,
        plan: Plan,
        round_query: RoundQuery,
        checked_attempt: VerifiedAttempt,
        own: OwnStudyKey,
        session: SessionReplica,
    ) -> MaskedAnswer:
        """Charge an attempt and store its answer, before it may be sent.

        Privacy: [P31] [P32] [P33] a fresh share of the noise, for the number of sites of the attempt."""
        attempt, name = checked_attempt.attempt, self._member.identity.name
        values = self._exact_values(plan, round_query)
        # Again, also at the commit: a key card may have been removed meanwhile.
        current_secrets = partial(self._secrets.shared_secrets, plan, attempt, own)
        secrets = current_secrets()
        share = OsNoise().draw(share_spec(round_query.priced, plan.study, len(attempt.members)))
        failpoint("share-drawn")
        sent = masked(values, share, name, secrets, attempt)
        answer = Contribution.to(round_query, name, sent, attempt.digest)
        failpoint("answer-masked")
        wait_for_tick()  # the time of drawing would reveal the share
        self._outgoing.masked(plan, round_query, checked_attempt, answer, session.unsaved(), current_secrets)
        session.mark_saved()
        last = attempt.number == plan.most_attempts
        if last or not self._store.rounds.pool_covers(plan, round_query):
            self._exact_answers.pop(plan.digest)
        event("round-answered", study=round_query.plan_digest, round=round_query.round)
        return MaskedAnswer(contribution=answer, number=attempt.number)

    def _exact_values(self, plan: Plan, round_query: RoundQuery) -> IntArray:
        """Return the exact answer, computed once for all attempts of a round."""
        query_digest, values = self._exact_answers.get(plan.digest, ("", None))
        if values is None or query_digest != round_query.digest:
            self._exact_answers.pop(plan.digest, None)
            values = self._answers.values(plan, round_query)
            while len(self._exact_answers) >= MAX_LOADED_STUDIES:
                self._exact_answers.pop(next(iter(self._exact_answers)))
            self._exact_answers[plan.digest] = (round_query.digest, values)
        return values
