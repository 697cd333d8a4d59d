"""Signed list of the certificate authorities that a federation trusts [R19].

Replaced as the root role of The Update Framework. A new list is accepted if

- its version is the pinned version plus 1,
- a threshold of the signers of the pinned list have signed it, and
- a threshold of its own signers have signed it,
- it has all release keys that have signed, in their order, each named by the one before,
- its release key signs already, or was announced by the pinned list.

So a stolen coordinator key or connection cannot add an authority, and an old list cannot be restored. Neither
the authorities nor a stolen release key alone can replace the release key."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import Enum
from itertools import pairwise
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from eigenveil.errors import Code, PeerError
from eigenveil.signatures import UNREADABLE, Extensible, ReleaseKeys, has_signed
from eigenveil.study.study import NAME

AUTHORITIES_SIGNED = b"eigenveil/authorities/v1\n"
SUCCESSION_SIGNED = b"eigenveil/release-key/v1\n"
MOST_RELEASE_KEYS = 32
MOST_ADDRESSES = 4
ADDRESS = re.compile(r"(\[[0-9a-fA-F:.]{2,45}\]|[A-Za-z0-9.-]{1,253}):[1-9][0-9]{0,4}")
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


class KeyUse(Enum):
    """Use of a release key: it verifies what was signed `earlier`, it `signs` now, or it signs `next`, and is
    accepted from now on, so that every party knows it before it is used."""

    EARLIER = "earlier"
    SIGNS = "signs"
    NEXT = "next"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseKey:
    """A release key of the federation (raw Ed25519). `succession` is the signature of the key before it over
    `succession_bytes`; empty for the first one."""

    key: bytes
    use: KeyUse
    succession: bytes = b""

    def to_dict(self) -> dict[str, str]:
        """Return plain values."""
        return {"key": self.key.hex(), "use": self.use.value, "succession": self.succession.hex()}

    @classmethod
    def from_dict(cls, stated: Mapping[str, str]) -> ReleaseKey:
        """Return the inverse of `to_dict`."""
        key, succession = bytes.fromhex(stated["key"]), bytes.fromhex(stated["succession"])
        return cls(key=key, use=KeyUse(stated["use"]), succession=succession)


def succession_bytes(federation: str, key: bytes) -> bytes:
    """Return the bytes that a release key signs to name its successor."""
    return SUCCESSION_SIGNED + f"{federation}\n{key.hex()}".encode()


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedAuthorityList:
    """JSON of a list, and signatures over `AUTHORITIES_SIGNED` and this JSON."""

    list_json: bytes
    signatures: tuple[bytes, ...]


@dataclass(frozen=True, kw_only=True)
class AuthorityList(Extensible):
    """Authorities of a federation in one version. `expires` is in Unix seconds. `threshold` is the number of
    signers that must sign the next list. `release_keys` are those that sign plans and releases, and those
    that have signed earlier, oldest first. `addresses` are where the coordinator is reached, the first one
    first; empty: where the join file says. Raises PeerError: code `protocol`, a field is invalid."""

    format, noun = "eigenveil-authorities/1", "a list of authorities"

    federation: str
    version: int
    expires: int
    threshold: int
    release_keys: tuple[ReleaseKey, ...]
    authorities: tuple[ListedAuthority, ...]
    addresses: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _need(NAME.fullmatch(self.federation) is not None, "the name of the federation is invalid")
        numbers = (self.version, self.expires, self.threshold)
        _need(
            all(type(one) is int and 1 <= one <= LAST_SECOND for one in numbers),
            "version, expires or threshold is not a whole number in range",
        )
        self._check_release_keys()
        fits = len(self.addresses) <= MOST_ADDRESSES and all(map(ADDRESS.fullmatch, self.addresses))
        _need(fits, f"more than {MOST_ADDRESSES} addresses, or one that is not HOST:PORT")
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

    def _check_release_keys(self) -> None:
        keys, uses = self.known_keys, [one.use for one in self.release_keys]
        _need(all(len(one) == KEY_BYTES for one in keys), "a release key does not have 32 bytes")
        _need(len(set(keys)) == len(keys) <= MOST_RELEASE_KEYS, "a release key is listed twice, or too many")
        earlier = len(keys) - uses.count(KeyUse.NEXT) - 1
        order = [*[KeyUse.EARLIER] * earlier, KeyUse.SIGNS, *[KeyUse.NEXT] * (len(keys) - earlier - 1)]
        _need(uses == order and uses.count(KeyUse.NEXT) <= 1, "the uses of the release keys are out of order")
        _need(not self.release_keys[0].succession, "the first release key has no predecessor")
        for before, after in pairwise(self.release_keys):
            named = succession_bytes(self.federation, after.key)
            _need(
                has_signed(before.key, after.succession, named),
                "a release key is not named by the one before",
            )

    @property
    def release_key(self) -> bytes:
        """The raw Ed25519 key that signs plans and releases."""
        return next(one.key for one in self.release_keys if one.use is KeyUse.SIGNS)

    @property
    def accepted_keys(self) -> tuple[bytes, ...]:
        """Keys of which what is sent now may be signed: the one that signs, and the next one."""
        return tuple(one.key for one in self.release_keys if one.use is not KeyUse.EARLIER)

    @property
    def known_keys(self) -> tuple[bytes, ...]:
        """Every release key, by which what was stored earlier is verified."""
        return tuple(one.key for one in self.release_keys)

    @property
    def trusted_keys(self) -> ReleaseKeys:
        """Release keys as a client uses them."""
        return ReleaseKeys(self.accepted_keys, self.known_keys)

    def with_next_key(self, key: bytes, succession: bytes) -> tuple[ReleaseKey, ...]:
        """Return the release keys of a list that announces `key`, in place of another announced one."""
        kept = tuple(one for one in self.release_keys if one.use is not KeyUse.NEXT)
        return (*kept, ReleaseKey(key=key, use=KeyUse.NEXT, succession=succession))

    def with_next_signing(self) -> tuple[ReleaseKey, ...]:
        """Return the release keys of a list by which the announced key signs."""
        uses = {KeyUse.NEXT: KeyUse.SIGNS, KeyUse.SIGNS: KeyUse.EARLIER, KeyUse.EARLIER: KeyUse.EARLIER}
        return tuple(replace(one, use=uses[one.use]) for one in self.release_keys)

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
            "release_keys": [{"key": one.key.hex(), "use": one.use.value} for one in self.release_keys],
            "addresses": list(self.addresses),
        }

    def text(self) -> str:
        """Return a summary for a person."""
        data = self.as_dict()
        signers = f"{_names(data['sign'])} ({self.threshold} of {len(self.signers)})"
        release_keys = ", ".join(f"{one.use.value} {one.key.hex()}" for one in self.release_keys)
        return (
            f"version {self.version}, until {self.ends:%Y-%m-%d}\n"
            f"  issue: {_names(data['issue'])}\n  sign:  {signers}\n"
            f"  release keys: {release_keys}\n"
            f"  addresses: {', '.join(self.addresses) or 'those of the join files'}"
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
        release_keys = [one.to_dict() for one in self.release_keys]
        lists = {"release_keys": release_keys, "authorities": authorities, "addresses": list(self.addresses)}
        return super().to_dict() | lists

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
        release_keys = tuple(map(ReleaseKey.from_dict, stated["release_keys"]))
        values = {
            **stated,
            "release_keys": release_keys,
            "authorities": authorities,
            "addresses": tuple(stated["addresses"]),
        }
        return cls(**values, unknown=unknown)

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
    used = tuple(one.key for one in pinned.release_keys if one.use is not KeyUse.NEXT)
    if found.known_keys[: len(used)] != used or found.release_key not in pinned.accepted_keys:
        raise PeerError(
            Code.IDENTITY,
            f"version {found.version} of the list of authorities has another release key than was announced "
            "and was rejected. Tell the federation's operator",
        )
    return found


def describe_change(before: AuthorityList, after: AuthorityList) -> str:
    """Return a sentence on what a new list changes, and on the authorities that it retains."""
    gone = [one for one in before.fingerprints if one not in after.fingerprints]
    new = [one for one in after.fingerprints if one not in before.fingerprints]
    unchanged = [one for one in after.fingerprints if one in before.fingerprints]
    text = f"authorities unchanged: {_names(unchanged)}"
    if new or gone:
        text = f"newly trusted: {_names(new)}; no longer: {_names(gone)}; unchanged: {_names(unchanged)}"
    if before.release_key != after.release_key:
        text += f"; the release key {after.release_key.hex()[:16]}... signs from now on"
    elif before.accepted_keys != after.accepted_keys:
        text += f"; the next release key is {after.accepted_keys[-1].hex()[:16]}..."
    if before.addresses != after.addresses:
        text += f"; the coordinator is reached at {_names(after.addresses)}"
    return text


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
