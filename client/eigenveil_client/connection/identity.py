"""Identity of this machine in a federation: a private key that never leaves, a certificate, and authorities.
`identity_files` lists the files."""

from __future__ import annotations

import asyncio
import hashlib
import json
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from pathlib import Path

import grpc
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from eigenveil.errors import Code, PeerError, RequestError
from eigenveil.identity import JOIN_FORMAT, Identity, Role, grouped_digest, parse_identity
from eigenveil.numerics.encoding import parse_json
from eigenveil.protocol.authorities import AuthorityList, list_from_json
from eigenveil.signatures import ReleaseKeys, check_format, formatted, key_print
from eigenveil_client.connection import identity_files as files
from eigenveil_client.connection.channel import call
from eigenveil_client.connection.identity_files import (
    follow_authorities,
    reset_authorities,
    stored_authorities,
)
from eigenveil_client.connection.proxy import DIRECT, ProxyRule
from eigenveil_client.connection.tls import verified_channel
from eigenveil_common.files import make_folder, path_exists, read, read_secret, write_durably
from eigenveil_common.trusted_files import check_trusted, trusted_entries
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from eigenveil_proto.v1 import eigenveil_pb2_grpc as rpc


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredIdentity:
    """A complete enrolment.

    `pair` is the private key and the certificate in one file (PEM), so that both are replaced at once.
    `authorities` are trusted. `renews` is when two thirds of the certificate's lifetime have passed. The
    operators of both ends compare `key_print`. `proxy` comes from the configuration, not from the folder."""

    identity: Identity
    coordinator: str
    pair: Path
    authorities: AuthorityList
    expires: datetime
    renews: datetime
    key_print: str
    proxy: ProxyRule = DIRECT

    @property
    def folder(self) -> Path:
        return self.pair.parent

    @property
    def ca_pem(self) -> bytes:
        """Certificates of the trusted authorities (PEM)."""
        return self.authorities.issuers_pem

    @property
    def addresses(self) -> tuple[str, ...]:
        """Addresses of the coordinator, the first one first: of the list of authorities, then that of the
        join file."""
        return tuple(dict.fromkeys((*self.authorities.addresses, self.coordinator)))

    @property
    def release_keys(self) -> ReleaseKeys:
        """The federation's release keys."""
        return self.authorities.trusted_keys

    def reread(self) -> StoredIdentity:
        """Return the identity that is in the folder now, with this proxy. Raises as `load_identity`."""
        return replace(load_identity(self.folder), proxy=self.proxy)


@dataclass(slots=True)
class CurrentIdentity:
    """Identity of a running daemon, replaced when the coordinator has sent a new list of authorities."""

    stored: StoredIdentity

    @property
    def identity(self) -> Identity:
        return self.stored.identity

    @property
    def folder(self) -> Path:
        return self.stored.folder

    @property
    def release_keys(self) -> ReleaseKeys:
        """The federation's release keys, of the latest list."""
        return self.stored.release_keys


async def open_channel(caller: StoredIdentity) -> grpc.aio.Channel:
    """Return a mutually authenticated channel to the coordinator of the caller's federation.

    The channel trusts only the coordinator's present certificate. After a change, calls fail as
    `unreachable`: open a new channel.

    Raises:
        PeerError: code `unreachable` or `identity` (see `tls.verified_channel`).
        RequestError: the proxy's credentials cannot be used."""
    federation, problem = caller.identity.federation, None
    for address in caller.addresses:
        try:
            return await verified_channel(address, federation, caller.ca_pem, caller.pair, caller.proxy)
        except PeerError as failure:
            # Another server may stand at an earlier address: the others are tried first.
            if problem is None or problem.code is Code.UNREACHABLE:
                problem = failure
    assert problem is not None
    raise problem


IDENTITY_FORMAT = "eigenveil-identity/1"


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinFile:
    """A join file: a one-time token, the addresses of the coordinator, and the first list of authorities."""

    token: str
    role: str
    name: str
    federation: str
    coordinator: str
    enrol: str
    authorities: str

    @property
    def identity(self) -> Identity:
        """Identity to be enrolled."""
        return Identity(federation=self.federation, role=Role(self.role), name=self.name)

    @property
    def trusted(self) -> AuthorityList:
        return list_from_json(self.authorities.encode())

    @property
    def digest(self) -> str:
        """SHA-256 of the token, to recognise it."""
        return hashlib.sha256(self.token.encode()).hexdigest()


def enrol(
    join_file: Path, folder: Path, roles: tuple[Role, ...] = (), proxy: ProxyRule = DIRECT
) -> StoredIdentity:
    """Enrol with a join file through `proxy`, and store the identity in `folder`. Repetition is harmless.

    A new join file brings a new key. The old identity stays in force until the coordinator has answered.

    Raises:
        RequestError: the join file is unusable or for a role not in `roles`, or `folder` holds another
            identity.
        PeerError: the coordinator refused, is unreachable, or gave an invalid answer."""
    join = read_join(join_file)
    if roles and join.identity.role not in roles:
        names = (join.role, *(role.value for role in roles))
        this, *wanted = (f"{'an' if name[0] in 'aeiou' else 'a'} {name}" for name in names)
        why = f"{join_file} enrols {this}; this command enrols {' or '.join(wanted)}"
        raise RequestError(Code.BAD_CONFIG, why)
    make_folder(folder, mode=0o700)
    known = folder_identity(folder)
    if known is not None and known != join.identity:
        todo = f"use another folder for {join.identity.uri}"
        raise RequestError(Code.CONFLICT, f"{folder} already belongs to {known.uri}; {todo}")
    # True if enrolment with this join file was completed here: then its key is in force.
    already_used = known is not None and _read_about(folder).get("join") == join.digest
    key = files.read_pair(folder)[0] if already_used else files.pending_key(folder, join.digest)
    # A new join file replaces the trusted authorities, but only once.
    start_list = stored_authorities(folder) if already_used else join.trusted
    answer = asyncio.run(_request_enrolment(join, start_list, files.request_for(key), proxy))
    trusted, leaf = _check_answer(join, start_list, answer, key)
    reset_authorities(folder, trusted)
    files.store_key_pair(folder, key, leaf)
    about = {"identity": join.identity.uri, "coordinator": join.coordinator, "join": join.digest}
    content = formatted(IDENTITY_FORMAT, about)
    write_durably(folder / files.ABOUT, json.dumps(content, indent=2, sort_keys=True).encode())
    files.remove_pending_key(folder)
    return load_identity(folder)


def load_identity(folder: Path) -> StoredIdentity:
    """Return the identity in `folder`."""
    identity = folder_identity(folder)
    if identity is None:
        todo = "enrol with a join file from the coordinator"
        raise RequestError(Code.BAD_CONFIG, f"{folder} holds no identity; {todo}")
    try:
        address = str(_read_about(folder)["coordinator"])
    except (ValueError, KeyError, TypeError, PeerError) as problem:
        raise files.unreadable(folder, problem) from problem
    check_trusted(trusted_entries(folder))
    key, certificate = files.read_pair(folder)
    files.check_matches(certificate, identity, key)
    ends, begins = certificate.not_valid_after_utc, certificate.not_valid_before_utc
    stored = StoredIdentity(
        identity=identity,
        coordinator=address,
        pair=folder / files.KEY,
        authorities=stored_authorities(folder),
        expires=ends,
        renews=begins + (ends - begins) * 2 / 3,
        key_print=key_print(key.public_key()),
    )
    if ends <= datetime.now(UTC):
        why = f"the certificate of {identity.uri} expired on {ends:%Y-%m-%d %H:%M} UTC"
        todo = "ask the coordinator's operator for a new join file and enrol again"
        raise PeerError(Code.IDENTITY, f"{why}; {todo}")
    return stored


def folder_identity(folder: Path) -> Identity | None:
    """Return the identity that owns the folder, also with an expired certificate; None before enrolment."""
    if not path_exists(folder / files.ABOUT):
        return None
    try:
        return parse_identity(_read_about(folder)["identity"])
    except (ValueError, KeyError, TypeError, PeerError) as problem:
        raise files.unreadable(folder, problem) from problem


def _read_about(folder: Path) -> dict[str, str]:
    about: dict[str, str] = parse_json(read(folder / files.ABOUT))
    check_format(about, IDENTITY_FORMAT, "the identity")
    return about


def key_comparison_text(key_print: str) -> str:
    """Return the text that asks the operators of both ends to compare a key's digest."""
    return (
        f"SHA-256 of the key:  {grouped_digest(key_print, 21)}\n"
        "Read it to the coordinator's operator, who finds the same in:\n"
        "eigenveil-coordinator status --config FILE"
    )


def read_join(path: Path) -> JoinFile:
    """Return a join file, which only its owner may be able to read."""
    try:
        data = parse_json(read_secret(path))
        check_format(data, JOIN_FORMAT, "the file")
        values = {one.name: data[one.name] for one in fields(JoinFile)}
        join = JoinFile(**values)
        if not all(isinstance(value, str) for value in values.values()):
            raise ValueError("a value is not text")
        if join.trusted.federation != join.identity.federation:
            raise ValueError("its list of authorities is another federation's")
    except (ValueError, KeyError, TypeError, PeerError) as problem:
        raise RequestError(Code.BAD_CONFIG, f"{path} is not a join file: {problem}") from problem
    return join


async def _request_enrolment(
    join: JoinFile, start_list: AuthorityList, request: bytes, proxy: ProxyRule
) -> pb.EnrolResponse:
    channel = await verified_channel(join.enrol, join.federation, start_list.issuers_pem, None, proxy)
    enrol_request = pb.EnrolRequest(token=join.token, csr_der=request, authorities_version=start_list.version)
    async with channel:
        return await call(rpc.EnrolmentStub(channel).Enrol, enrol_request)


def _check_answer(
    join: JoinFile, start_list: AuthorityList, answer: pb.EnrolResponse, key: ec.EllipticCurvePrivateKey
) -> tuple[AuthorityList, x509.Certificate]:
    """Check the answer against the join file and the key, and return the authorities and the certificate."""
    if answer.federation != join.federation:
        raise PeerError(Code.IDENTITY, "the coordinator belongs to another federation; nothing was stored")
    trusted = follow_authorities(start_list, answer.authorities)
    if trusted.ends <= datetime.now(UTC):
        todo = "ask its operator to renew it: eigenveil-coordinator ca extend"
        why = f"the federation's list of authorities expired on {trusted.ends:%Y-%m-%d}"
        raise PeerError(Code.IDENTITY, f"{why}; {todo}")
    return trusted, files.verified_certificate(answer.certificate_pem, trusted, join.identity, key)
