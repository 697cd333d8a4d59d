"""The file of a release is stored in pieces, and read whole or in parts."""

from __future__ import annotations

import asyncio
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eigenveil.identity import Role
from eigenveil.reporting.verify import load_release
from eigenveil_common.files import arm, disarm
from eigenveil_common.storage.database import Database
from eigenveil_server.config import Config
from eigenveil_server.storage import pieces
from eigenveil_server.storage.database import existing_store
from eigenveil_server.storage.pieces import FIRST, Key, Place, split
from eigenveil_server.storage.release_pieces import RELEASE
from eigenveil_server.storage.study_reads import Studies
from tests.server.rig import answering, made, serving, study_toml

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
    config, plain = made(tmp_path / "c"), Place._piece
    await released(config)
    study, data = stored(config)
    read = list[tuple[str, int | None]]()

    def counting(self: Place, reader: Database, key: Key, number: int | None) -> bytes:
        read.append((self.table, number))
        return plain(self, reader, key, number)

    monkeypatch.setattr(Place, "_piece", counting)
    with closing(existing_store(config)) as store:
        studies = Studies(store.reader)
        whole = studies.release_part(study, SMALL, SMALL)
        assert len(read) == -(-len(data) // SMALL)  # its own, and all but the first to check it
        assert studies.release_part(study, SMALL, SMALL) == whole == (data[SMALL : 2 * SMALL], len(data))
        assert read[-2:] == [("studies", 1)] * 2
        read.clear()
        found = [studies.sealed_part(study, 0, 0, 8) for _ in range(2)]
        assert found[0] == found[1]
        assert read == [("releases", FIRST)] * 2


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
