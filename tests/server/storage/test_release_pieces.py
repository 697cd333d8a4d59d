"""The file of a release is stored in pieces, and read whole or in parts."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NoReturn

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eigenveil.errors import Code, InternalError
from eigenveil.identity import Role
from eigenveil.reporting.verify import load_release
from eigenveil_common.files import arm, disarm
from eigenveil_common.storage.database import Connection, Database, Row
from eigenveil_server.config import Config
from eigenveil_server.storage import pieces, study_reads
from eigenveil_server.storage.database import existing_store
from eigenveil_server.storage.pieces import FIRST, Key, PiecedColumn, split
from eigenveil_server.storage.release_pieces import RELEASE, store_piece
from eigenveil_server.storage.states import StudyState
from eigenveil_server.storage.study_reads import Studies
from tests.server.rig import answering, made, serving, study_toml
from tests.support import refused

SMALL = 1024  # bytes of a piece; the release of these tests has nine


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "PIECE_BYTES", SMALL)


@given(st.lists(st.integers(0, 3 * SMALL)))
def test_pieces_have_one_length_and_all_bytes_in_order(lengths: list[int]) -> None:
    data = bytes(range(256)) * (sum(lengths) // 256 + 1)
    starts = [sum(lengths[:number]) for number in range(len(lengths))]
    whole = data[: sum(lengths)]
    found = list(split(whole[at : at + length] for at, length in zip(starts, lengths, strict=True)))
    assert b"".join(found) == whole
    assert all(len(one) == SMALL for one in found[:-1])
    assert all(found)


def stored(config: Config) -> tuple[str, bytes]:
    """The study and its release as they are stored."""
    with closing(existing_store(config)) as store:
        (study,) = Studies(store.reader).all()
        data = Studies(store.reader).release(study.digest)
        assert data is not None
        return study.digest, bytes(data)


async def released(config: Config) -> bytes:
    """The release of one study, as its analyst receives it."""
    async with serving(config) as rig:
        ada = await rig.client(Role.ANALYST, "ada")
        async with answering(await rig.sites()):
            digest = await ada.submit(study_toml())
            await ada.events(digest)
        return await ada.release(digest)


async def test_any_part_of_a_release_is_read_as_it_was_stored(tmp_path: Path) -> None:
    config = made(tmp_path / "c")
    received = await released(config)
    load_release(received)
    study, data = stored(config)
    assert data == received
    assert len(data) > 3 * SMALL
    with closing(existing_store(config)) as store:
        for start in (0, 1, SMALL - 1, SMALL, 2 * SMALL + 5, len(data) - 1, len(data), len(data) + 1):
            for most in (1, SMALL, 2 * SMALL + 1, len(data)):
                assert RELEASE.read_part(store.reader, (study,), start, most) == (
                    data[start:][:most],
                    len(data),
                )


async def test_a_part_reads_no_other_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else each part of a release of gigabytes would cost as much as the whole; it is checked once."""
    config, plain = made(tmp_path / "c"), PiecedColumn._bytes
    await released(config)
    study, data = stored(config)
    read = list[tuple[str, int | None]]()

    def counting(
        self: PiecedColumn, reader: Database, key: Key, number: int | None, start: int, wanted: int
    ) -> bytes:
        read.append((self.table, number))
        return plain(self, reader, key, number, start, wanted)

    monkeypatch.setattr(PiecedColumn, "_bytes", counting)
    with closing(existing_store(config)) as store:
        studies = Studies(store.reader)
        whole = studies.release_part(study, SMALL, SMALL)
        assert len(read) == -(-len(data) // SMALL)  # its own, and all but the first to check it
        assert studies.release_part(study, SMALL, SMALL) == whole == (data[SMALL : 2 * SMALL], len(data))
        assert [read[0], read[-1]] == [("studies", 1)] * 2
        read.clear()
        found = [studies.sealed_part(study, 0, 0, 8) for _ in range(2)]
        assert found[0] == found[1]
        assert read == [("releases", FIRST)] * 2


class Counting:
    """Reader of a database that counts the bytes that it returns."""

    def __init__(self, reader: Database) -> None:
        self._reader = reader
        self.count = 0

    def rows(self, statement: str, parameters: Sequence[object] = ()) -> list[Row]:
        rows = self._reader.rows(statement, parameters)
        self.count += sum(len(row[0]) for row in rows if isinstance(row[0], bytes))
        return rows

    def transaction(self) -> Any:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError


async def test_a_part_of_a_release_stored_whole_reads_no_more_bytes_than_it_has(tmp_path: Path) -> None:
    """Until schema 15 a release was one value of any length."""
    config = made(tmp_path / "c")
    data = await released(config)
    with closing(existing_store(config)) as store:
        with store.writer.transaction() as change:
            change.execute("UPDATE studies SET release = ?", (data,))
            change.execute("DELETE FROM release_pieces")
        (study,) = Studies(store.reader).all()
        assert bytes(Studies(store.reader).release(study.digest) or b"") == data
        for start in (0, 1, SMALL, 3 * SMALL + 7, len(data) - 1):
            reader = Counting(store.reader)
            part = RELEASE.read_part(reader, (study.digest,), start, SMALL)
            assert part == (data[start : start + SMALL], len(data))
            assert reader.count == len(part[0])


async def test_nothing_follows_a_short_first_piece(tmp_path: Path) -> None:
    """The whole and its parts agree on it, also where another program left a piece."""
    config = made(tmp_path / "c")
    data = (await released(config))[: SMALL - 1]
    study, _ = stored(config)
    with closing(existing_store(config)) as store:
        with store.writer.transaction() as change:
            change.execute("UPDATE studies SET release = ?", (data,))
        assert bytes(RELEASE.read(store.reader, (study,)) or b"") == data
        assert RELEASE.read_part(store.reader, (study,), 0, 2 * SMALL) == (data, len(data))


async def test_releases_are_checked_once_for_the_last_studies_and_rounds_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that were ever read would be as many as there are studies."""
    config = made(tmp_path / "c")
    await released(config)
    study, _ = stored(config)
    monkeypatch.setattr(study_reads, "CHECKED", 1)
    seen = list[str]()
    with closing(existing_store(config)) as store:
        studies = Studies(store.reader)
        monkeypatch.setattr(study_reads, "check_release", lambda found, _: seen.append(found))
        for _ in range(2):
            assert studies.release_part(study, 0, 1) is not None
        assert seen == [study]
        assert studies.release_part("0" * 64, 0, 1) is None
        for round in (0, 1, 0):
            studies.sealed_part(study, round, 0, 8)
        assert studies._check_round_once.cache_info().currsize == 1
        assert studies._check_round_once.cache_info().misses == 3


@pytest.mark.parametrize(
    "settings", ["state = 'released', release = x'00'", "state = 'failed'", "release = x'00'"]
)
async def test_a_study_that_has_ended_takes_no_piece(tmp_path: Path, settings: str) -> None:
    """Its release never changes: a late piece would be behind a published one."""
    config = made(tmp_path / "c")
    await released(config)
    study, data = stored(config)
    with closing(existing_store(config)) as store:
        with store.writer.transaction() as change:
            change.execute("UPDATE studies SET (state, release) = ('running', NULL)")
            store_piece(change, study, 1, data[SMALL : 2 * SMALL])
            change.execute(f"UPDATE studies SET {settings}")
        with refused(Code.BUG, "has ended"), store.writer.transaction() as change:
            store_piece(change, study, 1, b"other")
        piece = "SELECT data FROM release_pieces WHERE piece = 1"
        assert store.reader.rows(piece)[0][0] == data[SMALL : 2 * SMALL]


async def test_a_change_that_fails_beside_a_piece_ends_the_process_and_fails_no_charged_study(
    tmp_path: Path,
) -> None:
    """Changes share a transaction: another study's fault failed a study whose rounds were all released."""
    config, ended, others = made(tmp_path / "c"), list[InternalError](), list[asyncio.Task[None]]()

    def noted(problem: InternalError) -> NoReturn:
        ended.append(problem)
        raise asyncio.CancelledError  # nothing runs after the end of a process

    def broken(_: Connection) -> None:
        raise ValueError

    try:
        async with serving(config, fatal=noted) as rig:
            writer = rig.repository.writer

            def share() -> None:
                """Begin a change of another study, which shares the transaction of the next piece."""
                others.append(asyncio.create_task(writer.write(broken)))

            ada = await rig.client(Role.ANALYST, "ada")
            async with answering(await rig.sites()):
                arm("release-piece-stored", share)
                digest = await ada.submit(study_toml())
                async with asyncio.timeout(60):
                    while not ended:
                        await asyncio.sleep(0.01)
            disarm()
            found = await asyncio.gather(*others, return_exceptions=True)
            assert [type(one) for one in found] == [InternalError]
            assert rig.repository.studies.state(digest) is StudyState.RUNNING
    finally:
        disarm()
    assert [problem.code for problem in ended] == [Code.BUG]
    async with serving(config) as rig:
        ada = await rig.client(Role.ANALYST, "ada")
        await ada.events(digest)
        load_release(await ada.release(digest))


async def test_a_crash_between_two_pieces_changes_nothing(tmp_path: Path) -> None:
    """Pieces of a process that ended, here of a longer release, are replaced or deleted; none is read."""
    config, reached = made(tmp_path / "c"), asyncio.Event()
    try:
        async with serving(config) as rig:
            ada = await rig.client(Role.ANALYST, "ada")
            async with answering(await rig.sites()):
                arm("release-piece-stored", reached.set)
                digest = await ada.submit(study_toml())
                await asyncio.wait_for(reached.wait(), 60)
    finally:
        disarm()
    with closing(existing_store(config)) as store, store.writer.transaction() as change:
        change.execute("UPDATE studies SET (state, release) = ('running', NULL)")
        change.execute("UPDATE release_pieces SET data = x'00' WHERE piece = 1")
        change.execute("INSERT INTO release_pieces VALUES (?, 99, x'00')", (digest,))
    with closing(existing_store(config)) as store:
        assert RELEASE.read(store.reader, (digest,)) is None
        assert RELEASE.read_part(store.reader, (digest,), 0, 1) is None
    async with serving(config) as rig:
        ada = await rig.client(Role.ANALYST, "ada")
        await ada.events(digest)
        received = await ada.release(digest)
    load_release(received)
    assert stored(config) == (digest, received)
