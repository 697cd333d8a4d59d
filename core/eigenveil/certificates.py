"""What reading a certificate may raise, and the digest of a key that two people compare."""

from __future__ import annotations

import hashlib

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

# Everything that reading somebody else's certificate or request may raise.
UNREADABLE = (
    *(ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm),
    *(x509.InvalidVersion, x509.ExtensionNotFound, x509.DuplicateExtension, x509.UnsupportedGeneralNameType),
)


def key_print(key: ec.EllipticCurvePublicKey) -> str:
    """SHA-256 (hex) of a public key's SubjectPublicKeyInfo: `openssl pkey -pubin -outform DER | sha256sum`.

    Two people compare it at enrolment, one at each end.
    """
    return hashlib.sha256(key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).hexdigest()
