"""[P27] What a site must not forget: with an answer in its one transaction, or a moment later."""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from eigenveil.accounting.budget import PrivacyBudget
from eigenveil.accounting.checkpoint import CHECKPOINT_SIGNED, Checkpoint, checkpoint_of, verify_checkpoint
from eigenveil.accounting.ledger import Amount
from eigenveil.accounting.zcdp import Cost
from eigenveil.aggregation import Contribution
from eigenveil.dictionary.site_rules import DeclineReason
from eigenveil.errors import Code, InternalError, RequestError
from eigenveil.planning.choose import rehearse
from eigenveil_client.connection.identity import load_identity
from eigenveil_client.site.commands.checks import site_checks
from eigenveil_client.site.policy_sections import Year, YearlyLimit
from eigenveil_client.site.state import egress, store_access
from eigenveil_client.site.state import store as store_module
from eigenveil_client.site.state.received_plans import PersonDecision
from eigenveil_client.site.state.rollback import CheckpointStore, NotedPosition, RollbackGuard
from eigenveil_client.site.state.store import SiteStore
from eigenveil_common.doctor import Level
from eigenveil_common.storage.database import VersionedDatabase
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from tests.client.site.command_line import site, written
from tests.client.site.support import FEDERATION, Context, Coordinator, Log, Patch, Stage, a_plan, until, work
from tests.support import refused

PLAN = a_plan()


def answered(stage: Stage, store: SiteStore, rounds: int) -> list[tuple[int, int]]:
    worker, took = stage.worker(store), []
    for round, query in enumerate(rehearse(PLAN)[:rounds]):
        message = work(query) if round else work(query, stage.signed(PLAN))
        advance(stage, store.checkpoints, ROWS[: round + 1])
        commits = mock.patch.object(
            VersionedDatabase, "_commit", autospec=True, side_effect=VersionedDatabase._commit
        )
        with commits as counted, mock.patch.object(RollbackGuard, "note") as noted:
            assert isinstance(worker.work(message), Contribution)
        took.append((counted.call_count, noted.call_count))
    return took


def test_an_answered_round_is_one_transaction_and_the_checkpoint_is_in_it(stage: Stage) -> None:
    with closing(stage.store()) as store:
        _, *later = answered(stage, store, 3)  # the first one agrees to the plan, too, and notes it
        assert later == [(1, 0)] * 2
    with closing(stage.store()) as again:
        assert again.checkpoints.latest() == signed(stage, ROWS[:3])
        assert len(again.ledger.ledger.charged) == len(again.egress.verify(again.ledger)) == 3


def test_an_answer_that_is_paid_for_leaves_no_more_once_another_process_withdrew(stage: Stage) -> None:
    with closing(stage.store()) as store, closing(stage.store()) as other:
        answered(stage, store, 1)
        other.withdraw(PLAN.digest, PersonDecision(by="", reason_code=DeclineReason.UNSTATED))
        with refused(Code.POLICY, "is withdrawn here"):
            store.outgoing.answer(PLAN, rehearse(PLAN)[0], b"", ())
        assert len(store.egress.rows()) == 1


@pytest.mark.parametrize("seconds", [0.001, 60.0], ids=["while it runs", "at the end"])
async def test_ledger_and_checkpoint_are_noted_later(
    stage: Stage, seconds: float, monkeypatch: Patch
) -> None:
    monkeypatch.setattr(store_module, "NOTE_SECONDS", seconds)
    guard = RollbackGuard(stage.config.identity)

    async def noted(store: SiteStore) -> None:
        task = asyncio.create_task(store.note_periodically())
        while seconds < 1 and (
            guard.noted() != NotedPosition.of(store.ledger.ledger) or store.checkpoints.unsaved()
        ):
            await asyncio.sleep(0.001)
        await asyncio.sleep(0)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    with closing(stage.store()) as store:
        answered(stage, store, 2)
        assert guard.noted() != NotedPosition.of(store.ledger.ledger)
        advance(stage, store.checkpoints, ROWS[:40])
        await noted(store)
        assert guard.noted() == NotedPosition.of(store.ledger.ledger)
    with closing(stage.store()) as again:
        assert again.checkpoints.size() == 40


def test_two_threads_store_the_later_checkpoint(stage: Stage, store: SiteStore) -> None:
    advance(stage, store.checkpoints, ROWS[:3])
    early = store.checkpoints.unsaved()
    advance(stage, store.checkpoints, ROWS[:7])
    store.checkpoints.mark_saved(early)  # that does not make the later one durable
    store.checkpoints.flush()
    with store.database.transaction() as change:
        store.checkpoints.save(early, change)
    assert store.checkpoints.size() == 7


def test_yearly_use_is_read_under_the_ledger_s_lock(stage: Stage, store: SiteStore) -> None:
    yearly = YearlyLimit(year=Year.ROLLING, budget=PrivacyBudget(mixed=Cost(micro_rho=10**9)))

    class Watched(dict[str, Amount]):
        def items(self) -> Any:
            assert store.ledger._lock.locked(), "another thread may change it meanwhile"
            return super().items()

    store.ledger.ledger.open_amounts = Watched(store.ledger.ledger.open_amounts)
    assert (store.this_year(yearly), store.left_this_year(PLAN, yearly)) == (0, 10**9)


@pytest.mark.parametrize("name", ["state.db", "state.db-wal", "state.db-shm"])
def test_a_site_refuses_a_ledger_that_others_can_change(stage: Stage, name: str, store: SiteStore) -> None:
    assert isinstance(store, SiteStore)
    path = stage.config.state.with_name(name)
    path.chmod(0o602)
    message = f"others can change {path}; run: chmod go-w {path}"
    with pytest.raises(RequestError, match=message), store_access.open_site_store(stage.config):
        pass
    with pytest.raises(RequestError, match=message):
        store_access.accept_loss(stage.config)


@pytest.mark.parametrize("name", ["authorities.json", "identity.json", "profile.toml", "peers.json"])
def test_an_identity_is_not_believed_that_others_can_change(stage: Stage, name: str) -> None:
    path: Path = stage.config.identity / name
    if not path.exists():
        path.write_text("{}")
    path.chmod(0o600)
    load_identity(stage.config.identity)
    path.chmod(0o606)
    with pytest.raises(RequestError, match=f"others can change {path}; run: chmod go-w {path}"):
        load_identity(stage.config.identity)
    found = {check.about: check for check in site_checks(written(stage))}["permissions"]
    assert found.level is Level.FAIL
    assert str(path) in found.text


FULL = "CREATE TRIGGER full BEFORE INSERT ON calls BEGIN SELECT RAISE(ABORT, 'full'); END"
DAY = "2027-01-15"  # of the stage's clock


def statement(store: SiteStore, text: str) -> None:
    with store.database.transaction() as change:
        change.execute(text)


def test_counts_survive_a_failed_write(stage: Stage, store: SiteStore) -> None:
    store.traffic.add("Hello", 7)
    statement(store, FULL)
    with pytest.raises(InternalError):
        store.traffic.flush()
    store.traffic.add("Hello", 0)
    statement(store, "DROP TRIGGER full")
    store.traffic.flush()
    store.traffic.flush()
    assert store.traffic.counts() == [{"day": DAY, "kind": "Hello", "messages": 2, "bytes": 7}]


def test_what_is_counted_during_a_write_and_two_writes_at_once_add_up(stage: Stage, store: SiteStore) -> None:
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


async def test_a_failed_write_of_the_counts_ends_the_daemon(stage: Stage, caplog: Log) -> None:
    coordinator = Coordinator(work=[pb.NextWorkResponse() for _ in range(3)])
    with mock.patch.object(egress, "FLUSH_SECONDS", 0.5):
        async with stage.serving(coordinator):
            store = stage.store()
            statement(store, FULL)
            daemon = stage.make_daemon(store)
            with refused(Code.STORAGE, "full"):
                await asyncio.wait_for(daemon.run(), 60)
            assert not daemon.contact.disconnects
            round_query = coordinator.hellos, len(coordinator.requests)
            await asyncio.sleep(0.2)
            assert (coordinator.hellos, len(coordinator.requests)) == round_query, "nothing is sent after it"
            statement(store, "DROP TRIGGER full")
            store.close()
    assert not any("disconnected" in record.message for record in caplog.records)


ROWS = [f"{number:04x}" * 16 for number in range(1, 60)]
OTHER = [f"{number:04x}" * 16 for number in range(101, 160)]


def signed(stage: Stage, rows: list[str], federation: str = FEDERATION) -> pb.SignedCheckpoint:
    statement_json = checkpoint_of(federation, rows, [Cost(micro_rho=len(rows))], gaussian=True).signed_json
    return pb.SignedCheckpoint(
        checkpoint_json=statement_json,
        signature=stage.authority.release_key.sign(CHECKPOINT_SIGNED + statement_json),
    )


def advance(stage: Stage, checkpoints: CheckpointStore, rows: list[str], *, parted: bool = False) -> None:
    checkpoints.advance(signed(stage, rows), stage.authority.release_keys, FEDERATION, parted=parted)


@pytest.mark.parametrize(
    "shown", [ROWS[:49], OTHER[:50], [*ROWS[:49], *OTHER[:9]]], ids=["smaller", "beside", "contradicting"]
)
def test_inconsistent_checkpoint_stops_the_site_until_accepted(stage: Stage, shown: list[str]) -> None:
    store = stage.store()
    advance(stage, store.checkpoints, ROWS[:50])
    with refused(Code.CONFLICT, "does not follow the one of 50 rows"):
        advance(stage, store.checkpoints, shown)
    store.close()
    store = stage.store()
    with refused(Code.CONFLICT, "accept-checkpoint"):
        store.checkpoints.check()
    assert store.checkpoints.latest() == signed(stage, ROWS[:50]), "it is still shown what it holds"
    store.close()
    result = site(written(stage), "accept-checkpoint", "--json")
    assert (result.code, result.json) == (0, {"rows_before": 50, "rows": len(shown)})
    store = stage.store()
    store.checkpoints.check()
    assert store.checkpoints.latest() == signed(stage, shown)
    store.close()
    assert site(written(stage), "accept-checkpoint").code == 8


def test_a_coordinator_that_reports_lost_rows_is_refused(stage: Stage, store: SiteStore) -> None:
    stored, forked = ROWS[:50], [*ROWS[:45], *OTHER[:45]]
    assert not checkpoint(stage, forked).contradicts(checkpoint(stage, stored))
    advance(stage, store.checkpoints, stored)
    with refused(Code.CONFLICT, "does not follow the one of 50 rows"):
        advance(stage, store.checkpoints, forked, parted=True)
    with refused(Code.CONFLICT, "accept-checkpoint"):
        store.checkpoints.check()
    store.close()


def checkpoint(stage: Stage, rows: list[str]) -> Checkpoint:
    one = signed(stage, rows)
    return verify_checkpoint(one.checkpoint_json, one.signature, stage.authority.release_public)


def test_what_the_federation_did_not_sign_changes_nothing(stage: Stage, store: SiteStore) -> None:
    keys = stage.authority.release_keys
    forged = pb.SignedCheckpoint(checkpoint_json=signed(stage, ROWS).checkpoint_json, signature=bytes(64))
    with refused(Code.IDENTITY, "not signed"):
        store.checkpoints.advance(forged, keys, FEDERATION)
    with refused(Code.PROTOCOL, "federation elsewhere"):
        store.checkpoints.advance(signed(stage, ROWS, "elsewhere"), keys, FEDERATION)
    store.checkpoints.check()
    assert store.checkpoints.latest() is None


@dataclass
class RecordingCoordinator(Coordinator):
    greetings: list[pb.HelloRequest] = field(default_factory=list)

    async def Hello(self, request: pb.HelloRequest, context: Context) -> pb.HelloResponse:
        self.greetings.append(request)
        return await super().Hello(request, context)


async def test_the_daemon_shows_its_head_and_ends_at_one_that_goes_back(stage: Stage) -> None:
    first, back = work(None, stage.signed(a_plan())), work(None)
    first.checkpoint.CopyFrom(signed(stage, ROWS[:9]))
    back.checkpoint.CopyFrom(signed(stage, ROWS[:8]))
    coordinator = RecordingCoordinator(work=[first])
    async with stage.serving(coordinator):
        async with stage.daemon() as store:
            await until(lambda: store.checkpoints.size() == 9)
            await until(lambda: len(coordinator.requests) >= 2)  # one more once records are loaded
        assert coordinator.requests[1].checkpoint_digest == bytes.fromhex(ROWS[8])
        coordinator.work.append(back)
        store = stage.store()
        daemon = stage.make_daemon(store)
        with pytest.raises(RequestError, match="restored from an old copy"):
            await daemon.run()
        assert coordinator.greetings[-1].checkpoint == signed(stage, ROWS[:9])
        round_query = len(coordinator.requests)
        with pytest.raises(RequestError), suppress(TimeoutError):
            await asyncio.wait_for(daemon.run(), 60)
        assert len(coordinator.requests) == round_query
        assert not coordinator.contributions
        store.close()
