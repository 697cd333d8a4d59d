"""What a site's daemon shows in its greetings, so that of two copies of its folder only one is served [R18].

Every greeting hands on: it shows what the last one announced, and announces what the next one will show.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from eigenveil_client.connection.identity_files import damaged
from eigenveil_common.failpoints import failpoint
from eigenveil_common.files import read_secret, write_secret

NAME = "generation.json"
BYTES = 32


class Generation:
    """The file in the identity's folder. Its values are secrets like the key beside it."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / NAME

    def announce(self) -> tuple[bytes, bytes]:
        """What to show now and what to announce; on the disk, and the same again until `confirm`.

        Raises:
            RequestError: the file is damaged. InternalError: code `storage`.
        """
        shown, following = self._read()
        if not following:
            following = os.urandom(BYTES)
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
            held = json.loads(read_secret(self._path))
            return bytes.fromhex(held["shown"]), bytes.fromhex(held["next"])
        except (ValueError, KeyError, TypeError) as problem:
            raise damaged(self._path.parent) from problem

    def _write(self, shown: bytes, following: bytes) -> None:
        held = {"shown": shown.hex(), "next": following.hex()}
        write_secret(self._path, json.dumps(held).encode())
