"""Who a site is to the other sites: its public keys, in its own name and under its own signature [R28].

The coordinator certifies sites, so it could certify some that it invented. What hides a site's numbers from
it are therefore keys that sites make for themselves, and that people compare (`fingerprint`): a signature by
the card's own key shows that nobody changed the card on its way, and not whose it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from eigenveil.key_cards.fingerprint import fingerprint
from eigenveil.key_cards.key_card import KEY_BYTES, CardForm
from eigenveil.numerics.encoding import canonical, digest_of
from eigenveil.signed import Sign
from eigenveil.study.study import NAME

CARD_SIGNED = b"eigenveil/peer-card/v1\n"
PRIME = 2**255 - 19  # of the field in which X25519 computes
ANYBODY = X25519PrivateKey.from_private_bytes(bytes(KEY_BYTES))  # to try a public key with; hides nothing


@dataclass(frozen=True, kw_only=True)
class Card:
    """A site's public keys: `agreement` (raw X25519), with which it shares a secret with each other site, and
    `signing` (raw Ed25519), which signs the card.

    A site can write any key on its card, another site's too: what is derived from a shared secret must name
    both cards.

    Raises:
        PeerError: code `protocol`, a name or a key is none.
    """

    federation: str
    site: str
    agreement: bytes
    signing: bytes

    def __post_init__(self) -> None:
        names, keys = (self.federation, self.site), (self.agreement, self.signing)
        SITE_CARD.need(all(NAME.fullmatch(name) for name in names), "it names no site of a federation")
        SITE_CARD.need(all(len(key) == KEY_BYTES for key in keys), f"a key does not have {KEY_BYTES} bytes")
        SITE_CARD.need(
            int.from_bytes(self.agreement, "little") < PRIME, "its key is not written in the one way"
        )
        SITE_CARD.need(_agrees(self.agreement), "its key would give the same secret to everybody")

    @property
    def owner(self) -> str:
        """The site's name."""
        return self.site

    @property
    def keys(self) -> frozenset[bytes]:
        """Both; no two sites have one in common."""
        return frozenset((self.agreement, self.signing))

    @property
    def said(self) -> bytes:
        """Canonical JSON: what is signed, and hashed."""
        return canonical(
            {
                "federation": self.federation,
                "site": self.site,
                "agreement": self.agreement.hex(),
                "signing": self.signing.hex(),
            }
        )

    @cached_property
    def digest(self) -> str:
        """By which studies name it."""
        return digest_of("peer-card", self.said)

    @property
    def fingerprint(self) -> str:
        """By which people compare it."""
        return fingerprint(self.digest)


def _build(stated: Mapping[str, Any]) -> Card:
    return Card(
        federation=stated["federation"],
        site=stated["site"],
        agreement=bytes.fromhex(stated["agreement"]),
        signing=bytes.fromhex(stated["signing"]),
    )


SITE_CARD = CardForm(prefix=CARD_SIGNED, noun="a site's card", build=_build)


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedCard:
    """The canonical JSON of a card, and the Ed25519 signature over it."""

    said: bytes
    signature: bytes

    def check(self) -> Card:
        """The card, if the key that it names signed these very bytes.

        Raises:
            PeerError: code `identity`, another key signed, or it was changed; `protocol`, it is no card, or
                not in canonical form.
        """
        return SITE_CARD.check(self.said, self.signature)


def sign_card(card: Card, sign: Sign) -> SignedCard:
    """A card under the signature of its own key, which `sign` holds."""
    return SignedCard(said=card.said, signature=SITE_CARD.sign(card, sign))


def _agrees(agreement: bytes) -> bool:
    """Whether a secret shared by way of this key depends on the other key: not with a point of low order,
    which every private key takes to zero, and the library refuses to go on from there."""
    try:
        ANYBODY.exchange(X25519PublicKey.from_public_bytes(agreement))
    except ValueError:
        return False
    return True
