"""Answers over 1 MiB, chunk by chunk, in memory only [R8]."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from eigenveil.errors import Code, PeerError, RequestError, spoken
from eigenveil_common.failpoints import failpoint
from eigenveil_common.rpc import CHUNK_BYTES

UPLOAD_ID_BYTES = 16
STALLED_SECONDS = 10.0  # an upload without a chunk for so long no longer counts as under way
Key = tuple[str, int, str]


@dataclass(slots=True, kw_only=True)
class Upload:
    """One answer on its way. `chunks` maps an index to its bytes; all but the last have CHUNK_BYTES."""

    id: bytes = field(default_factory=partial(secrets.token_bytes, UPLOAD_ID_BYTES))
    study: str
    round: int
    site: str
    query_digest: bytes
    contribution_digest: bytes
    total_bytes: int
    chunks: dict[int, bytes] = field(default_factory=dict)
    committed: bool = False
    moved_at: float = field(default_factory=time.monotonic)

    @property
    def key(self) -> Key:
        """One upload at a time for each."""
        return self.study, self.round, self.site

    @property
    def count(self) -> int:
        return -(-self.total_bytes // CHUNK_BYTES)

    def put(self, index: int, data: bytes) -> None:
        """Keep one chunk; one that is here already is left alone.

        Raises:
            PeerError: no such chunk, or not its length.
        """
        if index >= self.count:
            raise PeerError(
                Code.BAD_CONTRIBUTION, f"chunk {index} does not exist: the answer has {self.count}"
            )
        wanted = min(CHUNK_BYTES, self.total_bytes - index * CHUNK_BYTES)
        if len(data) != wanted:
            raise PeerError(
                Code.BAD_CONTRIBUTION, f"chunk {index} has {len(data)} bytes where {wanted} are due"
            )
        self.moved_at = time.monotonic()
        if not self.committed:
            self.chunks.setdefault(index, data)
            failpoint("chunk-taken")

    def have(self) -> list[int]:
        """The chunks that need not be sent again."""
        return list(range(self.count)) if self.committed else sorted(self.chunks)

    def whole(self) -> bytes:
        """The answer.

        Raises:
            PeerError: chunks are missing.
        """
        missing = [index for index in range(self.count) if index not in self.chunks]
        if missing:
            raise PeerError(
                Code.PROTOCOL, f"{len(missing)} chunks are missing, the first is {missing[0]}; send them"
            )
        return b"".join(self.chunks[index] for index in range(self.count))


class Uploads:
    """All open uploads, at most `most` of them."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._by_id: dict[bytes, Upload] = {}
        self._by_key: dict[Key, Upload] = {}

    def open(self, wanted: Upload, *, due_bytes: int) -> Upload:
        """`wanted`, or the upload that is under way for the same answer.

        Raises:
            PeerError: not the length that the query asks for.
            RequestError: another answer is under way, or too many uploads are open.
        """
        if wanted.total_bytes != due_bytes:
            raise PeerError(
                Code.BAD_CONTRIBUTION, f"the answer has {wanted.total_bytes} bytes where {due_bytes} are due"
            )
        known = self._by_key.get(wanted.key)
        if known is not None:
            if known.contribution_digest != wanted.contribution_digest:
                raise RequestError(
                    Code.CONFLICT,
                    f"another answer of site {wanted.site} to {spoken(wanted.round)} is being uploaded",
                )
            return known
        if len(self._by_id) >= self._most:
            raise RequestError(Code.NOT_READY, "too many uploads are open; try again in a moment")
        self._by_id[wanted.id] = self._by_key[wanted.key] = wanted
        failpoint("upload-opened")
        return wanted

    def moving(self, key: Key) -> bool:
        """Whether this answer is on its way, so that nobody need ask for it again."""
        upload = self._by_key.get(key)
        return upload is not None and time.monotonic() - upload.moved_at < STALLED_SECONDS

    def get(self, id: bytes, site: str) -> Upload:
        """An open upload of this site.

        Raises:
            RequestError: code `not-found`.
        """
        upload = self._by_id.get(id)
        if upload is None or upload.site != site:
            raise RequestError(Code.NOT_FOUND, "no such upload is open; open it again if the round still is")
        return upload

    def commit(self, upload: Upload) -> None:
        """Free the chunks; the upload stays known so that a repeated commit is answered alike."""
        failpoint("upload-committing")
        upload.committed = True
        upload.chunks.clear()

    def drop(self, upload: Upload) -> None:
        """Forget an upload, for example one whose bytes are not what was announced."""
        self._by_id.pop(upload.id, None)
        self._by_key.pop(upload.key, None)

    def drop_closed(self, is_open: Callable[[Upload], bool]) -> None:
        """Forget every upload of a round that is over."""
        for upload in [one for one in self._by_id.values() if not is_open(one)]:
            self.drop(upload)
