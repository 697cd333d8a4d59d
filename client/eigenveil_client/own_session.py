"""A study as this site follows it: it computes each question itself, and answers no other [P25].

The next question is a function of the plan and of the releases so far. The coordinator states those, with its
signature; the site feeds them to a session of its own and compares what it is asked with what that session
asks. So a coordinator cannot choose a question: not its centre, its radius, its edges or its price, nor how
many come. What is left to it is to state a release that was never drawn, under its signature.
"""

from __future__ import annotations

from collections.abc import Iterable

from eigenveil.errors import Code, PeerError
from eigenveil.plan import Plan
from eigenveil.query import Query
from eigenveil.release import Release
from eigenveil.round import spoken
from eigenveil.session import Session
from eigenveil.signed_round import RoundStatement, SignedRound
from eigenveil.wire import query_from_proto, query_to_proto, round_from_proto
from eigenveil_client.transcript import Stated, Transcript
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
        self._reworded: Query | None = None
        self._unkept: list[Stated] = []
        for message in transcript.releases(plan.digest):
            self._take(self._read(message), message)

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
            stated = self._read(message)
            self._unkept.append(Stated(statement=stated, message=message))
            if stated.round < self.held:
                self._compare(stated)
            else:
                self._take(stated, message)

    def expect(self, query: Query, asked: pb.SignedRound) -> None:
        """Insist that `query` is what this study asks now, and that the coordinator's signature says so.

        Raises:
            PeerError: code `identity` or `protocol`.
        """
        stated = self._check(asked)
        self._unkept.append(Stated(statement=stated, message=pb.SealedRound(stated=asked)))
        if (stated.round, stated.query, stated.release) != (query.round, query.digest, ""):
            raise PeerError(Code.PROTOCOL, "the statement beside the question is about another one")
        self._follows(stated)
        self._adopt(query)

    def _adopt(self, query: Query) -> None:
        own = self._session.pending
        self._session.adopt(query)
        self._reworded = query if own is None or query.digest != own.digest else None

    def _take(self, stated: RoundStatement, message: pb.SealedRound) -> None:
        self._follows(stated)
        if message.HasField("query"):
            self._adopt(query_from_proto(message.query))
        elif self._reworded is not None:  # a later replay needs the words that were used
            message.query.CopyFrom(query_to_proto(self._reworded))
        pending = self._session.pending
        if not stated.release or pending is None or stated.query != pending.digest:
            raise PeerError(
                Code.PROTOCOL,
                f"the release of {spoken(stated.round)} is of a question that the plan and the releases "
                "before it do not lead to",
            )
        self._session.feed(self._release(stated, message))
        self._reworded = None

    def _release(self, stated: RoundStatement, message: pb.SealedRound) -> Release:
        release = round_from_proto(message, stated)
        if not self._session.fits(release):
            raise PeerError(Code.PROTOCOL, f"the release of {spoken(stated.round)} fits no such question")
        return release

    def _follows(self, stated: RoundStatement) -> None:
        """Insist that a statement is about the round that is due, after the release that was last here."""
        releases = self._session.releases
        after = releases[-1].digest if releases else ""
        if (stated.round, stated.after) != (len(releases), after):
            raise PeerError(
                Code.PROTOCOL,
                f"{spoken(stated.round)} was stated when {spoken(len(releases))} was due, or after a "
                "release that is not the one here; was the coordinator restored from an old copy?",
            )

    def _compare(self, stated: RoundStatement) -> None:
        known = self._session.releases[stated.round]
        if (stated.query, stated.release) != (known.query, known.digest):
            raise PeerError(
                Code.PROTOCOL,
                f"the coordinator signed two different releases of {spoken(stated.round)}; both are kept "
                "here as evidence",
            )

    def _read(self, message: pb.SealedRound) -> RoundStatement:
        return self._check(message.stated)

    def _check(self, signed: pb.SignedRound) -> RoundStatement:
        stated = SignedRound(said=signed.said, signature=signed.signature).check(self._key)
        if stated.plan != self._plan.digest:
            raise PeerError(Code.PROTOCOL, "a statement about a round is of another plan")
        self._check_ledger(stated)
        return stated

    def _check_ledger(self, stated: RoundStatement) -> None:
        """A ledger only grows; a known round may be stated again."""
        if stated.round < self.held:
            return
        row, size = self._ledger
        if stated.size < size or (stated.size == size and stated.ledger != row):
            raise PeerError(
                Code.PROTOCOL,
                f"the coordinator's ledger went from {size} rows to {stated.size} within one study, or has "
                "other rows now",
            )
        self._ledger = (stated.ledger, stated.size)
