"""A coordinator whose database is on a PostgreSQL server."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from eigenveil.errors import Code, InternalError, RequestError
from eigenveil.identity import Role
from eigenveil.reporting.verify import load_release
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from eigenveil_server.config import Config
from eigenveil_server.daemon import Daemon
from eigenveil_server.pki.keys import load_keys
from eigenveil_server.recovery.accept_loss import accept_loss
from eigenveil_server.recovery.backup import restored
from eigenveil_server.recovery.checkpoints import read_checkpoint
from eigenveil_server.storage import pieces
from eigenveil_server.storage.database import open_store
from eigenveil_server.storage.release_pieces import RELEASE
from tests.common.storage.cluster import binaries
from tests.server.process import command, process
from tests.server.recovery.test_restart import charges, enrolled
from tests.server.rig import FEDERATION, SITES, Credentials, answering, no_fatal, refusal, serving, study_toml
from tests.support import Patch, a_hello, refused


def made(folder: Path, url: str) -> Config:
    line = ("init", "--dir", str(folder), "--federation", FEDERATION, "--port", "0", "--enrol-port", "0")
    code, _, err = command(*line, "--database", url)
    assert code == 0, err
    return Config(federation=FEDERATION, state=folder, port=0, enrol_port=0, database=url)


def test_a_study_survives_a_kill(tmp_path: Path, url: str) -> None:
    config = made(tmp_path / "c", url)
    path = config.state / "coordinator.toml"
    toml = study_toml(algorithm="dp-pca", components=1)

    async def life(stored: dict[str, Credentials], rounds: int | None) -> bytes | None:
        async with process(path) as coordinator:
            ada = coordinator.connect(stored["ada"])
            async with answering({name: coordinator.connect(stored[name]) for name in SITES}):
                digest = await ada.submit(toml)
                request = pb.WatchStudyRequest(plan_digest=bytes.fromhex(digest))
                async for event in ada.stub.WatchStudy(request):
                    if rounds is not None and event.round >= rounds:
                        await coordinator.end(signal.SIGKILL)
                        return None
                return await ada.release(digest)

    async def scenario() -> bytes:
        stored = await enrolled(config)
        await life(stored, 1)
        document = await life(stored, None)
        assert document is not None
        return document

    document = load_release(asyncio.run(scenario())).document
    assert sorted(round for _, round in charges(config)) == list(range(len(document["rounds"])))
    code, out, _ = command("status", "--config", str(path), "--json")
    assert (code, json.loads(out)["studies"][0]["state"]) == (0, "released")
    assert not config.files.database.exists()


async def test_long_releases_are_read_as_sealed(tmp_path: Path, url: str, monkeypatch: Patch) -> None:
    monkeypatch.setattr(pieces, "PIECE_BYTES", 12)
    async with serving(made(tmp_path / "c", url)) as rig:
        ada = await rig.client(Role.ANALYST, "ada")
        async with answering(await rig.sites()):
            digest = await ada.submit(study_toml())
            await ada.events(digest)
        releases = [one.release for one in rig.daemon.runtime.repository.studies.sealed_rounds(digest)]
        assert max(one.values.nbytes for one in releases) > 3 * 12
        whole, reader = await ada.release(digest), rig.daemon.runtime.repository.store.reader
        for start in (0, 5, 12, len(whole) - 3):
            assert RELEASE.read_part(reader, (digest,), start, 30) == (whole[start:][:30], len(whole))
        writer = rig.repository.store.writer
        for statement in (
            *("UPDATE sealed_pieces SET data = ''", "DELETE FROM sealed_pieces", "TRUNCATE sealed_pieces"),
            "INSERT INTO sealed_pieces SELECT study, round, 99, data FROM sealed_pieces WHERE piece = 1",
        ):
            with refused(Code.STORAGE, "never"), writer.transaction() as change:
                change.execute(statement)


async def test_two_coordinators_never_serve_one_database(tmp_path: Path, url: str) -> None:
    config = made(tmp_path / "c", url)
    copy = tmp_path / "copy"
    copy.mkdir()
    for file in config.state.iterdir():
        (copy / file.name).write_bytes(file.read_bytes())
        (copy / file.name).chmod(0o600)
    async with serving(config):
        with pytest.raises(RequestError, match="another coordinator serves postgresql://"):
            Daemon(replace(config, state=copy))
        assert command("status", "--config", str(config.state / "coordinator.toml"))[0] == 0
    async with serving(replace(config, state=copy)):
        pass


def test_a_federation_is_made_in_an_empty_database_only(tmp_path: Path, url: str) -> None:
    made(tmp_path / "c", url)
    line = ("init", "--dir", str(tmp_path / "d"), "--federation", "other", "--database", url)
    code, _, err = command(*line)
    assert (code, "holds a federation already" in err) == (Code.CONFLICT.exit_code, True)
    assert list((tmp_path / "d").iterdir()) == []


def test_both_databases_have_the_same_tables(tmp_path: Path, url: str) -> None:
    """Every column with its type, and whether it may be empty; every table that refuses changes."""
    types = {"bigint": "INTEGER", "text": "TEXT", "bytea": "BLOB", "double precision": "REAL"}
    with closing(open_store(tmp_path / "state.db")) as store:
        on_file = {
            (row["t"], row["name"], row["type"], bool(row["notnull"] or row["pk"]))
            for row in store.reader.rows(
                "SELECT m.name AS t, c.* FROM sqlite_master m JOIN pragma_table_info(m.name) c "
                "WHERE m.type = 'table' AND m.name != 'eigenveil_schema'"  # the same statement in both
            )
        }
        triggers = store.reader.rows("SELECT name FROM sqlite_master WHERE type = 'trigger'")
    with closing(open_store(url)) as store:
        rows = store.reader.rows(
            "SELECT table_name, column_name, data_type, is_nullable, collation_name "
            "FROM information_schema.columns "
            "WHERE table_schema = 'public' AND table_name != 'eigenveil_schema'"
        )
        refusing = store.reader.rows("SELECT tgname FROM pg_trigger WHERE NOT tgisinternal")
    assert on_file == {(row[0], row[1], types[row[2]], row[3] == "NO") for row in rows}
    assert all(row[4] == "C" for row in rows if row[2] == "text")
    assert {row[0] for row in triggers} == {row[0].removesuffix("_all") for row in refusing}


def test_a_database_that_lost_its_tables_is_not_begun_anew(tmp_path: Path, url: str) -> None:
    config = made(tmp_path / "c", url)
    administer(url, "DROP SCHEMA public CASCADE", "CREATE SCHEMA public")
    with pytest.raises(InternalError, match="restore it from its last backup"):
        Daemon(config)


def test_commits_are_synced_whatever_the_database_is_set_to(tmp_path: Path, url: str) -> None:
    """As an administrator may set it, in the hope of speed."""
    config = made(tmp_path / "c", url)
    name = conninfo_to_dict(url)["dbname"]
    administer(url, f"ALTER DATABASE {name} SET synchronous_commit = off")
    store = open_store(config.store)
    assert store.writer.rows("SHOW synchronous_commit")[0][0] == "on"
    store.close()


def test_a_server_that_never_syncs_is_refused(tmp_path: Path, url: str) -> None:
    config = made(tmp_path / "c", url)
    try:
        administer(url, "ALTER SYSTEM SET fsync = off", "SELECT pg_reload_conf()")
        await_checkpoints(url, "off")
        with pytest.raises(InternalError, match="need fsync = on, got off"):
            Daemon(config)
    finally:
        administer(url, "ALTER SYSTEM RESET fsync", "SELECT pg_reload_conf()")
        await_checkpoints(url, "on")


def test_a_restored_database_waits_for_sites_and_charges_the_loss(tmp_path: Path, url: str) -> None:
    """[R20] as with a file of SQLite: pg_dump, a study, pg_restore."""
    config = made(tmp_path / "c", url)
    toml, dump = str(config.state / "coordinator.toml"), tmp_path / "dump"
    tools = binaries()
    assert tools is not None

    async def a_study() -> pb.SignedCheckpoint:
        async with serving(config) as rig:
            sites, ada = await rig.sites(), await rig.client(Role.ANALYST, "ada")
            subprocess.run([tools / "pg_dump", "--format=custom", f"--file={dump}", url], check=True)
            async with answering(sites):
                assert (await ada.events(await ada.submit(study_toml())))[-1].state == pb.STUDY_STATE_RELEASED
            with pytest.raises(RequestError, match="stop it first"):
                restored(config, ())
            checkpoint = rig.daemon.checkpoints.checkpoint_if_newer(b"")
            assert checkpoint is not None
            return checkpoint

    later = asyncio.run(a_study())
    subprocess.run([tools / "pg_restore", "--clean", f"--dbname={url}", dump], check=True)
    assert not charges(config)
    code, out, err = command("restored", "--config", toml, "--without", "carl", "--json")
    assert (code, json.loads(out)["awaited_checkpoints"]) == (0, ["anna", "bert"]), err

    async def hello() -> None:
        async with serving(config) as rig:
            ada = await rig.client(Role.ANALYST, "ada")
            assert (await refusal(ada.submit(study_toml(name="early")))).code is Code.NOT_READY
            bert = await rig.client(Role.SITE, "bert")
            await refusal(bert.stub.Hello(a_hello(checkpoint=later)))

    asyncio.run(hello())
    with pytest.raises(InternalError, match="accept-loss"):
        Daemon(config, fatal=no_fatal)
    committed = read_checkpoint(later, load_keys(config.files), FEDERATION).committed
    assert committed.micro_rho > 0
    assert (accept_loss(config).charged, len(charges(config))) == (committed, 1)


def administer(url: str, *statements: str) -> list[Any]:
    """Run statements as the server's administrator; the last one's rows."""
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in statements:
            cursor = connection.execute(statement)
        return cursor.fetchall() if cursor.description else []


def await_checkpoints(url: str, fsync: str) -> None:
    while administer(url, "SHOW fsync") != [(fsync,)]:
        time.sleep(0.01)


@pytest.mark.parametrize("url", ["sqlite:///x", "/var/lib/state.db", "postgresql://["])
def test_a_url_that_is_none_is_refused(tmp_path: Path, url: str) -> None:
    line = ("init", "--dir", str(tmp_path / "d"), "--federation", "other", "--database", url)
    code, _, err = command(*line)
    assert (code, "postgresql://" in err) == (Code.BAD_CONFIG.exit_code, True)


def test_no_message_holds_the_password(tmp_path: Path) -> None:
    url = "postgresql://user:hunter2@127.0.0.1:1/name?connect_timeout=1"
    line = ("init", "--dir", str(tmp_path / "d"), "--federation", "other", "--database", url)
    code, out, err = command(*line)
    assert code == Code.STORAGE.exit_code
    assert "postgresql://127.0.0.1/name" in err
    assert "hunter2" not in out + err


async def test_a_server_that_stops_ends_the_process(tmp_path: Path, url: str) -> None:
    config = made(tmp_path / "c", url)
    stored = await enrolled(config)
    async with process(config.state / "coordinator.toml") as coordinator:
        ada = coordinator.connect(stored["ada"])
        administer(
            url,
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()",
        )
        await refusal(ada.submit(study_toml()))
        assert await coordinator.process.wait() == Code.STORAGE.exit_code
    async with serving(config) as rig:
        assert rig.daemon.runtime.repository.ledger.ledger.committed().micro_rho == 0
