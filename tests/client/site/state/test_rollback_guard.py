"""[P8] A site whose ledger is gone or was put back answers nothing until what was committed is charged."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from unittest import mock

import pytest

from eigenveil.accounting.budget import NoiseRule
from eigenveil.accounting.zcdp import NO_COST, Cost
from eigenveil.aggregation import Contribution
from eigenveil.errors import Code, InternalError
from eigenveil.planning.choose import rehearse
from eigenveil.protocol.plan import Plan
from eigenveil_client.site.commands import consent
from eigenveil_client.site.commands.checks import site_checks
from eigenveil_client.site.daemon.decisions import Refusal
from eigenveil_client.site.policy import Approval
from eigenveil_client.site.state import store_access
from eigenveil_client.site.state.rollback import NAME, NotedPosition, RollbackGuard
from eigenveil_common.doctor import Level
from eigenveil_common.files import check_owner
from eigenveil_common.storage.ledger_store import LedgerStore
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from tests.client.site.command_line import site, written
from tests.client.site.support import Patch, Stage, a_plan, a_stage, a_study, work
from tests.support import refused

PLAN, LATER = a_plan(), a_plan(submission="later")
STATE = ("state.db", "state.db-wal", "state.db-shm", "egress.key")


def agree(stage: Stage, *plans: Plan) -> None:
    with store_access.open_site_store(stage.config) as store:
        worker = stage.worker(store)
        for plan in plans or (PLAN,):
            assert isinstance(worker.work(work(rehearse(plan)[0], stage.signed(plan))), Contribution)


def committed(stage: Stage) -> Cost:
    with store_access.open_site_store(stage.config) as store:
        return store.ledger.ledger.committed()


def remove(stage: Stage) -> None:
    for name in STATE:
        stage.config.state.with_name(name).unlink(missing_ok=True)


def put_back(stage: Stage) -> None:
    remove(stage)
    for path in (stage.folder / "older").iterdir():
        shutil.copy(path, stage.config.state.with_name(path.name))


def back_up_before_migration(stage: Stage) -> None:
    (stage.folder / "older").mkdir()
    for name in STATE:
        if (path := stage.config.state.with_name(name)).exists():
            shutil.copy(path, stage.folder / "older")


def end_all(stage: Stage) -> None:
    """The coordinator says that every study has ended, so whatever was only set aside is free."""
    with store_access.open_site_store(stage.config) as store:
        for study in tuple(store.ledger.ledger.reserved):
            store.end(study)


@pytest.mark.parametrize("harm", [remove, put_back])
@pytest.mark.parametrize("ended", [False, True])
def test_lost_or_older_ledger_is_charged(stage: Stage, harm: Callable[[Stage], None], ended: bool) -> None:
    agree(stage, PLAN)
    back_up_before_migration(stage)
    agree(stage, LATER)
    if ended:
        end_all(stage)
    before = committed(stage)
    harm(stage)
    had = stage.config.state.exists()
    for _ in range(2):
        with pytest.raises(InternalError, match="accept-loss"):
            agree(stage)
    assert stage.config.state.exists() == had, "nothing is begun anew"
    config = written(stage)
    assert next(check for check in site_checks(config) if check.about == "ledger").level is Level.FAIL
    assert site(config, "ledger", "verify").code == 70
    accepted = site(config, "accept-loss", "--json")
    assert (accepted.code, accepted.json["micro_rho"] > 0) == (0, True)
    assert site(config, "egress", "verify").code == 0, "what left with the lost rows is missed no more"
    end_all(stage)
    with store_access.open_site_store(stage.config) as store:
        assert (store.ledger.ledger.reserved, store.ledger.ledger.spent) == ({}, before)
        assert store.ledger.ledger.exact, "that all of it was Gaussian is not lost with the rows"
    with refused(Code.CONFLICT, "no loss"):
        store_access.accept_loss(stage.config)
    agree(stage, a_plan(submission="afterwards"))


@pytest.mark.parametrize("delta", [1e-6, 0.0])
def test_a_loss_of_where_any_noise_was_admitted_is_of_any(tmp_path: Path, delta: float) -> None:
    stage = a_stage(tmp_path, noise=NoiseRule.ANY)
    agree(stage, a_plan(a_study(delta=delta)))
    remove(stage)
    stage.rule(noise=NoiseRule.GAUSSIAN)
    store_access.accept_loss(stage.config)
    with store_access.open_site_store(stage.config) as store:
        assert not store.ledger.ledger.gaussian
        assert store.ledger.ledger.limit == stage.config.policy.budget.mixed


def test_a_ledger_of_gaussian_noise_alone_takes_in_no_other_whatever_the_rules_let_pass(stage: Stage) -> None:
    plan = a_plan(a_study(delta=0.0))
    with store_access.open_site_store(stage.config) as store:
        stage.rule(noise=NoiseRule.ANY)  # as another process may have read by then
        answer = stage.worker(store).work(work(rehearse(plan)[0], stage.signed(plan)))
        assert isinstance(answer, Refusal)
        assert (answer.reason, store.ledger.ledger.committed()) == (pb.DECLINE_REASON_BUDGET, NO_COST)


def test_a_loss_without_noted_noise_counts_as_any_noise(stage: Stage) -> None:
    """As a note of before this was noted: the limit is zCDP's from then on."""
    agree(stage)
    remove(stage)
    note = stage.config.identity / NAME
    message = json.loads(note.read_text())
    note.write_text(json.dumps({name: value for name, value in message.items() if name != "gaussian"}))
    store_access.accept_loss(stage.config)
    with store_access.open_site_store(stage.config) as store:
        assert not store.ledger.ledger.gaussian
        assert store.ledger.ledger.limit == stage.config.policy.budget.mixed


def test_a_study_that_ended_is_noted(stage: Stage) -> None:
    agree(stage)
    back_up_before_migration(stage)
    end_all(stage)
    put_back(stage)
    with pytest.raises(InternalError, match="accept-loss"):
        agree(stage)


def test_what_another_process_agreed_to_is_noted_before_it_is_answered(tmp_path: Path) -> None:
    stage = a_stage(tmp_path, approval=Approval.MANUAL)
    with store_access.open_site_store(stage.config) as store:
        worker = stage.worker(store)
        assert worker.work(work(rehearse(PLAN)[0], stage.signed(PLAN))) is None
        with (
            mock.patch.object(RollbackGuard, "note", side_effect=KeyboardInterrupt),
            store_access.open_site_store(stage.config) as other,
            pytest.raises(KeyboardInterrupt),
        ):
            consent.approve(stage.config, other, other.studies.find("a-study"), by="Dr. Grau")
        assert RollbackGuard(stage.config.identity).noted() is None
        assert isinstance(worker.work(work(rehearse(PLAN)[0])), Contribution)
        noted = RollbackGuard(stage.config.identity).noted()
        assert noted is not None
        assert noted.is_in(store.ledger)


def test_an_unwritable_note_stops_the_process(stage: Stage) -> None:
    agree(stage)
    with store_access.open_site_store(stage.config) as store:
        worker = stage.worker(store)
        (stage.config.identity / NAME).chmod(0o644)
        with pytest.raises(InternalError, match="can be read by others"):
            worker.work(work(rehearse(LATER)[0], stage.signed(LATER)))


def test_root_does_not_work_in_the_folder_of_the_daemons_user(stage: Stage, monkeypatch: Patch) -> None:
    owner = os.stat_result((0, 0, 0, 0, 65534, 0, 0, 0, 0, 0))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(Path, "stat", lambda path, **how: owner)
    with refused(Code.BAD_CONFIG, "run this as that user: sudo -u"):
        check_owner(stage.folder)


@pytest.mark.parametrize("step", ["restore_reservation", "charge", "settle"])
def test_a_crash_while_accepting_charges_once(stage: Stage, step: str) -> None:
    agree(stage)
    before = committed(stage)
    remove(stage)
    crash = mock.patch.object(LedgerStore, step, side_effect=KeyboardInterrupt)
    with crash, pytest.raises(KeyboardInterrupt):
        store_access.accept_loss(stage.config)
    assert (store_access.accept_loss(stage.config), committed(stage)) == (before, before)


def test_a_copy_from_the_middle_of_an_earlier_loss_is_no_dead_end(stage: Stage) -> None:
    agree(stage)
    before = committed(stage)
    remove(stage)
    crash = mock.patch.object(LedgerStore, "charge", side_effect=KeyboardInterrupt)
    with crash, pytest.raises(KeyboardInterrupt):
        store_access.accept_loss(stage.config)
    back_up_before_migration(stage)
    store_access.accept_loss(stage.config)
    put_back(stage)
    assert store_access.accept_loss(stage.config) == before
    with store_access.open_site_store(stage.config) as store:
        assert store.ledger.ledger.spent == before


def test_what_is_noted_is_never_ahead_and_never_goes_back(stage: Stage) -> None:
    guard = RollbackGuard(stage.config.identity)
    assert guard.noted() is None
    with closing(stage.store()) as early:
        empty = NotedPosition.of(early.ledger.ledger)
        early.note_ledger()
        assert guard.noted() is None
        agree(stage)
        noted = guard.noted()
        assert noted is not None
        with store_access.open_site_store(stage.config) as store:
            assert noted.is_in(store.ledger)
            assert noted.committed == store.ledger.ledger.committed()
        guard.note(empty)  # another process, which has read nothing since
        assert guard.noted() == noted


def test_a_damaged_note_stops_the_site(stage: Stage) -> None:
    agree(stage)
    (stage.config.identity / NAME).write_text("{}")
    for go_on in (partial(agree, stage), partial(store_access.accept_loss, stage.config)):
        with refused(Code.BAD_CONFIG, NAME, "remove this file only"):
            go_on()


def test_no_key_is_made_beside_a_ledger(stage: Stage) -> None:
    agree(stage)
    key = stage.config.state.with_name("egress.key")
    key.unlink()
    with refused(Code.BAD_CONFIG, "restore both", "move the database away"):
        agree(stage)
    assert not key.exists()
    spent = RollbackGuard(stage.config.identity).noted()
    assert spent is not None
    remove(stage)
    assert store_access.accept_loss(stage.config) == spent.committed, "as the message says"


def test_a_state_of_an_earlier_release_is_refused_and_what_it_spent_is_charged(stage: Stage) -> None:
    agree(stage)
    end_all(stage)
    spent = committed(stage)
    with closing(sqlite3.connect(stage.config.state)) as connection, connection:
        connection.execute("PRAGMA user_version = 5")
    with refused(Code.STORAGE, "schema version 5, from which", "move it and egress.key away", "accept-loss"):
        agree(stage)
    for name in STATE:
        (stage.folder / name).unlink(missing_ok=True)
    assert store_access.accept_loss(stage.config) == spent, "as the message says"
    assert committed(stage) == spent
