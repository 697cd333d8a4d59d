"""The analyst's signature under one plan: what makes a study its analyst's, and nobody else's [R31].

A plan carries the release key alone, so the coordinator could plan anything in any analyst's name. An
authorization names the plan's digest, which binds sites, trust, relation, budget, attempts and all else that
the plan follows from; it names the unique submission, and it ends. It is signed on the analyst's machine.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from eigenveil.analyst_signature.card import AnalystCard, SignedAnalystCard
from eigenveil.errors import Code, EigenveilError, PeerError, RequestError
from eigenveil.key_cards.card_file import card_from_dict, card_to_dict
from eigenveil.numerics.encoding import canonical, parse_json
from eigenveil.protocol.plan import Plan
from eigenveil.signed import Sign, check_signature
from eigenveil_proto.v1 import eigenveil_pb2 as pb

AUTHORIZATION_SIGNED = b"eigenveil/study-authorization/v1\n"
FORM = 1
HEX = 64
MOST_BYTES = 1024
MOST_SENT = 4096  # bytes of all of it, as it travels and is stored
MAX_AUTHORIZATION_SECONDS = 31 * 86_400  # how far ahead an expiry may lie
SHOULD_SIGN_AGAIN = "explain the study, and sign it again"


class LastsTooLong(RequestError):
    """An authorization ends later than any may from now: by a right clock, or in time, it holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyAuthorization:
    """An analyst's statement that this plan, and no other, runs under this submission until `expires`.

    `plan` is the plan's digest, `key` the digest of the analyst's card (both hex), `expires` a Unix time in
    seconds, after which no site answers, and `form` the version of this statement.

    Raises:
        PeerError: code `protocol`, a field is not of its form; `version`, another form.
    """

    form: int = FORM
    federation: str
    analyst: str
    submission: str
    plan: str
    expires: int
    key: str

    def __post_init__(self) -> None:
        if self.form != FORM or type(self.form) is not int:
            raise PeerError(
                Code.VERSION, f"an authorization of form {self.form!r} came, and this software reads {FORM}"
            )
        texts = [type(text) is str for text in (self.federation, self.analyst, self.submission)]
        digests = [type(text) is str and len(text) == HEX for text in (self.plan, self.key)]
        if not all(texts + digests) or type(self.expires) is not int or not 0 <= self.expires < 2**53:
            raise PeerError(Code.PROTOCOL, "an authorization of a study is not of its form")

    @property
    def said(self) -> bytes:
        """Canonical JSON: what is signed."""
        return canonical(asdict(self))


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedAuthorization:
    """The canonical JSON of an authorization, the Ed25519 signature over it, and the card of the key that
    signed."""

    said: bytes
    signature: bytes
    card: SignedAnalystCard

    def read(self) -> StudyAuthorization:
        """The statement, signed or not.

        Raises:
            PeerError: code `protocol`, it is none, or not in canonical form; `version`, another form.
        """
        if len(self.said) > MOST_BYTES:
            raise PeerError(Code.PROTOCOL, f"an authorization of {len(self.said)} bytes is too long")
        try:
            stated = parse_json(self.said)
            if stated["form"] != FORM:  # before its fields: another form may have others
                raise PeerError(
                    Code.VERSION,
                    f"an authorization of form {stated['form']!r} came, and this software reads {FORM}",
                )
            statement = StudyAuthorization(**stated)
        except (ValueError, KeyError, TypeError) as problem:
            raise PeerError(Code.PROTOCOL, "an authorization of a study cannot be read") from problem
        if statement.said != self.said:
            raise PeerError(Code.PROTOCOL, "an authorization of a study is not in canonical form")
        return statement

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as a release and a coordinator's table show them; of a statement that was read."""
        return {
            "authorization": parse_json(self.said),
            "signature": self.signature.hex(),
            "card": card_to_dict(self.card),
        }

    def to_proto(self) -> pb.SignedAuthorization:
        """As it travels, and as it is stored."""
        return pb.SignedAuthorization(
            said=self.said,
            signature=self.signature,
            card_said=self.card.said,
            card_signature=self.card.signature,
        )


def authorization_from_proto(sent: pb.SignedAuthorization) -> SignedAuthorization:
    """The inverse of `SignedAuthorization.to_proto`; nothing is checked but its size.

    Raises:
        PeerError: code `protocol`, it is longer than any.
    """
    if sent.ByteSize() > MOST_SENT:
        raise PeerError(Code.PROTOCOL, f"an authorization of {sent.ByteSize()} bytes is too long")
    card = SignedAnalystCard(said=sent.card_said, signature=sent.card_signature)
    return SignedAuthorization(said=sent.said, signature=sent.signature, card=card)


def authorization_from_dict(written: dict[str, Any]) -> SignedAuthorization:
    """The inverse of `SignedAuthorization.to_dict`; nothing is checked.

    Raises:
        PeerError: code `protocol`, it is none.
    """
    try:
        return SignedAuthorization(
            said=canonical(written["authorization"]),
            signature=bytes.fromhex(written["signature"]),
            card=card_from_dict(written["card"], SignedAnalystCard),
        )
    except (ValueError, KeyError, TypeError) as problem:
        raise PeerError(Code.PROTOCOL, "an authorization of a study cannot be read") from problem


def authorize(plan: Plan, card: SignedAnalystCard, expires: int, sign: Sign) -> SignedAuthorization:
    """The authorization of `plan` until `expires` by the owner of `card`, whose private key `sign` holds.

    Raises:
        RequestError: code `authorization`, the plan is of another federation or analyst than the card.
        PeerError: the card does not hold (`SignedAnalystCard.check`).
    """
    own = card.check()
    if (plan.federation, plan.analyst) != (own.federation, own.analyst):
        raise RequestError(
            Code.AUTHORIZATION,
            f"this plan is of {plan.analyst or 'nobody'} in federation {plan.federation}, and the key of "
            f"{own.analyst} in {own.federation}",
        )
    said = StudyAuthorization(
        federation=plan.federation,
        analyst=plan.analyst,
        submission=plan.submission,
        plan=plan.digest,
        expires=expires,
        key=own.digest,
    ).said
    return SignedAuthorization(said=said, signature=sign(AUTHORIZATION_SIGNED + said), card=card)


def check_authorization(signed: SignedAuthorization, plan: Plan, now: float) -> AnalystCard:
    """The card whose key authorized this very plan, as of the Unix time `now`. Whose card it is, people say.

    1. The card is signed by its own key; that key signed the statement.
    2. The statement is in canonical form, of a form that is known, and names the card.
    3. Federation, analyst, submission and digest are the plan's, the federation and analyst the card's.
    4. It has not expired, and does not last longer than authorizations may.

    Raises:
        PeerError: code `identity`, a signature does not hold; `protocol` or `version`, a statement or card
            cannot be read.
        RequestError: code `authorization`, it is for something else; `authorization-expired`.
        LastsTooLong: code `authorization`.
    """
    card = signed.card.check()
    check_signature(
        card.signing,
        signed.signature,
        AUTHORIZATION_SIGNED + signed.said,
        f"this study is not signed by the key of {card.analyst} that it names; it was not believed",
    )
    stated = signed.read()
    _check_subject(stated, card, plan)
    if now >= stated.expires:
        raise RequestError(
            Code.AUTHORIZATION_EXPIRED,
            f"the signature of {card.analyst} under this study has expired: it ended at {stated.expires} "
            f"(Unix time), and the clock here says {now:.0f}; {SHOULD_SIGN_AGAIN}",
        )
    if stated.expires > now + MAX_AUTHORIZATION_SECONDS:
        raise LastsTooLong(
            Code.AUTHORIZATION,
            "the analyst's signature under this study lasts longer than "
            f"{MAX_AUTHORIZATION_SECONDS // 86_400} days from now; {SHOULD_SIGN_AGAIN}, or set the clock of "
            "this machine right",
        )
    return card


def _check_subject(stated: StudyAuthorization, card: AnalystCard, plan: Plan) -> None:
    for what, signed, wanted in (
        ("key", stated.key, card.digest),
        ("federation", stated.federation, plan.federation),
        ("federation", card.federation, plan.federation),
        ("analyst", stated.analyst, plan.analyst),
        ("analyst", card.analyst, plan.analyst),
        ("submission", stated.submission, plan.submission),
    ):
        if signed != wanted:
            raise _for_another(f"is for {what} {signed}, not {wanted}")
    if stated.plan != plan.digest:
        raise _for_another(f"is for another plan: the plan changed since it was signed; {SHOULD_SIGN_AGAIN}")


def _for_another(why: str) -> EigenveilError:
    return RequestError(Code.AUTHORIZATION, f"the analyst's signature under this study {why}")
