"""Key cards of sites, from public test keys."""

from __future__ import annotations

import hashlib

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from eigenveil.key_cards import SignedSiteKeyCard, SiteKeyCard

FEDERATION = "north"


def _secret(seed: int) -> bytes:
    return hashlib.sha256(str(seed).encode()).digest()


def signing(seed: int) -> Ed25519PrivateKey:
    return Ed25519PrivateKey.from_private_bytes(_secret(seed))


def a_card(site: str = "hospital-b", seed: int = 7, federation: str = FEDERATION) -> SiteKeyCard:
    """The card whose key is made of `seed`."""
    return SiteKeyCard(
        federation=federation,
        site=site,
        signing=signing(seed).public_key().public_bytes_raw(),
    )


def signed_card(site: str = "hospital-b", seed: int = 7, federation: str = FEDERATION) -> SignedSiteKeyCard:
    return SignedSiteKeyCard.of(a_card(site, seed, federation), signing(seed).sign)
