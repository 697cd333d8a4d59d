"""Who a site is to the other sites: its public keys, in its own name and under its own signature [R28].

The coordinator certifies sites, so it could certify some that it invented. What hides a site's numbers from
it are therefore keys that sites make for themselves, and that people compare (`fingerprint`): a signature by
the card's own key shows that nobody changed the card on its way, and not whose it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from eigenveil.errors import Code, PeerError
from eigenveil.numerics.encoding import canonical, digest_of, parse_json
from eigenveil.protocol.statements import Sign
from eigenveil.secure_aggregation.fingerprint import fingerprint
from eigenveil.signed import check_signature
from eigenveil.study.study import NAME

CARD_SIGNED = b"eigenveil/peer-card/v1\n"
KEY_BYTES = 32
PRIME = 2**255 - 19  # of the field in which X25519 computes
ANYBODY = X25519PrivateKey.from_private_bytes(bytes(KEY_BYTES))  # to try a public key with; hides nothing
KEPT = 2**12  # cards whose signature was verified: a list of peers is read again in every round


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
        _need(all(NAME.fullmatch(name) for name in names), "it names no site of a federation")
        _need(all(len(key) == KEY_BYTES for key in keys), f"a key does not have {KEY_BYTES} bytes")
        _need(int.from_bytes(self.agreement, "little") < PRIME, "its key is not written in the one way")
        _need(_agrees(self.agreement), "its key would give the same secret to everybody")

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
        return _checked(self.said, self.signature)


def sign_card(card: Card, sign: Sign) -> SignedCard:
    """A card under the signature of its own key, which `sign` holds."""
    return SignedCard(said=card.said, signature=sign(CARD_SIGNED + card.said))


@lru_cache(maxsize=KEPT)
def _checked(said: bytes, signature: bytes) -> Card:
    card = _read(said)
    check_signature(
        card.signing,
        signature,
        CARD_SIGNED + said,
        f"the card of {card.site} is not signed by its own key; it was not believed",
    )
    return card


def _read(said: bytes) -> Card:
    try:
        stated = parse_json(said)
        card = Card(
            federation=stated["federation"],
            site=stated["site"],
            agreement=bytes.fromhex(stated["agreement"]),
            signing=bytes.fromhex(stated["signing"]),
        )
    except (ValueError, KeyError, TypeError) as problem:
        raise PeerError(Code.PROTOCOL, "a site's card cannot be read; it was not believed") from problem
    _need(card.said == said, "it is not in canonical form")
    return card


def _agrees(agreement: bytes) -> bool:
    """Whether a secret shared by way of this key depends on the other key: not with a point of low order,
    which every private key takes to zero, and the library refuses to go on from there."""
    try:
        ANYBODY.exchange(X25519PublicKey.from_public_bytes(agreement))
    except ValueError:
        return False
    return True


def _need(holds: bool, why: str) -> None:
    if not holds:
        raise PeerError(Code.PROTOCOL, f"a site's card is not believed: {why}")
