"""No read of a server's database happens on the event loop; one that takes long keeps nobody else waiting."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, asynccontextmanager, closing
from dataclasses import replace
from pathlib import Path

import pytest

from eigenveil.errors import Code
from eigenveil.identity import Role
from eigenveil_common.storage.database import Connection, Database, ReaderPool, Row
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from eigenveil_server import daemon
from eigenveil_server.config import Config
from eigenveil_server.storage.database import READERS, Store, existing_store, open_store
from tests.server.rig import Rig, answering, made, refusal, serving, study_toml
from tests.support import a_hello


class Far:
    """A database beyond a network: `held` reads wait until `go`, and none may be made on the event loop."""

    def __init__(self, near: Database) -> None:
        self._near = near
        self.watched = False
        self.delayed = ""
        self.waiting, self.go = threading.Event(), threading.Event()

    def rows(self, statement: str, parameters: Sequence[object] = ()) -> list[Row]:
        if self.watched and asyncio._get_running_loop() is not None:
            raise AssertionError(f"read on the event loop: {statement}")
        found = self._near.rows(statement, parameters)
        if self.delayed and self.delayed in statement:  # the answer is on its way
            self.waiting.set()
            assert self.go.wait(60)
        return found

    def transaction(self) -> AbstractContextManager[Connection]:
        return self._near.transaction()

    def close(self) -> None:
        self._near.close()


@asynccontextmanager
async def far_away(config: Config, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[Rig, Far]]:
    """A coordinator whose database is as far away as one on a server, once it serves."""
    found: list[Far] = []

    def opened(config: Config) -> Store:
        near = existing_store(config)
        found.append(Far(near.reader))
        return replace(near, reader=found[0], threads=ThreadPoolExecutor(4))

    monkeypatch.setattr(daemon, "existing_store", opened)
    async with serving(config) as rig:
        found[0].watched = True
        yield rig, found[0]


async def test_a_study_from_its_plan_to_its_release_reads_nothing_on_the_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with far_away(made(tmp_path / "c", operator_approval_above_epsilon=0.0), monkeypatch) as (rig, _):
        sites, ada = dict(await rig.sites()), await rig.client(Role.ANALYST, "ada")
        await asyncio.gather(*(one.stub.Hello(a_hello(next_generation=b"g" * 32)) for one in sites.values()))
        carl = sites.pop("carl")
        async with answering(sites):
            digest = await ada.submit(study_toml(sites=("anna", "bert")), agreed=False)
            with rig.repository.store.writer.transaction() as change:
                row = {"at": 0, "kind": "study-approved", "subject": digest, "detail": ""}
                change.insert("audit", row)
            rig.daemon.registry.deny(Role.SITE, "carl")
            assert (await refusal(carl.work())).code is Code.IDENTITY
            assert (await ada.events(digest))[-1].state == pb.STUDY_STATE_RELEASED
        await ada.release(digest)
        listed = await ada.stub.ListStudies(pb.ListStudiesRequest())
        assert [one.plan_digest.hex() for one in listed.studies] == [digest]
        await ada.stub.ListSites(pb.ListSitesRequest())
        await ada.stub.GetDictionary(pb.GetDictionaryRequest())
        cancelled = ada.stub.CancelStudy(pb.CancelStudyRequest(plan_digest=bytes.fromhex(digest)))
        assert (await refusal(cancelled)).code is Code.CONFLICT


async def test_a_read_of_a_file_waits_for_no_long_read_of_another_thread(tmp_path: Path) -> None:
    """A thread that reads a release piece by piece has a connection of its own."""
    read, go = threading.Event(), threading.Event()
    with closing(open_store(tmp_path / "state.db")) as store:
        reader = store.reader
        assert isinstance(reader, ReaderPool)

        def long() -> None:
            with reader._reserved():
                read.set()
                assert go.wait(60)

        threads = [threading.Thread(target=long) for _ in range(READERS - 1)]
        for thread in threads:
            thread.start()
            assert read.wait(60)
            read.clear()
        found = await asyncio.wait_for(store.read(reader.rows, "SELECT COUNT(*) FROM studies"), 60)
        assert found[0][0] == 0
        go.set()
        for thread in threads:
            thread.join()


async def test_a_look_at_enrolments_sees_every_earlier_denial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of one that came while the database was being read for another caller."""

    async with far_away(made(tmp_path / "c"), monkeypatch) as (rig, far):
        sites = await rig.sites()
        await sites["bert"].stub.Hello(a_hello())
        far.delayed = "MAX(id)"
        first = asyncio.ensure_future(sites["bert"].stub.Hello(a_hello()))
        assert await asyncio.to_thread(far.waiting.wait, 60)
        far.delayed = ""
        rig.daemon.registry.deny(Role.SITE, "anna")
        second = asyncio.ensure_future(refusal(sites["anna"].stub.Hello(a_hello())))
        await asyncio.sleep(0.1)
        far.go.set()
        assert (await second).code is Code.IDENTITY
        await first
