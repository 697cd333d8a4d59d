"""The counts of what else leaves: no write of theirs is taken for the coordinator's, and none is lost."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from unittest import mock

import pytest

from eigenveil.errors import Code, InternalError
from eigenveil_client.connection.identity import load_identity
from eigenveil_client.site.daemon.service import SiteDaemon
from eigenveil_client.site.state import traffic
from eigenveil_client.site.state.store import SiteStore
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from tests.client.site.support import Coordinator, Stage, until

FULL = "CREATE TRIGGER full BEFORE INSERT ON chatter BEGIN SELECT RAISE(ABORT, 'full'); END"
DAY = "2027-01-15"  # of the stage's clock


def statement(store: SiteStore, text: str) -> None:
    with store.database.transaction() as change:
        change.execute(text)


def test_counts_that_could_not_be_written_are_kept(stage: Stage) -> None:
    store = stage.store()
    store.traffic.add("Hello", 7)
    statement(store, FULL)
    with pytest.raises(InternalError):
        store.traffic.flush()
    store.traffic.add("Hello", 0)
    statement(store, "DROP TRIGGER full")
    store.traffic.flush()
    store.traffic.flush()
    assert store.traffic.counts() == [{"day": DAY, "kind": "Hello", "messages": 2, "bytes": 7}]
    store.close()


def test_what_is_counted_during_a_write_and_two_writes_at_once_add_up(stage: Stage) -> None:
    store = stage.store()
    store.traffic.add("Hello", 7)
    with store.database.transaction():  # both flushes must wait for it
        flushes = [threading.Thread(target=store.traffic.flush) for _ in range(2)]
        for one in flushes:
            one.start()
        time.sleep(0.1)
        store.traffic.add("Hello", 5)
    for one in flushes:
        one.join()
    store.traffic.flush()
    assert store.traffic.counts() == [{"day": DAY, "kind": "Hello", "messages": 2, "bytes": 12}]
    store.close()


def counted(store: SiteStore) -> Callable[[], bool]:
    return lambda: {one["kind"] for one in store.traffic.counts()} >= {"Hello", "NextWork"}


async def test_counts_reach_the_disk_while_a_question_waits_and_off_the_event_loop(stage: Stage) -> None:
    threads: list[int] = []
    write = traffic.Traffic._write

    def noted(self: traffic.Traffic, rows: list[tuple[str, str, int, int]]) -> None:
        threads.append(threading.get_ident())
        write(self, rows)

    with (
        mock.patch.object(traffic, "FLUSH_SECONDS", 0.05),
        mock.patch.object(traffic.Traffic, "_write", noted),
    ):
        async with stage.serving(Coordinator()), stage.daemon() as store:
            await until(counted(store))
            assert threading.get_ident() not in threads


async def test_a_failed_write_of_the_counts_ends_the_daemon(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    """Found here: it passed for the coordinator's failure, and the daemon went on."""
    coordinator = Coordinator(work=[pb.NextWorkResponse() for _ in range(3)])

    with mock.patch.object(traffic, "FLUSH_SECONDS", 0.5):
        async with stage.serving(coordinator):
            store = stage.store()
            statement(store, FULL)
            daemon = SiteDaemon(stage.worker(store), lambda: load_identity(stage.config.identity))
            with pytest.raises(InternalError, match="full") as failed:
                await asyncio.wait_for(daemon.run(), 60)
            assert failed.value.code is Code.STORAGE
            assert not daemon.contact.disconnects
            asked = coordinator.hellos, len(coordinator.asked)
            await asyncio.sleep(0.2)
            assert (coordinator.hellos, len(coordinator.asked)) == asked, "nothing is sent after it"
            statement(store, "DROP TRIGGER full")
            store.close()
    assert not any("disconnected" in record.message for record in caplog.records)
