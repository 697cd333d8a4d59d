"""The only verification of Ed25519 signatures of the federation, its sites and analysts. Exceptions of
reading a certificate, and the fingerprint of a public key."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from eigenveil.errors import Code, PeerError
from eigenveil.numerics.encoding import parse_json

Sign = Callable[[bytes], bytes]  # signs with a private key that it does not expose


def check_signature(public: bytes, signature: bytes, signed: bytes, refusal: str) -> None:
    """Check that the key `public` (raw Ed25519) signed exactly the bytes `signed`. Raises PeerError: code
    `identity`, with the message `refusal`."""
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, signed)
    except (InvalidSignature, ValueError) as problem:
        raise PeerError(Code.IDENTITY, refusal) from problem


Statement = TypeVar("Statement", covariant=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedStatement(Generic[Statement]):
    """Canonical JSON of a statement, and the Ed25519 signature of the release key over it."""

    prefix: ClassVar[bytes]  # first bytes that the signature covers
    noun: ClassVar[str]
    most_bytes: ClassVar[int]

    signed_json: bytes
    signature: bytes

    def check(self, release_key: bytes) -> Statement:
        """Return the statement, if the federation's release key (raw Ed25519) signed its exact bytes. Raises
        PeerError: code `identity`, signed by another key or changed; `protocol`, not a statement."""
        if len(self.signed_json) > self.most_bytes:
            raise PeerError(Code.PROTOCOL, f"{self.noun} is too long: {len(self.signed_json)} bytes")
        refusal = f"{self.noun} is not signed by this federation; it was rejected"
        check_signature(release_key, self.signature, self.prefix + self.signed_json, refusal)
        return self.read()

    def read(self) -> Statement:
        """Return the statement without a check of its signature. Raises PeerError: code `protocol`, it is not
        a statement."""
        raise NotImplementedError


# All exceptions that reading an external certificate or request may raise.
UNREADABLE = (
    *(ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm),
    *(x509.InvalidVersion, x509.ExtensionNotFound, x509.DuplicateExtension, x509.UnsupportedGeneralNameType),
)


Found = TypeVar("Found")


def read_canonical(
    data: bytes, noun: str, make: Callable[[Any], Found], write: Callable[[Found], bytes]
) -> Found:
    """Return what `make` makes of the JSON in `data`, if `write` writes exactly these bytes. Raises
    PeerError: code `protocol`, `noun` cannot be read, or is not canonical."""
    try:
        found = make(parse_json(data))
        written = write(found)
    except (*UNREADABLE, KeyError, AttributeError) as problem:
        raise PeerError(Code.PROTOCOL, f"{noun} cannot be read; it was rejected") from problem
    if written != data:
        raise PeerError(Code.PROTOCOL, f"{noun} is not in canonical form; it was rejected")
    return found


def key_print(key: ec.EllipticCurvePublicKey) -> str:
    """Return the SHA-256 (hex) of a public key, as `openssl pkey -pubin -outform DER | sha256sum` prints it.
    It covers the SubjectPublicKeyInfo. Two people compare it at enrolment, one at each end."""
    return hashlib.sha256(key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).hexdigest()
