"""A caller may vanish at any moment: what it began is then done to its end, or not at all."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from eigenveil.accounting.gaussian import micro_rho_for
from eigenveil.errors import Code, RequestError
from eigenveil.identity import Role
from eigenveil.numerics.encoding import frozen
from eigenveil.protocol.query import RoundQuery
from eigenveil_common.storage.ledger_store import LedgerStore
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from eigenveil_server.storage import study_writes
from eigenveil_server.storage.repository import GroupCommit
from eigenveil_server.storage.states import StudyState
from eigenveil_server.storage.study_reads import StoredStudy
from eigenveil_server.studies.study_run import StudyRun
from tests.server.rig import SITES, SUMMARY, UNLIMITED, Client, Rig, Sites, answering, refusal, study_toml
from tests.support import signed_request


class Disk:
    """Its work waits, off the event loop, until whoever asked for it has given up."""

    def __init__(self) -> None:
        self._begun, self._go = threading.Event(), threading.Event()

    def slowly(self, work: Callable[..., Any]) -> Callable[..., Any]:
        def slow(*args: Any, **kwargs: Any) -> Any:
            self._begun.set()
            assert self._go.wait(60)
            return work(*args, **kwargs)

        return slow

    async def outlasts(self, call: Any) -> None:
        """The caller vanishes in the middle of it."""
        assert await asyncio.to_thread(self._begun.wait, 60)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await asyncio.sleep(0.3)  # so that it is heard of first: what ends with its caller ends here
        self._go.set()


async def test_a_submission_is_one_study_when_its_caller_vanishes(
    sites: Sites, ada: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk()
    round_query = await signed_request(ada.stub, study_toml())
    monkeypatch.setattr(LedgerStore, "reserve", disk.slowly(LedgerStore.reserve))
    await disk.outlasts(ada.stub.SubmitStudy(round_query))
    other = await refusal(ada.submit(study_toml(name="other"), "one"))
    assert (other.code, "belongs to another study" in str(other)) == (Code.CONFLICT, True)
    async with answering(sites):
        digest = await ada.submit(study_toml())
        assert (await ada.events(digest))[-1].state == pb.STUDY_STATE_RELEASED
    assert len((await ada.stub.ListStudies(pb.ListStudiesRequest())).studies) == 1


async def undriven(rig: Rig, ada: Client) -> str:
    """A study that runs by the books, and that nobody drives."""
    digest = await ada.submit(study_toml())
    task = rig.daemon.engine._tasks[digest]
    task.cancel()
    await asyncio.wait({task})
    return digest


async def test_a_study_without_a_driver_can_be_cancelled(rig: Rig, ada: Client, sites: Sites) -> None:
    digest = await undriven(rig, ada)
    books = rig.repository.ledger.ledger
    assert books.committed().micro_rho == micro_rho_for(1.0, 1e-6)
    await ada.stub.CancelStudy(pb.CancelStudyRequest(plan_digest=bytes.fromhex(digest)))
    assert books.committed().micro_rho == 0


async def test_a_submission_that_is_stored_already_is_a_conflict_not_a_failing_disk(
    rig: Rig, sites: Sites, ada: Client
) -> None:
    stored = rig.repository.studies.get(await ada.submit(study_toml()))
    fields = {name: getattr(stored, name) for name in StoredStudy.__dataclass_fields__}
    twin = StoredStudy(**{**fields, "digest": "0" * 64})
    with pytest.raises(RequestError) as refused, rig.repository.store.writer.transaction() as c:
        study_writes.add_study(c, twin, "submitted", UNLIMITED, SUMMARY)
    assert refused.value.code is Code.CONFLICT


def slow_writes(monkeypatch: pytest.MonkeyPatch) -> Disk:
    disk = Disk()
    monkeypatch.setattr(GroupCommit, "_commit", disk.slowly(GroupCommit._commit))
    return disk


async def first_query(rig: Rig) -> tuple[str, dict[str, Client], RoundQuery]:
    sites = dict(await rig.sites())
    ada = await rig.client(Role.ANALYST, "ada")
    digest = await ada.submit(study_toml(quorum=2))
    return digest, sites, (await asyncio.gather(*(site.query() for site in sites.values())))[0]


async def test_an_answer_counts_when_its_sender_vanishes(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    digest, sites, query = await first_query(rig)
    disk = slow_writes(monkeypatch)
    message = sites["anna"].contribution(query, frozen([60]))
    await disk.outlasts(sites["anna"].stub.Contribute(message))
    for name in SITES[1:]:
        await sites[name].contribute(query, frozen([60]))
    while (await sites["anna"].query()).round == 0:
        pass
    assert rig.repository.studies.sealed_rounds(digest)[0].release.present == SITES
    assert (await sites["anna"].stub.Contribute(message)).repeated


async def test_a_decline_is_durable_when_its_sender_vanishes(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest, sites, query = await first_query(rig)
    disk = slow_writes(monkeypatch)
    refuse = pb.DeclineRequest(plan_digest=bytes.fromhex(digest), round=0, reason=pb.DECLINE_REASON_BUDGET)
    await disk.outlasts(sites["anna"].stub.Decline(refuse))
    await sites["anna"].stub.Decline(refuse)
    studies = rig.repository.studies
    assert studies.answers(digest, 0).declined == {"anna": "budget"}
    for name in SITES[1:]:
        await sites[name].contribute(query, frozen([60]))
    assert (await sites["bert"].query()).round == 1


async def test_a_study_that_ends_while_it_is_taken_up_again_is_not_run_again(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, sites: Sites
) -> None:
    ada, engine = await rig.client(Role.ANALYST, "ada"), rig.daemon.engine
    digest = await ada.submit(study_toml())
    run, reads, go = await engine.run(digest), asyncio.Event(), asyncio.Event()

    async def slowly(work: Callable[..., Any], *args: Any) -> Any:
        found = work(*args)
        if work is StudyRun:
            reads.set()
            await go.wait()
        return found

    monkeypatch.setattr(engine, "_read", slowly)
    again = asyncio.create_task(engine._launch(run.stored, run.plan))
    await reads.wait()
    await engine.cancel(digest, "ada")
    go.set()
    await again
    assert engine.running(digest) is None
    assert engine._states[digest] is StudyState.CANCELLED
