"""Who this machine is in a federation: a key that never leaves, a certificate, whom to trust.

`identity_files` says which files that is.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import grpc
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from eigenveil.certificates import key_print
from eigenveil.errors import Code, PeerError, RequestError
from eigenveil.identity import Identity, Role, parse_identity, spoken
from eigenveil.numerics.encoding import parse_json
from eigenveil.protocol.authorities import AuthorityList, list_from_json
from eigenveil_client.connection import identity_files as files
from eigenveil_client.connection.channel import call
from eigenveil_client.connection.proxy import DIRECT, ProxyRule
from eigenveil_client.connection.tls import verified_channel
from eigenveil_client.connection.trusted_authorities import begin, held_list, walk
from eigenveil_common.files import is_there, make_folder, read, read_secret, write_durably
from eigenveil_common.trusted_files import believed, check_trusted
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from eigenveil_proto.v1 import eigenveil_pb2_grpc as rpc


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredIdentity:
    """A complete enrolment. `pair` is the private key and the certificate in one file (PEM), so that both are
    replaced at once; `authorities` is the list of whom to trust; `renews` is when two thirds of the
    certificate's life are over; `key_print` is what its operator compares with the coordinator's; `proxy`
    comes from the configuration, not from the folder."""

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
        """The authorities whose certificates are believed."""
        return self.authorities.issuers_pem

    @property
    def release_key(self) -> bytes:
        """The raw Ed25519 public key that signs plans and releases."""
        return self.authorities.release_key

    def reread(self) -> StoredIdentity:
        """The same with the certificate and the authorities that the folder holds by now. Raises as
        `load_identity`."""
        now = load_identity(self.folder)
        return replace(
            self, authorities=now.authorities, expires=now.expires, renews=now.renews, key_print=now.key_print
        )


async def open_channel(caller: StoredIdentity) -> grpc.aio.Channel:
    """A mutually authenticated channel to the coordinator of the caller's federation.

    The channel trusts the one certificate the coordinator has now; open a new one after it changed
    (calls then fail as `unreachable`).

    Raises:
        PeerError: code `unreachable` or `identity` (see `tls.verified_channel`).
        RequestError: the proxy's credentials cannot be used.
    """
    federation = caller.identity.federation
    return await verified_channel(caller.coordinator, federation, caller.ca_pem, caller.pair, caller.proxy)


@dataclass(frozen=True, slots=True, kw_only=True)
class Join:
    """A join file: a one-time token, where and to whom it may be shown, and the list of authorities with
    which trust begins."""

    token: str
    role: str
    name: str
    federation: str
    coordinator: str
    enrol: str
    authorities: str

    @property
    def identity(self) -> Identity:
        """Who will be enrolled."""
        return Identity(federation=self.federation, role=Role(self.role), name=self.name)

    @property
    def trusted(self) -> AuthorityList:
        return list_from_json(self.authorities.encode())

    @property
    def digest(self) -> str:
        """SHA-256 of the token, to know it again."""
        return hashlib.sha256(self.token.encode()).hexdigest()


def enrol(
    join_file: Path, folder: Path, roles: tuple[Role, ...] = (), proxy: ProxyRule = DIRECT
) -> StoredIdentity:
    """Enrol with a join file, by way of `proxy`; keep everything in `folder`. Doing it again is harmless.

    A new join file brings a new key; until the coordinator has answered, the old identity stays in force.

    Raises:
        RequestError: the join file is unusable, for a role not in `roles`, or `folder` holds another
            identity.
        PeerError: the coordinator refused, cannot be reached, or answered with something else.
    """
    join = read_join(join_file)
    if roles and join.identity.role not in roles:
        wanted = " or ".join(_a(role.value) for role in roles)
        raise RequestError(
            Code.BAD_CONFIG, f"{join_file} enrols {_a(join.role)}; this command enrols {wanted}"
        )
    make_folder(folder, mode=0o700)
    known = named(folder)
    if known is not None and known != join.identity:
        raise RequestError(
            Code.CONFLICT,
            f"{folder} already belongs to {known.uri}; use another folder for {join.identity.uri}",
        )
    # Whether this very join file was used to the end here: then its key is in force.
    used = known is not None and _about(folder).get("join") == join.digest
    key = files.read_pair(folder)[0] if used else files.pending_key(folder, join.digest)
    # A join file is its giver's word, and trust begins anew with it; but not twice with the same one.
    begun = held_list(folder) if used else join.trusted
    answer = asyncio.run(_ask(join, begun, files.request_for(key), proxy))
    trusted, leaf = _check(join, begun, answer, key)
    begin(folder, trusted)
    files.store(folder, key, leaf)
    about = {"identity": join.identity.uri, "coordinator": join.coordinator, "join": join.digest}
    write_durably(folder / files.ABOUT, json.dumps(about, indent=2, sort_keys=True).encode())
    files.settle(folder)
    return load_identity(folder)


def _a(role: str) -> str:
    return f"an {role}" if role[0] in "aeiou" else f"a {role}"


def load_identity(folder: Path) -> StoredIdentity:
    """The identity in `folder`.

    Raises:
        RequestError: not enrolled, a file is damaged, or others can read the key or change a file.
        PeerError: code `identity`, the certificate has expired or is not for this key or name.
    """
    identity = named(folder)
    if identity is None:
        raise RequestError(
            Code.BAD_CONFIG, f"{folder} holds no identity; enrol with a join file from the coordinator"
        )
    try:
        address = str(_about(folder)["coordinator"])
    except (ValueError, KeyError, TypeError) as problem:
        raise files.damaged(folder) from problem
    check_trusted(believed(folder))
    key, certificate = files.read_pair(folder)
    files.matches(certificate, identity, key)
    ends, begins = certificate.not_valid_after_utc, certificate.not_valid_before_utc
    stored = StoredIdentity(
        identity=identity,
        coordinator=address,
        pair=folder / files.KEY,
        authorities=held_list(folder),
        expires=ends,
        renews=begins + (ends - begins) * 2 / 3,
        key_print=key_print(key.public_key()),
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
    if not is_there(folder / files.ABOUT):
        return None
    try:
        return parse_identity(_about(folder)["identity"])
    except (ValueError, KeyError, TypeError, PeerError) as problem:
        raise files.damaged(folder) from problem


def pinned(folder: Path) -> tuple[Identity, bytes] | None:
    """Whose folder it is, and the release key it trusts, also after its certificate; None if not enrolled.

    Raises:
        RequestError: a file is damaged.
    """
    identity = named(folder)
    return None if identity is None else (identity, held_list(folder).release_key)


def _about(folder: Path) -> dict[str, str]:
    about: dict[str, str] = parse_json(read(folder / files.ABOUT))
    return about


def compared(key_print: str) -> str:
    """What the operators of both ends do with a key's digest, at enrolment."""
    return (
        f"SHA-256 of the key:  {spoken(key_print, 21)}\n"
        "Read it to the coordinator's operator, who finds the same in:\n"
        "eigenveil-coordinator status --config FILE"
    )


def read_join(path: Path) -> Join:
    """A join file, which must be readable by its owner only.

    Raises:
        RequestError: it cannot be read or is not a join file.
    """
    try:
        data = parse_json(read_secret(path))
        join = Join(**data)
        if not all(isinstance(value, str) for value in data.values()):
            raise ValueError("a value is not text")
        if join.trusted.federation != join.identity.federation:
            raise ValueError("its list of authorities is another federation's")
    except (ValueError, TypeError, PeerError) as problem:
        raise RequestError(Code.BAD_CONFIG, f"{path} is not a join file: {problem}") from problem
    return join


async def _ask(join: Join, begun: AuthorityList, request: bytes, proxy: ProxyRule) -> pb.EnrolResponse:
    channel = await verified_channel(join.enrol, join.federation, begun.issuers_pem, None, proxy)
    asked = pb.EnrolRequest(token=join.token, csr_der=request, authorities_version=begun.version)
    async with channel:
        return await call(rpc.EnrolmentStub(channel).Enrol, asked)


def _check(
    join: Join, begun: AuthorityList, answer: pb.EnrolResponse, key: ec.EllipticCurvePrivateKey
) -> tuple[AuthorityList, x509.Certificate]:
    """Believe nothing of the answer that the join file or our own key can contradict."""
    if answer.federation != join.federation:
        raise PeerError(Code.IDENTITY, "the coordinator answered for another federation; nothing was stored")
    trusted = walk(begun, answer.authorities)
    if trusted.ends <= datetime.now(UTC):
        raise PeerError(
            Code.IDENTITY,
            f"the federation's list of authorities ended on {trusted.ends:%Y-%m-%d}; ask its operator to "
            "make it anew: eigenveil-coordinator ca extend",
        )
    return trusted, files.checked(answer.certificate_pem, trusted, join.identity, key)
