"""[P27] The stored size of a release depends on its length, never on the drawn values."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import closing

import pytest

from eigenveil_common.storage.database import Connection
from eigenveil_server.storage.database import open_store
from eigenveil_server.storage.sealed import PIECE_BYTES

RELEASE: Mapping[str, object] = {
    "study": "s", "query": "q", "values": b"", "sigma": 1.0, "micro_rho": 1, "atto_delta": "0",
    "present": "[]", "digest": "d", "signed_json": b"", "signature": b"",
}  # fmt: skip
PIECE: Mapping[str, object] = {"study": "s", "piece": 0, "values": b""}
STUDY: Mapping[str, object] = {
    "name": "n", "analyst": "a", "plan_json": b"", "signature": b"", "micro_rho": 1, "expected_rounds": 1,
    "state": "released", "submitted_at": 1, "release": b"",
}  # fmt: skip
# Each column that holds bytes of which a draw decides, beside the number of a row.
DRAWN = [
    ("releases", "values", RELEASE, "round"),
    ("releases", "signed_json", RELEASE, "round"),
    ("releases_continued", "values", PIECE, "round"),
    ("studies", "release", STUDY, "digest"),
]


@pytest.mark.parametrize(("table", "column", "row", "key"), DRAWN)
def test_stored_size_does_not_depend_on_drawn_values(
    url: str, table: str, column: str, row: Mapping[str, object], key: str
) -> None:
    def add(change: Connection, number: int, data: bytes) -> None:
        named = {key: str(number), "submission": str(number)} if key == "digest" else {key: number}
        change.insert(table, {**row, **named, column: data})

    with closing(open_store(url)) as store:
        with store.writer.transaction() as change:
            change.execute(
                "SET LOCAL session_replication_role = replica"
            )  # without studies and rounds for them
            for number, data in enumerate((bytes(PIECE_BYTES), os.urandom(PIECE_BYTES))):
                add(change, number, data)
        sizes = store.reader.rows(f'SELECT pg_column_size("{column}") AS size FROM {table}')
    assert [one["size"] for one in sizes] == 2 * [sizes[0]["size"]]
    assert sizes[0]["size"] >= PIECE_BYTES
