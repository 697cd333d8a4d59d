"""Start of a connection: greeting, renewal of the certificate, and updates of authorities and dictionary.

Everything uses the live connection, whose other end has been verified. The certificate in force stays so
until its successor is on disk. The coordinator accepts it until the successor was used. The dictionary is in
the identity's folder, signed by the release key; its version never decreases [R22].
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import Awaitable
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

from eigenveil.dictionary.dictionary import Dictionary
from eigenveil.dictionary.formats import SignedDictionary
from eigenveil.errors import Code, EigenveilError, InternalError, PeerError
from eigenveil.numerics.encoding import canonical, parse_json
from eigenveil.protocol.authorities import AuthorityList
from eigenveil_client.connection import identity_files
from eigenveil_client.connection.channel import CALL_SECONDS, call, negotiate_version
from eigenveil_client.connection.identity import StoredIdentity
from eigenveil_client.connection.identity_files import accept_authorities, stored_authorities
from eigenveil_common.concurrency import locked, try_lock
from eigenveil_common.files import failpoint, path_exists, read, read_secret, write_durably, write_secret
from eigenveil_common.log import event
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from eigenveil_proto.v1 import eigenveil_pb2_grpc as rpc

MAX_SLEEP = 60.0  # a clock may jump, a machine may sleep
RETRY_SECONDS = 60.0
GENERATION_BYTES = 32

T = TypeVar("T")


class Generation:
    """Chained values of a site's greetings, so that only one of two copies of its folder is served [R18].

    Each greeting sends the value announced before, and announces the value of the next greeting. The file is
    in the identity's folder; its values are secret, like the key beside it.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / "generation.json"

    def announce(self) -> tuple[bytes, bytes]:
        """Return the current and the announced value; they are on disk, and unchanged until `confirm`.

        Raises:
            RequestError: the file is damaged. InternalError: code `storage`.
        """
        current, upcoming = self._read()
        if not upcoming:
            upcoming = os.urandom(GENERATION_BYTES)
            self._write(current, upcoming)
            failpoint("generation-announcing")
        return current, upcoming

    def confirm(self) -> None:
        """Make the announced value the current one: the coordinator has stored it.

        Raises:
            InternalError: code `storage`.
        """
        failpoint("generation-announced")
        _, upcoming = self._read()
        self._write(upcoming, b"")

    def _read(self) -> tuple[bytes, bytes]:
        if not self._path.exists():
            return b"", b""
        try:
            values = parse_json(read_secret(self._path))
            return bytes.fromhex(values["shown"]), bytes.fromhex(values["next"])
        except (ValueError, KeyError, TypeError) as problem:
            raise identity_files.damaged(self._path.parent) from problem

    def _write(self, current: bytes, upcoming: bytes) -> None:
        values = {"shown": current.hex(), "next": upcoming.hex()}
        write_secret(self._path, json.dumps(values).encode())


def due(stored: StoredIdentity) -> bool:
    """True after two thirds of the certificate's lifetime."""
    return datetime.now(UTC) >= stored.renews


async def greet_coordinator(
    stub: rpc.CoordinatorAsyncStub,
    software: str,
    stored: StoredIdentity,
    generation: Generation | None = None,
    seconds: float = CALL_SECONDS,
    checkpoint: pb.SignedCheckpoint | None = None,
    statement: pb.SiteStatement | None = None,
) -> pb.HelloResponse:
    """Send Hello as `stored`, and accept the lists of authorities that follow the stored one.

    A site also sends its `generation`, its stored `checkpoint` and its `statement`.

    Raises:
        EigenveilError: as `negotiate_version`, or `identity`: a list does not follow the stored one.
        InternalError: code `storage`, at this end; an error of the coordinator's storage is a PeerError.
    """
    current, upcoming = generation.announce() if generation is not None else (b"", b"")
    extra = pb.HelloRequest(
        generation=current, next_generation=upcoming, checkpoint=checkpoint, statement=statement
    )
    extra.MergeFrom(_authorities_request(stored.authorities))
    hello = await _as_peer_error(negotiate_version(stub, software, seconds, extra))
    if hello.authorities:
        extra.MergeFrom(
            _authorities_request(accept_authorities(stored.folder, stored.authorities, hello.authorities))
        )
        # Sent again, so that the operator sees which parties a change has reached.
        await _as_peer_error(negotiate_version(stub, software, seconds, extra))
    if generation is not None:
        generation.confirm()
    return hello


def _authorities_request(authorities: AuthorityList) -> pb.HelloRequest:
    return pb.HelloRequest(authorities=authorities.digest, authorities_version=authorities.version)


async def renew(stub: rpc.CoordinatorAsyncStub, stored: StoredIdentity) -> bool:
    """Get the next certificate, for a new key, and put it in force; False if another process does so.

    Raises:
        EigenveilError: the coordinator's own error, code `unreachable`, or an invalid answer. Nothing has
            changed then, and the next attempt uses the same key.
        InternalError: code `storage`.
    """
    lock = try_lock(stored.folder / "renewal.lock")  # the system releases it at exit
    if lock is None:
        return False
    with lock:
        key = identity_files.pending_key(stored.folder, identity_files.RENEWAL)
        authorities = stored_authorities(stored.folder)
        renew_request = pb.RenewRequest(
            csr_der=identity_files.request_for(key), authorities_version=authorities.version
        )
        response = await _as_peer_error(call(stub.Renew, renew_request, attempts=1))
        authorities = accept_authorities(stored.folder, authorities, response.authorities)
        leaf = identity_files.verified_certificate(
            response.certificate_pem, authorities, stored.identity, key
        )
        identity_files.store_key_pair(stored.folder, key, leaf)
        identity_files.remove_pending_key(stored.folder)
        event("certificate-renewed", at=f"{leaf.not_valid_after_utc:%Y-%m-%dT%H:%MZ}")
        return True


async def _as_peer_error(answer: Awaitable[T]) -> T:
    """Raise the coordinator's internal errors as PeerError: only our own end the process."""
    try:
        return await answer
    except InternalError as problem:
        raise PeerError(Code.UNREACHABLE, f"the coordinator failed: {problem}") from problem


async def renew_in_time(stub: rpc.CoordinatorAsyncStub, stored: StoredIdentity) -> None:
    """Wait until `stored` is due, and return when its successor is in force.

    Failures are retried, and each is logged once.

    Raises:
        InternalError: code `storage`; the process must end.
    """
    logged_code: Code | None = None
    while True:
        left = (stored.renews - datetime.now(UTC)).total_seconds()
        if left > 0:
            await asyncio.sleep(min(left, MAX_SLEEP))
            continue
        try:
            if await renew(stub, stored):
                return
        except InternalError:
            raise
        except EigenveilError as problem:
            if problem.code is not logged_code:
                logged_code = problem.code
                event("renewal-failed", logging.WARNING, code=logged_code.value, detail=problem)
        life = (stored.expires - stored.renews).total_seconds()
        await asyncio.sleep(min(RETRY_SECONDS, life / 10))


DICTIONARY_FILE = "dictionary.json"
DICTIONARY_LOCK = "dictionary.lock"


def stored_dictionary(stored: StoredIdentity) -> Dictionary | None:
    """Return the dictionary that was fetched last.

    None if there is none, or if it belongs to another federation or release key than the trusted ones.

    Raises:
        InternalError: code `storage`.
    """
    signed = _read_signed(stored.folder)
    return None if signed is None else _verified(signed, stored)


def _read_signed(folder: Path) -> SignedDictionary | None:
    if not path_exists(folder / DICTIONARY_FILE):
        return None
    try:
        written = parse_json(read(folder / DICTIONARY_FILE))
        signed_bytes, signature = bytes.fromhex(written["signed_json"]), bytes.fromhex(written["signature"])
    except (ValueError, KeyError, TypeError):
        return None  # a damaged file is fetched again
    return SignedDictionary(signed_json=signed_bytes, signature=signature)


def _verified(signed: SignedDictionary, stored: StoredIdentity) -> Dictionary | None:
    try:
        return signed.check(stored.release_key, stored.identity.federation)
    except PeerError:
        return None


def accept_dictionary(stored: StoredIdentity, sent: pb.GetDictionaryResponse) -> Dictionary | None:
    """Return the dictionary that the coordinator sent, checked against the stored one; durable.

    Raises:
        PeerError: code `identity`, not signed by the federation; `protocol`, an older version than the stored
            one, another content under the same version, or none any more.
        InternalError: code `storage`.
    """
    signed = SignedDictionary(signed_json=sent.dictionary.signed_json, signature=sent.dictionary.signature)
    with locked(stored.folder / DICTIONARY_LOCK):
        before = stored_dictionary(stored)
        if not sent.HasField("dictionary"):
            _check_not_older(before, None)
            return None
        found = signed.check(stored.release_key, stored.identity.federation)
        _check_not_older(before, found)
        written = {"signed_json": signed.signed_json.hex(), "signature": signed.signature.hex()}
        if found != before:
            write_durably(stored.folder / DICTIONARY_FILE, canonical(written))
    return found


def _check_not_older(before: Dictionary | None, found: Dictionary | None) -> None:
    if before is None or found == before:
        return
    if found is None or found.version <= before.version:
        now = "none" if found is None else f"version {found.version}"
        raise PeerError(
            Code.PROTOCOL,
            f"the coordinator sent {now} of the dictionary, which contradicts the stored version "
            f"{before.version}; ask its operator to publish a higher version",
        )
