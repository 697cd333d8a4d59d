"""Flipped bits and changed rows are found before they are used, and a lock is its owner's alone."""

from __future__ import annotations

import os
import random
import sqlite3
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from eigenveil.errors import Code, EigenveilError, InternalError
from eigenveil.identity import Role
from eigenveil.planning.choose import rehearse
from eigenveil_client.site.state import store_access
from eigenveil_common.concurrency import try_lock
from eigenveil_common.storage.database import Connection
from eigenveil_common.storage.ledger_store import LedgerStore
from eigenveil_server.config import Config
from eigenveil_server.daemon import Daemon
from eigenveil_server.storage import pieces
from eigenveil_server.storage.database import lock_folder, open_store
from eigenveil_server.storage.pieces import PIECE_BYTES
from eigenveil_server.storage.repository import check_start, check_whole
from eigenveil_server.storage.study_reads import StoredStudy, Studies
from tests.client.site.support import Stage, a_plan, a_stage, work
from tests.server.rig import answering, made, serving, study_toml
from tests.support import Patch


def content(path: Path) -> dict[str, Any] | None:
    """Every row of every table; None if it cannot be read."""
    with closing(sqlite3.connect(path)) as connection:
        try:
            tables = [
                row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            ]
            return {name: connection.execute(f'SELECT * FROM "{name}"').fetchall() for name in tables}
        except (sqlite3.Error, UnicodeDecodeError):
            return None


def refused(start: Callable[[], None]) -> bool:
    """Any other error than one about the storage goes through."""
    try:
        start()
    except InternalError as problem:
        return problem.code is Code.STORAGE
    return False


def flipped(path: Path, start: Callable[[], None], copies: int) -> Counter[bool]:
    """Of copies of a database in which one bit changed what it says: how many `start` refused."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    whole, message, rng = path.read_bytes(), content(path), random.Random(7)
    outcomes = Counter[bool]()
    while outcomes.total() < copies:
        bit = rng.randrange(8 * len(whole))
        copy = bytearray(whole)
        copy[bit // 8] ^= 1 << bit % 8
        path.write_bytes(copy)
        harmless = content(path) == message
        path.write_bytes(copy)  # reading may have mended it
        if harmless:
            continue
        outcomes[refused(start)] += 1
    path.write_bytes(whole)
    start()
    return outcomes


def answered(folder: Path) -> Stage:
    stage, plan = a_stage(folder), a_plan()
    with closing(stage.store()) as store:
        worker = stage.worker(store)
        for query in rehearse(plan):
            worker.work(work(query, stage.signed(plan)))
    return stage


def start_site(stage: Stage) -> None:
    with store_access.open_site_store(stage.config):
        pass


@pytest.mark.slow
def test_a_site_does_not_start_on_flipped_bits(tmp_path: Path) -> None:
    stage = answered(tmp_path)
    outcomes = flipped(stage.config.state, lambda: start_site(stage), copies=60)
    assert outcomes[True] >= 0.9 * outcomes.total()


@pytest.mark.parametrize("change", [
    "UPDATE studies SET plan_json = CAST(replace(plan_json, '1', '2') AS BLOB)",
    "UPDATE queries SET message = x''",
    "DROP TRIGGER a_stated_round_never_changes; UPDATE rounds SET message = zeroblob(9)",
    "PRAGMA writable_schema = ON; UPDATE sqlite_master SET rootpage = 2 WHERE name = 'calls'",
])  # fmt: skip
def test_a_site_does_not_start_on_what_it_did_not_write(tmp_path: Path, change: str) -> None:
    stage = answered(tmp_path)
    with closing(sqlite3.connect(stage.config.state)) as connection, connection:
        connection.executescript(change)
    with pytest.raises(InternalError, match=r"was changed|damaged"):
        start_site(stage)


async def a_study(config: Config) -> None:
    async with serving(config) as rig:
        ada = await rig.client(Role.ANALYST, "ada")
        async with answering(await rig.sites()):
            await ada.events(await ada.submit(study_toml()))


@pytest.mark.slow
async def test_a_coordinator_seldom_starts_on_flipped_bits(tmp_path: Path) -> None:
    """Events, audit lines and HMACs stand under no digest of their own."""
    config = made(tmp_path / "c")

    def start() -> None:
        with closing(open_store(config.files.database)) as store:
            check_whole(store)
            LedgerStore(store.reader, config.budget, lambda: 0)

    await a_study(config)
    outcomes = flipped(config.files.database, start, copies=60)
    assert outcomes[True] >= 0.5 * outcomes.total()


READS: dict[str, Callable[[Studies, StoredStudy], object]] = {
    "plan": lambda studies, stored: studies.plan_of(stored),
    "document": lambda studies, stored: studies.release(stored.digest),
    "round": lambda studies, stored: studies.released(stored.digest, 0),
    "rounds": lambda studies, stored: studies.sealed_rounds(stored.digest),
}
CHANGES = {
    "UPDATE studies SET plan_json = CAST(replace(plan_json, '1', '2') AS BLOB)": "plan",
    "UPDATE studies SET release = zeroblob(LENGTH(release))": "document",
    "UPDATE release_pieces SET piece = -piece": "document",
    "DELETE FROM release_pieces WHERE piece = 2": "document",
    "INSERT INTO release_pieces SELECT study, 9999, x'00' FROM release_pieces WHERE piece = 1": "document",
    "UPDATE rounds SET query = CAST(query || x'00' AS BLOB)": "round",
    "DROP TRIGGER a_sealed_release_never_changes; UPDATE releases SET sigma = sigma + 1": "round rounds",
    "DROP TRIGGER a_sealed_piece_never_changes; UPDATE sealed_pieces SET piece = -piece": "rounds",
    "DROP TRIGGER a_sealed_piece_is_never_deleted; DELETE FROM sealed_pieces WHERE piece > 1": "rounds",
    "DROP TRIGGER a_sealed_release_never_changes; UPDATE releases SET piece_key = NULL": "rounds",
}


@pytest.mark.parametrize(("change", "reads"), CHANGES.items())
async def test_tampered_rows_are_refused_on_reading_and_at_start(
    tmp_path: Path, monkeypatch: Patch, change: str, reads: str
) -> None:
    monkeypatch.setattr(pieces, "PIECE_BYTES", 12)
    config = made(tmp_path / "c")
    await a_study(config)
    with closing(open_store(config.files.database)) as store:
        (stored,) = Studies(store.reader).all()
        before = Studies(store.reader).sealed_rounds(stored.digest)
        assert max(one.release.values.nbytes for one in before) > 3 * 12
    with closing(sqlite3.connect(config.files.database)) as connection, connection:
        connection.executescript(change)
    with closing(open_store(config.files.database)) as store:
        with check_start(store):
            pass  # no study needs it
        studies = Studies(store.reader)
        (stored,) = studies.all()
        for name in reads.split():
            with pytest.raises(InternalError, match=r"of study .* was changed; restore"):
                READS[name](studies, stored)
        with pytest.raises(InternalError, match=r"of study .* was changed; restore"):
            check_whole(store)
    with closing(sqlite3.connect(config.files.database)) as connection, connection:
        connection.execute("UPDATE studies SET state = 'running'")
    with pytest.raises(InternalError, match=r"of study .* was changed; restore"):
        Daemon(config)


@pytest.mark.parametrize("before", [None, 0o666])
def test_a_lock_is_its_owners_alone_whatever_the_umask(tmp_path: Path, before: int | None) -> None:
    """Any opener of the file could hold it, and keep the daemon from starting."""
    config, stage = made(tmp_path / "c"), a_stage(tmp_path)
    files = (config.files.lock, stage.config.state.with_name("serve.lock"))
    for file in files:
        if before is not None:
            file.touch()
            file.chmod(before)
    umask = os.umask(0)
    try:
        with lock_folder(config), store_access.exclusive_lock(stage.config.state):
            assert [file.stat().st_mode & 0o777 for file in files] == [0o600, 0o600]
            assert all(try_lock(file) is None for file in files)
    finally:
        os.umask(umask)


def test_a_lock_follows_no_link(tmp_path: Path) -> None:
    """It would make, empty or change a file of somebody else's choice."""
    config, stage = made(tmp_path / "c"), a_stage(tmp_path)
    precious = tmp_path / "precious"
    precious.write_text("kept")
    precious.chmod(0o644)
    for file in (config.files.lock, stage.config.state.with_name("serve.lock")):
        file.symlink_to(precious)
    for hold in (lambda: lock_folder(config), lambda: store_access.exclusive_lock(stage.config.state)):
        with pytest.raises(EigenveilError, match="it is a link; remove it"), hold():
            pass
    assert (precious.read_text(), precious.stat().st_mode & 0o777) == ("kept", 0o644)


RELEASE: Mapping[str, object] = {
    "study": "s", "query": "q", "values": b"", "sigma": 1.0, "micro_rho": 1, "atto_delta": "0",
    "present": "[]", "digest": "d", "signed_json": b"", "signature": b"",
}  # fmt: skip
PIECE: Mapping[str, object] = {"study": "s", "piece": 0, "data": b""}
DOCUMENT: Mapping[str, object] = {"study": "s", "data": b""}
STUDY: Mapping[str, object] = {
    "name": "n", "analyst": "a", "plan_json": b"", "signature": b"", "micro_rho": 1, "expected_rounds": 1,
    "state": "released", "submitted_at": 1, "release": b"",
}  # fmt: skip
# Each column that holds bytes of which a draw decides, beside the number of a row.
DRAWN = [
    ("releases", "values", RELEASE, "round"), ("releases", "signed_json", RELEASE, "round"),
    ("sealed_pieces", "data", PIECE, "round"), ("studies", "release", STUDY, "digest"),
    ("release_pieces", "data", DOCUMENT, "piece"),
]  # fmt: skip


@pytest.mark.parametrize(("table", "column", "row", "key"), DRAWN)
def test_stored_size_ignores_drawn_values(
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
