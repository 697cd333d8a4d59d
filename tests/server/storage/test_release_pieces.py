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
from eigenveil_server.config import Config
from eigenveil_server.storage import release_pieces
from eigenveil_server.storage.database import existing_store
from eigenveil_server.storage.release_pieces import pieces, read_part, read_release
from eigenveil_server.storage.study_reads import Studies
from tests.server.rig import answering, made, serving, study_toml

SMALL = 1024  # bytes of a piece; the release of these tests has nine


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(release_pieces, "PIECE_BYTES", SMALL)


@given(st.lists(st.integers(0, 3 * SMALL)))
def test_pieces_have_one_length_and_all_bytes_in_order(lengths: list[int]) -> None:
    data = bytes(range(256)) * (sum(lengths) // 256 + 1)
    starts = [sum(lengths[:number]) for number in range(len(lengths))]
    whole = data[: sum(lengths)]
    found = list(pieces(whole[at : at + length] for at, length in zip(starts, lengths, strict=True)))
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
                assert read_part(store.reader, study, start, most) == (data[start:][:most], len(data))


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
        for piece in (1, 99):
            release_pieces.store_piece(change, digest, piece, b"other bytes")
    with closing(existing_store(config)) as store:
        assert read_release(store.reader, digest) is None
        assert read_part(store.reader, digest, 0, 1) is None
    async with serving(config) as rig:
        ada = await rig.client(Role.ANALYST, "ada")
        await ada.events(digest)
        received = await ada.release(digest)
    load_release(received)
    assert stored(config) == (digest, received)
