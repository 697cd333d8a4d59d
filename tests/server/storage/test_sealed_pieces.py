"""[P27] Pieces of a longer release that are stored before it is charged: random bytes until then."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eigenveil.identity import Role
from eigenveil.numerics.encoding import frozen
from eigenveil.protocol.rounds import Release
from eigenveil_common.files import arm, disarm
from eigenveil_server.config import Config
from eigenveil_server.storage import pieces
from eigenveil_server.storage.database import Store, existing_store
from eigenveil_server.storage.sealed import VALUES
from eigenveil_server.storage.sealed_pieces import crypt, store_ahead
from eigenveil_server.storage.study_reads import Studies
from tests.server.recovery.test_lost_draws import last_event, lives_until_its_death
from tests.server.recovery.test_restart import Died, charges, sealed
from tests.server.rig import answering, made, serving, study_toml

SMALL = 24  # bytes of a piece, so that most releases of these tests have several
KEY = bytes(range(32))
BLOCK = 16


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "PIECE_BYTES", SMALL)


@given(st.binary(min_size=64, max_size=100), st.integers(0, 63), st.integers(1, 100), st.integers(1, 2**32))
def test_a_piece_is_decoded_from_any_byte_on(data: bytes, start: int, most: int, number: int) -> None:
    stored = crypt(KEY, number, 0, data)
    assert len(stored) == len(data)
    assert crypt(KEY, number, start, stored[start:][:most]) == data[start:][:most]


def test_no_two_blocks_of_a_release_have_one_mask() -> None:
    masks = [crypt(KEY, number, 0, bytes(64 * BLOCK)) for number in range(1, 65)]
    blocks = [mask[at : at + BLOCK] for mask in masks for at in range(0, len(mask), BLOCK)]
    assert len(set(blocks)) == 64 * 64


@contextmanager
def opened(config: Config) -> Iterator[tuple[Store, str]]:
    """The database of a coordinator that has stopped, and its one study."""
    with closing(existing_store(config)) as store:
        (study,) = Studies(store.reader).all()
        yield store, study.digest


async def released(config: Config) -> None:
    async with serving(config) as rig:
        ada = await rig.client(Role.ANALYST, "ada")
        async with answering(await rig.sites()):
            await ada.events(await ada.submit(study_toml()))


def stored_pieces(store: Store, round: int) -> list[bytes]:
    selected = "SELECT data FROM sealed_pieces WHERE round = ? ORDER BY piece"
    return [bytes(row[0]) for row in store.reader.rows(selected, (round,))]


def release_of(values: list[int]) -> Release:
    """A release of a round that is open and not sealed yet."""
    return Release(
        round=99, query="q", values=frozen(values), sigma=1.0, micro_rho=1, atto_delta=0, present=("anna",)
    )


def open_unsealed(store: Store) -> None:
    with store.writer.transaction() as change:
        change.execute(
            "INSERT INTO rounds (study, round, kind, state, query, query_digest, opened_at) "
            "SELECT study, 99, kind, 'open', query, query_digest, opened_at FROM rounds WHERE round = 0"
        )


async def test_what_is_stored_before_the_charge_is_independent_of_the_draw(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each value is added to a mask, bit by bit, and the mask follows from a new key alone."""
    config, asked, count = made(tmp_path / "c"), list[int](), 3 * SMALL // 8 + 1
    draws = ([0] * count, [-1] * count, [2**62 - number for number in range(count)])
    await released(config)
    with opened(config) as (store, study):
        open_unsealed(store)

        def masks(key: bytes) -> set[bytes]:
            """Return what was added to each draw."""
            found = set[bytes]()

            def stated(size: int) -> bytes:
                asked.append(size)
                return key

            for values in draws:
                with monkeypatch.context() as patched:
                    patched.setattr(secrets, "token_bytes", stated)
                    assert store_ahead(store.writer, study, release_of(values)) == key
                stored = stored_pieces(store, 99)
                plain = np.array(values, dtype="<i8").tobytes()[SMALL:]
                assert [len(one) for one in stored] == [SMALL, SMALL, 8]
                found.add(bytes(a ^ b for a, b in zip(b"".join(stored), plain, strict=True)))
            return found

        (one,), (other,) = masks(KEY), masks(bytes(32))
        assert asked == [32] * 2 * len(draws)
        assert not {one[at : at + 8] for at in range(0, len(one), 8)} & {
            other[at : at + 8] for at in range(0, len(other), 8)
        }
        assert len({store_ahead(store.writer, study, release_of([0] * count)) for _ in range(8)}) == 8


async def test_a_release_of_one_piece_has_no_key(tmp_path: Path) -> None:
    config = made(tmp_path / "c")
    await released(config)
    with opened(config) as (store, study):
        open_unsealed(store)
        for values in ([], [1], [1] * (SMALL // 8)):
            assert store_ahead(store.writer, study, release_of(values)) is None
        assert stored_pieces(store, 99) == []


async def test_other_studies_are_charged_between_two_pieces(tmp_path: Path) -> None:
    """The writer's connection is free after each: other threads wait for one piece, not for all."""
    config, others = made(tmp_path / "c"), list[bool]()
    await released(config)

    def another() -> None:
        def change() -> None:
            with store.writer.transaction() as changing:
                changing.execute("UPDATE audit SET at = at WHERE 0")

        thread = threading.Thread(target=change, daemon=True)
        thread.start()
        thread.join(60)
        others.append(not thread.is_alive())

    with opened(config) as (store, study):
        open_unsealed(store)
        try:
            arm("sealed-piece-stored", another)
            store_ahead(store.writer, study, release_of([7] * SMALL))
        finally:
            disarm()
    assert others == [True] * 7


async def test_any_part_of_a_sealed_release_is_read_as_it_was_sealed(tmp_path: Path) -> None:
    config = made(tmp_path / "c")
    await released(config)
    with opened(config) as (store, study):
        studies = Studies(store.reader)
        longest = max(studies.sealed_rounds(study), key=lambda one: one.release.values.nbytes).release
        whole = longest.values.tobytes()
        assert len(whole) > 3 * SMALL
        assert stored_pieces(store, longest.round) != [
            whole[at : at + SMALL] for at in range(SMALL, len(whole), SMALL)
        ]
        for start in (0, 8, SMALL, SMALL + 8, 2 * SMALL - 8, len(whole) - 8, len(whole)):
            for most in (8, SMALL, len(whole)):
                part, size = studies.sealed_part(study, longest.round, start, most)
                assert (part.values, size) == (whole[start:][:most], len(whole))


async def test_releases_of_earlier_versions_are_read_as_they_were_sealed(tmp_path: Path) -> None:
    """Their further pieces are plain, in a table of their own, and there is no key."""
    config = made(tmp_path / "c")
    await released(config)
    with opened(config) as (store, study):
        before = [one.release for one in Studies(store.reader).sealed_rounds(study)]
        assert any(stored_pieces(store, one.round) for one in before)
        with store.writer.transaction() as change:
            for trigger in ("a_sealed_release_never_changes", "a_sealed_piece_is_never_deleted"):
                change.execute(f"DROP TRIGGER {trigger}")
            change.execute("DELETE FROM sealed_pieces")
            change.execute("UPDATE releases SET piece_key = NULL")
            for one in before:
                data = one.values.tobytes()
                for number, at in enumerate(range(SMALL, len(data), SMALL)):
                    row = {"study": study, "round": one.round, "piece": number}
                    change.insert("releases_continued", {**row, "values": data[at : at + SMALL]})
        studies = Studies(store.reader)
        found = [one.release for one in studies.sealed_rounds(study)]
        assert [one.digest for one in found] == [one.digest for one in before]
        last = before[-1]
        whole = last.values.tobytes()
        assert studies.sealed_part(study, last.round, 8, len(whole))[0].values == whole[8:]


async def test_a_process_that_ends_between_two_pieces_leaves_random_bytes_and_no_charge(
    tmp_path: Path,
) -> None:
    """The next process draws anew, and replaces the pieces; it charges once."""
    config, passages = made(tmp_path / "c"), list[None]()

    def dies() -> None:
        passages.append(None)
        if len(passages) == 2:
            raise Died

    try:
        arm("sealed-piece-stored", dies)
        digest, stored = await lives_until_its_death(config)
    finally:
        disarm()
    before = sealed(config.state)
    assert sorted(charges(config)) == [(digest, round) for round in sorted(before)]
    with opened(config) as (store, study):
        (round,) = {row[0] for row in store.reader.rows("SELECT round FROM sealed_pieces")}
        left = stored_pieces(store, round)
        assert len(left) == 2
        assert round not in before
        assert VALUES.read(store.reader, (study, round)) is None
    await last_event(config, digest, stored)
    assert sorted(charges(config)) == [(digest, round) for round in sorted(sealed(config.state))]
    with opened(config) as (store, study):
        assert Studies(store.reader).sealed_rounds(study)  # each has the digest that was sealed
        assert not set(left) & set(stored_pieces(store, round))
