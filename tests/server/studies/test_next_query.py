"""[P27] What the algorithm sees is charged and stored, and what it asks then follows from that alone."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from eigenveil.errors import InternalError
from eigenveil.identity import Role
from eigenveil.numerics.encoding import frozen
from eigenveil.protocol.rounds import Release
from eigenveil.session import Session
from eigenveil_common.files import arm, disarm
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from eigenveil_server.rounds.drivers import check_same_query
from eigenveil_server.rounds.sealing import round_statement
from eigenveil_server.storage.sealed import add_release
from tests.server.masked.sites import attempts_of, charges_of, masked_toml, serving_sites, site_of
from tests.server.rig import Client, Rig, Sites, answering, made, serving, study_toml
from tests.server.studies.test_one_sync import books
from tests.support import changed_query


class Gated:
    """The first passage of a failpoint, whose thread waits there for `go`."""

    def __init__(self, name: str) -> None:
        self._here, self._go = threading.Event(), threading.Event()
        arm(name, self._pass)

    def _pass(self) -> None:
        self._here.set()
        assert self._go.wait(100)

    async def here(self) -> None:
        assert await asyncio.to_thread(self._here.wait, 100)

    def go(self) -> None:
        self._go.set()


@pytest.fixture(autouse=True)
def _disarmed() -> Iterator[None]:
    yield
    disarm()


@pytest.mark.parametrize("masked", [False, True], ids=["central", "masked"])
async def test_what_the_algorithm_is_fed_is_charged_and_stored_before_its_next_query(
    masked: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[list[int], list[int], list[int]]] = []
    feed = Session.feed
    async with serving(made(tmp_path / "c")) as rig:
        ada, clients = await rig.client(Role.ANALYST, "ada"), await rig.sites()

        def fed(self: Session, release: Release) -> None:
            (digest,) = rig.daemon.engine._runs
            seen.append(books(rig, digest))
            feed(self, release)

        monkeypatch.setattr(Session, "feed", fed)
        sites = {name: site_of(rig, client) for name, client in clients.items()}
        async with serving_sites(sites) if masked else answering(clients):
            digest = await ada.submit(masked_toml() if masked else study_toml())
            last = (await ada.events(digest))[-1]
    assert last.state == pb.STUDY_STATE_RELEASED
    assert len(seen) >= 5
    assert seen == [(list(range(round + 1)),) * 3 for round in range(len(seen))]


async def test_a_stored_release_is_as_long_whatever_was_drawn(rig: Rig, ada: Client, sites: Sites) -> None:
    """So what its transaction takes, of a disk or of memory, depends on the question alone."""
    digest = await ada.submit(study_toml())
    round_query, store = await sites["anna"].query(), rig.repository.store
    lengths = set()
    for drawn in (0, -1, 2**62, -(2**63) + 1):
        release = Release.of(round_query, frozen([drawn]), 3.5, ("anna", "bert"))
        message = round_statement(round_query, ("0" * 64, 5), "", release.digest).signed(lambda _: bytes(64))
        with suppress(Undone), store.writer.transaction() as change:
            add_release(change, digest, release, message, None)
            (row,) = change.execute("SELECT * FROM releases")
            lengths.add(tuple(len(one if isinstance(one, bytes) else str(one)) for one in row))
            raise Undone
    assert len(lengths) == 1


class Undone(Exception):
    """Ends a transaction that shall change nothing."""


async def test_a_round_is_never_opened_in_other_words(rig: Rig, ada: Client, sites: Sites) -> None:
    await ada.submit(study_toml())
    round_query, studies = await sites["anna"].query(), rig.repository.studies
    check_same_query(studies, round_query)
    check_same_query(studies, replace(round_query, round=1))  # which is not open
    with pytest.raises(InternalError, match="opened with another query before"):
        check_same_query(studies, changed_query(round_query, micro_rho=round_query.priced.micro_rho + 1))


async def test_no_attempt_at_the_next_round_is_charged_once_a_study_is_cancelled(
    rig: Rig, ada: Client, sites: Sites
) -> None:
    """[P33] Nor one that nobody heard of is paid."""
    step = Gated("round-followed")
    async with serving_sites({name: site_of(rig, client) for name, client in sites.items()}):
        digest = await ada.submit(masked_toml())
        await step.here()  # its first release is stored and fed; no further question is open
        cancel = pb.CancelStudyRequest(plan_digest=bytes.fromhex(digest))
        cancelled = asyncio.ensure_future(ada.stub.CancelStudy(cancel))
        while not rig.daemon.engine._runs[digest]._cancelled:
            await asyncio.sleep(0.01)
        step.go()
        await cancelled
        last = (await ada.events(digest))[-1]
    assert last.state == pb.STUDY_STATE_CANCELLED
    assert {round for round, *_ in charges_of(rig, digest)} == {0}
    assert {round for round, _ in attempts_of(rig, digest)} == {0}
