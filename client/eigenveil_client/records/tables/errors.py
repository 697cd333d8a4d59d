"""Errors of Arrow and of the system while a file is read, as errors of the records."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

from eigenveil_client.records.tables.source import unreadable

# Arrow's MemoryError is one of these as well: callers let it pass, and the reader process reports it.
UNREADABLE = (pa.ArrowException, OSError, UnicodeError, LookupError, EOFError, zlib.error)


@contextmanager
def reads(path: Path) -> Iterator[None]:
    """Raise an error of Arrow or the system as BadRecords that names the file, and no cell."""
    try:
        yield
    except MemoryError:
        raise
    except UNREADABLE:
        raise unreadable(path) from None
