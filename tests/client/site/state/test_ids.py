"""[R31] An id that something was answered under is used for ever; others are not stored for ever."""

from __future__ import annotations

from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from eigenveil.aggregation import Contribution
from eigenveil.planning.choose import rehearse
from eigenveil.protocol.plan import Plan
from eigenveil.study_authorization import SignedAuthorization
from eigenveil_client.site.daemon.decisions import Refusal
from eigenveil_client.site.daemon.worker import Postponed
from eigenveil_client.site.state import declined_plans
from eigenveil_client.site.state.received_plans import ConsentStatus
from eigenveil_client.site.state.store import SiteStore
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from tests.client.site.stated import work
from tests.client.site.support import Stage, a_plan, a_stage, a_study
from tests.support import signed_by_analyst

NOW = 1_800_000_000
UNTIL = NOW + 3600
PLAN = a_plan(submission="one")


def came(stage: Stage, store: SiteStore, plan: Plan, signed: SignedAuthorization | None) -> object:
    """The coordinator sends a plan and wants the site's word on it."""
    sent = stage.authorized(plan, signed)
    return stage.worker(store).work(pb.NextWorkResponse(plan=sent, consent=bytes.fromhex(plan.digest)))


def ids(store: SiteStore) -> int:
    return int(store.database.rows("SELECT COUNT(*) FROM submissions")[0][0])


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return a_stage(tmp_path)


def test_the_ids_of_studies_that_nobody_signed_and_nothing_left_for_do_not_fill_the_disk(
    stage: Stage,
) -> None:
    with closing(stage.store()) as store:
        for number in range(5):
            plan = a_plan(submission=str(number))
            assert came(stage, store, plan, None) is None
            store.end(plan.digest)
            assert ids(store) == 0


def test_a_signed_study_that_ended_unanswered_keeps_its_id_until_its_signature_has_ended(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So a coordinator cannot end it, have its digest forgotten, and run it behind its analyst's back."""
    stage.know_analyst()
    signed = signed_by_analyst(PLAN, expires=UNTIL)
    monkeypatch.setattr(declined_plans, "MOST_DIGESTS", 1)
    with closing(stage.store()) as store:
        for plan in (PLAN, a_plan(submission="two")):
            assert came(stage, store, plan, signed_by_analyst(plan, expires=UNTIL)) is None
            store.end(plan.digest)
        assert store.declined.get(PLAN.digest) is None
        assert isinstance(came(stage, store, PLAN, signed), Refusal)
        assert ids(store) == 2
        store._clock = lambda: UNTIL
        later = a_plan(submission="later")
        assert came(stage, store, later, signed_by_analyst(later, expires=UNTIL + 3600)) is None
        store.end(later.digest)
        assert ids(store) == 1
        assert isinstance(came(stage, store, PLAN, signed), Postponed), "its signature has ended"


def test_what_was_answered_keeps_its_id_whatever_ends(stage: Stage) -> None:
    signed = signed_by_analyst(PLAN, expires=UNTIL)
    with closing(stage.store()) as store:
        sent = stage.authorized(PLAN, signed)
        assert isinstance(stage.worker(store).work(work(rehearse(PLAN)[0], sent)), Contribution)
        store.end(PLAN.digest)
        store._clock = lambda: UNTIL
        other = a_plan(submission="other")
        assert came(stage, store, other, None) is None
        store.end(other.digest)
        assert ids(store) == 1


def test_a_plan_that_is_forgotten_frees_no_id_that_another_was_answered_under(stage: Stage) -> None:
    """A state from before ids ran once may hold two plans of one."""
    second, third = (a_plan(a_study(epsilon=epsilon), submission="one") for epsilon in (0.5, 0.25))
    with closing(stage.store()) as store:
        assert isinstance(stage.worker(store).work(work(rehearse(PLAN)[0], stage.signed(PLAN))), Contribution)
        seen = replace(store.studies.find(PLAN.digest), plan=second.digest, plan_json=second.to_json())
        with store.database.transaction() as change:
            change.insert("studies", asdict(seen) | {"standing": ConsentStatus.PENDING.value})
        store.end(second.digest)
        assert store.studies.get(second.digest) is None
        assert isinstance(came(stage, store, third, None), Refusal)
