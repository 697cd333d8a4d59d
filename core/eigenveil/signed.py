"""One check of an Ed25519 signature: all that the federation and its sites sign is believed by it alone."""

from __future__ import annotations

from collections.abc import Callable

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from eigenveil.errors import Code, PeerError

Sign = Callable[[bytes], bytes]  # by a private key that stays where it is


def check_signature(public: bytes, signature: bytes, signed: bytes, refusal: str) -> None:
    """Insist that the key `public` (raw Ed25519) signed these very bytes.

    Raises:
        PeerError: code `identity`, with the words of `refusal`.
    """
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, signed)
    except (InvalidSignature, ValueError) as problem:
        raise PeerError(Code.IDENTITY, refusal) from problem
