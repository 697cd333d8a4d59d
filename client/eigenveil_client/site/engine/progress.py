"""Progress of loads, for the site's own people: records so far, in a file beside the state. It is in no log
and no message, as it tells the number of records."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from eigenveil.errors import EigenveilError
from eigenveil.study.grid import GridRows
from eigenveil_client.records.summary import RowSink
from eigenveil_common.files import write_secret

WRITE_SECONDS = 1.0


class LoadProgress:
    """Numbers of records that loads have read, by study, in the file `path`. A file that cannot be written is
    no reason to fail a load."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._records: dict[str, int] = {}
        self._written = 0.0
        self._lock = threading.Lock()
        with suppress(OSError):
            path.unlink(missing_ok=True)  # of a daemon that was killed

    @contextmanager
    def counted(self, plan: str, sink: RowSink) -> Iterator[RowSink]:
        """Yield a sink that passes rows to `sink` and counts them, until the end of the block."""

        def count(rows: GridRows) -> None:
            self._add(plan, len(rows))
            sink(rows)

        self._add(plan, 0)
        try:
            yield count
        finally:
            with self._lock:
                self._records.pop(plan, None)
                self._write()

    def _add(self, plan: str, records: int) -> None:
        with self._lock:
            self._records[plan] = self._records.get(plan, 0) + records
            if time.monotonic() - self._written >= WRITE_SECONDS:
                self._write()

    def _write(self) -> None:
        self._written = time.monotonic()
        with suppress(EigenveilError, OSError):
            if self._records:
                write_secret(self._path, json.dumps(self._records).encode())
            else:
                self._path.unlink(missing_ok=True)


def progress_file(state: Path) -> Path:
    """Return the path of the file beside a site's state."""
    return state.with_name("loading.json")


def read_progress(state: Path) -> dict[str, int]:
    """Return the records that each load has read so far, by study; empty if none is under way."""
    with suppress(OSError, ValueError):
        return dict(json.loads(progress_file(state).read_bytes()))
    return {}
