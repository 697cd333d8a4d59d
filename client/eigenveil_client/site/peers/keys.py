"""The keys by which this site hides its numbers from the coordinator: its own, for as long as it is one.

They lie beside its identity and outlive every certificate: other sites' people have compared them.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from eigenveil.errors import Code, RequestError
from eigenveil.identity import Identity, Role
from eigenveil.numerics.encoding import parse_json
from eigenveil.secure_aggregation.card import Card, SignedCard, sign_card
from eigenveil_client.connection.identity import named
from eigenveil_common.files import check_owner, is_there, read_secret, write_secret
from eigenveil_common.locks import locked

NAME = "peer.key"


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
                identity, or the file is damaged, another site's, or can be read by others.
        """
        owner = site_in(folder)
        if not made(folder):
            raise RequestError(
                Code.NOT_FOUND,
                "this site has no card yet; make it: eigenveil-site peers export --config site.toml",
            )
        return _read(folder / NAME, owner)

    @classmethod
    def make(cls, folder: Path) -> OwnKeys:
        """New keys, durable on return; those that are there already stay.

        Raises:
            RequestError: as `read`, and root in another user's folder.
            InternalError: code `storage`.
        """
        owner = site_in(folder)
        check_owner(folder)
        with locked(folder):  # of two commands, one makes them
            if not made(folder):
                _write(folder / NAME, owner)
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


def _write(path: Path, owner: Identity) -> None:
    """Keys from the system's randomness, with whose they are, so that a copied file is known for one."""
    held = {
        "federation": owner.federation,
        "site": owner.name,
        "agreement": X25519PrivateKey.generate().private_bytes_raw().hex(),
        "signing": Ed25519PrivateKey.generate().private_bytes_raw().hex(),
    }
    write_secret(path, json.dumps(held, indent=2).encode())


def _read(path: Path, owner: Identity) -> OwnKeys:
    try:
        held = parse_json(read_secret(path))
        whose = held["federation"], held["site"]
        agreement = X25519PrivateKey.from_private_bytes(bytes.fromhex(held["agreement"]))
        signing = Ed25519PrivateKey.from_private_bytes(bytes.fromhex(held["signing"]))
    except (ValueError, KeyError, TypeError) as problem:
        raise RequestError(
            Code.BAD_CONFIG,
            f"{path} is damaged: put it back from a copy. If there is none, move it away and run `eigenveil-"
            "site peers export`: the other sites must then confirm the new card, each by telephone",
        ) from problem
    if whose != (owner.federation, owner.name):
        raise RequestError(
            Code.BAD_CONFIG,
            f"{path} is of site {whose[1]} in federation {whose[0]}, and this is {owner.uri}: it was copied, "
            "and no two sites may have the same keys. Move it away, then: eigenveil-site peers export",
        )
    card = Card(
        federation=owner.federation,
        site=owner.name,
        agreement=agreement.public_key().public_bytes_raw(),
        signing=signing.public_key().public_bytes_raw(),
    )
    return OwnKeys(agreement=agreement, signing=signing, card=card)
