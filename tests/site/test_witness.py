"""A site whose ledger is gone or was put back answers nothing until what was committed is charged."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from unittest import mock

import pytest

from eigenveil.accounting import NOTHING, Cost
from eigenveil.aggregate import Contribution
from eigenveil.errors import Code, InternalError
from eigenveil.plan import Plan
from eigenveil.rehearsal import rehearse
from eigenveil_client import site_service
from eigenveil_client.doctor_site import site_checks
from eigenveil_client.witness import NAME, LedgerWitness
from eigenveil_common.doctor import Level
from eigenveil_common.ledger_store import LedgerStore
from tests.site.command_line import site, written
from tests.site.support import Stage, a_plan, a_stage, work
from tests.support import refused

PLAN, LATER = a_plan(), a_plan(submission="later")
STATE = ("state.db", "state.db-wal", "state.db-shm", "egress.key")


def agree(stage: Stage, *plans: Plan) -> None:
    """One life of the site: the first round of each plan is answered."""
    with site_service.opened(stage.config) as store:
        worker = stage.worker(store)
        for plan in plans or (PLAN,):
            assert isinstance(worker.work(work(rehearse(plan)[0], stage.signed(plan))), Contribution)


def committed(stage: Stage) -> Cost:
    with site_service.opened(stage.config) as store:
        return store.ledger.ledger.committed()


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return a_stage(tmp_path)


def remove(stage: Stage) -> None:
    for name in STATE:
        stage.config.state.with_name(name).unlink(missing_ok=True)


def put_back(stage: Stage) -> None:
    """To what `older` holds: the state before the second plan."""
    remove(stage)
    for path in (stage.folder / "older").iterdir():
        shutil.copy(path, stage.config.state.with_name(path.name))


@pytest.mark.parametrize("harm", [remove, put_back])
def test_a_ledger_gone_or_older_is_charged_for_and_never_begun_anew(
    stage: Stage, harm: Callable[[Stage], None]
) -> None:
    agree(stage, PLAN)
    (stage.folder / "older").mkdir()
    for name in STATE:
        if (path := stage.config.state.with_name(name)).exists():
            shutil.copy(path, stage.folder / "older")
    agree(stage, LATER)
    before = committed(stage)
    harm(stage)
    had = stage.config.state.exists()
    for _ in range(2):
        with pytest.raises(InternalError, match="accept-loss"):
            agree(stage)
    assert stage.config.state.exists() == had, "nothing is begun anew"
    config = written(stage)
    ledger = next(check for check in site_checks(config) if check.about == "ledger")
    assert ledger.level is Level.FAIL
    assert site(config, "ledger", "verify").code == 70
    accepted = site(config, "accept-loss", "--json")
    assert (accepted.code, accepted.json["micro_rho"] > 0) == (0, True)
    now = committed(stage)
    assert before.fits(now)
    if harm is put_back:
        assert now == before
    with refused(Code.CONFLICT, "no loss"):
        site_service.accept_loss(stage.config)
    agree(stage, a_plan(submission="afterwards"))


@pytest.mark.parametrize("step", ["charge", "settle"])
def test_a_crash_while_accepting_charges_once(stage: Stage, step: str) -> None:
    agree(stage)
    before = committed(stage)
    remove(stage)
    crash = mock.patch.object(LedgerStore, step, side_effect=KeyboardInterrupt)
    with crash, pytest.raises(KeyboardInterrupt):
        site_service.accept_loss(stage.config)
    assert site_service.accept_loss(stage.config) == before
    assert committed(stage) == before


def test_what_is_noted_is_never_ahead_and_never_goes_back(stage: Stage) -> None:
    witness = LedgerWitness(stage.config.identity)
    assert witness.seen() is None
    with closing(stage.store()) as early:
        empty = early.ledger.ledger
        early.bear_witness()
        assert witness.seen() is None
        agree(stage)
        seen = witness.seen()
        assert seen is not None
        with site_service.opened(stage.config) as store:
            assert seen.is_in(store.ledger)
            assert seen.committed == store.ledger.ledger.committed()
        witness.note(empty)  # another process, which has read nothing since
        assert witness.seen() == seen


def test_a_damaged_note_stops_the_site(stage: Stage) -> None:
    agree(stage)
    (stage.config.identity / NAME).write_text("{}")
    with refused(Code.BAD_CONFIG, "damaged"):
        agree(stage)


def test_no_key_is_made_beside_a_ledger(stage: Stage) -> None:
    agree(stage)
    key = stage.config.state.with_name("egress.key")
    key.unlink()
    with refused(Code.BAD_CONFIG, "put both back"):
        agree(stage)
    assert not key.exists()


def test_a_new_site_owes_nothing(stage: Stage) -> None:
    assert committed(stage) == NOTHING
    with refused(Code.CONFLICT, "no loss"):
        site_service.accept_loss(stage.config)
