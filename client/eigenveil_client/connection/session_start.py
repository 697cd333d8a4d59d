"""Start of a connection: greeting, renewal of the certificate, and updates of authorities and dictionary.

Everything uses the live connection, whose other end has been verified. The certificate in force stays so
until its successor is on disk. The coordinator accepts it until the successor was used. The dictionary is in
the identity's folder, signed by the release key; its version never decreases [R22]."""

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
from eigenveil_client.connection import identity_files
from eigenveil_client.connection.channel import CALL_SECONDS, call, negotiate_version
from eigenveil_client.connection.identity import StoredIdentity, open_channel
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
    in the identity's folder; its values are secret, like the key beside it."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "generation.json"

    def announce(self) -> tuple[bytes, bytes]:
        """Return the current and the announced value; they are on disk, and unchanged until `confirm`."""
        current, upcoming = self._read()
        if not upcoming:
            upcoming = os.urandom(GENERATION_BYTES)
            self._write(current, upcoming)
            failpoint("generation-announcing")
        return current, upcoming

    def confirm(self) -> None:
        """Make the announced value the current one: the coordinator has stored it."""
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
        write_secret(self._path, json.dumps({"shown": current.hex(), "next": upcoming.hex()}).encode())


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
    capabilities: pb.Capabilities | None = None,
) -> pb.HelloResponse:
    """Send Hello as `stored`, and accept the lists of authorities that follow the stored one.

    A site also sends its `generation`, its stored `checkpoint`, its `statement` and its `capabilities`.

    Raises:
        EigenveilError: as `negotiate_version`, or `identity`: a list does not follow the stored one.
        InternalError: code `storage`, at this end; an error of the coordinator's storage is a PeerError."""
    current, upcoming = generation.announce() if generation is not None else (b"", b"")
    extra = pb.HelloRequest(checkpoint=checkpoint, statement=statement, capabilities=capabilities)
    shown = stored.authorities
    extra.generation, extra.next_generation = current, upcoming
    extra.authorities, extra.authorities_version = shown.digest, shown.version
    hello = await _as_peer_error(negotiate_version(stub, software, seconds, extra))
    if hello.authorities:
        shown = accept_authorities(stored.folder, shown, hello.authorities)
        extra.authorities, extra.authorities_version = shown.digest, shown.version
        # Sent again, so that the operator sees which parties a change has reached.
        await _as_peer_error(negotiate_version(stub, software, seconds, extra))
    if generation is not None:
        generation.confirm()
    return hello


async def renew(stub: rpc.CoordinatorAsyncStub, stored: StoredIdentity) -> bool:
    """Get the next certificate, for a new key, and put it in force; False if another process does so."""
    lock = try_lock(stored.folder / "renewal.lock")  # the system releases it at exit
    if lock is None:
        return False
    with lock:
        key = identity_files.pending_key(stored.folder, identity_files.RENEWAL)
        before, request = stored_authorities(stored.folder), identity_files.request_for(key)
        renewal = pb.RenewRequest(csr_der=request, authorities_version=before.version)
        response = await _as_peer_error(call(stub.Renew, renewal, attempts=1))
        after, pem = accept_authorities(stored.folder, before, response.authorities), response.certificate_pem
        leaf = identity_files.verified_certificate(pem, after, stored.identity, key)
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

    Raises InternalError: code `storage`; the process must end."""
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
        await asyncio.sleep(min(RETRY_SECONDS, (stored.expires - stored.renews).total_seconds() / 10))


DICTIONARY_FILE = "dictionary.json"
DICTIONARY_LOCK = "dictionary.lock"


def stored_dictionary(stored: StoredIdentity) -> Dictionary | None:
    """Return the dictionary that was fetched last. None if there is none, or if it belongs to another
    federation or release key than the trusted ones."""
    if not path_exists(stored.folder / DICTIONARY_FILE):
        return None
    try:
        written = parse_json(read(stored.folder / DICTIONARY_FILE))
        statement, signature = (bytes.fromhex(written[key]) for key in ("signed_json", "signature"))
        signed = SignedDictionary(signed_json=statement, signature=signature)
        return signed.check_federation(stored.release_keys.known, stored.identity.federation)
    except (ValueError, KeyError, TypeError, PeerError):
        return None  # a damaged file is fetched again


async def fetch_dictionary(stored: StoredIdentity, software: str) -> Dictionary | None:
    """Return the federation's dictionary from the coordinator, stored beside the identity; None if it has
    published none. Only a greeting is sent. Raises EigenveilError: as the calls, or
    `accept_dictionary`."""
    async with await open_channel(stored) as channel:
        stub = rpc.CoordinatorStub(channel)
        await negotiate_version(stub, software)
        sent = await call(stub.GetDictionary, pb.GetDictionaryRequest(), attempts=1)
        return await asyncio.to_thread(accept_dictionary, stored, sent)


def accept_dictionary(stored: StoredIdentity, sent: pb.GetDictionaryResponse) -> Dictionary | None:
    """Return the dictionary that the coordinator sent, checked against the stored one; durable.

    Raises:
        PeerError: code `identity`, not signed by the federation; `protocol`, an older version than the stored
            one, another content under the same version, or none any more.
        InternalError: code `storage`."""
    signed = SignedDictionary(signed_json=sent.dictionary.signed_json, signature=sent.dictionary.signature)
    with locked(stored.folder / DICTIONARY_LOCK):
        before, found = stored_dictionary(stored), None
        if sent.HasField("dictionary"):
            found = signed.check_federation(stored.release_keys.accepted, stored.identity.federation)
        if before not in (None, found) and (found is None or found.version <= before.version):
            now = "none" if found is None else f"version {found.version}"
            why = f"which contradicts the stored version {before.version}"
            todo = "ask its operator to publish a higher version"
            raise PeerError(Code.PROTOCOL, f"the coordinator sent {now} of the dictionary, {why}; {todo}")
        if found not in (None, before):
            written = {"signed_json": signed.signed_json.hex(), "signature": signed.signature.hex()}
            write_durably(stored.folder / DICTIONARY_FILE, canonical(written))
    return found
