"""What is kept under a digest or a signature of its own, held against that: a disk that flips bits says
nothing."""

from __future__ import annotations

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from google.protobuf.message import DecodeError

from eigenveil.errors import Code, EigenveilError, InternalError
from eigenveil.numerics.encoding import canonical, digest, parse_json
from eigenveil.protocol.wire import query_from_proto
from eigenveil.reporting.document import SIGNED
from eigenveil.secure_aggregation.attempt import Attempt
from eigenveil_proto.v1 import eigenveil_pb2 as pb


def check_plan(study: str, plan: bytes) -> None:
    """Raises InternalError, code `storage`, unless this is the plan of the study of this digest."""
    try:
        whole = digest("plan", parse_json(plan)) == study
    except ValueError:
        whole = False
    if not whole:
        raise changed("plan", study)


def check_release(study: str, release: bytes) -> None:
    """The same of what a study has released."""
    if not _is_signed(release):
        raise changed("release", study)


def check_question(study: str, question: bytes, expected: str) -> None:
    """The same of a round's question, whose digest is `expected`."""
    try:
        whole = query_from_proto(pb.Query.FromString(question)).digest == expected
    except (EigenveilError, DecodeError):
        whole = False
    if not whole:
        raise changed("question", study)


def attempt_of(study: str, said: bytes, expected: str) -> Attempt:
    """The set of sites of an attempt, whose digest is `expected`. Raises as `check_plan`."""
    try:
        attempt = Attempt.read(said)
    except EigenveilError as problem:
        raise changed("set of sites", study) from problem
    if attempt.digest != expected:
        raise changed("set of sites", study)
    return attempt


def _is_signed(release: bytes) -> bool:
    """By whichever key and in whatever format: an old one stays as it is."""
    try:
        bundle = parse_json(release)
        public = Ed25519PublicKey.from_public_bytes(bytes.fromhex(bundle["public_key"]))
        public.verify(bytes.fromhex(bundle["signature"]), SIGNED + canonical(bundle["document"]))
    except (ValueError, KeyError, TypeError, InvalidSignature):
        return False
    return canonical(bundle) == release


def changed(what: str, study: str) -> InternalError:
    return InternalError(
        Code.STORAGE, f"a stored {what} of study {study[:12]} was changed; restore the database"
    )
