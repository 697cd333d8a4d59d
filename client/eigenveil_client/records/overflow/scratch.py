"""Files for what does not fit into memory: without a name, for their owner alone, and encrypted.

Such a file is gone when it is closed and when its process ends, however it ends: nothing is left over that a
later start would have to find, judge or delete. What stays behind are blocks of the disk that no file owns,
and with `encrypt` they are noise: AES-256 in counter mode, with a new key for each file that is in the memory
of this process alone. Every byte is written once, so no part of the key stream is used twice.
"""

from __future__ import annotations

import os
import tempfile
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import FileIO
from pathlib import Path

from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext
from cryptography.hazmat.primitives.ciphers.algorithms import AES256
from cryptography.hazmat.primitives.ciphers.modes import CTR

from eigenveil_client.records.tables.table import BadRecords
from eigenveil_common.files import make_folder

BLOCK = 16  # bytes: AES's
AHEAD = 2**23  # bytes: how far ahead of a reader the system is asked to read
FULL = "what does not fit into memory cannot be kept on the disk; is it full?"


@contextmanager
def _disk() -> Iterator[None]:
    """What the system refuses, in words without a size: how large a file was to be tells how many records."""
    try:
        yield
    except OSError:
        raise BadRecords(FULL, about="disk") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Scratch:
    """Where such files lie (None: where the system has its own), and whether they are encrypted."""

    folder: Path | None = None
    encrypt: bool = True

    def file(self) -> ScratchFile:
        """A new, empty file.

        Raises:
            BadRecords: it cannot be made.
            InternalError: code `storage`, its folder cannot.
        """
        if self.folder is not None:
            make_folder(self.folder, mode=0o700)
        with _disk():
            # a file that has no name from the start, or loses it at once where the system knows no such
            file = tempfile.TemporaryFile(dir=self.folder, prefix="eigenveil-", buffering=0)  # noqa: SIM115
        return ScratchFile(file, key=os.urandom(32) if self.encrypt else None)


SYSTEM = Scratch()


class ScratchFile:
    """Bytes that are appended, and then read anywhere, by threads side by side; of a `file` that is open, and
    encrypted under `key` if there is one."""

    def __init__(self, file: FileIO, *, key: bytes | None = None) -> None:
        self._file = file
        self._key = key
        weakref.finalize(self, file.close)  # nobody has to remember it
        self.size = os.fstat(file.fileno()).st_size
        self._appending = None if key is None else self._cipher(self.size)

    def append(self, data: memoryview | bytes) -> int:
        """Where `data` begins, from now on. Raises BadRecords: the disk does not take it."""
        begin, rest = self.size, memoryview(data).cast("B")
        if self._appending is not None:
            rest = memoryview(self._appending.update(rest))
        self.size += len(rest)
        with _disk():
            while rest:
                rest = rest[self._file.write(rest) :]
        return begin

    def read_into(self, begin: int, into: memoryview) -> None:
        """Fill `into` with what begins there, and have what follows read meanwhile.

        Raises:
            BadRecords: the disk does not give it back.
        """
        self._read(begin, into)
        if self._key is not None:
            self._cipher(begin).update_into(into, into)

    def close(self) -> None:
        """Give the disk's room back; may be repeated."""
        self._file.close()

    def _read(self, begin: int, into: memoryview) -> None:
        with _disk():
            descriptor = self._file.fileno()
            if hasattr(os, "posix_fadvise"):  # only where the system takes advice
                os.posix_fadvise(descriptor, begin + AHEAD, len(into), os.POSIX_FADV_WILLNEED)
            while into:
                done = os.preadv(descriptor, [into], begin)
                if not done:
                    raise OSError("the file is shorter than it was")
                begin, into = begin + done, into[done:]

    def _cipher(self, begin: int) -> CipherContext:
        """What turns bytes from `begin` on into what is written there, and back."""
        assert self._key is not None
        block, inside = divmod(begin, BLOCK)
        context = Cipher(AES256(self._key), CTR(block.to_bytes(BLOCK, "big"))).encryptor()
        context.update(bytes(inside))
        return context
