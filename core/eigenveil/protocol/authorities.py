"""Signed list of the certificate authorities that a federation trusts [R19].

Replaced as the root role of The Update Framework. A new list is accepted if

- its version is the pinned version plus 1,
- a threshold of the signers of the pinned list have signed it, and
- a threshold of its own signers have signed it.

So a stolen coordinator key or connection cannot add an authority, and an old list cannot be restored."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from eigenveil.errors import Code, PeerError
from eigenveil.signatures import UNREADABLE, Extensible
from eigenveil.study.study import NAME

AUTHORITIES_SIGNED = b"eigenveil/authorities/v1\n"
MOST_AUTHORITIES = 8
MOST_SIGNATURES = 16
MOST_BYTES = 64 * 1024
KEY_BYTES = 32
LAST_SECOND = 253_402_300_799  # of the year 9999, where dates end
SMALLEST_RSA, SMALLEST_CURVE = 2048, 256  # bits


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedAuthority:
    """One authority. `issues`: it issues trusted certificates. `signs`: its signature counts for the next
    list."""

    certificate: x509.Certificate
    issues: bool
    signs: bool

    @property
    def fingerprint(self) -> str:
        return self.certificate.fingerprint(hashes.SHA256()).hex()

    def signed(self, signature: bytes, message: bytes) -> bool:
        """Return True if its key made this signature: ECDSA or RSA (PKCS #1 v1.5), over SHA-256."""
        key = self.certificate.public_key()
        try:
            if isinstance(key, ec.EllipticCurvePublicKey):
                key.verify(signature, message, ec.ECDSA(hashes.SHA256()))
            elif isinstance(key, rsa.RSAPublicKey):
                key.verify(signature, message, padding.PKCS1v15(), hashes.SHA256())
            else:
                return False
        except UNREADABLE:
            return False
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedAuthorityList:
    """JSON of a list, and signatures over `AUTHORITIES_SIGNED` and this JSON."""

    list_json: bytes
    signatures: tuple[bytes, ...]


@dataclass(frozen=True, kw_only=True)
class AuthorityList(Extensible):
    """Authorities of a federation in one version. `expires` is in Unix seconds. `threshold` is the number of
    signers that must sign the next list. `release_key` is the raw Ed25519 key that signs plans and releases.
    Raises PeerError: code `protocol`, a field is invalid."""

    format, noun = "eigenveil-authorities/1", "a list of authorities"

    federation: str
    version: int
    expires: int
    threshold: int
    release_key: bytes
    authorities: tuple[ListedAuthority, ...]

    def __post_init__(self) -> None:
        _need(NAME.fullmatch(self.federation) is not None, "the name of the federation is invalid")
        numbers = (self.version, self.expires, self.threshold)
        _need(
            all(type(one) is int and 1 <= one <= LAST_SECOND for one in numbers),
            "version, expires or threshold is not a whole number in range",
        )
        _need(len(self.release_key) == KEY_BYTES, "the release key does not have 32 bytes")
        _need(len(self.authorities) <= MOST_AUTHORITIES, f"more than {MOST_AUTHORITIES} authorities")
        _need(len(set(self.fingerprints)) == len(self.authorities), "an authority is listed twice")
        _need(all(one.issues or one.signs for one in self.authorities), "an authority has no role")
        _need(
            all(_is_authority(one.certificate) for one in self.authorities),
            "a certificate is not that of an authority (CA)",
        )
        _need(any(one.issues for one in self.authorities), "no authority issues certificates")
        _need(
            all(_can_sign(one.certificate.public_key()) for one in self.signers),
            "a signer's key is too short or of an unsupported type",
        )
        form = (Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        keys = {one.certificate.public_key().public_bytes(*form) for one in self.signers}
        _need(len(keys) == len(self.signers), "two signers have the same key")
        _need(self.threshold <= len(keys), f"threshold {self.threshold} is above its {len(keys)} signers")

    @property
    def fingerprints(self) -> tuple[str, ...]:
        return tuple(one.fingerprint for one in self.authorities)

    @property
    def signers(self) -> tuple[ListedAuthority, ...]:
        """Authorities whose signatures count for the next list."""
        return tuple(one for one in self.authorities if one.signs)

    @property
    def issuers(self) -> tuple[x509.Certificate, ...]:
        """Certificates of the authorities that issue certificates."""
        return tuple(one.certificate for one in self.authorities if one.issues)

    @property
    def issuers_pem(self) -> bytes:
        """The issuers in PEM, for TLS."""
        return b"".join(one.public_bytes(Encoding.PEM) for one in self.issuers)

    @property
    def ends(self) -> datetime:
        return datetime.fromtimestamp(self.expires, UTC)

    @property
    def digest(self) -> bytes:
        """SHA-256 of the list, which a client sends in `Hello`."""
        return hashlib.sha256(self.to_json()).digest()

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for the output of a command."""
        return {
            "version": self.version,
            "ends": self.ends.isoformat(timespec="seconds"),
            "threshold": self.threshold,
            "issue": [one.fingerprint for one in self.authorities if one.issues],
            "sign": [one.fingerprint for one in self.signers],
        }

    def text(self) -> str:
        """Return a summary for a person."""
        data = self.as_dict()
        signers = f"{_names(data['sign'])} ({self.threshold} of {len(self.signers)})"
        return (
            f"version {self.version}, until {self.ends:%Y-%m-%d}\n"
            f"  issue: {_names(data['issue'])}\n  sign:  {signers}"
        )

    def to_json(self) -> bytes:
        return self.signed_json

    def to_dict(self) -> dict[str, Any]:
        authorities = [
            {
                "certificate": one.certificate.public_bytes(Encoding.PEM).decode(),
                "issues": one.issues,
                "signs": one.signs,
            }
            for one in self.authorities
        ]
        return super().to_dict() | {"release_key": self.release_key.hex(), "authorities": authorities}

    @classmethod
    def from_dict(cls, stated: Mapping[str, Any], unknown: Mapping[str, Any]) -> AuthorityList:
        """Return the inverse of `to_dict`."""
        authorities = tuple(
            ListedAuthority(
                certificate=x509.load_pem_x509_certificate(one["certificate"].encode()),
                issues=one["issues"] is True,
                signs=one["signs"] is True,
            )
            for one in stated["authorities"]
        )
        release_key = bytes.fromhex(stated["release_key"])
        return cls(**{**stated, "release_key": release_key, "authorities": authorities}, unknown=unknown)

    def is_signed(self, signed: SignedAuthorityList) -> bool:
        """Return True if at least `threshold` signers of this list signed `signed`."""
        message = AUTHORITIES_SIGNED + signed.list_json
        signature_checks = (
            any(one.signed(word, message) for word in signed.signatures) for one in self.signers
        )
        return sum(signature_checks) >= self.threshold


def list_from_json(data: bytes) -> AuthorityList:
    """Return the list in `data`, which must be canonical JSON. Raises PeerError: code `protocol`."""
    _need(len(data) <= MOST_BYTES, f"it has {len(data)} bytes")
    return AuthorityList.read(data)


def update_authorities(
    pinned: AuthorityList, lists: Sequence[SignedAuthorityList], now: datetime
) -> AuthorityList:
    """Return the last of `lists`, a chain that starts after `pinned`. Only the last must not have expired, so
    that a client can catch up after a long absence. Raises PeerError: code `identity`, a list is not the
    valid successor of the one before; `protocol`, invalid."""
    for one in lists:
        pinned = verify_next_list(pinned, one)
    if lists and pinned.ends <= now:
        raise PeerError(
            Code.IDENTITY,
            f"version {pinned.version} of the list of authorities expired on {pinned.ends:%Y-%m-%d} and was "
            "rejected. The coordinator's operator makes a new one with: ca extend",
        )
    return pinned


def verify_next_list(pinned: AuthorityList, signed: SignedAuthorityList) -> AuthorityList:
    """Return the list in `signed`, if it is the valid successor of `pinned`; expiry is not checked. Raises
    PeerError: as `update_authorities`."""
    found = list_from_json(signed.list_json)
    if (found.federation, found.version) != (pinned.federation, pinned.version + 1):
        raise PeerError(
            Code.IDENTITY,
            f"the list of authorities is version {found.version} of {found.federation} and was rejected: "
            f"the stored one is version {pinned.version} of {pinned.federation}",
        )
    if len(signed.signatures) > MOST_SIGNATURES or not all(one.is_signed(signed) for one in (pinned, found)):
        raise PeerError(
            Code.IDENTITY,
            f"version {found.version} of the list of authorities has too few signatures and was rejected; it "
            f"names {_names(found.fingerprints)}. Tell the federation's operator",
        )
    return found


def describe_change(before: AuthorityList, after: AuthorityList) -> str:
    """Return a sentence on the authorities that a new list adds, removes and retains."""
    gone = [one for one in before.fingerprints if one not in after.fingerprints]
    new = [one for one in after.fingerprints if one not in before.fingerprints]
    unchanged = [one for one in after.fingerprints if one in before.fingerprints]
    text = f"now trusted: {_names(new)}; no longer: {_names(gone)}; unchanged: {_names(unchanged)}"
    return text if before.release_key == after.release_key else f"{text}; the release key has changed"


def _names(fingerprints: Iterable[str]) -> str:
    return ", ".join(fingerprints) or "none"


def _need(holds: bool, problem: str) -> None:
    if not holds:
        raise PeerError(Code.PROTOCOL, f"a list of authorities is invalid: {problem}")


def _is_authority(certificate: x509.Certificate) -> bool:
    try:
        return certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except UNREADABLE:
        return False


def _can_sign(key: object) -> bool:
    if isinstance(key, rsa.RSAPublicKey):
        return key.key_size >= SMALLEST_RSA
    return isinstance(key, ec.EllipticCurvePublicKey) and key.key_size >= SMALLEST_CURVE
