"""Common form of key cards: canonical JSON signed by the card's own key, its fingerprint, and its files.

The signature proves that the card is unchanged, not who owns it. For that, people compare fingerprints.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Generic, Protocol, TypeVar

from eigenveil.errors import Code, PeerError, RequestError
from eigenveil.numerics.encoding import canonical, parse_json
from eigenveil.signatures import Sign, check_signature

KEY_BYTES = 32
CACHED = 2**12  # key cards with a verified signature: a roster is read again in every round


class KeyCard(Protocol):
    """Public keys of one owner in one federation."""

    @property
    def federation(self) -> str: ...

    @property
    def signing(self) -> bytes:
        """Raw Ed25519 key that signs the card."""

    @property
    def owner(self) -> str:
        """Name that the card states."""

    @property
    def signed_json(self) -> bytes:
        """Canonical JSON, which is signed and hashed."""

    @property
    def digest(self) -> str: ...

    @property
    def fingerprint(self) -> str: ...

    @property
    def keys(self) -> frozenset[bytes]:
        """All public keys of the card; no two owners share one."""


AnyCard = TypeVar("AnyCard", bound=KeyCard)
ReadCard = TypeVar("ReadCard", bound=KeyCard, covariant=True)


class SignedKeyCard(Protocol[ReadCard]):
    """Canonical JSON of a key card, and the Ed25519 signature over it."""

    @property
    def signed_json(self) -> bytes: ...

    @property
    def signature(self) -> bytes: ...

    def check(self) -> ReadCard:
        """Return the key card, if its own key signed its exact bytes. Raises as `CardForm.check`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CardForm(Generic[AnyCard]):
    """Kind of key card.

    `prefix` are the first bytes that its signature covers, `noun` is its name in messages. `build` makes a
    card from its JSON fields (raises ValueError, KeyError, TypeError).
    """

    prefix: bytes
    noun: str
    build: Callable[[Mapping[str, Any]], AnyCard]

    def sign(self, card: AnyCard, sign: Sign) -> bytes:
        """Return the signature of a card by its own key, with `sign`."""
        return sign(self.prefix + card.signed_json)

    def check(self, card_json: bytes, signature: bytes) -> AnyCard:
        """Return the key card, if its own key signed its exact bytes.

        Raises:
            PeerError: code `identity`, signed by another key or changed; `protocol`, not a key card, or not
                canonical.
        """
        return _checked(self, card_json, signature)  # type: ignore[no-any-return]  # of a cache, which has no type

    def need(self, holds: bool, problem: str) -> None:
        """Raise PeerError, code `protocol`, unless `holds` is True."""
        if not holds:
            raise PeerError(Code.PROTOCOL, f"{self.noun} was rejected: {problem}")


@lru_cache(maxsize=CACHED)
def _checked(form: CardForm[Any], card_json: bytes, signature: bytes) -> Any:
    try:
        card = form.build(parse_json(card_json))
    except (ValueError, KeyError, TypeError) as problem:
        raise PeerError(Code.PROTOCOL, f"{form.noun} cannot be read; it was rejected") from problem
    form.need(card.signed_json == card_json, "it is not in canonical form")
    check_signature(
        card.signing,
        signature,
        form.prefix + card_json,
        f"the key card of {card.owner} is not signed by its own key; it was rejected",
    )
    return card


GROUPS, DIGITS = 8, 5
BETWEEN = re.compile(r"[\s.,:-]+")  # separators that people write, read out and paste
WHOLE = re.compile(rf"[0-9]{{{GROUPS * DIGITS}}}")


def fingerprint(digest: str) -> str:
    """Return the fingerprint of a hexadecimal digest: eight groups of five decimal digits.

    Two people compare these forty digits by telephone: the digest of the key card modulo 10^40. A forged card
    with the fingerprint of an honest site takes about 2^132 attempts (log2 10^40 = 132.9). Two own cards with
    one fingerprint take about 2^66 attempts and gain nothing: their maker could also share the secrets of one
    card.
    """
    return _grouped(f"{int(digest, 16) % 10 ** (GROUPS * DIGITS):0{GROUPS * DIGITS}d}")


def typed_fingerprint(text: str) -> str:
    """Return the fingerprint that a person typed, in eight groups.

    Raises:
        RequestError: code `bad-argument`, not forty digits.
    """
    digits = BETWEEN.sub("", text)
    if WHOLE.fullmatch(digits) is None:
        wanted = f"type {GROUPS * DIGITS} digits, {GROUPS} groups of {DIGITS}"
        found = f"got {len(digits)} digits" if re.fullmatch("[0-9]*", digits) else "got other characters"
        raise RequestError(Code.BAD_ARGUMENT, f"{wanted}; {found}")
    return _grouped(digits)


def _grouped(digits: str) -> str:
    return " ".join(digits[start : start + DIGITS] for start in range(0, len(digits), DIGITS))


MOST_BYTES = 2**21  # of a file; some 5,000 cards
AnySigned = TypeVar("AnySigned", bound=SignedKeyCard[KeyCard])


def cards_to_file(cards: Iterable[SignedKeyCard[KeyCard]]) -> bytes:
    """Return the content of a file of these key cards.

    People send each other such files: `*.peer` or `*.analyst`, JSON of signed key cards. Nothing in a file is
    secret, and a file does not prove that a key card is its owner's.
    """
    return json.dumps({"cards": [card_to_dict(one) for one in cards]}, indent=2).encode() + b"\n"


def cards_from_file(data: bytes, kind: Callable[..., AnySigned]) -> tuple[AnySigned, ...]:
    """Return the signed key cards in a file, all of class `kind` and verified (`SignedKeyCard.check`).

    White space, line ends and the order of fields may differ from the original file.

    Raises:
        PeerError: code `protocol`, not such a file, or a key card of another kind; `identity`, a key card is
            not signed by its own key.
    """
    if len(data) > MOST_BYTES:
        raise PeerError(Code.PROTOCOL, f"the file of key cards is too long: {len(data)} bytes")
    try:
        cards = tuple(card_from_dict(one, kind) for one in parse_json(data)["cards"])
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
    """Return the inverse of `card_to_dict`, without checks.

    Raises:
        ValueError, KeyError, TypeError: not a key card.
    """
    return kind(said=canonical(written["card"]), signature=bytes.fromhex(written["signature"]))
