"""Authorization of one plan by its analyst's signature, and the analyst of a release [R31]. A plan is signed
by the release key only, so a coordinator could plan any study in any analyst's name. An authorization is
signed on the analyst's machine, after a check that the plan matches the analyst's study. It has the plan's
digest, which binds sites, trust, neighbouring relation, budget, attempts and all other fields, the unique
submission and an expiry."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from eigenveil.errors import Code, EigenveilError, PeerError, RequestError
from eigenveil.key_cards import AnalystKeyCard, SignedAnalystKeyCard, card_from_dict, card_to_dict
from eigenveil.numerics.encoding import canonical, is_digest, parse_json
from eigenveil.planning.choose import candidates, with_pool
from eigenveil.protocol.plan import SIMULATION, Plan, plan_for, plan_from_json
from eigenveil.signatures import Extensible, Sign, check_signature
from eigenveil.study.algorithm import Algorithm
from eigenveil.study.study import Choose, Study
from eigenveil_proto.v1 import eigenveil_pb2 as pb

AUTHORIZATION_SIGNED = b"eigenveil/study-authorization/v1\n"
MOST_BYTES = 1024
MOST_SENT = 4096  # bytes of the whole message, as sent and stored
MAX_AUTHORIZATION_SECONDS = 31 * 86_400  # longest validity from now
SIGN_AGAIN = "explain the study, and sign it again"


class AuthorizationTooLong(RequestError):
    """The authorization expires too late; it may become valid with time, or with a correct clock."""


@dataclass(frozen=True, kw_only=True)
class StudyAuthorization(Extensible):
    """Statement of an analyst that exactly this plan runs under this submission until `expires`. `plan` is
    the plan's digest, `key` the digest of the analyst's key card (both hex). `expires` is a Unix time in
    seconds, after which no site answers. Raises PeerError: code `protocol`, a field is invalid."""

    format, noun = "eigenveil-authorization/1", "the authorization of the study"

    federation: str
    analyst: str
    submission: str
    plan: str
    expires: int
    key: str

    def __post_init__(self) -> None:
        texts = [type(text) is str for text in (self.federation, self.analyst, self.submission)]
        digests = [is_digest(text) for text in (self.plan, self.key)]
        if not all(texts + digests) or type(self.expires) is not int or not 0 <= self.expires < 2**53:
            raise PeerError(Code.PROTOCOL, "the authorization of the study has an invalid field")


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedAuthorization:
    """Canonical JSON of an authorization, the Ed25519 signature over it, and the signer's key card."""

    signed_json: bytes
    signature: bytes
    card: SignedAnalystKeyCard

    def read(self) -> StudyAuthorization:
        """Return the statement without a check of its signature. Raises PeerError: code `protocol`, not an
        authorization, or not canonical; `version`, another format."""
        if len(self.signed_json) > MOST_BYTES:
            raise PeerError(Code.PROTOCOL, f"the authorization is too long: {len(self.signed_json)} bytes")
        return StudyAuthorization.read(self.signed_json)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for a release and a coordinator's table; the statement must be readable."""
        return {
            "authorization": parse_json(self.signed_json),
            "signature": self.signature.hex(),
            "card": card_to_dict(self.card),
        }

    def to_proto(self) -> pb.SignedAuthorization:
        """Return the message that is sent and stored."""
        return pb.SignedAuthorization(
            signed_json=self.signed_json,
            signature=self.signature,
            key_card_json=self.card.signed_json,
            key_card_signature=self.card.signature,
        )


def authorization_from_proto(sent: pb.SignedAuthorization) -> SignedAuthorization:
    """Return the inverse of `SignedAuthorization.to_proto`; only the size is checked. Raises PeerError: code
    `protocol`, too long."""
    if sent.ByteSize() > MOST_SENT:
        raise PeerError(Code.PROTOCOL, f"the authorization is too long: {sent.ByteSize()} bytes")
    card = SignedAnalystKeyCard(signed_json=sent.key_card_json, signature=sent.key_card_signature)
    return SignedAuthorization(signed_json=sent.signed_json, signature=sent.signature, card=card)


def authorization_from_dict(written: dict[str, Any]) -> SignedAuthorization:
    """Return the inverse of `SignedAuthorization.to_dict`, without checks. Raises PeerError: code `protocol`,
    not an authorization."""
    try:
        return SignedAuthorization(
            signed_json=canonical(written["authorization"]),
            signature=bytes.fromhex(written["signature"]),
            card=card_from_dict(written["card"], SignedAnalystKeyCard),
        )
    except (ValueError, KeyError, TypeError) as problem:
        raise PeerError(Code.PROTOCOL, "the authorization of the study cannot be read") from problem


def authorize(plan: Plan, card: SignedAnalystKeyCard, expires: int, sign: Sign) -> SignedAuthorization:
    """Return the authorization of `plan` until `expires`, signed with the key of `card` by `sign`. Raises
    RequestError: code `authorization`, the plan and the key card differ in federation or analyst; PeerError:
    the key card is invalid (`SignedAnalystKeyCard.check`)."""
    verified_card = card.check()
    if (plan.federation, plan.analyst) != (verified_card.federation, verified_card.analyst):
        raise RequestError(
            Code.AUTHORIZATION,
            f"the plan is of {plan.analyst or 'no analyst'} in federation {plan.federation}, the key card "
            f"of {verified_card.analyst} in {verified_card.federation}",
        )
    authorization_json = StudyAuthorization(
        federation=plan.federation,
        analyst=plan.analyst,
        submission=plan.submission,
        plan=plan.digest,
        expires=expires,
        key=verified_card.digest,
    ).signed_json
    return SignedAuthorization(
        signed_json=authorization_json, signature=sign(AUTHORIZATION_SIGNED + authorization_json), card=card
    )


def check_authorization(signed: SignedAuthorization, plan: Plan, now: float) -> AnalystKeyCard:
    """Return the key card whose key authorized exactly this plan, as of the Unix time `now`.

    People confirm the owner of the key card. The checks:

    1. The key card is signed by its own key, and this key signed the statement.
    2. The statement is canonical, of a known format, and names the key card.
    3. Federation, analyst, submission and digest are the plan's; federation and analyst the key card's.
    4. It has not expired, and does not expire too late.
    Raises PeerError: code `identity`, an invalid signature; `protocol` or `version`, a statement or key card
    that cannot be read; RequestError: code `authorization`, it is for another plan or key;
    `authorization-expired`; AuthorizationTooLong: code `authorization`."""
    card = signed.card.check()
    check_signature(
        card.signing,
        signed.signature,
        AUTHORIZATION_SIGNED + signed.signed_json,
        f"the study is not signed by the stated key of {card.analyst}; it was rejected",
    )
    stated = signed.read()
    _check_subject(stated, card, plan)
    if now >= stated.expires:
        raise RequestError(
            Code.AUTHORIZATION_EXPIRED,
            f"the signature of {card.analyst} on this study expired at {stated.expires} (Unix time), and it "
            f"is {now:.0f} by this machine's clock; {SIGN_AGAIN}",
        )
    if stated.expires > now + MAX_AUTHORIZATION_SECONDS:
        raise AuthorizationTooLong(
            Code.AUTHORIZATION,
            "the analyst's signature on this study is valid for more than "
            f"{MAX_AUTHORIZATION_SECONDS // 86_400} days from now; {SIGN_AGAIN}, or correct the clock "
            "of this machine",
        )
    return card


def _check_subject(stated: StudyAuthorization, card: AnalystKeyCard, plan: Plan) -> None:
    for what, signed, wanted in (
        ("key", stated.key, card.digest),
        ("federation", stated.federation, plan.federation),
        ("federation", card.federation, plan.federation),
        ("analyst", stated.analyst, plan.analyst),
        ("analyst", card.analyst, plan.analyst),
        ("submission", stated.submission, plan.submission),
    ):
        if signed != wanted:
            raise _wrong_subject(f"is for {what} {signed}, not {wanted}")
    if stated.plan != plan.digest:
        raise _wrong_subject(f"is for another plan, which has changed since; {SIGN_AGAIN}")


def _wrong_subject(why: str) -> EigenveilError:
    return RequestError(Code.AUTHORIZATION, f"the analyst's signature on this study {why}")


def check_plan_matches_study(
    plan: Plan, study: Study, *, federation: str, analyst: str, submission: str
) -> None:
    """Check that `plan` has the analyst's `study`, these names and the whole budget of the study. For the
    algorithm `auto`, any algorithm that `auto` may choose is accepted. Raises PeerError: code `protocol`, the
    plan differs."""
    names = (plan.federation, plan.analyst, plan.submission) == (federation, analyst, submission)
    if not (names and plan.study == study and plan.algorithm in _allowed(study) and _whole(plan)):
        raise PeerError(
            Code.PROTOCOL,
            "the coordinator's plan does not match the submitted study; it was not signed. Tell the "
            "federation's operator",
        )


def _allowed(study: Study) -> tuple[Algorithm, ...]:
    """Return the algorithms that may run a study."""
    if study.algorithm is not Algorithm.AUTO:
        return (study.algorithm,)
    return (Algorithm.AUTO,) if study.choose is Choose.DURING and study.delta > 0 else candidates(study)


def _whole(plan: Plan) -> bool:
    """Return True if a plan has the whole budget of its study, as every valid plan does."""
    try:
        return plan == with_pool(
            plan_for(
                plan.study, plan.algorithm, federation=plan.federation, submission=plan.submission,
                analyst=plan.analyst, version=plan.version, revision=plan.revision,
            )
        )  # fmt: skip
    except RequestError:
        return False


SIMULATED = "no analyst: this is a simulation, which is not signed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseAnalyst:
    """Analyst of a release, and the key that signed its plan. The analyst is verified by the analyst's
    signature, or only named by the coordinator. `key_card` (digest) and `fingerprint` are of the analyst's
    key card. Both are empty if there is no signature, or if its format is newer, which is not `checked`.
    `text` is a clause with this information."""

    analyst: str
    text: str
    key_card: str = ""
    fingerprint: str = ""
    checked: bool = True

    def to_dict(self) -> dict[str, Any]:
        """Return plain values; `signed` is None if the signature was not checked."""
        signed = bool(self.key_card)
        return {
            "analyst": self.analyst or None,
            "signed": signed if self.checked else None,
            "key_card": self.key_card if signed else None,
            "fingerprint": self.fingerprint if signed else None,
            "text": self.text,
        }


def release_analyst(document: Mapping[str, Any]) -> ReleaseAnalyst:
    """Return the analyst of a release document, after a check of the signature in it against its plan. The
    check is as of one second before the signature expires, because releases outlive signatures. Raises
    RequestError: code `bad-release`, the authorization is invalid, or is for another plan."""
    analyst, written = document["plan"]["analyst"], document.get("authorization")  # older ones have none
    if written is None:
        simulated = not analyst or analyst == SIMULATION == document["plan"]["federation"]
        words = SIMULATED if simulated else f"{analyst}, {signature_statement('')}"
        return ReleaseAnalyst(analyst=analyst, text=words)
    try:
        signed = authorization_from_dict(written)
        plan = plan_from_json(canonical(document["plan"]))
        card = check_authorization(signed, plan, signed.read().expires - 1)
    except EigenveilError as problem:
        if isinstance(problem, PeerError) and problem.code is Code.VERSION:
            words = f"{analyst}; the signature was not checked: {problem}"
            return ReleaseAnalyst(analyst=analyst, text=words, checked=False)
        why = f"the analyst's signature in this release is invalid: {problem}"
        raise RequestError(Code.BAD_RELEASE, why) from problem
    words = f"the holder of the key with the fingerprint {card.fingerprint}, in the name of {analyst}"
    return ReleaseAnalyst(analyst=analyst, key_card=card.digest, fingerprint=card.fingerprint, text=words)


def signature_statement(fingerprint: str) -> str:
    """Return the clause about a study's signature after its analyst's name; no `fingerprint`: not signed."""
    if not fingerprint:
        return "not signed: only the coordinator states this name"
    return f"signed by the key with the fingerprint {fingerprint}, which the analyst confirms by telephone"
