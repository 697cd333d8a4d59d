"""Who this machine is in a federation: a key that never leaves, a certificate, whom to trust.

One folder, readable by its owner only:

    key.pem          EC P-256, made here
    request.der      the certificate request made of it, sent again on every enrolment
    certificate.pem  what the coordinator answered
    ca.pem           the federation's certificate authority
    identity.json    name, coordinator address, release key; written last, so it means "complete"
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import grpc
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from eigenveil.errors import Code, InternalError, PeerError, RequestError
from eigenveil.identity import Identity, Role, parse_identity
from eigenveil_client.tls import KeyPair, only_uri, verified_channel
from eigenveil_client.transport import call
from eigenveil_common.files import read, read_secret, write_durably, write_secret
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from eigenveil_proto.v1 import eigenveil_pb2_grpc as rpc

RELEASE_KEY_BYTES = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredIdentity:
    """A complete enrolment. `release_key` is the raw Ed25519 public key that signs plans and releases."""

    identity: Identity
    coordinator: str
    pair: KeyPair
    ca_pem: bytes
    release_key: bytes
    expires: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Join:
    """A join file: a one-time token, and where and to whom it may be shown."""

    token: str
    role: str
    name: str
    federation: str
    coordinator: str
    enrol: str
    ca_pem: str

    @property
    def identity(self) -> Identity:
        """Who will be enrolled."""
        return Identity(federation=self.federation, role=Role(self.role), name=self.name)


def enrol(join_file: Path, folder: Path, role: Role | None = None) -> StoredIdentity:
    """Enrol with a join file; keep everything in `folder`. Doing it again is harmless.

    Enrolling again with a new token renews the certificate of the same key.

    Raises:
        RequestError: the join file is unusable, for another role, or `folder` holds another identity.
        PeerError: the coordinator refused, cannot be reached, or answered with something else.
    """
    join = read_join(join_file)
    if role is not None and join.identity.role is not role:
        raise RequestError(
            Code.BAD_CONFIG, f"{join_file} enrols a {join.role}; this command enrols a {role.value}"
        )
    _prepare(folder, join.identity)
    request = _request(folder)
    answer = asyncio.run(_ask(join, request))
    _check(join, answer, _key(folder / "key.pem"))
    write_durably(folder / "ca.pem", answer.ca_pem)
    write_durably(folder / "certificate.pem", answer.certificate_pem)
    about = {
        "identity": join.identity.uri,
        "coordinator": join.coordinator,
        "release_key": answer.release_key.hex(),
    }
    write_durably(folder / "identity.json", json.dumps(about, indent=2, sort_keys=True).encode())
    return load_identity(folder)


def load_identity(folder: Path) -> StoredIdentity:
    """The identity in `folder`.

    Raises:
        RequestError: not enrolled, a file is damaged, or the key can be read by others.
        PeerError: code `identity`, the certificate has expired or is not for this key or name.
    """
    identity = named(folder)
    if identity is None:
        raise RequestError(
            Code.BAD_CONFIG, f"{folder} holds no identity; enrol with a join file from the coordinator"
        )
    try:
        about = json.loads(read(folder / "identity.json"))
        address, release_key = str(about["coordinator"]), bytes.fromhex(about["release_key"])
        certificate = x509.load_pem_x509_certificate(read(folder / "certificate.pem"))
    except (ValueError, KeyError, TypeError) as problem:
        raise _damaged(folder) from problem
    _matches(certificate, identity, _key(folder / "key.pem"))
    stored = StoredIdentity(
        identity=identity,
        coordinator=address,
        pair=KeyPair(key=folder / "key.pem", certificate=folder / "certificate.pem"),
        ca_pem=read(folder / "ca.pem"),
        release_key=release_key,
        expires=certificate.not_valid_after_utc,
    )
    if stored.expires <= datetime.now(UTC):
        raise PeerError(
            Code.IDENTITY,
            f"the certificate of {identity.uri} ended on {stored.expires:%Y-%m-%d %H:%M} UTC; "
            "ask the coordinator's operator for a new join file and enrol again",
        )
    return stored


def named(folder: Path) -> Identity | None:
    """Whose folder it is, whether or not the certificate still holds; None before any enrolment.

    Raises:
        RequestError: the file is damaged.
    """
    if not (folder / "identity.json").exists():
        return None
    try:
        return parse_identity(json.loads(read(folder / "identity.json"))["identity"])
    except (ValueError, KeyError, TypeError, PeerError) as problem:
        raise _damaged(folder) from problem


def _damaged(folder: Path) -> RequestError:
    return RequestError(Code.BAD_CONFIG, f"{folder} is damaged; move it away and enrol again")


def read_join(path: Path) -> Join:
    """A join file, which must be readable by its owner only.

    Raises:
        RequestError: it cannot be read or is not a join file.
    """
    try:
        data = json.loads(read_secret(path))
        join = Join(**data)
        if not all(isinstance(value, str) for value in data.values()):
            raise ValueError("a value is not text")
        _ = join.identity
    except (ValueError, TypeError, PeerError) as problem:
        raise RequestError(Code.BAD_CONFIG, f"{path} is not a join file: {problem}") from problem
    return join


def _prepare(folder: Path, identity: Identity) -> None:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as problem:
        raise InternalError(Code.STORAGE, f"cannot make {folder}: {problem}") from problem
    known = named(folder)
    if known is not None and known != identity:
        raise RequestError(
            Code.CONFLICT, f"{folder} already belongs to {known.uri}; use another folder for {identity.uri}"
        )


def _request(folder: Path) -> bytes:
    """The certificate request of this folder's key, made once: the same bytes make a lost answer harmless."""
    path = folder / "request.der"
    if path.exists() and (folder / "key.pem").exists():
        return read(path)
    key = ec.generate_private_key(ec.SECP256R1())
    pem = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    # The name comes from the token; a request states none that the coordinator would have to believe.
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([]))
    request = builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.DER)
    write_secret(folder / "key.pem", pem)
    write_durably(path, request)
    return request


def _key(path: Path) -> ec.EllipticCurvePrivateKey:
    try:
        key = serialization.load_pem_private_key(read_secret(path), password=None)
    except (ValueError, TypeError) as problem:
        raise RequestError(Code.BAD_CONFIG, f"{path} is not a private key; enrol again") from problem
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise RequestError(Code.BAD_CONFIG, f"{path} is not an elliptic-curve key; enrol again")
    return key


async def _ask(join: Join, request: bytes) -> pb.EnrolResponse:
    channel: grpc.aio.Channel = await verified_channel(
        join.enrol, join.federation, join.ca_pem.encode(), None
    )
    async with channel:
        stub = rpc.EnrolmentStub(channel)
        return await call(stub.Enrol, pb.EnrolRequest(token=join.token, csr_der=request))


def _check(join: Join, answer: pb.EnrolResponse, key: ec.EllipticCurvePrivateKey) -> None:
    """Believe nothing of the answer that the join file or our own key can contradict."""
    try:
        leaf = x509.load_pem_x509_certificate(answer.certificate_pem)
        ca = x509.load_pem_x509_certificate(answer.ca_pem)
        pinned = x509.load_pem_x509_certificate(join.ca_pem.encode())
    except ValueError as problem:
        raise PeerError(Code.IDENTITY, f"the coordinator sent no usable certificate: {problem}") from problem
    if ca != pinned or answer.federation != join.federation:
        raise PeerError(Code.IDENTITY, "the coordinator answered for another federation; nothing was stored")
    if len(answer.release_key) != RELEASE_KEY_BYTES:
        raise PeerError(Code.PROTOCOL, "the coordinator sent no release key; nothing was stored")
    try:
        leaf.verify_directly_issued_by(pinned)
    except (InvalidSignature, TypeError, ValueError) as problem:
        raise PeerError(
            Code.IDENTITY, "the certificate is not the federation's; nothing was stored"
        ) from problem
    _matches(leaf, join.identity, key)


def _matches(leaf: x509.Certificate, identity: Identity, key: ec.EllipticCurvePrivateKey) -> None:
    if parse_identity(only_uri(leaf)) != identity or leaf.public_key() != key.public_key():
        raise PeerError(
            Code.IDENTITY,
            f"the certificate is not for {identity.uri} and the key in this folder; enrol again",
        )
