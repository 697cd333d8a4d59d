"""The form that every key card has: canonical JSON of a name and public keys, signed by its own signing key.

That signature shows that nobody changed the card on its way, and not whose it is: people compare digits for
that (`fingerprint`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Generic, Protocol, TypeVar

from eigenveil.errors import Code, PeerError
from eigenveil.numerics.encoding import parse_json
from eigenveil.signed import Sign, check_signature

KEY_BYTES = 32
CACHED = 2**12  # cards whose signature was verified: a roster is read again in every round


class KeyCard(Protocol):
    """The public keys of one owner in one federation."""

    @property
    def federation(self) -> str: ...

    @property
    def signing(self) -> bytes:
        """Raw Ed25519, which signs the card."""

    @property
    def owner(self) -> str:
        """The name that the card claims."""

    @property
    def said(self) -> bytes:
        """Canonical JSON: what is signed, and hashed."""

    @property
    def digest(self) -> str: ...

    @property
    def fingerprint(self) -> str: ...

    @property
    def keys(self) -> frozenset[bytes]:
        """Every public key on it; no two owners have one in common."""


AnyCard = TypeVar("AnyCard", bound=KeyCard)
ReadCard = TypeVar("ReadCard", bound=KeyCard, covariant=True)


class SignedKeyCard(Protocol[ReadCard]):
    """The canonical JSON of a card, and the Ed25519 signature over it."""

    @property
    def said(self) -> bytes: ...

    @property
    def signature(self) -> bytes: ...

    def check(self) -> ReadCard:
        """The card, if the key that it names signed these very bytes. Raises as `CardForm.check`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CardForm(Generic[AnyCard]):
    """One kind of card: the `prefix` that its signature covers first, its `noun` in messages, and `build`,
    which makes a card of the fields of its JSON (raises ValueError, KeyError, TypeError)."""

    prefix: bytes
    noun: str
    build: Callable[[Mapping[str, Any]], AnyCard]

    def sign(self, card: AnyCard, sign: Sign) -> bytes:
        """The signature of the card's own key, which `sign` holds."""
        return sign(self.prefix + card.said)

    def check(self, said: bytes, signature: bytes) -> AnyCard:
        """The card, if the key that it names signed these very bytes.

        Raises:
            PeerError: code `identity`, another key signed, or it was changed; `protocol`, it is no card, or
                not in canonical form.
        """
        return _checked(self, said, signature)  # type: ignore[no-any-return]  # of a cache, which has no type

    def need(self, holds: bool, why: str) -> None:
        """Insist on what a card must be. Raises PeerError, code `protocol`."""
        if not holds:
            raise PeerError(Code.PROTOCOL, f"{self.noun} is not believed: {why}")


@lru_cache(maxsize=CACHED)
def _checked(form: CardForm[Any], said: bytes, signature: bytes) -> Any:
    try:
        card = form.build(parse_json(said))
    except (ValueError, KeyError, TypeError) as problem:
        raise PeerError(Code.PROTOCOL, f"{form.noun} cannot be read; it was not believed") from problem
    form.need(card.said == said, "it is not in canonical form")
    check_signature(
        card.signing,
        signature,
        form.prefix + said,
        f"the card of {card.owner} is not signed by its own key; it was not believed",
    )
    return card
