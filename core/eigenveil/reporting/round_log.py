"""The signed rounds of one study in a file, held against the document that was published [R21].

A coordinator fetches it for an analyst, a site writes what it was told: the same format. Whatever the release
key signed in it and the document states otherwise is a contradiction, and both are proof of it.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from google.protobuf.message import DecodeError

from eigenveil.errors import Code, EigenveilError, PeerError, RequestError, spoken
from eigenveil.noise.shares import released_sigma
from eigenveil.numerics.encoding import canonical, parse_json
from eigenveil.protocol.plan import plan_from_json
from eigenveil.protocol.release import Release
from eigenveil.protocol.statements import RoundStatement, SignedRound
from eigenveil.protocol.wire import query_from_proto, round_from_proto
from eigenveil.reporting.document import stated_of
from eigenveil.reporting.result import result_of
from eigenveil.session import Session
from eigenveil_proto.v1 import eigenveil_pb2 as pb

FORMAT = "eigenveil-rounds/1"
CLOSE = 1e-6  # relative: how far results may differ between two machines' linear algebra


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """How much of a document a log could show by its `statements`: `rounds` of its releases, and whether its
    `result`, too."""

    statements: int
    rounds: int
    of: int
    result: bool


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RoundLog:
    """Statements about the rounds of the study `plan`, each in its message; a question's has no numbers."""

    plan: str
    messages: tuple[pb.SealedRound, ...]

    def to_json(self) -> bytes:
        """The file: what was stated readably, and the whole message beside it."""
        rows = [
            {
                "stated": parse_json(message.stated.said),
                "message": base64.b64encode(message.SerializeToString()).decode(),
            }
            for message in self.messages
        ]
        return canonical({"format": FORMAT, "plan": self.plan, "rounds": rows})

    def contradictions(self, document: Mapping[str, Any], key: bytes) -> list[str]:
        """What `key` signed here and `document` states otherwise, a sentence each.

        Raises:
            PeerError: a statement here is not signed by `key`.
            RequestError: code `bad-argument`, the log is of another study.
        """
        if self.plan != document["plan_digest"]:
            raise RequestError(
                Code.BAD_ARGUMENT,
                f"these are rounds of study {self.plan[:12]}, the release is of another study",
            )
        found = [contradiction(stated, document) for stated in self._statements(key)]
        return [sentence for sentence in found if sentence]

    def replayed(self, document: Mapping[str, Any], key: bytes) -> Replayed:
        """Compute every question, and the result, once more from the plan and the releases.

        Raises:
            RequestError: code `bad-release`, the study did not ask this, or its rounds or its result are
                others; code `bad-argument`, no release of it is here.
        """
        session = Session(plan_from_json(canonical(document["plan"])))
        if session.plan.digest != self.plan:
            raise _unlike("its plan is not the one that its digest names")
        for message, stated in zip(self.messages, self._statements(key), strict=True):
            if stated.release and stated.round == len(session.releases):
                try:
                    _feed(session, message, stated)
                except EigenveilError as problem:
                    raise _unlike(f"{spoken(stated.round)}: {problem}") from problem
        seen, whole = len(session.releases), session.pending is None
        if not (seen or whole):
            raise RequestError(Code.BAD_ARGUMENT, "this log holds no release, so that it proves nothing")
        _check_rounds(session, document["rounds"], whole)
        if whole and not close(result_of(session.plan, session.result).to_dict(), document["result"]):
            raise _unlike("its result is not what these releases give")
        return Replayed(statements=len(self.messages), rounds=seen, of=len(document["rounds"]), result=whole)

    def _statements(self, key: bytes) -> list[RoundStatement]:
        signed = (message.stated for message in self.messages)
        statements = [SignedRound(said=one.said, signature=one.signature).check(key) for one in signed]
        if any(stated.plan != self.plan for stated in statements):
            raise PeerError(Code.PROTOCOL, "a statement in this log is about another study")
        return statements


def read_log(data: bytes) -> RoundLog:
    """The log in a file.

    Raises:
        RequestError: code `bad-argument`, it is none.
    """
    try:
        said = parse_json(data)
        if said["format"] != FORMAT:
            raise ValueError(said["format"])
        messages = (pb.SealedRound.FromString(base64.b64decode(row["message"])) for row in said["rounds"])
        return RoundLog(plan=str(said["plan"]), messages=tuple(messages))
    except (ValueError, KeyError, TypeError, DecodeError) as problem:
        raise RequestError(
            Code.BAD_ARGUMENT, "this is no log of signed rounds; `eigenveil study log` writes one"
        ) from problem


def contradiction(stated: RoundStatement, document: Mapping[str, Any]) -> str:
    """In what a statement and the document differ; empty if in nothing."""
    rounds = document["rounds"]
    number = spoken(stated.round)
    if stated.round >= len(rounds):
        return f"{number} was signed, and the document ends before it" if stated.release else ""
    published = rounds[stated.round]
    if stated.query != published["query"]:
        what = f"question {stated.query[:12]}, published was the answer to {published['query'][:12]}"
    elif stated.release not in ("", published["release"]):
        what = f"release {stated.release[:12]}, published was {published['release'][:12]}"
    else:
        return ""
    return f"{number}: the coordinator signed {what}"


def _feed(session: Session, message: pb.SealedRound, stated: RoundStatement) -> None:
    if message.HasField("query"):
        session.adopt(query_from_proto(message.query))
    release = round_from_proto(message, stated)
    if not session.fits(release):
        raise PeerError(Code.PROTOCOL, "this release answers another question than the plan leads to")
    _check_noise(session, release)
    session.feed(release)


def _check_noise(session: Session, release: Release) -> None:
    """Insist that a masked sum states the noise that the shares of its sites add up to."""
    asked, study = session.pending, session.plan.study
    if asked is None or not study.masked:
        return
    study.federation.check_present(release.present)
    due = released_sigma(asked, study, len(release.present))
    if release.sigma != due:
        raise PeerError(
            Code.PROTOCOL,
            f"its noise is stated as {release.sigma:.6g}, and the shares of {len(release.present)} sites "
            f"make {due:.6g}",
        )


def _check_rounds(session: Session, published: list[Mapping[str, Any]], whole: bool) -> None:
    """What the document says of each release that is here: who is in it, its noise and its price."""
    stated = [stated_of(release) for release in session.releases]
    for mine, theirs in zip(stated, published, strict=False):
        if any(theirs.get(name) != value for name, value in mine.items()):
            raise _unlike(f"what it says of {spoken(mine['round'])} is not what was signed")
    if len(stated) > len(published) or (whole and len(stated) < len(published)):
        raise _unlike(f"it has {len(published)} rounds, and the study {len(stated)}")


def _unlike(why: str) -> RequestError:
    return RequestError(Code.BAD_RELEASE, f"the release does not follow from its rounds: {why}")


def close(mine: Any, theirs: Any, largest: float = 0.0) -> bool:
    """Equal, but for the last digits of floats: those of the `largest` number beside them."""
    match mine, theirs:
        case dict(), dict():
            return mine.keys() == theirs.keys() and all(close(mine[key], theirs[key]) for key in mine)
        case list() | tuple(), list() | tuple():
            most = max((abs(one) for one in mine if isinstance(one, float | int)), default=0.0)
            return len(mine) == len(theirs) and all(
                close(*pair, most) for pair in zip(mine, theirs, strict=True)
            )
        case float() | int(), float() | int():
            return math.isclose(mine, theirs, rel_tol=CLOSE, abs_tol=CLOSE * largest)
        case _:
            return bool(mine == theirs)
