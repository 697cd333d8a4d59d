"""Killed at any point, a coordinator resumes the same study: same rounds, same bytes, no new price."""

from __future__ import annotations

import resource
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

from eigenveil.accounting.ledger import replay
from eigenveil.errors import Code
from eigenveil.identity import Role
from eigenveil.noise.source import NoiseSpec, OsNoise
from eigenveil.numerics.encoding import IntArray, frozen
from eigenveil.protocol.wire import query_from_proto
from eigenveil.study.algorithm import Algorithm
from eigenveil_common.storage.ledger_store import LedgerStore
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from eigenveil_server.config import Config
from eigenveil_server.process import unix_ms
from eigenveil_server.storage import study_writes
from eigenveil_server.storage.database import open_store
from eigenveil_server.storage.release_pieces import StoredPieces
from tests.server.process import process
from tests.server.rig import SITES, Credentials, Rig, answering, made, refusal, serving, study_toml

SealedRelease = dict[int, tuple[bytes, str]]


def sealed(folder: Path) -> SealedRelease:
    """Every sealed release of the only study: bytes and digest."""
    connection = sqlite3.connect(folder / "state.db")
    try:
        return {
            row[0]: (row[1], row[2])
            for row in connection.execute('SELECT round, "values", digest FROM releases')
        }
    finally:
        connection.close()


def charges(config: Config) -> dict[tuple[str, int], str]:
    """Charges of the ledger on disk, replayed and checked."""
    store = open_store(config.store)
    try:
        entries = LedgerStore(store.writer, config.budget, lambda: 0).entries()
        replay(config.budget, entries)
        return {(one.study, one.round): one.query for one in entries if one.kind.spends}
    finally:
        store.close()


async def enrolled(config: Config) -> dict[str, Credentials]:
    """Credentials of all sites and of an analyst."""
    async with serving(config) as rig:
        return await enrolled_at(rig)


async def enrolled_at(rig: Rig) -> dict[str, Credentials]:
    stored = {name: await rig.credentials(Role.SITE, name) for name in SITES}
    return stored | {"ada": await rig.credentials(Role.ANALYST, "ada")}


async def test_a_study_begun_under_another_revision_ends_and_frees_what_it_had_not_spent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = made(tmp_path / "c")

    async with serving(config) as rig:
        stored = await enrolled_at(rig)
        digest = await rig.connect(stored["ada"]).submit(study_toml())
    newer = replace(Algorithm.GAUSS_COV.properties, revisions=(99,))
    monkeypatch.setattr(Algorithm.GAUSS_COV, "properties", newer)
    async with serving(config) as rig:
        row = rig.repository.studies.get(digest)
        assert (row.state.value, "this program has 99" in row.failure) == ("failed", True)
        assert (
            rig.repository.ledger.ledger.committed().micro_rho == rig.repository.ledger.ledger.spent.micro_rho
        )
        monkeypatch.undo()
        assert await rig.connect(stored["ada"]).submit(study_toml(), submission="another") != digest


class Died(BaseException):
    """Stands for a process that ended here."""


def dying(*_: object, **__: object) -> None:
    """Stands where a release is stored, that is, after its price in one transaction."""
    raise Died


class CountingNoise(OsNoise):
    draws = 0

    def draw(self, spec: NoiseSpec) -> IntArray:
        self.draws += 1
        return super().draw(spec)


async def test_a_death_between_draw_and_seal_costs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = made(tmp_path / "c")
    with monkeypatch.context() as patched:
        patched.setattr(study_writes, "release_round", dying)
        async with serving(config) as rig:
            stored = await enrolled_at(rig)
            digest = await rig.connect(stored["ada"]).submit(study_toml())
            task = rig.daemon.engine._tasks[digest]
            for site in [rig.connect(stored[name]) for name in SITES]:
                await site.contribute(await site.query(), frozen([60]))
            with pytest.raises(Died):
                await task
    assert charges(config).keys() == set()
    assert sealed(config.state) == {}
    async with serving(config) as rig:
        sites = {name: rig.connect(stored[name]) for name in SITES}
        query = await sites["anna"].query()
        assert query.round == 0
        refused = await refusal(sites["anna"].contribute(query, frozen([61])))
        assert "differently before" in str(refused)
        repeated = [(await site.contribute(query, frozen([60]))).repeated for site in sites.values()]
        assert repeated == [True, True, True]
        async with answering(sites):
            last = (await rig.connect(stored["ada"]).events(digest))[-1]
        assert last.state == pb.STUDY_STATE_RELEASED
    assert sorted(charges(config)) == [(digest, round) for round in sorted(sealed(config.state))]


async def test_a_death_before_the_release_is_stored_changes_no_byte_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = made(tmp_path / "c")
    built: list[bytes] = []

    def dying_at_the_end(*_: object, release: StoredPieces, **__: object) -> None:
        built.append(bytes(release.first or b""))  # its only piece
        raise Died

    with monkeypatch.context() as patched:
        patched.setattr(study_writes, "end_study", dying_at_the_end)
        async with serving(config) as rig:
            stored = await rig.credentials(Role.ANALYST, "ada")
            async with answering(await rig.sites()):
                digest = await rig.connect(stored).submit(study_toml())
                with pytest.raises(Died):
                    await rig.daemon.engine._tasks[digest]
    async with serving(config) as rig:
        ada = rig.connect(stored)
        last = (await ada.events(digest))[-1]
        assert (last.state, last.round_state) == (pb.STUDY_STATE_RELEASED, "released")
        assert await ada.release(digest) == built[0]


async def test_a_sealed_round_is_not_drawn_again(tmp_path: Path) -> None:
    config, noise = made(tmp_path / "c"), CountingNoise()
    async with serving(config, noise=noise) as rig:
        stored = await enrolled_at(rig)
        await rig.connect(stored["ada"]).submit(study_toml())
        sites = [rig.connect(stored[name]) for name in SITES]
        for site in sites:
            await site.contribute(await site.query(), frozen([60]))
        while (await sites[0].query()).round == 0:
            pass
    before = sealed(config.state)
    assert list(before) == [0]
    async with serving(config, noise=noise) as rig:
        assignment = await rig.connect(stored["anna"]).stub.NextWork(pb.NextWorkRequest())
        # With the words of its question, which a site that missed it may have otherwise.
        assert (
            query_from_proto(assignment.release.query).digest
            in assignment.release.signed_round.signed_json.decode()
        )
        assert assignment.query.round == 1
    assert sealed(config.state) == before
    # Round 0 once; round 1 at most once in each life.
    assert noise.draws <= 3


def test_sealed_releases_cannot_be_changed_in_the_database(tmp_path: Path) -> None:
    store = open_store(tmp_path / "state.db")
    with store.writer.transaction() as change:
        change.execute("PRAGMA defer_foreign_keys=ON")
        change.execute(
            "INSERT INTO studies (digest, name, analyst, submission, plan_json, signature, micro_rho, "
            "expected_rounds, state, submitted_at) VALUES ('s', 'n', 'a', '1', x'', x'', 1, 1, 'running', ?)",
            (unix_ms(),),
        )
        change.execute(
            "INSERT INTO rounds (study, round, kind, state, query, query_digest, opened_at) "
            "VALUES ('s', 0, 'count', 'open', x'', '', 0), ('s', 1, 'count', 'open', x'', '', 0)"
        )
        change.execute("INSERT INTO sealed_pieces VALUES ('s', 1, 9, x'00')")
        change.execute("INSERT INTO sealed_pieces VALUES ('s', 0, 1, x'00')")
        change.execute("UPDATE sealed_pieces SET data = x'01'")  # by the next process, until it is sealed
        change.execute(
            "INSERT INTO releases VALUES ('s', 0, '', x'00', 1.0, 1, '0', '[]', 'd', x'', x'', x'00')"
        )
        change.execute("INSERT INTO releases_continued VALUES ('s', 0, 0, x'00')")
    store.close()
    connection = sqlite3.connect(tmp_path / "state.db")
    for statement in (
        *("UPDATE releases SET sigma = 2", "DELETE FROM releases"),
        *("UPDATE releases_continued SET piece = 1", "DELETE FROM releases_continued"),
        *("UPDATE sealed_pieces SET data = x'00'", "DELETE FROM sealed_pieces"),
        "INSERT INTO sealed_pieces VALUES ('s', 0, 2, x'00')",
        *(
            "UPDATE sealed_pieces SET round = 0 WHERE round = 1",
            "UPDATE sealed_pieces SET round = 1, piece = 2",
        ),
    ):
        with pytest.raises(sqlite3.IntegrityError, match="never"):
            connection.execute(statement)
    connection.close()


async def test_a_failing_disk_ends_the_process(tmp_path: Path) -> None:
    config = made(tmp_path / "c")

    stored = await enrolled(config)
    async with process(config.state / "coordinator.toml") as coordinator:
        ada = coordinator.connect(stored["ada"])
        # From here on, no file of the process may grow.
        resource.prlimit(coordinator.process.pid, resource.RLIMIT_FSIZE, (0, 0))
        await refusal(ada.submit(study_toml()))
        assert await coordinator.process.wait() == Code.STORAGE.exit_code
    async with serving(config) as rig:
        assert rig.repository.ledger.ledger.committed().micro_rho == 0
