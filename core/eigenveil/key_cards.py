"""Key cards of an analyst [R30] and of a site [R28]: keys and name, signed by the card's own key. The
coordinator certifies analysts and sites, so it could certify invented ones. The people of a site therefore
compare the fingerprints of key cards with their analysts and with other sites. The signature proves that a
card is unchanged, not who owns it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, ClassVar, Generic, Self, TypeVar

from eigenveil.errors import Code, PeerError, RequestError
from eigenveil.numerics.encoding import canonical, digest_of, parse_json
from eigenveil.signatures import Extensible, Sign, check_format, check_signature, formatted
from eigenveil.study.study import NAME

KEY_BYTES = 32
CACHED = 2**12  # key cards with a verified signature: a roster is read again in every round


@dataclass(frozen=True, kw_only=True)
class KeyCard(Extensible):
    """Public keys of one owner in one federation. `signing` (raw Ed25519) signs the card. Raises PeerError:
    code `protocol`, a name or a key is invalid."""

    role: ClassVar[str]  # also the name of the field with the owner
    domain: ClassVar[str]  # of the digest
    prefix: ClassVar[bytes]  # first bytes that the signature covers

    federation: str
    signing: bytes

    def __post_init__(self) -> None:
        named = all(NAME.fullmatch(name) for name in (self.federation, self.owner))
        self.need(named, f"the name of the {self.role} or federation is invalid")
        self.need(all(len(key) == KEY_BYTES for key in self.keys), f"a key does not have {KEY_BYTES} bytes")

    @classmethod
    def need(cls, holds: bool, problem: str) -> None:
        """Raise PeerError, code `protocol`, unless `holds` is True."""
        if not holds:
            raise PeerError(Code.PROTOCOL, f"the {cls.role}'s key card was rejected: {problem}")

    @property
    def owner(self) -> str:
        """Certified name that the card states."""
        name: str = getattr(self, self.role)
        return name

    @property
    def keys(self) -> frozenset[bytes]:
        """All public keys of the card; no two owners share one."""
        return frozenset({self.signing})

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as plain values, `signing` in hex."""
        return {**super().to_dict(), "signing": self.signing.hex()}

    @classmethod
    def from_dict(cls, stated: Mapping[str, Any], unknown: Mapping[str, Any]) -> Self:
        """Return the inverse of `to_dict`."""
        return cls(**{**stated, "signing": bytes.fromhex(stated["signing"])}, unknown=unknown)

    @cached_property
    def digest(self) -> str:
        """SHA-256 (hex), by which authorizations and studies refer to the key card."""
        return digest_of(self.domain, self.signed_json)

    @property
    def fingerprint(self) -> str:
        """Fingerprint that people compare."""
        return fingerprint(self.digest)


@dataclass(frozen=True, kw_only=True)
class AnalystKeyCard(KeyCard):
    """Public key of an analyst: `signing` signs the card and every study."""

    role, domain, prefix = "analyst", "analyst-card", b"eigenveil/analyst-card/v1\n"
    format, noun = "eigenveil-analyst-card/1", "the analyst's key card"

    analyst: str


@dataclass(frozen=True, kw_only=True)
class SiteKeyCard(KeyCard):
    """Public key of a site: `signing` signs the card, and a key for each masked study
    (`eigenveil.secure_aggregation.study_keys`)."""

    role, domain, prefix = "site", "peer-card", b"eigenveil/peer-card/v1\n"
    format, noun = "eigenveil-site-card/1", "the site's key card"

    site: str


AnyCard = TypeVar("AnyCard", bound=KeyCard)
Card = TypeVar("Card", bound=KeyCard, covariant=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedKeyCard(Generic[Card]):
    """Canonical JSON of a key card, and the Ed25519 signature over it."""

    kind: ClassVar[type[KeyCard]]

    signed_json: bytes
    signature: bytes

    @classmethod
    def of(cls, card: KeyCard, sign: Sign) -> Self:
        """Return a key card with the signature of its own key, by `sign`."""
        return cls(signed_json=card.signed_json, signature=sign(card.prefix + card.signed_json))

    def check(self) -> Card:
        """Return the key card, if its own key signed its exact bytes. Raises PeerError: code `identity`,
        signed by another key or changed; `protocol`, not a key card, or not canonical."""
        return _checked(self)  # type: ignore[no-any-return]  # of a cache, which has no type


class SignedAnalystKeyCard(SignedKeyCard[AnalystKeyCard]):
    """Signed key card of an analyst."""

    __slots__ = ()
    kind = AnalystKeyCard


class SignedSiteKeyCard(SignedKeyCard[SiteKeyCard]):
    """Signed key card of a site."""

    __slots__ = ()
    kind = SiteKeyCard


@lru_cache(maxsize=CACHED)
def _checked(signed: SignedKeyCard[Any]) -> Any:
    card = signed.kind.read(signed.signed_json)
    refusal = f"the key card of {card.owner} is not signed by its own key; it was rejected"
    check_signature(card.signing, signed.signature, card.prefix + signed.signed_json, refusal)
    return card


GROUPS, DIGITS = 8, 5
BETWEEN = re.compile(r"[\s.,:-]+")  # separators that people write, read out and paste
WHOLE = re.compile(rf"[0-9]{{{GROUPS * DIGITS}}}")


def fingerprint(digest: str) -> str:
    """Return the fingerprint of a hexadecimal digest: eight groups of five decimal digits. Two people compare
    these forty digits by telephone: the digest of the key card modulo 10^40. A forged card with the
    fingerprint of an honest site takes about 2^132 attempts (log2 10^40 = 132.9). Two own cards with one
    fingerprint take about 2^66 attempts and gain nothing: their maker could also share the secrets of one
    card."""
    return _grouped(f"{int(digest, 16) % 10 ** (GROUPS * DIGITS):0{GROUPS * DIGITS}d}")


def typed_fingerprint(text: str) -> str:
    """Return the fingerprint that a person typed, in eight groups. Raises RequestError: code `bad-argument`,
    not forty digits."""
    digits = BETWEEN.sub("", text)
    if WHOLE.fullmatch(digits) is None:
        wanted = f"type {GROUPS * DIGITS} digits, {GROUPS} groups of {DIGITS}"
        found = f"got {len(digits)} digits" if re.fullmatch("[0-9]*", digits) else "got other characters"
        raise RequestError(Code.BAD_ARGUMENT, f"{wanted}; {found}")
    return _grouped(digits)


def _grouped(digits: str) -> str:
    return " ".join(digits[start : start + DIGITS] for start in range(0, len(digits), DIGITS))


CARDS_FORMAT = "eigenveil-cards/1"
MOST_BYTES = 2**21  # of a file; some 5,000 cards
AnySigned = TypeVar("AnySigned", bound=SignedKeyCard[KeyCard])


def cards_to_file(cards: Iterable[SignedKeyCard[KeyCard]]) -> bytes:
    """Return the content of a file of these key cards. People send each other such files: `*.peer` or
    `*.analyst`, JSON of signed key cards. Nothing in a file is secret, and a file does not prove that a key
    card is its owner's."""
    content = formatted(CARDS_FORMAT, {"cards": [card_to_dict(one) for one in cards]})
    return json.dumps(content, indent=2).encode() + b"\n"


def cards_from_file(data: bytes, kind: Callable[..., AnySigned]) -> tuple[AnySigned, ...]:
    """Return the signed key cards in a file, all of class `kind` and verified (`SignedKeyCard.check`). White
    space, line ends and the order of fields may differ from the original file. Raises PeerError: code
    `protocol`, not such a file, or a key card of another kind; `identity`, a key card is not signed by its
    own key."""
    if len(data) > MOST_BYTES:
        raise PeerError(Code.PROTOCOL, f"the file of key cards is too long: {len(data)} bytes")
    try:
        content = parse_json(data)
        check_format(content, CARDS_FORMAT, "this file of key cards")
        cards = tuple(card_from_dict(one, kind) for one in content["cards"])
    except (ValueError, KeyError, TypeError) as problem:
        raise PeerError(
            Code.PROTOCOL, "this is not a file of key cards; ask its sender for a new one"
        ) from problem
    if not cards:
        raise PeerError(Code.PROTOCOL, "the file has no key card; ask its sender for a new one")
    for one in cards:
        one.check()
    return cards


def card_to_dict(card: SignedKeyCard[KeyCard]) -> dict[str, Any]:
    """Return a signed key card as readable plain values."""
    return {"card": parse_json(card.signed_json), "signature": card.signature.hex()}


def card_from_dict(written: dict[str, Any], kind: Callable[..., AnySigned]) -> AnySigned:
    """Return the inverse of `card_to_dict`, without checks. Raises ValueError, KeyError, TypeError: not a key
    card."""
    return kind(signed_json=canonical(written["card"]), signature=bytes.fromhex(written["signature"]))
