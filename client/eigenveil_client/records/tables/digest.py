"""The digest of files: it changes when a byte of theirs does."""

from __future__ import annotations

import hashlib
from pathlib import Path

from eigenveil_client.records.tables.table import BadRecords


def digest(*paths: Path, said: bytes = b"") -> bytes:
    """The SHA-256 of a file; or of the digests of several, and of what else is `said` of them.

    Raises:
        BadRecords: one cannot be read.
    """
    found = []
    for path in paths:
        try:
            with path.open("rb") as file:
                found.append(hashlib.file_digest(file, "sha256").digest())
        except OSError as problem:
            raise BadRecords(f"cannot read {path}: {problem.strerror}") from None
    return found[0] if len(found) == 1 and not said else hashlib.sha256(b"".join([*found, said])).digest()
