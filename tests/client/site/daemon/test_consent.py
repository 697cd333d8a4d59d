"""A site's consent before any question: by its own rules, and no record is read [R24]."""

from __future__ import annotations

import asyncio
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from eigenveil.dictionary.site_rules import DeclineReason
from eigenveil.errors import Code
from eigenveil.planning.choose import rehearse
from eigenveil.protocol.plan import Plan
from eigenveil_client.site.commands import consent
from eigenveil_client.site.daemon.decisions import Refusal
from eigenveil_client.site.next_steps import next_steps
from eigenveil_client.site.policy import Approval
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from tests.client.site.command_line import site, written
from tests.client.site.stated import released
from tests.client.site.support import (
    Coordinator,
    Stage,
    a_plan,
    a_stage,
    a_study,
    killed_at,
    reason_of,
    until,
    work,
)
from tests.support import refused, signed_by_analyst

PLAN = a_plan()
FIRST, *_ = rehearse(PLAN)
DIGEST = bytes.fromhex(PLAN.digest)


def wanted(stage: Stage | None = None, plan: Plan = PLAN) -> pb.NextWorkResponse:
    signed = None if stage is None else stage.signed(plan)
    return pb.NextWorkResponse(plan=signed, consent=bytes.fromhex(plan.digest))


def decide(stage: Stage, decision: Any, **words: Any) -> None:
    with closing(stage.store()) as store:
        decision(stage.config, store, store.studies.find(PLAN.digest), by="Dr. Grau", **words)


def test_the_rules_agree_at_once_without_a_look_at_the_records(stage: Stage) -> None:
    stage.records.unlink()
    with stage.process() as (store, worker):
        assert worker.work(wanted(stage)) is None
        assert (worker.consent().accepted, store.egress.rows()) == ({PLAN.digest: False}, [])
        assert reason_of(worker.work(work(FIRST))) == pb.DECLINE_REASON_FAILURE
    with stage.process() as (_, worker):  # a restart forgets nothing
        assert worker.consent().accepted == {PLAN.digest: False}


def test_pending_study_that_breaks_a_new_rule_is_refused_automatically(asking: Stage) -> None:
    with asking.process() as (_, worker):
        assert worker.work(wanted(asking)) is None
    asking.rule(approval=Approval.AUTO, columns=("a",))
    with asking.process() as (store, worker):
        assert reason_of(worker.work(wanted())) == pb.DECLINE_REASON_POLICY
        assert (worker.consent().accepted, store.ledger.ledger.size) == ({}, 0)


@pytest.mark.parametrize("known", [True, False])
def test_a_decline_names_its_rule_in_every_life_to_an_analyst_who_is_known(stage: Stage, known: bool) -> None:
    """Before a key was confirmed, plans in the analyst's name may be the coordinator's own."""
    message = wanted(stage)
    if known:
        stage.know_analyst()
        message.plan.CopyFrom(stage.authorized(PLAN, signed_by_analyst(PLAN, expires=1_800_003_600)))
    stage.rule(columns=("a",))
    for _ in range(2):
        with stage.process() as (store, worker):
            refusal = worker.work(message)
            assert isinstance(refusal, Refusal)
            assert (refusal.reason, refusal.rule) == (pb.DECLINE_REASON_POLICY, "columns" if known else "")
            assert ("columns" in store.egress.rows()[-1].meaning) == known, "the ledger says what left"
    assert [row["rule"] for row in store_rows(stage)] == ["columns"], "the site counts it in any case"


def store_rows(stage: Stage) -> Any:
    with closing(stage.store()) as store:
        return store.declined.counts()


def test_a_person_agrees_until_the_end_of_the_last_day_of_the_study(tmp_path: Path) -> None:
    plan = a_plan(a_study(federation=replace(PLAN.study.federation, decide_by="2027-01-31")))
    for second, agrees in ((-1, True), (0, False)):
        folder = tmp_path / str(second)
        folder.mkdir()
        stage = a_stage(folder, approval=Approval.MANUAL)
        now = partial(int, plan.study.federation.decision_deadline + second)
        with stage.process(now) as (store, worker):
            assert worker.work(wanted(stage, plan)) is None
            received = store.studies.find(plan.digest)
            if agrees:
                consent.approve(stage.config, store, received, by="Dr. Grau")
            else:
                with refused(Code.CONFLICT, "the last day to decide about this study was 2027-01-31"):
                    consent.approve(stage.config, store, received, by="Dr. Grau")
            assert worker.consent().accepted == ({plan.digest: True} if agrees else {})


DECIDE_UNTIL = 1_800_600_000


def in_time(stage: Stage, until_ms: int, plan: Plan = PLAN) -> pb.NextWorkResponse:
    """A request for consent in which the coordinator states how long it waits for a person."""
    message = wanted(stage, plan)
    message.consent_ends_unix_ms = until_ms
    return message


@pytest.mark.parametrize("day", ["", "2027-01-20", "2027-02-28"])
def test_time_to_decide_is_stored_with_the_plan_and_is_the_earlier_of_two(asking: Stage, day: str) -> None:
    plan = a_plan(a_study(federation=replace(PLAN.study.federation, decide_by=day)))
    with asking.process() as (_, worker), killed_at("plan-storing"):
        worker.work(in_time(asking, 1000 * DECIDE_UNTIL + 999, plan))
    with asking.process() as (_, worker):
        worker.work(in_time(asking, 1000 * DECIDE_UNTIL + 999, plan))
    with closing(asking.store()) as store:
        seen = store.studies.find(plan.digest)
    earlier = min(DECIDE_UNTIL, plan.study.federation.decision_deadline)
    assert (seen.decide_until, seen.decision_deadline(plan)) == (DECIDE_UNTIL, earlier)
    assert replace(seen, decide_until=0).decision_deadline(PLAN) is None


def test_sites_of_the_last_finished_round_are_told_and_no_others_before(stage: Stage) -> None:
    second = rehearse(PLAN)[1]
    with stage.process() as (store, worker):
        worker.work(work(FIRST, stage.signed(PLAN)))
        assert store.transcript.last_present(PLAN.digest) == ()
        worker.work(work(second))
        present = store.transcript.last_present(PLAN.digest)
        following = next_steps(store, store.studies.find(PLAN.digest), PLAN, len(rehearse(PLAN))).to_dict()
    assert present == tuple(released(PLAN.digest)[0].present)
    assert following["next"] == (
        f"This site has answered 2 rounds, of {len(rehearse(PLAN))} at most. In the last finished round "
        f"{len(present)} of 2 sites took part, as the coordinator states."
    )


@pytest.mark.parametrize("until", [-1, 253_402_300_800_000, 2**63 - 1])
def test_a_time_that_no_calendar_has_is_a_breach(asking: Stage, until: int) -> None:
    with asking.process() as (store, worker):
        assert reason_of(worker.work(in_time(asking, until))) == pb.DECLINE_REASON_PROTOCOL
        assert store.studies.all() == []


def test_a_decline_for_what_is_not_stated_about_who_asks_names_its_rule(stage: Stage) -> None:
    stage.know_analyst()
    stage.rule(required_applicant=("institution",))
    message = wanted(stage)
    message.plan.CopyFrom(stage.authorized(PLAN, signed_by_analyst(PLAN, expires=1_800_003_600)))
    with stage.process() as (_, worker):
        refusal = worker.work(message)
        assert isinstance(refusal, Refusal)
        assert (refusal.reason, refusal.rule) == (pb.DECLINE_REASON_POLICY, "required_applicant")


@pytest.mark.parametrize(("then", "today"), [(False, False), (False, True), (True, False), (True, True)])
def test_officer_text_leaves_only_if_always_allowed(tmp_path: Path, then: bool, today: bool) -> None:
    stage = a_stage(tmp_path, approval=Approval.MANUAL, disclose_reasons=then)
    with stage.process() as (_, worker):
        worker.work(wanted(stage))
        decide(stage, consent.decline, word=DeclineReason.COLUMNS, text="no birth dates")
    stage.rule(disclose_reasons=today)
    shown = then and today
    with stage.process() as (store, worker):
        refusal = worker.work(wanted())
        assert isinstance(refusal, Refusal)
        assert (refusal.reason, refusal.text) == (
            pb.DECLINE_REASON_PERSON_COLUMNS,
            "no birth dates" if shown else "",
        )
        (row,) = store.egress.rows()
        assert ("no birth dates" in row.meaning) == shown, "the ledger of what left says what left"
        assert store.studies.find(PLAN.digest).text == "no birth dates"


def test_a_word_is_given_on_the_plan_that_came_and_nothing_beside_it(stage: Stage) -> None:
    other = a_plan(submission="two")
    both = wanted(stage)
    both.MergeFrom(work(FIRST))
    for odd in (wanted(None), pb.NextWorkResponse(plan=stage.signed(other), consent=DIGEST), both):
        with stage.process() as (_, worker):
            refusal = worker.work(odd)
            assert isinstance(refusal, Refusal)
            assert (refusal.plan_digest, refusal.reason) == (PLAN.digest, pb.DECLINE_REASON_PROTOCOL)


async def test_decision_during_an_answer_s_call_is_sent_and_the_answer_needs_consent(asking: Stage) -> None:
    """The call is taken back; whether the answer had arrived is not known, so it goes again: the same one."""
    other = a_plan(submission="two")
    coordinator = Coordinator(work=[wanted(asking), wanted(asking, other)])
    config = written(asking, 'approval = "manual"\n')

    def agreed() -> set[bytes]:
        return {one.plan_digest for one in coordinator.requests[-1].agreed} if coordinator.requests else set()

    async def decide(command: str, plan: Plan, then: set[bytes]) -> None:
        await asyncio.to_thread(site, config, command, plan.digest, "--yes")
        await until(lambda: agreed() == then)

    both = {DIGEST, bytes.fromhex(other.digest)}
    async with asking.serving(coordinator), asking.daemon():
        await until(lambda: coordinator.requests and len(coordinator.requests[-1].awaiting_approval) == 2)
        await decide("approve", PLAN, {DIGEST})
        coordinator.work.append(work(FIRST))
        await until(lambda: coordinator.contributions)
        await decide("approve", other, both)
        await decide("withdraw", PLAN, both - {DIGEST})
    first, again = coordinator.contributions
    assert again.contribution_digest == first.contribution_digest
    assert [len(one.next.agreed) for one in (first, again)] == [1, 2]
