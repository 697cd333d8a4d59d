"""A release.json as it was published: read only if intact, and held against a key and a log."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from eigenveil.analyst_signature.asked_by import asked_by
from eigenveil.errors import Code, EigenveilError, RequestError
from eigenveil.numerics.encoding import canonical, digest_of, parse_json
from eigenveil.reporting.attempts import check_attempts
from eigenveil.reporting.document import FORMAT, SIGNED
from eigenveil.reporting.explain import promised
from eigenveil.reporting.result import Result
from eigenveil.reporting.round_log import Replayed, close, read_log

FIRST = "eigenveil-release/1"  # of eigenveil 0.1: its plan and its questions have other names


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SignedRelease:
    """What a federation published, as it was signed: `document` with its guarantee, result, rounds and plan,
    and the raw Ed25519 `public_key` whose signature it bears, which anybody may have made."""

    document: dict[str, Any]
    public_key: bytes

    @property
    def result(self) -> Result:
        """What was found, as arrays."""
        return Result.from_dict(self.document["result"])


def load_release(data: bytes) -> SignedRelease:
    """The release in the bytes of a release.json, if it is as somebody signed it: `verify_release` says who.

    Raises:
        RequestError: code `bad-release`: not a release, of an older format, without a signature, or changed
            after signing.
    """
    try:
        bundle = parse_json(data)
        if bundle.get("format") in (FIRST, FORMAT):
            raise _bad(
                "this bears no signature, as no simulation's result does: it cannot be verified, only a "
                "federation's release.json can"
            )
        public, signature = bytes.fromhex(bundle["public_key"]), bytes.fromhex(bundle["signature"])
        document = bundle["document"]
        # Spelling counts: the file must be the canonical form of what it says, to the byte.
        spelled = {"document": document, "signature": signature.hex(), "public_key": public.hex()}
        intact = canonical(spelled) == data
        Ed25519PublicKey.from_public_bytes(public).verify(signature, SIGNED + canonical(document))
        form = document["format"]
    except (ValueError, KeyError, TypeError, AttributeError, InvalidSignature) as problem:
        raise _bad(
            "this is not an intact eigenveil release; fetch it again from the coordinator"
        ) from problem
    if intact and form == FIRST:
        raise _bad("this release is of the format of eigenveil 0.1; verify it with that version")
    if not intact or form != FORMAT:
        raise _bad("this release is not in canonical form; fetch it again from the coordinator")
    return SignedRelease(document=document, public_key=public)


class Signed(Protocol):
    """What bears a signature: its document, and the raw Ed25519 key of whoever signed it."""

    @property
    def document(self) -> dict[str, Any]: ...

    @property
    def public_key(self) -> bytes: ...


def verify_release(release: Signed, key: bytes, log: bytes | None = None) -> Replayed | None:
    """Insist that `key` (a federation's raw Ed25519 release key) signed this release, that it bears the plan
    which its digest names and states what that promises, that the analyst's signature in it, if there is one,
    is under that plan, and that the attempts of a masked study are those that its plan allows.

    With `log`, the bytes that `eigenveil study log` writes, every question is computed again from the plan
    and the releases before it, and the result from all of them; returned is how much of it was there [R21].

    Raises:
        RequestError: code `bad-release`: signed by another key, it does not keep to its own plan, or it does
            not follow from the log's rounds; code `bad-argument`: the log is none, or of another study.
        PeerError: a statement in the log is not signed by `key`.

    >>> import json
    >>> from pathlib import Path
    >>> from eigenveil import load_release
    >>> release = load_release("release.json")
    >>> key = bytes.fromhex(parse_json(Path("authorities.json").read_text())["release_key"])
    >>> verify_release(release, key)
    >>> verify_release(release, bytes(32))
    Traceback (most recent call last):
    eigenveil.errors.RequestError: this release is intact but signed by another key ...
    """
    if key != release.public_key:
        by = f"{release.public_key.hex()[:16]}..."
        raise _bad(f"this release is intact but signed by another key ({by}); do not trust it")
    _check_promise(release.document)
    asked_by(release.document)
    check_attempts(release.document)
    if log is None:
        return None
    rounds = read_log(log)
    wrong = rounds.contradictions(release.document, key)
    if wrong:
        raise _bad(f"one key signed both, and they contradict: {'; '.join(wrong)}")
    return rounds.replayed(release.document, key)


def _check_promise(document: dict[str, Any]) -> None:
    """Sites agreed to the plan of this digest, and the guarantee follows from it. Words may be those of
    another version: whoever shows them takes `promised`."""
    if digest_of("plan", canonical(document["plan"])) != document["plan_digest"]:
        raise _bad("the plan in this release is not the one that its digest names")
    try:
        due = promised(document)
    except EigenveilError as problem:
        raise _bad(f"the plan in this release is none that a site agrees to: {problem}") from problem
    if not close({**document["guarantee"], "words": ""}, {**due, "words": ""}):
        raise _bad("the guarantee in this release is not what its plan promises")


def _bad(why: str) -> RequestError:
    return RequestError(Code.BAD_RELEASE, why)
