"""The only verification of Ed25519 signatures of the federation, its sites and analysts. Statements in
canonical JSON, which later versions may extend. Exceptions of reading a certificate, and the fingerprint of a
public key."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, Self, TypeVar

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from eigenveil.errors import Code, PeerError
from eigenveil.numerics.encoding import canonical, field_names, parse_json

Sign = Callable[[bytes], bytes]  # signs with a private key that it does not expose


Keys = bytes | tuple[bytes, ...]  # one public key (raw Ed25519), or those of which any may have signed


@dataclass(frozen=True, slots=True)
class ReleaseKeys:
    """Release keys of a federation: what is sent now is signed by one of `accepted`, what was stored or
    published by one of `known`."""

    accepted: tuple[bytes, ...]
    known: tuple[bytes, ...]


def check_signature(public: Keys, signature: bytes, signed: bytes, refusal: str) -> None:
    """Check that a key of `public` signed exactly the bytes `signed`. Raises PeerError: code `identity`, with
    the message `refusal`."""
    keys = (public,) if isinstance(public, bytes) else public
    if not any(has_signed(key, signature, signed) for key in keys):
        raise PeerError(Code.IDENTITY, refusal)


def has_signed(public: bytes, signature: bytes, signed: bytes) -> bool:
    """Return True if the key `public` (raw Ed25519) signed exactly the bytes `signed`."""
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, signed)
    except (InvalidSignature, ValueError):
        return False
    return True


FORMAT, REQUIRED = "format", "required"  # keys of every statement


@dataclass(frozen=True, kw_only=True)
class Extensible:
    """Statement in canonical JSON, to which a later version may add keys. It has its `format`, and in
    `required` the added keys that a reader must know.

    `unknown` has the keys that are unknown here and not required: they are part of the bytes, and so of every
    digest and signature, and mean nothing here. A subclass has a field for each known key, or converts them
    in `to_dict` and `from_dict`."""

    format: ClassVar[str]
    noun: ClassVar[str]

    unknown: Mapping[str, Any] = field(default_factory=dict, hash=False, repr=False)

    def to_dict(self) -> dict[str, Any]:
        """Return the known keys as plain values."""
        return {name: getattr(self, name) for name in self.known()}

    @classmethod
    def from_dict(cls, stated: Mapping[str, Any], unknown: Mapping[str, Any]) -> Self:
        """Return the statement of the known keys. Raises KeyError, TypeError or ValueError: it is invalid."""
        return cls(**stated, unknown=unknown)

    @classmethod
    def known(cls) -> tuple[str, ...]:
        """Return the names of the known keys."""
        return tuple(name for name in field_names(cls) if name != "unknown")

    @property
    def signed_json(self) -> bytes:
        """Canonical JSON: the bytes that are signed, sent and hashed."""
        return canonical(formatted(self.format, self.to_dict()) | dict(self.unknown))

    @classmethod
    def read(cls, data: bytes) -> Self:
        """Return the statement in `data`, without a check of a signature.

        1. It is canonical JSON of this format.
        2. It requires no key that is unknown here.
        3. Its known keys are valid, and with the others they are the same bytes again.

        Raises PeerError: code `protocol`, not such a statement; `version`, of another format, or it requires
        an unknown key."""
        try:
            stated = parse_json(data)
            check_format(stated, cls.format, cls.noun)
            unknown = {key: stated[key] for key in stated.keys() - {FORMAT, REQUIRED, *cls.known()}}
            found = cls.from_dict({key: stated[key] for key in cls.known()}, unknown)
            written = found.signed_json
        except (*UNREADABLE, KeyError, AttributeError) as problem:
            raise PeerError(
                Code.PROTOCOL, f"{cls.noun} cannot be read; it was rejected: {problem}"
            ) from problem
        if written != data:
            raise PeerError(Code.PROTOCOL, f"{cls.noun} is not in canonical form; it was rejected")
        return found


def formatted(kind: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of a file or a statement: `values`, their format, and an empty list of the keys that
    a reader must know beyond those of the format."""
    return {FORMAT: kind, REQUIRED: [], **values}


def check_format(content: Mapping[str, Any], kind: str, noun: str) -> None:
    """Check that the content of a file or a statement is of a format, and requires no key that is unknown
    here; other unknown keys are ignored.

    Raises:
        PeerError: code `version`, it is of another version of the format, or requires an unknown key;
            `protocol`, it is something else.
        KeyError: it has no format."""
    stated, required = content[FORMAT], content[REQUIRED]
    if stated != kind:
        name, _, _ = kind.partition("/")
        if not str(stated).startswith(f"{name}/"):
            raise PeerError(Code.PROTOCOL, f"{noun} is expected, and this is {stated!r}; it was rejected")
        raise PeerError(Code.VERSION, f"{noun} has the format {stated!r}, and this version reads {kind}")
    if required != []:
        names = ", ".join(map(str, required)) if isinstance(required, list) else str(required)
        raise PeerError(Code.VERSION, f"{noun} requires {names}, which this version does not know")


def is_newer(problem: Exception) -> bool:
    """Return True if a file could not be read only because a newer program wrote it."""
    return isinstance(problem, PeerError) and problem.code is Code.VERSION


Stated = TypeVar("Stated", bound=Extensible, covariant=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedStatement(Generic[Stated]):
    """Canonical JSON of a statement, and the Ed25519 signature of the release key over it."""

    kind: ClassVar[type[Extensible]]
    prefix: ClassVar[bytes]  # first bytes that the signature covers
    most_bytes: ClassVar[int]

    signed_json: bytes
    signature: bytes

    def check(self, release_keys: Keys) -> Stated:
        """Return the statement, if one of the federation's `release_keys` signed its exact bytes. Raises
        PeerError: code `identity`, signed by another key or changed; otherwise as `Extensible.read`."""
        noun = self.kind.noun
        if len(self.signed_json) > self.most_bytes:
            raise PeerError(Code.PROTOCOL, f"{noun} is too long: {len(self.signed_json)} bytes")
        refusal = f"{noun} is not signed by this federation; it was rejected"
        check_signature(release_keys, self.signature, self.prefix + self.signed_json, refusal)
        return self.read()

    def read(self) -> Stated:
        """Return the statement without a check of its signature. Raises as `Extensible.read`."""
        return self.kind.read(self.signed_json)  # type: ignore[return-value]  # of a class variable, which has no parameter


# All exceptions that reading an external certificate or request may raise.
UNREADABLE = (
    *(ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm),
    *(x509.InvalidVersion, x509.ExtensionNotFound, x509.DuplicateExtension, x509.UnsupportedGeneralNameType),
)


def key_print(key: ec.EllipticCurvePublicKey) -> str:
    """Return the SHA-256 (hex) of a public key, as `openssl pkey -pubin -outform DER | sha256sum` prints it.
    It covers the SubjectPublicKeyInfo. Two people compare it at enrolment, one at each end."""
    return hashlib.sha256(key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).hexdigest()
