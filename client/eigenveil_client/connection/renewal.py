"""What a connection begins with, a certificate that is renewed before it ends, and authorities that are
trusted before they are used.

All over the live connection, whose other end has been verified. The certificate that is in force stays
so until its successor is on the disk, and works at the coordinator until the successor was used.
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

from eigenveil.errors import Code, EigenveilError, InternalError, PeerError
from eigenveil.numerics.encoding import parse_json
from eigenveil.protocol.authorities import AuthorityList
from eigenveil_client.connection import identity_files
from eigenveil_client.connection.channel import CALL_SECONDS, call, greet
from eigenveil_client.connection.identity import StoredIdentity
from eigenveil_client.connection.trusted_authorities import held_list, take
from eigenveil_common.failpoints import failpoint
from eigenveil_common.files import read_secret, write_secret
from eigenveil_common.locks import try_lock
from eigenveil_common.log import event
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from eigenveil_proto.v1 import eigenveil_pb2_grpc as rpc

LONGEST_SLEEP = 60.0  # a clock may jump, a machine may sleep
RETRY_SECONDS = 60.0
GENERATION_BYTES = 32

T = TypeVar("T")


class Generation:
    """What a site's daemon shows in its greetings, so that of two copies of its folder one is served [R18].

    Every greeting hands on: it shows what the last one announced, and announces what the next one will show.
    The file is in the identity's folder, and its values are secrets like the key beside it.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / "generation.json"

    def announce(self) -> tuple[bytes, bytes]:
        """What to show now and what to announce; on the disk, and the same again until `confirm`.

        Raises:
            RequestError: the file is damaged. InternalError: code `storage`.
        """
        shown, following = self._read()
        if not following:
            following = os.urandom(GENERATION_BYTES)
            self._write(shown, following)
            failpoint("generation-announcing")
        return shown, following

    def confirm(self) -> None:
        """The coordinator has taken note of what was announced.

        Raises:
            InternalError: code `storage`.
        """
        failpoint("generation-announced")
        _, following = self._read()
        self._write(following, b"")

    def _read(self) -> tuple[bytes, bytes]:
        if not self._path.exists():
            return b"", b""
        try:
            held = parse_json(read_secret(self._path))
            return bytes.fromhex(held["shown"]), bytes.fromhex(held["next"])
        except (ValueError, KeyError, TypeError) as problem:
            raise identity_files.damaged(self._path.parent) from problem

    def _write(self, shown: bytes, following: bytes) -> None:
        held = {"shown": shown.hex(), "next": following.hex()}
        write_secret(self._path, json.dumps(held).encode())


def due(stored: StoredIdentity) -> bool:
    """Whether two thirds of the certificate's life are over."""
    return datetime.now(UTC) >= stored.renews


async def introduce(
    stub: rpc.CoordinatorAsyncStub,
    software: str,
    stored: StoredIdentity,
    generation: Generation | None = None,
    seconds: float = CALL_SECONDS,
    checkpoint: pb.SignedCheckpoint | None = None,
    statement: pb.SiteStatement | None = None,
) -> pb.HelloResponse:
    """Say Hello as `stored`, and take the lists of authorities that follow ours; a site hands on its
    `generation`, shows the `checkpoint` that it holds, and says what it states of itself.

    Raises:
        EigenveilError: as `transport.greet`, or `identity`: a list was sent that does not follow.
        InternalError: code `storage`, here; never there.
    """
    shown, following = generation.announce() if generation is not None else (b"", b"")
    also = pb.HelloRequest(
        generation=shown, next_generation=following, checkpoint=checkpoint, statement=statement
    )
    also.MergeFrom(_shown(stored.authorities))
    hello = await _theirs(greet(stub, software, seconds, also))
    if hello.authorities:
        also.MergeFrom(_shown(take(stored.folder, stored.authorities, hello.authorities)))
        # Once more, so that the operator knows whom a change has reached.
        await _theirs(greet(stub, software, seconds, also))
    if generation is not None:
        generation.confirm()
    return hello


def _shown(held: AuthorityList) -> pb.HelloRequest:
    return pb.HelloRequest(authorities=held.digest, authorities_version=held.version)


async def renew(stub: rpc.CoordinatorAsyncStub, stored: StoredIdentity) -> bool:
    """Get the next certificate, for a new key, and put it in force; False if another process is at it.

    Raises:
        EigenveilError: the coordinator's own error, or code `unreachable`; or it sent something else.
            Nothing has changed then, and the same key is tried again.
        InternalError: code `storage`.
    """
    alone = try_lock(stored.folder / "renewal.lock")  # the system frees it at exit
    if alone is None:
        return False
    with alone:
        key = identity_files.pending_key(stored.folder, identity_files.RENEWAL)
        held = held_list(stored.folder)
        asked = pb.RenewRequest(csr_der=identity_files.request_for(key), authorities_version=held.version)
        answer = await _theirs(call(stub.Renew, asked, attempts=1))
        held = take(stored.folder, held, answer.authorities)
        leaf = identity_files.checked(answer.certificate_pem, held, stored.identity, key)
        identity_files.store(stored.folder, key, leaf)
        identity_files.settle(stored.folder)
        event("certificate-renewed", at=f"{leaf.not_valid_after_utc:%Y-%m-%dT%H:%MZ}")
        return True


async def _theirs(answer: Awaitable[T]) -> T:
    """Tell the coordinator's own failures from ours, which end the process."""
    try:
        return await answer
    except InternalError as problem:
        raise PeerError(Code.UNREACHABLE, f"the coordinator failed: {problem}") from problem


async def renew_in_time(stub: rpc.CoordinatorAsyncStub, stored: StoredIdentity) -> None:
    """Wait until `stored` is due, and return when its successor is in force. What goes wrong is tried again
    and logged once.

    Raises:
        InternalError: code `storage`; the process must end.
    """
    said: Code | None = None
    while True:
        left = (stored.renews - datetime.now(UTC)).total_seconds()
        if left > 0:
            await asyncio.sleep(min(left, LONGEST_SLEEP))
            continue
        try:
            if await renew(stub, stored):
                return
        except InternalError:
            raise
        except EigenveilError as problem:
            if problem.code is not said:
                said = problem.code
                event("renewal-failed", logging.WARNING, code=said.value, detail=problem)
        life = (stored.expires - stored.renews).total_seconds()
        await asyncio.sleep(min(RETRY_SECONDS, life / 10))
