"""Private keys with which this site masks its numbers before the coordinator receives them.

They are stored beside the site's identity and stay the same when a certificate is renewed, because other
sites have confirmed them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from eigenveil.errors import Code, RequestError
from eigenveil.identity import Identity, Role
from eigenveil.key_cards.owners import SignedSiteKeyCard, SiteKeyCard, sign_site_card
from eigenveil_client.connection.identity import folder_identity
from eigenveil_client.connection.key_files import KeyFile
from eigenveil_common.files import path_exists

NAME = "peer.key"
AGREEMENT, SIGNING = "agreement", "signing"
KEYS_LOST_ADVICE = (
    "run `eigenveil-site peers export`: each other site must then confirm the new key card by telephone"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteKeys:
    """Private keys of this site, and the key card for other sites."""

    agreement: X25519PrivateKey
    signing: Ed25519PrivateKey
    card: SiteKeyCard

    @classmethod
    def read(cls, folder: Path) -> SiteKeys:
        """Return the keys in an identity's folder.

        Raises:
            RequestError: code `not-found`, there are none yet; `bad-config`, the folder has no site's
            identity,
                or the file is a link, damaged, of another site, or readable by others.
        """
        file = _key_file(folder)
        if not file.made:
            raise RequestError(
                Code.NOT_FOUND,
                "this site has no key card yet; make it: eigenveil-site peers export --config site.toml",
            )
        return _parse_keys(file)

    @classmethod
    def make(cls, folder: Path) -> SiteKeys:
        """Make keys if there are none, durable on return.

        Raises:
            RequestError: as `read`, and root in another user's folder.
            InternalError: code `storage`.
        """
        _key_file(folder).make(_generate_keys)
        return cls.read(folder)

    @property
    def signed(self) -> SignedSiteKeyCard:
        """Signed key card for other sites; the same bytes each time."""
        return sign_site_card(self.card, self.signing.sign)

    def secret_with(self, card: SiteKeyCard) -> bytes:
        """Return the raw X25519 secret shared with another site: 32 bytes, constant, the same at both ends.

        Hash it together with both cards' digests before use: a site can put another's key on its card.
        """
        return self.agreement.exchange(X25519PublicKey.from_public_bytes(card.agreement))


def site_identity(folder: Path) -> Identity:
    """Return the site's identity in `folder`, also if its certificate has expired.

    Raises:
        RequestError: code `bad-config`, the folder has no site's identity.
    """
    owner = folder_identity(folder)
    if owner is None or owner.role is not Role.SITE:
        raise RequestError(
            Code.BAD_CONFIG,
            f"{folder} holds no site's identity; enrol with a join file from the coordinator",
        )
    return owner


def has_keys(folder: Path) -> bool:
    """Return True if this folder has keys. Raises InternalError, code `storage`."""
    return path_exists(folder / NAME)


def _key_file(folder: Path) -> KeyFile:
    return KeyFile(
        folder=folder,
        name=NAME,
        owner=site_identity(folder),
        keys=(AGREEMENT, SIGNING),
        recovery=KEYS_LOST_ADVICE,
    )


def _generate_keys() -> dict[str, bytes]:
    """Return new keys from the system's randomness."""
    return {
        AGREEMENT: X25519PrivateKey.generate().private_bytes_raw(),
        SIGNING: Ed25519PrivateKey.generate().private_bytes_raw(),
    }


def _parse_keys(file: KeyFile) -> SiteKeys:
    raw = file.read()
    try:
        agreement = X25519PrivateKey.from_private_bytes(raw[AGREEMENT])
        signing = Ed25519PrivateKey.from_private_bytes(raw[SIGNING])
    except ValueError as problem:
        raise file.damaged() from problem
    card = SiteKeyCard(
        federation=file.owner.federation,
        site=file.owner.name,
        agreement=agreement.public_key().public_bytes_raw(),
        signing=signing.public_key().public_bytes_raw(),
    )
    return SiteKeys(agreement=agreement, signing=signing, card=card)
