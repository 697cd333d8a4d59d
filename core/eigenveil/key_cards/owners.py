"""Key cards of an analyst [R30] and of a site [R28]: public keys and name, each with its own signature.

The coordinator certifies analysts and sites, so it could certify invented ones. The people of a site
therefore compare the fingerprints of key cards with their analysts and with other sites. Masks use keys that
sites make themselves. The signature by the card's own key proves that the card is unchanged, not who owns it;
the key of an analyst's card also signs studies.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from eigenveil.key_cards.key_card import KEY_BYTES, CardForm, fingerprint
from eigenveil.numerics.encoding import canonical, digest_of
from eigenveil.signatures import Sign
from eigenveil.study.study import NAME

ANALYST_CARD_SIGNED = b"eigenveil/analyst-card/v1\n"


@dataclass(frozen=True, kw_only=True)
class AnalystKeyCard:
    """Public key of an analyst in one federation: `signing` (raw Ed25519) signs the card and every study.

    Raises:
        PeerError: code `protocol`, a name or the key is invalid.
    """

    federation: str
    analyst: str
    signing: bytes

    def __post_init__(self) -> None:
        named = all(NAME.fullmatch(name) for name in (self.federation, self.analyst))
        ANALYST_CARD_FORM.need(named, "the name of the analyst or federation is invalid")
        ANALYST_CARD_FORM.need(len(self.signing) == KEY_BYTES, f"its key does not have {KEY_BYTES} bytes")

    @property
    def owner(self) -> str:
        """Certified name of the analyst."""
        return self.analyst

    @property
    def keys(self) -> frozenset[bytes]:
        """The signing key; no two analysts share one."""
        return frozenset((self.signing,))

    @property
    def signed_json(self) -> bytes:
        """Canonical JSON, which is signed and hashed."""
        return canonical(
            {"federation": self.federation, "analyst": self.analyst, "signing": self.signing.hex()}
        )

    @cached_property
    def digest(self) -> str:
        """SHA-256 (hex), by which authorizations refer to the key card."""
        return digest_of("analyst-card", self.signed_json)

    @property
    def fingerprint(self) -> str:
        """Fingerprint that people compare."""
        return fingerprint(self.digest)


def _build_analyst_card(stated: Mapping[str, Any]) -> AnalystKeyCard:
    return AnalystKeyCard(
        federation=stated["federation"],
        analyst=stated["analyst"],
        signing=bytes.fromhex(stated["signing"]),
    )


ANALYST_CARD_FORM = CardForm(
    prefix=ANALYST_CARD_SIGNED, noun="the analyst's key card", build=_build_analyst_card
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedAnalystKeyCard:
    """Canonical JSON of an analyst's key card, and the Ed25519 signature over it."""

    signed_json: bytes
    signature: bytes

    def check(self) -> AnalystKeyCard:
        """Return the key card, if its own key signed its exact bytes.

        Raises:
            PeerError: code `identity`, signed by another key or changed; `protocol`, not a key card, or not
                canonical.
        """
        return ANALYST_CARD_FORM.check(self.signed_json, self.signature)


def sign_analyst_card(card: AnalystKeyCard, sign: Sign) -> SignedAnalystKeyCard:
    """Return an analyst's key card with the signature of its own key, by `sign`."""
    return SignedAnalystKeyCard(signed_json=card.signed_json, signature=ANALYST_CARD_FORM.sign(card, sign))


SITE_CARD_SIGNED = b"eigenveil/peer-card/v1\n"
PRIME = 2**255 - 19  # of the field of X25519
PROBE_KEY = X25519PrivateKey.from_private_bytes(bytes(KEY_BYTES))  # public, only to test a public key


@dataclass(frozen=True, kw_only=True)
class SiteKeyCard:
    """Public keys of a site: `agreement` (raw X25519) for shared secrets, `signing` (raw Ed25519).

    A site can put any key on its card, also another site's. So every key derived from a shared secret must
    depend on both key cards.

    Raises:
        PeerError: code `protocol`, a name or a key is invalid.
    """

    federation: str
    site: str
    agreement: bytes
    signing: bytes

    def __post_init__(self) -> None:
        names, keys = (self.federation, self.site), (self.agreement, self.signing)
        SITE_CARD_FORM.need(
            all(NAME.fullmatch(name) for name in names), "the name of the site or federation is invalid"
        )
        SITE_CARD_FORM.need(
            all(len(key) == KEY_BYTES for key in keys), f"a key does not have {KEY_BYTES} bytes"
        )
        SITE_CARD_FORM.need(
            int.from_bytes(self.agreement, "little") < PRIME, "its agreement key is not in canonical form"
        )
        SITE_CARD_FORM.need(
            _is_contributory(self.agreement), "its agreement key would give all sites the same secret"
        )

    @property
    def owner(self) -> str:
        """Name of the site."""
        return self.site

    @property
    def keys(self) -> frozenset[bytes]:
        """Both keys; no two sites share one."""
        return frozenset((self.agreement, self.signing))

    @property
    def signed_json(self) -> bytes:
        """Canonical JSON, which is signed and hashed."""
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
        """SHA-256 (hex), by which studies refer to the key card."""
        return digest_of("peer-card", self.signed_json)

    @property
    def fingerprint(self) -> str:
        """Fingerprint that people compare."""
        return fingerprint(self.digest)


def _build_site_card(stated: Mapping[str, Any]) -> SiteKeyCard:
    return SiteKeyCard(
        federation=stated["federation"],
        site=stated["site"],
        agreement=bytes.fromhex(stated["agreement"]),
        signing=bytes.fromhex(stated["signing"]),
    )


SITE_CARD_FORM = CardForm(prefix=SITE_CARD_SIGNED, noun="the site's key card", build=_build_site_card)


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedSiteKeyCard:
    """Canonical JSON of a site's key card, and the Ed25519 signature over it."""

    signed_json: bytes
    signature: bytes

    def check(self) -> SiteKeyCard:
        """Return the key card, if its own key signed its exact bytes.

        Raises:
            PeerError: code `identity`, signed by another key or changed; `protocol`, not a key card, or not
                canonical.
        """
        return SITE_CARD_FORM.check(self.signed_json, self.signature)


def sign_site_card(card: SiteKeyCard, sign: Sign) -> SignedSiteKeyCard:
    """Return a site's key card with the signature of its own key, by `sign`."""
    return SignedSiteKeyCard(signed_json=card.signed_json, signature=SITE_CARD_FORM.sign(card, sign))


def _is_contributory(agreement: bytes) -> bool:
    """Return True if secrets shared with this key depend on the other key.

    A point of low order gives zero with every private key; the library rejects it.
    """
    try:
        PROBE_KEY.exchange(X25519PublicKey.from_public_bytes(agreement))
    except ValueError:
        return False
    return True
