"""Whom a federation trusts: a list, signed by those whom it trusted before [R19].

As the root of The Update Framework is replaced: a list follows the one that is held if its version is the
next, and enough of those who sign have signed it, by the list that is held and by itself. So nobody who
holds a coordinator's key, or its connection, can add an authority; and an old list cannot come back.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from eigenveil.certificates import UNREADABLE
from eigenveil.errors import Code, EigenveilError, PeerError
from eigenveil.numerics.encoding import canonical, parse_json
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
    """One authority. `issues`: certificates that it signed are believed; `signs`: its word counts under the
    next list."""

    certificate: x509.Certificate
    issues: bool
    signs: bool

    @property
    def print(self) -> str:
        return self.certificate.fingerprint(hashes.SHA256()).hex()

    def signed(self, signature: bytes, message: bytes) -> bool:
        """Whether its key made this signature: ECDSA or RSA (PKCS #1 v1.5), over SHA-256."""
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
class SignedList:
    """A list as it travels: its bytes, and signatures under `AUTHORITIES_SIGNED` and them."""

    list_json: bytes
    signatures: tuple[bytes, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthorityList:
    """A list of authorities. `expires` is in Unix seconds; `threshold`, how many of those who sign here must
    have signed the next list; `release_key`, the raw Ed25519 key that signs plans and releases.

    Raises:
        PeerError: code `protocol`, the parts do not fit together.
    """

    federation: str
    version: int
    expires: int
    threshold: int
    release_key: bytes
    authorities: tuple[ListedAuthority, ...]

    def __post_init__(self) -> None:
        _need(NAME.fullmatch(self.federation) is not None, "it names no federation")
        numbers = (self.version, self.expires, self.threshold)
        _need(all(type(one) is int and 1 <= one <= LAST_SECOND for one in numbers), "a number is none")
        _need(len(self.release_key) == KEY_BYTES, "the release key does not have 32 bytes")
        _need(len(self.authorities) <= MOST_AUTHORITIES, f"more than {MOST_AUTHORITIES} authorities")
        _need(len(set(self.prints)) == len(self.authorities), "an authority is in it twice")
        _need(all(one.issues or one.signs for one in self.authorities), "an authority has no part in it")
        _need(
            all(_is_authority(one.certificate) for one in self.authorities), "a certificate is no authority's"
        )
        _need(any(one.issues for one in self.authorities), "nobody in it issues certificates")
        _need(all(_can_sign(one.certificate.public_key()) for one in self.signers), "a key cannot sign")
        form = (Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        keys = {one.certificate.public_key().public_bytes(*form) for one in self.signers}
        _need(len(keys) == len(self.signers), "a key signs twice")
        _need(self.threshold <= len(keys), f"{self.threshold} are to sign, of {len(keys)} who do")

    @property
    def prints(self) -> tuple[str, ...]:
        return tuple(one.print for one in self.authorities)

    @property
    def signers(self) -> tuple[ListedAuthority, ...]:
        """Those whose word counts under the next list."""
        return tuple(one for one in self.authorities if one.signs)

    @property
    def issuers(self) -> tuple[x509.Certificate, ...]:
        """Those whose certificates are believed."""
        return tuple(one.certificate for one in self.authorities if one.issues)

    @property
    def issuers_pem(self) -> bytes:
        """The same, as TLS takes them."""
        return b"".join(one.public_bytes(Encoding.PEM) for one in self.issuers)

    @property
    def ends(self) -> datetime:
        return datetime.fromtimestamp(self.expires, UTC)

    @property
    def digest(self) -> bytes:
        """What a client that holds exactly this list says in `Hello`."""
        return hashlib.sha256(self.to_json()).digest()

    def as_dict(self) -> dict[str, Any]:
        """What a command tells of it."""
        return {
            "version": self.version,
            "ends": self.ends.isoformat(timespec="seconds"),
            "threshold": self.threshold,
            "issue": [one.print for one in self.authorities if one.issues],
            "sign": [one.print for one in self.signers],
        }

    def text(self) -> str:
        """The same for a person."""
        said = self.as_dict()
        signers = f"{_names(said['sign'])} ({self.threshold} of {len(self.signers)})"
        return (
            f"version {self.version}, until {self.ends:%Y-%m-%d}\n"
            f"  issue: {_names(said['issue'])}\n  sign:  {signers}"
        )

    def to_json(self) -> bytes:
        return canonical(
            {
                "federation": self.federation,
                "version": self.version,
                "expires": self.expires,
                "threshold": self.threshold,
                "release_key": self.release_key.hex(),
                "authorities": [
                    {
                        "certificate": one.certificate.public_bytes(Encoding.PEM).decode(),
                        "issues": one.issues,
                        "signs": one.signs,
                    }
                    for one in self.authorities
                ],
            }
        )

    def is_signed(self, signed: SignedList) -> bool:
        """Whether as many as this list asks for have signed."""
        message = AUTHORITIES_SIGNED + signed.list_json
        words = (any(one.signed(word, message) for word in signed.signatures) for one in self.signers)
        return sum(words) >= self.threshold


def list_from_json(data: bytes) -> AuthorityList:
    """The list in its canonical form, and in no other.

    Raises:
        PeerError: code `protocol`.
    """
    _need(len(data) <= MOST_BYTES, f"it has {len(data)} bytes")
    try:
        found = _read(parse_json(data))
    except EigenveilError:
        raise
    except (*UNREADABLE, KeyError, AttributeError) as problem:
        raise PeerError(
            Code.PROTOCOL, "a list of authorities cannot be read; it was not believed"
        ) from problem
    _need(found.to_json() == data, "it is not in canonical form")
    return found


def _read(said: dict[str, Any]) -> AuthorityList:
    return AuthorityList(
        federation=said["federation"],
        version=said["version"],
        expires=said["expires"],
        threshold=said["threshold"],
        release_key=bytes.fromhex(said["release_key"]),
        authorities=tuple(
            ListedAuthority(
                certificate=x509.load_pem_x509_certificate(one["certificate"].encode()),
                issues=one["issues"] is True,
                signs=one["signs"] is True,
            )
            for one in said["authorities"]
        ),
    )


def follow(held: AuthorityList, lists: Sequence[SignedList], now: datetime) -> AuthorityList:
    """The last of `lists`, if each follows the one before it and the first follows `held`; only the last must
    not have expired, so that who was away for long finds the way.

    Raises:
        PeerError: code `identity`, one does not follow; `protocol`, one is no list.
    """
    for one in lists:
        held = next_list(held, one)
    if lists and held.ends <= now:
        raise PeerError(
            Code.IDENTITY,
            f"the list of authorities of version {held.version} ended on {held.ends:%Y-%m-%d}; it was not "
            "believed: the coordinator's operator makes a new one with: ca extend",
        )
    return held


def next_list(held: AuthorityList, signed: SignedList) -> AuthorityList:
    """The list in `signed`, if it follows `held`; whether it has expired is not looked at.

    Raises:
        PeerError: as `follow`.
    """
    found = list_from_json(signed.list_json)
    if (found.federation, found.version) != (held.federation, held.version + 1):
        raise PeerError(
            Code.IDENTITY,
            f"the list of authorities is version {found.version} of {found.federation}, and version "
            f"{held.version} of {held.federation} is held; it was not believed",
        )
    if len(signed.signatures) > MOST_SIGNATURES or not all(one.is_signed(signed) for one in (held, found)):
        raise PeerError(
            Code.IDENTITY,
            f"too few have signed the list of authorities of version {found.version}, which "
            f"names {_names(found.prints)}; it was not believed: tell the federation's operator",
        )
    return found


def difference(before: AuthorityList, after: AuthorityList) -> str:
    """What a change of the list changes, for whoever must know."""
    gone = [one for one in before.prints if one not in after.prints]
    new = [one for one in after.prints if one not in before.prints]
    kept = [one for one in after.prints if one in before.prints]
    text = f"trusted from now on: {_names(new)}; no longer: {_names(gone)}; as before: {_names(kept)}"
    return text if before.release_key == after.release_key else f"{text}; the release key is another one"


def _names(prints: Iterable[str]) -> str:
    return ", ".join(prints) or "none"


def _need(holds: bool, why: str) -> None:
    if not holds:
        raise PeerError(Code.PROTOCOL, f"a list of authorities is not believed: {why}")


def _is_authority(certificate: x509.Certificate) -> bool:
    try:
        return certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except UNREADABLE:
        return False


def _can_sign(key: object) -> bool:
    if isinstance(key, rsa.RSAPublicKey):
        return key.key_size >= SMALLEST_RSA
    return isinstance(key, ec.EllipticCurvePublicKey) and key.key_size >= SMALLEST_CURVE
