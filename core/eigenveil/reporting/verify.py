"""Verification of a published release by its signature, a release key and a log of signed rounds [R21].
An analyst fetches the log from the coordinator; a site writes it from the rounds that it received. A
statement that the release key signed and that differs from the document is a contradiction, and proves it."""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from google.protobuf.message import DecodeError

from eigenveil.errors import Code, EigenveilError, PeerError, RequestError, round_label
from eigenveil.noise.source import released_sigma
from eigenveil.numerics.encoding import FloatArray, canonical, digest_of, parse_json
from eigenveil.protocol.plan import plan_from_json
from eigenveil.protocol.rounds import Release, RoundStatement, SignedRound
from eigenveil.protocol.wire import query_from_proto, round_from_proto
from eigenveil.reporting.document import (
    RELEASE_SIGNATURE_CONTEXT,
    HasRelease,
    ReleaseContent,
    check_attempts,
    read_content,
    release_row,
)
from eigenveil.reporting.explain import document_guarantee
from eigenveil.reporting.release_file import DOCUMENT, SIGNATURE, Data, read_archive
from eigenveil.reporting.result import Result, result_of
from eigenveil.session import Session
from eigenveil.signatures import Keys, check_format, formatted
from eigenveil.study_authorization import release_analyst
from eigenveil_proto.v1 import eigenveil_pb2 as pb

ROUND_LOG_FORMAT = "eigenveil-rounds/1"
_bad_release = partial(RequestError, Code.BAD_RELEASE)
TOLERANCE = 1e-6  # relative difference allowed between the linear algebra of two machines


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayReport:
    """Outcome of a replay: number of `statements`, verified `rounds` out of `of`, and a verified `result`."""

    statements: int
    rounds: int
    of: int
    result: bool


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RoundLog:
    """Signed statements about the rounds of study `plan`, in messages; that of a query has no numbers."""

    plan: str
    messages: tuple[pb.SealedRound, ...]

    def to_json(self) -> bytes:
        """Return the file: each statement as JSON, and its whole message in base64."""
        rows = [
            {
                "stated": parse_json(message.signed_round.signed_json),
                "message": base64.b64encode(message.SerializeToString()).decode(),
            }
            for message in self.messages
        ]
        return canonical(formatted(ROUND_LOG_FORMAT, {"plan": self.plan, "rounds": rows}))

    def find_contradictions(self, document: Mapping[str, Any], key: Keys) -> list[str]:
        """Return the contradictions between statements signed by `key` and `document`, a sentence each.
        Raises PeerError: a statement here is not signed by `key`; RequestError: code `bad-argument`, the log
        is of another study."""
        if self.plan != document["plan_digest"]:
            raise RequestError(
                Code.BAD_ARGUMENT,
                f"the log is of study {self.plan[:12]}, and the release is of another study",
            )
        found = [_contradiction(stated, document) for stated in self._statements(key)]
        return [sentence for sentence in found if sentence]

    def replay(self, release: HasRelease, key: Keys) -> ReplayReport:
        """Recompute every query and the result from the plan and the releases. Raises RequestError: code
        `bad-release`, a query, a round or the result differs; code `bad-argument`, the log holds no
        release."""
        document = release.document
        session = Session(plan_from_json(canonical(document["plan"])))
        if session.plan.digest != self.plan:
            raise _replay_mismatch("its plan is not the one that its digest names")
        for message, stated in zip(self.messages, self._statements(key), strict=True):
            if stated.release and stated.round == len(session.releases):
                try:
                    _feed(session, message, stated)
                except EigenveilError as problem:
                    raise _replay_mismatch(f"{round_label(stated.round)}: {problem}") from problem
        replayed_rounds, complete = len(session.releases), session.pending is None
        if not (replayed_rounds or complete):
            raise RequestError(Code.BAD_ARGUMENT, "this log holds no release, so it proves nothing")
        _check_rounds(session, document["rounds"], complete)
        if complete and not _equal_results(result_of(session.plan, session.result), release.result):
            raise _replay_mismatch("its result is not the one that these releases give")
        return ReplayReport(
            statements=len(self.messages), rounds=replayed_rounds, of=len(document["rounds"]), result=complete
        )

    def _statements(self, key: Keys) -> list[RoundStatement]:
        signed = (message.signed_round for message in self.messages)
        statements = [
            SignedRound(signed_json=one.signed_json, signature=one.signature).check(key) for one in signed
        ]
        if any(stated.plan != self.plan for stated in statements):
            raise PeerError(Code.PROTOCOL, "a statement in this log is about another study")
        return statements


def read_round_log(data: bytes) -> RoundLog:
    """Return the round log in the bytes of a file. Raises RequestError: code `bad-argument`, it is not a
    round log."""
    try:
        content = parse_json(data)
        check_format(content, ROUND_LOG_FORMAT, "this log of signed rounds")
        messages = (pb.SealedRound.FromString(base64.b64decode(row["message"])) for row in content["rounds"])
        return RoundLog(plan=str(content["plan"]), messages=tuple(messages))
    except PeerError as problem:
        raise RequestError(Code.BAD_ARGUMENT, str(problem)) from problem
    except (ValueError, KeyError, TypeError, DecodeError) as problem:
        raise RequestError(
            Code.BAD_ARGUMENT, "this is not a log of signed rounds; `eigenveil study log` writes one"
        ) from problem


def _contradiction(stated: RoundStatement, document: Mapping[str, Any]) -> str:
    """Return the difference between a statement and the document; empty if there is none."""
    rounds = document["rounds"]
    number = round_label(stated.round)
    if stated.round >= len(rounds):
        return f"{number} was signed, but the document ends before it" if stated.release else ""
    published = rounds[stated.round]
    if stated.query != published["query"]:
        difference = (
            f"query {stated.query[:12]}, but the document has the answer to {published['query'][:12]}"
        )
    elif stated.release not in ("", published["release"]):
        difference = f"release {stated.release[:12]}, but the document has {published['release'][:12]}"
    else:
        return ""
    return f"{number}: the coordinator signed {difference}"


def _feed(session: Session, message: pb.SealedRound, stated: RoundStatement) -> None:
    if message.HasField("query"):
        session.adopt(query_from_proto(message.query))
    release = round_from_proto(message, stated)
    if not session.fits(release):
        raise PeerError(Code.PROTOCOL, "this release answers another query than the plan requires")
    _check_noise(session, release)
    session.feed(release)


def _check_noise(session: Session, release: Release) -> None:
    """Check that a masked sum states the noise that the shares of its sites add up to."""
    round_query, study = session.pending, session.plan.study
    if round_query is None or not study.masked:
        return
    study.federation.check_present(release.present)
    expected_sigma = released_sigma(round_query.priced, study, len(release.present))
    if release.sigma != expected_sigma:
        raise PeerError(
            Code.PROTOCOL,
            f"its noise is stated as {release.sigma:.6g}, but the shares of {len(release.present)} sites "
            f"add up to {expected_sigma:.6g}",
        )


def _check_rounds(session: Session, published: list[Mapping[str, Any]], complete: bool) -> None:
    """Check the document's rows of the replayed releases: sites, noise and cost."""
    stated = [release_row(release) for release in session.releases]
    for mine, theirs in zip(stated, published, strict=False):
        if any(theirs.get(name) != value for name, value in mine.items()):
            raise _replay_mismatch(f"its row of {round_label(mine['round'])} differs from what was signed")
    if len(stated) > len(published) or (complete and len(stated) < len(published)):
        raise _replay_mismatch(f"it has {len(published)} rounds, and the study has {len(stated)}")


def _replay_mismatch(why: str) -> RequestError:
    return _bad_release(f"the release does not follow from its rounds: {why}")


def _equal_results(mine: Result, theirs: Result) -> bool:
    first, second = (one.without_arrays() | one.arrays for one in (mine.published(), theirs))
    return nearly_equal(first, second)


def nearly_equal(mine: Any, theirs: Any, largest: float = 0.0) -> bool:
    """Return True if both are equal up to rounding, relative to the `largest` number beside a float."""
    match mine, theirs:
        case dict(), dict():
            return mine.keys() == theirs.keys() and all(nearly_equal(mine[key], theirs[key]) for key in mine)
        case np.ndarray(), np.ndarray():
            return mine.shape == theirs.shape and _near(mine, theirs)
        case list() | tuple(), list() | tuple():
            most = max((abs(one) for one in mine if isinstance(one, float | int)), default=0.0)
            return len(mine) == len(theirs) and all(
                nearly_equal(*pair, most) for pair in zip(mine, theirs, strict=True)
            )
        case float() | int(), float() | int():
            return math.isclose(mine, theirs, rel_tol=TOLERANCE, abs_tol=TOLERANCE * largest)
        case _:
            return bool(mine == theirs)


def _near(mine: FloatArray, theirs: FloatArray) -> bool:
    """Return True if all numbers are equal up to rounding, relative to the largest of their row."""
    largest = np.abs(mine).max(axis=-1, keepdims=True, initial=0.0)
    return bool(np.all(np.abs(mine - theirs) <= TOLERANCE * largest))


@dataclass(frozen=True, kw_only=True, eq=False)
class SignedRelease(ReleaseContent):
    """Release as it was signed, and the raw Ed25519 `public_key` that verifies it. Anybody may have made this
    key: compare it with the federation's."""

    public_key: bytes


UNREADABLE = (ValueError, KeyError, TypeError, AttributeError, OverflowError, InvalidSignature)


def load_release(data: Data) -> SignedRelease:
    """Return the signed release in the bytes of its file, if intact; `verify_release` checks its key.

    1. The file is an archive in canonical form, with a signature.
    2. The signature is by the key beside it, and covers the exact bytes of the document.
    3. `read_content` reads the document and its arrays.

    Raises RequestError: code `bad-release`: not a release, of another format, without a signature, or changed
    after signing."""
    try:
        members = read_archive(data)
        if SIGNATURE not in members and members[DOCUMENT]:
            raise _bad_release(
                "this has no signature, like any result of a simulation: only a federation's release can be "
                "verified"
            )
        public = _check_signature(members)
        content = read_content(members)
    except PeerError as problem:
        raise _bad_release(f"{problem}; read it with the version of eigenveil that wrote it") from problem
    except UNREADABLE as problem:
        raise _bad_release(
            "this is not an intact eigenveil release; fetch it again from the coordinator"
        ) from problem
    return SignedRelease(document=content.document, result=content.result, public_key=public)


def _check_signature(members: Mapping[str, Data]) -> bytes:
    """Return the key that signed the document. Raises one of UNREADABLE: its signature is not valid, or not
    in canonical form."""
    signed = parse_json(bytes(members[SIGNATURE]))
    public, signature = bytes.fromhex(signed["public_key"]), bytes.fromhex(signed["signature"])
    if canonical({"public_key": public.hex(), "signature": signature.hex()}) != members[SIGNATURE]:
        raise ValueError("the signature is not in canonical form")
    key = Ed25519PublicKey.from_public_bytes(public)
    key.verify(signature, RELEASE_SIGNATURE_CONTEXT + members[DOCUMENT])
    return public


def load_unsigned(data: bytes) -> ReleaseContent | None:
    """Return the content of a simulation's file, which has no signature; None for any other file."""
    try:
        members = read_archive(data)
        return None if SIGNATURE in members else read_content(members)
    except (*UNREADABLE, PeerError):
        return None


def verify_release(release: SignedRelease, key: Keys, log: bytes | None = None) -> ReplayReport | None:
    """Check that `key` signed this release and that the release is consistent with its plan.

    `key` is a federation's raw Ed25519 release key, or a tuple of all that it has had. The checks: the plan
    has its stated digest, the guarantee follows from the plan, the analyst's signature, if there is one, is
    of that plan, and the attempts of a masked study are within the plan's limits.

    With `log`, the bytes that `eigenveil study log` writes, every query is recomputed from the plan and the
    releases before it, and the result from all of them. Returns how much of it the log held [R21].

    Raises:
        RequestError: code `bad-release`: signed by another key, inconsistent with its plan, or not the result
            of the log's rounds; code `bad-argument`: not a round log, or of another study.
        PeerError: a statement in the log is not signed by `key`.

    >>> from eigenveil import load_release
    >>> release = load_release("release.zip")
    >>> verify_release(release, release.public_key)  # compare it with the one that the operator states
    >>> verify_release(release, bytes(32))
    Traceback (most recent call last):
    eigenveil.errors.RequestError: this release is intact but signed by another key ..."""
    if release.public_key not in ((key,) if isinstance(key, bytes) else key):
        by = f"{release.public_key.hex()[:16]}..."
        raise _bad_release(f"this release is intact but signed by another key ({by}); do not use it")
    _check_guarantee(release.document)
    release_analyst(release.document)
    check_attempts(release.document)
    if log is None:
        return None
    rounds = read_round_log(log)
    wrong = rounds.find_contradictions(release.document, key)
    if wrong:
        raise _bad_release(
            f"the release and the log, signed by one key, contradict each other: {'; '.join(wrong)}"
        )
    return rounds.replay(release, key)


def _check_guarantee(document: dict[str, Any]) -> None:
    """Check that the plan has its stated digest, which the sites agreed to, and that the guarantee follows.
    The text may be that of another version: display `document_guarantee` instead."""
    if digest_of("plan", canonical(document["plan"])) != document["plan_digest"]:
        raise _bad_release("the plan in this release does not have the stated digest")
    try:
        expected = document_guarantee(document)
    except EigenveilError as problem:
        raise _bad_release(f"the plan in this release is invalid: {problem}") from problem
    if not nearly_equal({**document["guarantee"], "text": ""}, {**expected, "text": ""}):
        raise _bad_release("the guarantee in this release does not follow from its plan")
