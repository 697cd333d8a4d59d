"""Answers over 1 MiB, chunk by chunk, in memory only [R8].

Each is written into one array as it comes, which is checked and added where it lies. There are places for so
many bytes at a time, and sites wait for them in turn [0031].
"""

from __future__ import annotations

import asyncio
import math
import secrets
import time
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from eigenveil.errors import Code, InternalError, PeerError, RequestError, spoken
from eigenveil.numerics.encoding import IntArray
from eigenveil_common.failpoints import failpoint
from eigenveil_common.rpc import CHUNK_BYTES
from eigenveil_server.studies.turns import IsOpen, Key, Turns

UPLOAD_ID_BYTES = 16


@dataclass(slots=True, kw_only=True, eq=False)
class Upload:
    """One answer on its way. All of its chunks but the last have CHUNK_BYTES; `here` are those that came.

    `deciding` is held while the whole of it is checked and added, which is done once.
    """

    id: bytes = field(default_factory=partial(secrets.token_bytes, UPLOAD_ID_BYTES))
    study: str
    round: int
    attempt: int = 0
    attempt_digest: bytes = b""
    site: str
    query_digest: bytes
    contribution_digest: bytes
    total_bytes: int
    here: set[int] = field(default_factory=set)
    added: bool = False
    committed: bool = False
    opened_at: float = math.inf  # from then on it holds a place
    moved_at: float = math.inf  # when a chunk of it came last
    deciding: asyncio.Lock = field(default_factory=asyncio.Lock)
    _numbers: IntArray | None = None

    @property
    def key(self) -> Key:
        """One upload at a time for each."""
        return self.study, self.round, self.attempt, self.site

    @property
    def count(self) -> int:
        return -(-self.total_bytes // CHUNK_BYTES)

    @property
    def here_bytes(self) -> int:
        """How much came, the last chunk counted as a whole one."""
        return CHUNK_BYTES * len(self.here)

    @property
    def held_bytes(self) -> int:
        """What it may take of memory."""
        return 0 if self.added else self.total_bytes

    def put(self, index: int, data: bytes) -> None:
        """Keep one chunk; one that is here already is left alone.

        Raises:
            PeerError: no such chunk, or not its length.
        """
        if index >= self.count:
            raise PeerError(
                Code.BAD_CONTRIBUTION, f"chunk {index} does not exist: the answer has {self.count}"
            )
        start = index * CHUNK_BYTES
        wanted = min(CHUNK_BYTES, self.total_bytes - start)
        if len(data) != wanted:
            raise PeerError(
                Code.BAD_CONTRIBUTION, f"chunk {index} has {len(data)} bytes where {wanted} are due"
            )
        if self.committed or index in self.here:
            return
        if self._numbers is None:
            self._numbers = np.empty(self.total_bytes // 8, dtype="<i8")  # no memory until it is written to
        self._numbers.view(np.uint8)[start : start + wanted] = np.frombuffer(data, dtype=np.uint8)
        self.here.add(index)
        self.moved_at = time.monotonic()
        failpoint("chunk-taken")

    def have(self) -> list[int]:
        """The chunks that need not be sent again."""
        return list(range(self.count)) if self.committed else sorted(self.here)

    def check_complete(self) -> None:
        """Raises PeerError, unless every chunk is here: from then on nothing is written to the answer."""
        missing = [index for index in range(self.count) if index not in self.here]
        if missing:
            raise PeerError(
                Code.PROTOCOL, f"{len(missing)} chunks are missing, the first is {missing[0]}; send them"
            )

    def take(self) -> IntArray:
        """The answer, once; it is not kept here any more."""
        numbers, self._numbers = self._numbers, None
        if numbers is None:
            raise InternalError(Code.BUG, "the answer of an upload was taken twice")
        numbers.setflags(write=False)
        return numbers


class Uploads:
    """All open uploads, at most `most` that are not in yet; `is_open`: whether a round of a study is, and an
    attempt at it."""

    def __init__(self, most: int, is_open: IsOpen, turns: Turns | None = None) -> None:
        self._most = most
        self._is_open = is_open
        self._turns = Turns() if turns is None else turns
        self._by_id: dict[bytes, Upload] = {}
        self._by_key: dict[Key, Upload] = {}

    async def turn(self, wanted: Upload, *, due_bytes: int) -> None:
        """Wait until there is a place for `wanted`, or it is under way.

        Raises:
            PeerError: not the length that the query asks for.
            RequestError: code `not-ready`: too many are open, or others are before it; it keeps its turn if
                it comes again soon.
        """
        if wanted.total_bytes != due_bytes:
            raise PeerError(
                Code.BAD_CONTRIBUTION, f"the answer has {wanted.total_bytes} bytes where {due_bytes} are due"
            )
        self.drop_closed()
        if self._is_here(wanted.key):
            return
        if wanted.key not in self._turns and len(self._held()) + len(self._turns) >= self._most:
            raise RequestError(Code.NOT_READY, "too many uploads are open; try again in a moment")
        is_here = partial(self._is_here, wanted.key)
        await self._turns.wait(wanted.key, is_here, partial(self._has_place, wanted))

    def _is_here(self, key: Key) -> bool:
        return key in self._by_key

    def _held(self) -> list[Upload]:
        """Those that take room: what is known of one that is in takes none."""
        return [one for one in self._by_id.values() if one.held_bytes]

    def _has_place(self, wanted: Upload) -> bool:
        """Whether it may be open: if need be, others that are slow make room."""
        for one in self._held():
            if self._fits(wanted):
                break
            moves = one.deciding.locked() or not self._turns.loses(one.key, one.opened_at, one.here_bytes)
            if not moves:
                self.drop(one)
        return self._fits(wanted)

    def _fits(self, wanted: Upload) -> bool:
        return self._turns.fits(wanted.total_bytes, sum(one.held_bytes for one in self._held()))

    def open(self, wanted: Upload) -> Upload:
        """`wanted`, whose turn it is, or the upload that is under way for the same answer.

        Raises:
            RequestError: another answer is under way.
        """
        known = self._by_key.get(wanted.key)
        if known is not None:
            if known.contribution_digest != wanted.contribution_digest:
                raise RequestError(
                    Code.CONFLICT,
                    f"another answer of site {wanted.site} to {spoken(wanted.round)} is being uploaded",
                )
            return known
        wanted.opened_at = wanted.moved_at = self._turns.clock()  # it may have waited long
        self._by_id[wanted.id] = self._by_key[wanted.key] = wanted
        failpoint("upload-opened")
        return wanted

    def moving(self, key: Key) -> bool:
        """Whether this answer is on its way, or waits for its turn, so that nobody need ask for it again."""
        upload = self._by_key.get(key)
        if upload is None:
            return key in self._turns
        return upload.deciding.locked() or not self._turns.still(upload.moved_at)

    def get(self, id: bytes, site: str) -> Upload:
        """An open upload of this site.

        Raises:
            RequestError: code `not-found`.
        """
        upload = self._by_id.get(id)
        if upload is None or upload.site != site:
            raise RequestError(Code.NOT_FOUND, "no such upload is open; open it again if the round still is")
        return upload

    def add(self, upload: Upload) -> None:
        """The answer is in the sum: the next one need not wait until that is durable."""
        upload.added = True
        self._turns.ring()

    def commit(self, upload: Upload) -> None:
        """The answer is in; the upload stays known so that a repeated commit is answered alike."""
        failpoint("upload-committing")
        upload.added = upload.committed = True
        self._turns.ring()

    def drop(self, upload: Upload) -> None:
        """Forget an upload, for example one whose bytes are not what was announced."""
        self._by_id.pop(upload.id, None)
        self._by_key.pop(upload.key, None)
        self._turns.ring()

    def drop_closed(self) -> None:
        """Forget every upload for a round, or an attempt, that is over."""
        for upload in [one for one in self._by_id.values() if not self._is_open(*one.key[:3])]:
            if not upload.deciding.locked():
                self.drop(upload)
        self._turns.forget(self._is_open)
