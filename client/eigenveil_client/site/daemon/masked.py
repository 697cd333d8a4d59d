"""A masked round at a site [R29]: ready first, then one answer for each attempt, which alone is noise.

The coordinator says over which sites an answer is masked, and is not believed: each of them is a peer whose
card a person here has confirmed. There is one set for each number of a round, ever [P31], and each is paid
[P33]. What is made of an exact answer here is `Ready`, which holds no number, or `Masked`, which was stored
before.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from functools import partial

from eigenveil.aggregation import Contribution
from eigenveil.errors import Code, InternalError, PeerError, RequestError, spoken
from eigenveil.noise.shares import share_spec
from eigenveil.noise.source import OsNoise
from eigenveil.numerics.encoding import IntArray
from eigenveil.protocol.plan import Plan
from eigenveil.protocol.query import RoundQuery
from eigenveil.secure_aggregation.attempt import Attempt, SignedAttempt
from eigenveil.secure_aggregation.masks import masked
from eigenveil_client.connection.identity import StoredIdentity
from eigenveil_client.site.daemon.answers import MOST_LOADED, Answers
from eigenveil_client.site.daemon.own_session import OwnSession
from eigenveil_client.site.daemon.peer_secrets import PeerSecrets
from eigenveil_client.site.peers.keys import OwnKeys
from eigenveil_client.site.state.attempts import Proved
from eigenveil_client.site.state.outgoing import Outgoing
from eigenveil_client.site.state.store import SiteStore
from eigenveil_common.failpoints import failpoint
from eigenveil_common.log import alarm, event
from eigenveil_common.tick import await_tick
from eigenveil_proto.v1 import eigenveil_pb2 as pb


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """An answer is computed and waits to be told for whom to mask it; `card` is the digest of this site's."""

    plan_digest: str
    round: int
    query: str
    card: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Masked:
    """A masked answer, and the number of its attempt."""

    contribution: Contribution
    number: int

    def __post_init__(self) -> None:
        if not self.contribution.attempt:
            raise InternalError(Code.BUG, "an answer that is not masked was about to leave as one that is")

    @property
    def plan_digest(self) -> str:
        return self.contribution.plan_digest

    @property
    def round(self) -> int:
        return self.contribution.round


class MaskedAnswers:
    """Replies to the questions of masked studies. `answers` computes what they are made of, and `outgoing`
    writes them down."""

    def __init__(
        self, member: StoredIdentity, store: SiteStore, outgoing: Outgoing, answers: Answers
    ) -> None:
        self._member = member
        self._store = store
        self._outgoing = outgoing
        self._answers = answers
        self._secrets = PeerSecrets(member)
        self._exact: dict[str, tuple[str, IntArray]] = {}  # the latest question of a plan, and its answer

    def keep(self, plans: Container[str]) -> None:
        """Let all exact answers go but those of these studies."""
        for plan in [held for held in self._exact if held not in plans]:
            self.forget(plan)

    def forget(self, plan: str) -> None:
        """Let the exact answer of a study go, which is over."""
        self._exact.pop(plan, None)

    def reply(
        self, plan: Plan, asked: RoundQuery, signed: pb.SignedAttempt | None, own: OwnSession
    ) -> Ready | Masked:
        """Say that the answer to a question that `own` expects is ready; or mask it for the sites of an
        attempt, once, and hand the same out whenever the same is asked.

        Raises:
            PeerError: no honest coordinator asks for this.
            PeerChanged, RosterUnusable: the process must end and nothing may be sent.
            EigenveilError: as `Answers.values` and `Outgoing`.
        """
        keys = OwnKeys.read(self._member.folder)
        if signed is None:
            return self._ready(plan, asked, keys, own)
        proved = self._proved(asked, signed)
        try:
            self._secrets.of(plan, proved.attempt, keys)
            again = self._known(plan, proved.attempt)
        except (PeerError, RequestError):
            self._store.attempts.refuse(proved)
            raise
        if again is None:
            return self._masked(plan, asked, proved, keys, own)
        self._outgoing.again(asked, again, own.unkept())
        own.kept()
        return Masked(contribution=again, number=proved.attempt.number)

    def _ready(self, plan: Plan, asked: RoundQuery, keys: OwnKeys, own: OwnSession) -> Ready:
        self._values(plan, asked)
        self._outgoing.ready(asked, own.unkept())
        own.kept()
        event("round-ready", study=asked.plan_digest, round=asked.round)
        return Ready(
            plan_digest=asked.plan_digest, round=asked.round, query=asked.digest, card=keys.card.digest
        )

    def _proved(self, asked: RoundQuery, signed: pb.SignedAttempt) -> Proved:
        stated = SignedAttempt(said=signed.said, signature=signed.signature)
        attempt = stated.check(self._member.release_key)
        if not attempt.is_of(asked):
            raise PeerError(Code.PROTOCOL, "the set of sites beside the question is for another question")
        return Proved(attempt=attempt, signed=stated)

    def _known(self, plan: Plan, attempt: Attempt) -> Contribution | None:
        """What was sent for this attempt; None for one that may be answered now."""
        number, answered = attempt.number, self._store.attempts.answered(attempt.plan, attempt.round)
        if answered.get(number, attempt.digest) != attempt.digest:
            alarm(
                "second-set", study=attempt.plan, round=attempt.round, here=answered[number],
                there=attempt.digest,
            )  # fmt: skip
            raise PeerError(
                Code.PROTOCOL,
                f"attempt {number} at {spoken(attempt.round)} was answered for another set of sites; what "
                "was signed about both is kept here as evidence",
            )
        sent = self._store.attempts.sent(attempt, self._member.identity.name) if number in answered else None
        if sent is None and not max(answered, default=0) < number <= plan.study.attempts:
            raise PeerError(
                Code.PROTOCOL,
                f"attempt {number} at {spoken(attempt.round)} came when those up to "
                f"{max(answered, default=0)} were answered, and the study has {plan.study.attempts}",
            )
        return sent

    def _masked(
        self,
        plan: Plan,
        asked: RoundQuery,
        proved: Proved,
        keys: OwnKeys,
        own: OwnSession,
    ) -> Masked:
        """Charge an attempt and keep its answer, before it may be sent.

        Privacy: [P31] [P32] [P33] a share of the noise for as many sites as the attempt has, drawn anew.
        """
        attempt, name = proved.attempt, self._member.identity.name
        values = self._values(plan, asked)
        secrets = self._secrets.of(plan, attempt, keys)  # again: a card may have been removed meanwhile,
        known = partial(self._secrets.of, plan, attempt, keys)  # and once more when the answer is committed
        share = OsNoise().draw(share_spec(asked, plan.study, len(attempt.members)))
        failpoint("share-drawn")
        sent = masked(values, share, name, secrets, attempt)
        answer = Contribution.to(asked, name, sent, attempt.digest)
        failpoint("answer-masked")
        await_tick()  # how long the share took tells of it
        self._outgoing.masked(plan, asked, proved, answer, own.unkept(), known)
        own.kept()
        if attempt.number == plan.study.attempts:
            self._exact.pop(plan.digest)
        event("round-answered", study=asked.plan_digest, round=asked.round)
        return Masked(contribution=answer, number=attempt.number)

    def _values(self, plan: Plan, asked: RoundQuery) -> IntArray:
        """The exact answer, computed once however often a round is tried."""
        question, values = self._exact.get(plan.digest, ("", None))
        if values is None or question != asked.digest:
            self._exact.pop(plan.digest, None)
            values = self._answers.values(plan, asked)
            while len(self._exact) >= MOST_LOADED:
                self._exact.pop(next(iter(self._exact)))
            self._exact[plan.digest] = (asked.digest, values)
        return values
