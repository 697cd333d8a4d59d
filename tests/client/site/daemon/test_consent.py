"""A site's consent before any question: by its own rules, and no record is read [R24]."""

from __future__ import annotations

import asyncio
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from eigenveil.dictionary.site_rules import DeclineReason
from eigenveil.planning.choose import rehearse
from eigenveil.protocol.plan import Plan
from eigenveil_client.site.commands import consent
from eigenveil_client.site.daemon.decisions import Refusal
from eigenveil_client.site.policy import Approval
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from tests.client.site.command_line import site, written
from tests.client.site.support import Coordinator, Stage, a_plan, a_stage, reason_of, until, work

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
        assert (worker.agreed(), store.egress.rows()) == ({PLAN.digest: False}, [])
        assert reason_of(worker.work(work(FIRST))) == pb.DECLINE_REASON_FAILURE
    with stage.process() as (_, worker):  # a restart forgets nothing
        assert worker.agreed() == {PLAN.digest: False}


def test_pending_study_that_breaks_a_new_rule_is_refused_automatically(asking: Stage) -> None:
    with asking.process() as (_, worker):
        assert worker.work(wanted(asking)) is None
    asking.rule(approval=Approval.AUTO, columns=("a",))
    with asking.process() as (store, worker):
        assert reason_of(worker.work(wanted())) == pb.DECLINE_REASON_POLICY
        assert (worker.agreed(), store.ledger.ledger.size) == ({}, 0)


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
