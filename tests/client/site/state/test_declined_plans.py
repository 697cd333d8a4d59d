"""Of what the rules decline a site stores a digest and a count, bounded, and repeats the decline alike."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

import pytest

from eigenveil.aggregation import Contribution
from eigenveil.planning.choose import rehearse
from eigenveil.protocol.plan import Plan
from eigenveil.study_authorization import SignedAuthorization
from eigenveil_client.site.daemon.decisions import Refusal
from eigenveil_client.site.daemon.worker import Postponed, SiteWorker
from eigenveil_client.site.policy import Approval
from eigenveil_client.site.state import declined_plans
from eigenveil_client.site.state.received_plans import ConsentStatus
from eigenveil_client.site.state.store import SiteStore
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from tests.client.site.stated import work
from tests.client.site.support import Patch, Stage, a_plan, a_stage, a_study, ended, killed_at
from tests.support import signed_by_analyst

MARK = "a purpose that is written nowhere"


def plan(number: int, **words: str) -> Plan:
    return a_plan(a_study(purpose=MARK), submission=str(number), **words)


def came(stage: Stage, one: Plan) -> pb.NextWorkResponse:
    return pb.NextWorkResponse(plan=stage.signed(one), consent=bytes.fromhex(one.digest))


def declined(stage: Stage, worker: SiteWorker, one: Plan) -> Refusal:
    refusal = worker.work(came(stage, one))
    assert isinstance(refusal, Refusal)
    return refusal


def disk(stage: Stage) -> bytes:
    return b"".join(file.read_bytes() for file in stage.config.state.parent.glob("state.db*"))


@pytest.fixture
def closed(tmp_path: Path) -> Stage:
    return a_stage(tmp_path, analysts=())


def test_a_plan_that_the_rules_decline_leaves_a_digest_and_a_count_and_no_byte_of_it(closed: Stage) -> None:
    with closed.process() as (store, worker):
        for number in range(3):
            declined(closed, worker, plan(number))
        assert store.studies.all() == []
        (count,) = store.declined.counts()
    assert (count["analyst"], count["rule"], count["plans"]) == (plan(0).analyst, "analysts", 3)
    assert MARK.encode() not in disk(closed)


def test_a_decline_is_repeated_alike_after_a_restart_also_under_other_rules(closed: Stage) -> None:
    with closed.process() as (store, worker):
        first = declined(closed, worker, plan(1))
        meaning = [row.meaning for row in store.egress.rows()]
    closed.rule(analysts=("*",))
    with closed.process() as (store, worker):
        assert worker.known_plans() == [plan(1).digest]
        assert declined(closed, worker, plan(1)) == first
        assert [row.meaning for row in store.egress.rows()] == 2 * meaning
        assert [one["plans"] for one in store.declined.counts()] == [1], "a repetition is not counted"


def test_digests_and_counts_are_bounded_and_the_latest_stay(closed: Stage, monkeypatch: Patch) -> None:
    monkeypatch.setattr(declined_plans, "MOST_DIGESTS", 3)
    monkeypatch.setattr(declined_plans, "MOST_COUNTS", 2)
    with closed.process() as (store, worker):
        for number in range(5):
            declined(closed, worker, plan(number, analyst=f"analyst-{number}"))
        named = {number: plan(number, analyst=f"analyst-{number}").digest for number in range(5)}
        assert [number for number, digest in named.items() if store.declined.get(digest)] == [2, 3, 4]
        assert [one["analyst"] for one in store.declined.counts()] == ["analyst-3", "analyst-4"]


def test_a_question_for_work_names_the_latest_declined_plans_alone(closed: Stage, monkeypatch: Patch) -> None:
    """4,096 named plans are refused by the coordinator, and the site would be cut off for good."""
    monkeypatch.setattr(declined_plans, "MOST_OPEN", 2)
    monkeypatch.setattr("eigenveil_client.site.daemon.decisions.MOST_OPEN", 2)
    latest = [plan(number).digest for number in (2, 3)]
    with closed.process() as (_, worker):
        for number in range(4):
            declined(closed, worker, plan(number))
        assert worker.known_plans() == latest
    with closed.process() as (_, worker):
        assert worker.known_plans() == latest
        declined(closed, worker, plan(0))  # which the coordinator sends again
        assert worker.known_plans() == [plan(3).digest, plan(0).digest]


def test_the_end_of_a_declined_study_is_the_end_of_its_plan(closed: Stage) -> None:
    with closed.process() as (_, worker):
        declined(closed, worker, plan(1))
        assert worker.work(ended(plan(1))) is None
        assert worker.known_plans() == []
        again = declined(closed, worker, plan(1))
        assert again.reason == pb.DECLINE_REASON_PROTOCOL, "the coordinator ended it"
    with closed.process() as (_, worker):
        assert worker.known_plans() == []


@pytest.mark.parametrize("approval", [Approval.MANUAL, Approval.AUTO])
def test_unanswered_study_that_ends_leaves_no_plan(tmp_path: Path, approval: Approval) -> None:
    stage, one = a_stage(tmp_path, approval=approval), plan(1)
    with stage.process() as (store, worker):
        assert worker.work(came(stage, one)) is None
        assert worker.work(ended(one)) is None
        assert (store.studies.all(), store.ledger.ledger.reserved) == ([], {})
        (count,) = store.declined.unanswered_counts()
        assert (count["rule"], count["plans"], store.declined.counts()) == ("ended-unanswered", 1, [])


def test_a_crash_while_a_decline_is_stored_leaves_nothing_and_it_is_declined_anew(closed: Stage) -> None:
    with closed.process() as (_, worker), killed_at("plan-declining"):
        declined(closed, worker, plan(1))
    with closed.process() as (store, worker):
        assert (store.declined.get(plan(1).digest), store.declined.counts()) == (None, [])
        declined(closed, worker, plan(1))
        assert [one["plans"] for one in store.declined.counts()] == [1]


def test_a_plan_for_which_anything_left_stays_whole_when_its_study_ends(tmp_path: Path) -> None:
    stage, one = a_stage(tmp_path), plan(1)
    with stage.process() as (store, worker):
        assert isinstance(worker.work(work(rehearse(one)[0], stage.signed(one))), Contribution)
        worker.work(ended(one))
        (seen,) = store.studies.all()
        assert (seen.plan, seen.is_intact, store.declined.counts()) == (one.digest, True, [])


NOW = 1_800_000_000
UNTIL = NOW + 3600
PLAN = a_plan(submission="one")


def came_ids(stage: Stage, store: SiteStore, plan: Plan, signed: SignedAuthorization | None) -> object:
    sent = stage.authorized(plan, signed)
    return stage.worker(store).work(pb.NextWorkResponse(plan=sent, consent=bytes.fromhex(plan.digest)))


def ids(store: SiteStore) -> int:
    return int(store.database.rows("SELECT COUNT(*) FROM submissions")[0][0])


def test_ids_of_unsigned_unanswered_studies_are_deleted(stage: Stage, store: SiteStore) -> None:
    for number in range(5):
        plan = a_plan(submission=str(number))
        assert came_ids(stage, store, plan, None) is None
        store.end(plan.digest)
        assert ids(store) == 0


def test_unanswered_id_lasts_as_its_signature(stage: Stage, monkeypatch: Patch, store: SiteStore) -> None:
    """So a coordinator cannot end it, have its digest forgotten, and run it behind its analyst's back."""
    stage.know_analyst()
    signed = signed_by_analyst(PLAN, expires=UNTIL)
    monkeypatch.setattr(declined_plans, "MOST_DIGESTS", 1)
    for plan in (PLAN, a_plan(submission="two")):
        assert came_ids(stage, store, plan, signed_by_analyst(plan, expires=UNTIL)) is None
        store.end(plan.digest)
    assert store.declined.get(PLAN.digest) is None
    assert isinstance(came_ids(stage, store, PLAN, signed), Refusal)
    assert ids(store) == 2
    store._clock = lambda: UNTIL
    later = a_plan(submission="later")
    assert came_ids(stage, store, later, signed_by_analyst(later, expires=UNTIL + 3600)) is None
    store.end(later.digest)
    assert ids(store) == 1
    assert isinstance(came_ids(stage, store, PLAN, signed), Postponed), "its signature has ended"


def test_deleted_plan_frees_no_id_of_an_answered_one(stage: Stage, store: SiteStore) -> None:
    """A state from before ids ran once may hold two plans of one."""
    second, third = (a_plan(a_study(epsilon=epsilon), submission="one") for epsilon in (0.5, 0.25))
    assert isinstance(stage.worker(store).work(work(rehearse(PLAN)[0], stage.signed(PLAN))), Contribution)
    seen = replace(store.studies.find(PLAN.digest), plan=second.digest, plan_json=second.to_json())
    with store.database.transaction() as change:
        change.insert("studies", asdict(seen) | {"status": ConsentStatus.PENDING.value})
    store.end(second.digest)
    assert store.studies.get(second.digest) is None
    assert isinstance(came_ids(stage, store, third, None), Refusal)
