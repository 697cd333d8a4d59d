"""Keyed digests of what a site holds and sends: nobody without its key finds either by trying."""

from __future__ import annotations

import hmac
import os
from hashlib import sha256
from pathlib import Path

from eigenveil.errors import Code, RequestError
from eigenveil.protocol.query import RoundQuery
from eigenveil_client.records.records import Records
from eigenveil_common.files import read_secret, write_secret


class Fingerprints:
    """HMAC-SHA-256 (hex) with the key at `path`, which is made with the database that it belongs to.

    Raises:
        RequestError: code `bad-config`, the key is gone or can be read by others.
    """

    def __init__(self, path: Path, database: Path) -> None:
        if not path.exists():
            if database.exists():
                raise RequestError(
                    Code.BAD_CONFIG,
                    f"{path} is gone and {database} is there: put both back from one copy. If there is none, "
                    "move the database away, too, and run: eigenveil-site accept-loss",
                )
            write_secret(path, os.urandom(32))
        self._key = read_secret(path)

    def of_answer(self, asked: RoundQuery, values: bytes) -> str:
        """Of the question, which names its plan and round, and of the numbers. Of the numbers alone it would
        tell that two studies counted the same."""
        return self._keyed("answer", asked.digest, values)

    def of_records(self, plan: str, records: Records) -> str:
        """Of the whole file, and of the rows that the study of this plan sees."""
        return self._keyed("records", plan, records.file + records.rows.tobytes())

    def _keyed(self, what: str, about: str, data: bytes) -> str:
        return hmac.new(self._key, f"{what}\n{about}\n".encode() + data, sha256).hexdigest()
