"""[P27] What a site must not forget: with an answer in its one transaction, or a moment later."""

from __future__ import annotations

import asyncio
from contextlib import closing, suppress
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from eigenveil.accounting.budget import PrivacyBudget
from eigenveil.accounting.zcdp import Cost
from eigenveil.aggregation import Contribution
from eigenveil.dictionary.site_rules import DeclineReason
from eigenveil.errors import Code
from eigenveil.planning.choose import rehearse
from eigenveil_client.site.policy_sections import Year, YearlyLimit
from eigenveil_client.site.state import store as store_module
from eigenveil_client.site.state.received_plans import PersonDecision
from eigenveil_client.site.state.rollback import NotedPosition, RollbackGuard
from eigenveil_client.site.state.store import SiteStore
from eigenveil_common.storage.database import Transactions
from tests.client.site.state.test_checkpoints import ROWS, advance, signed
from tests.client.site.support import Stage, a_plan, a_stage, work
from tests.support import refused

PLAN = a_plan()


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    """A site."""
    return a_stage(tmp_path)


def answered(stage: Stage, store: SiteStore, rounds: int) -> list[tuple[int, int]]:
    """Answer so many rounds, each with a later checkpoint; how many transactions and notes each took."""
    worker, took = stage.worker(store), []
    for round, query in enumerate(rehearse(PLAN)[:rounds]):
        message = work(query) if round else work(query, stage.signed(PLAN))
        advance(stage, store.checkpoints, ROWS[: round + 1])
        commits = mock.patch.object(Transactions, "_commit", autospec=True, side_effect=Transactions._commit)
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
        assert len(again.ledger.ledger.charged) == len(again.egress.verify(again.ledger.ledger)) == 3


def test_an_answer_that_is_paid_for_leaves_no_more_once_another_process_withdrew(stage: Stage) -> None:
    with closing(stage.store()) as store, closing(stage.store()) as other:
        answered(stage, store, 1)
        other.withdraw(PLAN.digest, PersonDecision(by="", word=DeclineReason.UNSTATED))
        with refused(Code.POLICY, "is withdrawn here"):
            store.outgoing.answer(PLAN, rehearse(PLAN)[0], b"", ())
        assert len(store.egress.rows()) == 1


@pytest.mark.parametrize("seconds", [0.001, 60.0], ids=["while it runs", "at the end"])
async def test_ledger_and_checkpoint_are_noted_a_moment_later(
    stage: Stage, seconds: float, monkeypatch: pytest.MonkeyPatch
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


def test_two_threads_that_keep_checkpoints_leave_the_later_one(stage: Stage) -> None:
    with closing(stage.store()) as store:
        advance(stage, store.checkpoints, ROWS[:3])
        early = store.checkpoints.unsaved()
        advance(stage, store.checkpoints, ROWS[:7])
        store.checkpoints.mark_saved(early)  # that does not make the later one durable
        store.checkpoints.flush()
        with store.database.transaction() as change:
            store.checkpoints.save(early, change)
        assert store.checkpoints.size() == 7


def test_what_a_year_has_is_read_while_nothing_is_appended_to_the_ledger(stage: Stage) -> None:
    yearly = YearlyLimit(year=Year.ROLLING, budget=PrivacyBudget(mixed=Cost(micro_rho=10**9)))
    with closing(stage.store()) as store:

        class Watched(dict[str, Cost]):
            def values(self) -> Any:
                assert store.ledger._lock.locked(), "another thread may change it meanwhile"
                return super().values()

        store.ledger.ledger.reserved = Watched(store.ledger.ledger.reserved)
        assert store.this_year(yearly) == 0
        assert store.left_this_year(PLAN, yearly) == 10**9
