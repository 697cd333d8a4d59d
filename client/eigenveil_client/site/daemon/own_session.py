"""A study as this site follows it: it computes each question itself, and answers no other [P25].

The next question is a function of the plan and of the releases so far. The coordinator states those, with its
signature; the site feeds them to a session of its own and compares what it is asked with what that session
asks. So a coordinator cannot choose a question: not its centre, its radius, its edges or its price, nor how
many come. What is left to it is to state a release that was never drawn, under its signature.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from eigenveil.errors import Code, PeerError, spoken
from eigenveil.protocol.plan import Plan
from eigenveil.protocol.query import RoundQuery
from eigenveil.protocol.release import Release
from eigenveil.protocol.statements import RoundStatement, SignedRound
from eigenveil.protocol.wire import query_from_proto, query_to_proto, round_from_proto, round_to_proto
from eigenveil.session import Session
from eigenveil.study.price import MAX_ROUNDS
from eigenveil_client.site.state.transcript import Stated, Transcript
from eigenveil_proto.v1 import eigenveil_pb2 as pb


class OwnSession:
    """The session of `plan`, replayed from what is kept. Not to be used any more once a method has raised.

    Raises:
        EigenveilError: what is kept does not lead on.
    """

    def __init__(self, plan: Plan, release_key: bytes, transcript: Transcript) -> None:
        self._plan = plan
        self._key = release_key
        self._session = Session(plan)
        self._ledger = ("", 0)
        self._unkept: list[Stated] = []
        for message in transcript.releases(plan.digest):
            self._take(self._check(message.stated), message)
        self.kept()

    @property
    def held(self) -> int:
        """How many releases it has seen."""
        return len(self._session.releases)

    def unkept(self) -> list[Stated]:
        """What has to be kept before an answer, or a refusal, leaves."""
        return list(self._unkept)

    def kept(self) -> None:
        """All of that is durable now."""
        self._unkept.clear()

    def follow(self, messages: Iterable[pb.SealedRound]) -> None:
        """Go on with the releases that the coordinator states; known ones must be the same.

        Raises:
            PeerError: code `identity` or `protocol`: not signed, contradictory, or not the next one.
            EigenveilError: they lead to a question that no honest study asks.
        """
        for message in messages:
            stated = self._check(message.stated)
            with self._or_proof(stated, message.stated):
                if stated.round < self.held:
                    self._compare(stated)
                else:
                    self._take(stated, message)

    def expect(self, asked: RoundQuery, signed: pb.SignedRound) -> None:
        """Insist that `asked` is what this study asks now, and that the coordinator's signature says so.

        Raises:
            PeerError: code `identity` or `protocol`.
        """
        stated = self._check(signed)
        with self._or_proof(stated, signed):
            if (stated.round, stated.query, stated.release) != (asked.round, asked.digest, ""):
                raise PeerError(Code.PROTOCOL, "the statement beside the question is about another one")
            self._follows(stated)
            self._session.adopt(asked)
        self._keep(stated, pb.SealedRound(stated=_alone(signed)), followed=True)

    @contextmanager
    def _or_proof(self, stated: RoundStatement, signed: pb.SignedRound) -> Iterator[None]:
        """Keep a statement that is refused: it alone, because nothing else of the message was believed."""
        try:
            yield
        except Exception:
            self._keep(stated, pb.SealedRound(stated=_alone(signed)), followed=False)
            raise

    def _keep(self, stated: RoundStatement, message: pb.SealedRound, *, followed: bool) -> None:
        self._unkept.append(Stated(statement=stated, message=message, followed=followed))

    def _take(self, stated: RoundStatement, message: pb.SealedRound) -> None:
        """Feed a release. What is kept of it is what was checked, and the words of its question where they
        are not this machine's own: a later replay needs them."""
        self._follows(stated)
        pending = self._session.pending
        if pending is not None and stated.query != pending.digest and message.HasField("query"):
            self._session.adopt(query_from_proto(message.query))
            pending = self._session.pending
        if not stated.release or pending is None or stated.query != pending.digest:
            raise PeerError(
                Code.PROTOCOL,
                f"the release of {spoken(stated.round)} is of a question that the plan and the releases "
                "before it do not lead to",
            )
        release = round_from_proto(message, stated)
        if not self._session.fits(release):
            raise PeerError(Code.PROTOCOL, f"the release of {spoken(stated.round)} fits no such question")
        signed = SignedRound(said=message.stated.said, signature=message.stated.signature)
        checked = round_to_proto(release, signed)
        if self._session.reworded:
            checked.query.CopyFrom(query_to_proto(pending))
        self._feed(release)
        self._keep(stated, checked, followed=True)

    def _feed(self, release: Release) -> None:
        """A session is a function of what was signed: where it fails, no honest study has come."""
        try:
            self._session.feed(release)
        except Exception as problem:
            raise PeerError(
                Code.PROTOCOL,
                f"the release of {spoken(release.round)} leads to no question that an honest study asks "
                f"({type(problem).__name__}: {problem})",
            ) from problem

    def _follows(self, stated: RoundStatement) -> None:
        """Insist that a statement is about the round that is due, after the release that was last here, and
        that the coordinator's ledger did not shrink since."""
        releases = self._session.releases
        after = releases[-1].digest if releases else ""
        if (stated.round, stated.after) != (len(releases), after):
            raise PeerError(
                Code.PROTOCOL,
                f"{spoken(stated.round)} was stated when {spoken(len(releases))} was due, or after a "
                "release that is not the one here; was the coordinator restored from an old copy?",
            )
        self._check_ledger(stated)

    def _compare(self, stated: RoundStatement) -> None:
        known = self._session.releases[stated.round]
        if (stated.query, stated.release) != (known.query, known.digest):
            raise PeerError(
                Code.PROTOCOL,
                f"the coordinator signed two different releases of {spoken(stated.round)}; both are kept "
                "here as evidence",
            )

    def _check(self, signed: pb.SignedRound) -> RoundStatement:
        stated = SignedRound(said=signed.said, signature=signed.signature).check(self._key)
        if stated.plan != self._plan.digest or stated.round >= MAX_ROUNDS:
            raise PeerError(
                Code.PROTOCOL, "a statement about a round is of another plan, or of no round that a plan has"
            )
        return stated

    def _check_ledger(self, stated: RoundStatement) -> None:
        row, size = self._ledger
        if stated.size < size or (stated.size == size and stated.ledger != row):
            raise PeerError(
                Code.PROTOCOL,
                f"the coordinator's ledger went from {size} rows to {stated.size} within one study, or has "
                "other rows now",
            )
        self._ledger = (stated.ledger, stated.size)


def _alone(signed: pb.SignedRound) -> pb.SignedRound:
    """What was signed, and nothing that came with it."""
    return pb.SignedRound(said=signed.said, signature=signed.signature)
