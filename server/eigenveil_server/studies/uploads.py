"""Uploads of answers over 1 MiB, chunk by chunk, in memory only [R8], and the queue for them. Chunks are
written into one array, which is added in place. The bytes on the way are limited, and sites wait for a slot
in turn [0031]."""

from __future__ import annotations

import asyncio
import math
import secrets
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from eigenveil.errors import Code, InternalError, PeerError, RequestError, round_label
from eigenveil.numerics.encoding import IntArray
from eigenveil_common.files import failpoint
from eigenveil_common.rpc import CHUNK_BYTES
from eigenveil_server.studies.runtime import ChangeEvent

SLOT_BYTES = 64 * 2**20  # of concurrent uploads, or of one larger upload
STALLED_SECONDS = 10.0  # without a new chunk, after which the answer is requested again
GRACE_SECONDS = 10.0  # at the start of a slot, without a minimum rate
LEAST_RATE = 4 * 2**20  # bytes a second after that, if others wait
SLOT_WAIT_SECONDS = 10.0  # that one call waits for its slot
AWAY_SECONDS = 15.0  # without a call, after which a waiting site loses its turn
PRESENT_SECONDS = 2.0  # without a call, after which the next site may take the slot
CHECK_SECONDS = 1.0  # between looks for slow uploads
UploadKey = tuple[str, int, int, str]  # study, round, attempt, site
IsOpen = Callable[[str, int, int], bool]
RunInThread = Callable[[Callable[[int], IntArray], int], Awaitable[IntArray]]


@dataclass(slots=True, kw_only=True)
class UploadQueue:
    """Waiting uploads, first come, first served, each with the time of its last call. While others wait, a
    site loses its slot if it sends less than a minimum rate, which halves each time, so slow connections
    succeed in the end. A site that means to block a slot delays the others once, for a time that does not
    depend on how its chunks are distributed."""

    slot_bytes: int = SLOT_BYTES
    clock: Callable[[], float] = time.monotonic
    _last_seen: dict[UploadKey, float] = field(default_factory=dict)
    _lost_slots: dict[UploadKey, int] = field(default_factory=dict)  # times that each has lost its slot
    _changed: ChangeEvent = field(default_factory=ChangeEvent)

    def __contains__(self, key: UploadKey) -> bool:
        return key in self._last_seen

    def __len__(self) -> int:
        return len(self._last_seen)

    async def wait(
        self, key: UploadKey, is_under_way: Callable[[], bool], has_slot: Callable[[], bool]
    ) -> None:
        """Return once `key` is first and `has_slot`, or its upload is open; repeating takes no second turn.
        Raises RequestError: code `not-ready`, not within `SLOT_WAIT_SECONDS`."""
        until = self.clock() + SLOT_WAIT_SECONDS
        try:
            while True:
                self._last_seen[key] = self.clock()
                if is_under_way() or (self._is_first(key) and has_slot()):
                    self._last_seen.pop(key, None)
                    break
                left = until - self.clock()
                if left <= 0:
                    raise RequestError(
                        Code.NOT_READY, "other sites are uploading; try again, this site keeps its turn"
                    )
                await self._changed.wait(min(left, CHECK_SECONDS))
        finally:
            self.notify()

    def _is_first(self, key: UploadKey) -> bool:
        """True if no present site is before this one."""
        for other in list(self._last_seen):
            if other == key:
                return True
            away = self.clock() - self._last_seen[other]
            if away <= PRESENT_SECONDS:
                return False
            if away > AWAY_SECONDS:
                del self._last_seen[other]
        return False

    def loses_slot(self, key: UploadKey, since: float, received_bytes: int) -> bool:
        """True if the upload loses its slot, which it has `since` then, to another; the loss is counted."""
        times_lost = self._lost_slots.setdefault(key, 0)
        if self.clock() - since < (GRACE_SECONDS + received_bytes / LEAST_RATE) * 2**times_lost:
            return False
        self._lost_slots[key] += 1
        return True

    def forget(self, is_open: IsOpen) -> None:
        """Delete the entries of rounds and attempts that are over."""
        for table in (self._last_seen, self._lost_slots):
            for key in tuple(table):
                if not is_open(*key[:3]):
                    del table[key]

    def notify(self) -> None:
        """Notify waiting uploads that a slot may be free."""
        self._changed.notify()


UPLOAD_ID_BYTES = 16


@dataclass(slots=True, kw_only=True, eq=False)
class Upload:
    """One answer on its way. All of its chunks but the last have CHUNK_BYTES; `received` are the indices so
    far. `deciding` is held while the complete answer is checked and added, which happens once."""

    id: bytes = field(default_factory=partial(secrets.token_bytes, UPLOAD_ID_BYTES))
    study: str
    round: int
    attempt: int = 0
    attempt_digest: bytes = b""
    site: str
    query_digest: bytes
    contribution_digest: bytes
    total_bytes: int
    received: set[int] = field(default_factory=set)
    added: bool = False
    committed: bool = False
    opened_at: float = math.inf  # when it got its slot
    moved_at: float = math.inf  # time of its last chunk
    deciding: asyncio.Lock = field(default_factory=asyncio.Lock)
    _numbers: IntArray | None = None
    _reserved: bool = False

    @property
    def key(self) -> UploadKey:
        """Return the key of its one open upload."""
        return self.study, self.round, self.attempt, self.site

    @property
    def count(self) -> int:
        return -(-self.total_bytes // CHUNK_BYTES)

    @property
    def received_bytes(self) -> int:
        """Return the received bytes, with the last chunk counted as a full one."""
        return CHUNK_BYTES * len(self.received)

    @property
    def memory_bytes(self) -> int:
        """Return the bytes of memory that it may take; none once it is added."""
        return 0 if self.added else self.total_bytes

    async def reserve(self, run: RunInThread) -> None:
        """Take the memory of the whole answer, once, in a thread: its first use may take a system some
        milliseconds for each MiB. Until then `put` takes memory itself."""
        if self._reserved:
            return
        self._reserved = True
        memory = await run(_used_memory, self.total_bytes)
        if not self.received:
            self._numbers = memory

    def put(self, index: int, data: bytes) -> None:
        """Store one chunk; a chunk that was received before is ignored. Raises PeerError: no such chunk, or
        not its length."""
        if index >= self.count:
            raise PeerError(
                Code.BAD_CONTRIBUTION, f"chunk {index} does not exist: the answer has {self.count}"
            )
        start = index * CHUNK_BYTES
        wanted = min(CHUNK_BYTES, self.total_bytes - start)
        if len(data) != wanted:
            raise PeerError(Code.BAD_CONTRIBUTION, f"chunk {index} has {len(data)} bytes instead of {wanted}")
        if self.committed or index in self.received:
            return
        if self._numbers is None:
            self._numbers = np.empty(self.total_bytes // 8, dtype="<i8")
        self._numbers.view(np.uint8)[start : start + wanted] = np.frombuffer(data, dtype=np.uint8)
        self.received.add(index)
        self.moved_at = time.monotonic()
        failpoint("chunk-taken")

    def received_chunks(self) -> list[int]:
        """Return the chunks that need not be sent again."""
        return list(range(self.count)) if self.committed else sorted(self.received)

    def check_complete(self) -> None:
        """Raise PeerError unless every chunk was received: from then on nothing is written to the answer."""
        missing = [index for index in range(self.count) if index not in self.received]
        if missing:
            raise PeerError(
                Code.PROTOCOL, f"{len(missing)} chunks are missing, the first is {missing[0]}; send them"
            )

    def take(self) -> IntArray:
        """Return the answer, once; it is dropped here."""
        numbers, self._numbers = self._numbers, None
        if numbers is None:
            raise InternalError(Code.BUG, "the answer of an upload was taken twice")
        numbers.setflags(write=False)
        return numbers


def _used_memory(size: int) -> IntArray:
    """Return an array of `size` bytes, each of which was written once."""
    return np.full(size // 8, 0, dtype="<i8")


class Uploads:
    """Open uploads, at most `limit` not added yet. `is_open` is True for the current attempt of a study."""

    def __init__(self, limit: int, is_open: IsOpen, queue: UploadQueue | None = None) -> None:
        self._limit = limit
        self._is_open = is_open
        self._queue = UploadQueue() if queue is None else queue
        self._by_id: dict[bytes, Upload] = {}
        self._by_key: dict[UploadKey, Upload] = {}

    async def wait_for_slot(self, wanted: Upload, *, due_bytes: int) -> None:
        """Wait for a slot for `wanted`, unless its upload is open. Raises PeerError: not the length that the
        query requires; RequestError: code `not-ready`: too many are open, or others are first; the site keeps
        its turn."""
        if wanted.total_bytes != due_bytes:
            raise PeerError(
                Code.BAD_CONTRIBUTION, f"the answer has {wanted.total_bytes} bytes instead of {due_bytes}"
            )
        self.drop_closed()
        if wanted.key in self._by_key:
            return
        if wanted.key not in self._queue and len(self._in_memory()) + len(self._queue) >= self._limit:
            raise RequestError(Code.NOT_READY, "too many uploads are open; try again in some seconds")
        await self._queue.wait(wanted.key, lambda: wanted.key in self._by_key, lambda: self._has_slot(wanted))

    def _in_memory(self) -> list[Upload]:
        return [one for one in self._by_id.values() if one.memory_bytes]

    def _has_slot(self, wanted: Upload) -> bool:
        """True if there is a slot; if need be, slow uploads are dropped for it."""
        for one in self._in_memory():
            if self._fits(wanted):
                break
            if not one.deciding.locked() and self._queue.loses_slot(
                one.key, one.opened_at, one.received_bytes
            ):
                self.drop(one)
        return self._fits(wanted)

    def _fits(self, wanted: Upload) -> bool:
        in_use = sum(one.memory_bytes for one in self._in_memory())
        return not in_use or in_use + wanted.total_bytes <= self._queue.slot_bytes

    def open(self, wanted: Upload) -> Upload:
        """Open the upload `wanted`, or return the open upload of the same answer. Raises RequestError:
        another answer is under way."""
        known = self._by_key.get(wanted.key)
        if known is not None:
            if known.contribution_digest != wanted.contribution_digest:
                raise RequestError(
                    Code.CONFLICT,
                    f"another answer of site {wanted.site} to {round_label(wanted.round)} is being uploaded",
                )
            return known
        wanted.opened_at = wanted.moved_at = self._queue.clock()  # after the wait
        self._by_id[wanted.id] = self._by_key[wanted.key] = wanted
        failpoint("upload-opened")
        return wanted

    def is_in_progress(self, key: UploadKey) -> bool:
        """True if this answer is on its way, or in the queue, so that it need not be requested again."""
        upload = self._by_key.get(key)
        if upload is None:
            return key in self._queue
        return upload.deciding.locked() or self._queue.clock() - upload.moved_at < STALLED_SECONDS

    def get(self, id: bytes, site: str) -> Upload:
        """Return an open upload of this site, or raise RequestError, code `not-found`."""
        upload = self._by_id.get(id)
        if upload is None or upload.site != site:
            raise RequestError(Code.NOT_FOUND, "this upload is not open; open it again if its round is open")
        return upload

    def add(self, upload: Upload) -> None:
        """Note that the answer is in the sum: the next upload need not wait until that is durable."""
        upload.added = True
        self._queue.notify()

    def commit(self, upload: Upload) -> None:
        """Note that the answer is durable; the upload stays known for a repeated commit."""
        failpoint("upload-committing")
        upload.added = upload.committed = True
        self._queue.notify()

    def drop(self, upload: Upload) -> None:
        """Delete an upload, for example one whose bytes do not match its digest."""
        self._by_id.pop(upload.id, None)
        self._by_key.pop(upload.key, None)
        self._queue.notify()

    def drop_closed(self) -> None:
        """Delete every upload of a round, or an attempt, that is over."""
        for one in list(self._by_id.values()):
            if not self._is_open(*one.key[:3]) and not one.deciding.locked():
                self.drop(one)
        self._queue.forget(self._is_open)
