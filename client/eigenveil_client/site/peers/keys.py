"""The keys by which this site hides its numbers from the coordinator: its own, for as long as it is one.

They lie beside its identity and outlive every certificate: other sites' people have compared them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from eigenveil.errors import Code, RequestError
from eigenveil.identity import Identity, Role
from eigenveil.secure_aggregation.card import Card, SignedCard, sign_card
from eigenveil_client.connection.identity import named
from eigenveil_client.connection.key_file import KeyFile
from eigenveil_common.files import is_there

NAME = "peer.key"
AGREEMENT, SIGNING = "agreement", "signing"
LOST = "run `eigenveil-site peers export`: the other sites must then confirm the new card, each by telephone"


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnKeys:
    """This site's private keys, and the card that it gives to others."""

    agreement: X25519PrivateKey
    signing: Ed25519PrivateKey
    card: Card

    @classmethod
    def read(cls, folder: Path) -> OwnKeys:
        """The keys in an identity's folder.

        Raises:
            RequestError: code `not-found`, none were made yet; `bad-config`, the folder holds no site's
                identity, or the file is a link, damaged, another site's, or can be read by others.
        """
        file = _file(folder)
        if not file.made:
            raise RequestError(
                Code.NOT_FOUND,
                "this site has no card yet; make it: eigenveil-site peers export --config site.toml",
            )
        return _read(file)

    @classmethod
    def make(cls, folder: Path) -> OwnKeys:
        """New keys, durable on return; those that are there already stay.

        Raises:
            RequestError: as `read`, and root in another user's folder.
            InternalError: code `storage`.
        """
        _file(folder).make(_fresh)
        return cls.read(folder)

    @property
    def signed(self) -> SignedCard:
        """What others are sent; the same bytes each time."""
        return sign_card(self.card, self.signing.sign)

    def secret_with(self, card: Card) -> bytes:
        """The raw X25519 secret shared with another site: 32 bytes, the same at both ends, for ever. To be
        hashed together with both cards' digests before it is used: a site can put another's key on its card.
        """
        return self.agreement.exchange(X25519PublicKey.from_public_bytes(card.agreement))


def site_in(folder: Path) -> Identity:
    """The site whose identity `folder` holds, whether or not its certificate is still good.

    Raises:
        RequestError: code `bad-config`, it is none.
    """
    owner = named(folder)
    if owner is None or owner.role is not Role.SITE:
        raise RequestError(
            Code.BAD_CONFIG,
            f"{folder} holds no site's identity; enrol with a join file from the coordinator",
        )
    return owner


def made(folder: Path) -> bool:
    """Whether keys were made in this folder. Raises InternalError, code `storage`."""
    return is_there(folder / NAME)


def _file(folder: Path) -> KeyFile:
    return KeyFile(folder=folder, name=NAME, owner=site_in(folder), keys=(AGREEMENT, SIGNING), lost=LOST)


def _fresh() -> dict[str, bytes]:
    """Keys from the system's randomness."""
    return {
        AGREEMENT: X25519PrivateKey.generate().private_bytes_raw(),
        SIGNING: Ed25519PrivateKey.generate().private_bytes_raw(),
    }


def _read(file: KeyFile) -> OwnKeys:
    raw = file.read()
    try:
        agreement = X25519PrivateKey.from_private_bytes(raw[AGREEMENT])
        signing = Ed25519PrivateKey.from_private_bytes(raw[SIGNING])
    except ValueError as problem:
        raise file.damaged() from problem
    card = Card(
        federation=file.owner.federation,
        site=file.owner.name,
        agreement=agreement.public_key().public_bytes_raw(),
        signing=signing.public_key().public_bytes_raw(),
    )
    return OwnKeys(agreement=agreement, signing=signing, card=card)
