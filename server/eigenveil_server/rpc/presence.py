"""When each site called last, for whoever runs the coordinator: kept in a file that `status` reads.

It is no part of what must survive: it is not in the database, not in a backup, and nothing is decided by it.
"""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path

from eigenveil.numerics.encoding import parse_json
from eigenveil_common import log
from eigenveil_server.clock import Clock

EVERY_MS = 5000  # a long-poll of many sites is no reason to write more often


class Presence:
    """The file of one serving coordinator, which writes it."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self._path = path
        self._clock = clock
        self._heard = last_heard(path)
        self._written = 0

    def heard(self, site: str) -> None:
        """A site has just called. A file that cannot be written is told in the log, and changes nothing."""
        now = self._clock()
        self._heard[site] = now
        if 0 <= now - self._written < EVERY_MS:
            return
        self._written = now
        try:
            self._write()
        except OSError as problem:
            log.event("presence-unwritten", logging.WARNING, detail=problem.strerror)

    def _write(self) -> None:
        """In one step, so that nobody reads half of it, and without waiting for the disk."""
        half = self._path.with_suffix(".half")
        with os.fdopen(os.open(half, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            json.dump(self._heard, file)
        os.replace(half, self._path)


def last_heard(path: Path) -> dict[str, int]:
    """Unix milliseconds for each site that ever called; empty if the file is not there or not whole."""
    try:
        found = parse_json(path.read_bytes())
    except (OSError, ValueError):
        return {}
    whole = isinstance(found, dict) and all(type(at) is int for at in found.values())
    return found if whole else {}
