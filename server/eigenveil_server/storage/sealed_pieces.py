"""Values of a longer release, stored in encrypted pieces before the release is charged, each in a transaction
of its own: no transaction copies all of them, so other studies' rounds are charged in between. The key is in
memory until the transaction that charges and seals the release stores it. Before that, the pieces are random
bytes to everybody, and the next process replaces those of one that ended [P27]."""

from __future__ import annotations

import secrets

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from eigenveil.numerics.encoding import to_memoryview
from eigenveil.protocol.rounds import Release
from eigenveil.reporting.release_file import Data
from eigenveil_common.files import failpoint
from eigenveil_common.storage.database import Database
from eigenveil_server.storage.pieces import split

KEY_BYTES, BLOCK_BYTES = 32, 16
FIRST_NUMBER = 1  # the piece before it is in the row of the release


def crypt(key: bytes, number: int, start: int, data: Data) -> bytes:
    """Encrypt or decrypt bytes of a piece from byte `start` on, with AES-256 in counter mode. A key is used
    for one release, and its counter begins with the number of the piece, so no two bytes share a mask."""
    skipped = start % BLOCK_BYTES
    counter = (number << 64) + start // BLOCK_BYTES
    stream = Cipher(algorithms.AES(key), modes.CTR(counter.to_bytes(BLOCK_BYTES, "big"))).encryptor()
    stream.update(bytes(skipped))
    return stream.update(data)


def store_ahead(database: Database, study: str, release: Release) -> bytes | None:
    """Store all pieces of a release but the first. Return their key, or None if there are none. Raises
    InternalError: code `storage`; the process must end, and whether it does is independent of the values."""
    others = list(split([to_memoryview(release.values)]))[FIRST_NUMBER:]
    if not others:
        return None
    key = secrets.token_bytes(KEY_BYTES)
    for number, data in enumerate(others, start=FIRST_NUMBER):
        encrypted = crypt(key, number, 0, data)
        with database.transaction() as change:
            change.execute(
                "INSERT INTO sealed_pieces (study, round, piece, data) VALUES (?, ?, ?, ?) "
                "ON CONFLICT (study, round, piece) DO UPDATE SET data = excluded.data",
                (study, release.round, number, encrypted),
            )
        failpoint("sealed-piece-stored")
    return key
