"""An analyst's key card: the public key that signs studies, under its own signature [R30].

The coordinator certifies analysts, so it could certify one that it invented. The people of a site therefore
compare the card's digits with its analyst (`fingerprint`), as they do with other sites' cards.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from eigenveil.key_cards.fingerprint import fingerprint
from eigenveil.key_cards.key_card import KEY_BYTES, CardForm
from eigenveil.numerics.encoding import canonical, digest_of
from eigenveil.signed import Sign
from eigenveil.study.study import NAME

CARD_SIGNED = b"eigenveil/analyst-card/v1\n"


@dataclass(frozen=True, kw_only=True)
class AnalystCard:
    """An analyst's public key in one federation: `signing` (raw Ed25519) signs the card and every study.

    Raises:
        PeerError: code `protocol`, a name or the key is none.
    """

    federation: str
    analyst: str
    signing: bytes

    def __post_init__(self) -> None:
        named = all(NAME.fullmatch(name) for name in (self.federation, self.analyst))
        ANALYST_CARD.need(named, "it names no analyst of a federation")
        ANALYST_CARD.need(len(self.signing) == KEY_BYTES, f"its key does not have {KEY_BYTES} bytes")

    @property
    def owner(self) -> str:
        """The analyst's certified name."""
        return self.analyst

    @property
    def keys(self) -> frozenset[bytes]:
        """The one; no two analysts have it in common."""
        return frozenset((self.signing,))

    @property
    def said(self) -> bytes:
        """Canonical JSON: what is signed, and hashed."""
        return canonical(
            {"federation": self.federation, "analyst": self.analyst, "signing": self.signing.hex()}
        )

    @cached_property
    def digest(self) -> str:
        """By which authorizations name it (SHA-256, hex)."""
        return digest_of("analyst-card", self.said)

    @property
    def fingerprint(self) -> str:
        """By which people compare it."""
        return fingerprint(self.digest)


def _build(stated: Mapping[str, Any]) -> AnalystCard:
    return AnalystCard(
        federation=stated["federation"],
        analyst=stated["analyst"],
        signing=bytes.fromhex(stated["signing"]),
    )


ANALYST_CARD = CardForm(prefix=CARD_SIGNED, noun="an analyst's card", build=_build)


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedAnalystCard:
    """The canonical JSON of an analyst's card, and the Ed25519 signature over it."""

    said: bytes
    signature: bytes

    def check(self) -> AnalystCard:
        """The card, if the key that it names signed these very bytes.

        Raises:
            PeerError: code `identity`, another key signed, or it was changed; `protocol`, it is no card, or
                not in canonical form.
        """
        return ANALYST_CARD.check(self.said, self.signature)


def sign_analyst_card(card: AnalystCard, sign: Sign) -> SignedAnalystCard:
    """An analyst's card under the signature of its own key, which `sign` holds."""
    return SignedAnalystCard(said=card.said, signature=ANALYST_CARD.sign(card, sign))
