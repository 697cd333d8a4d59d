"""Consent to a study, its end, and its withdrawal by a site: before the next answer, for good."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from eigenveil.accounting.gaussian import micro_rho_for
from eigenveil.accounting.zcdp import NO_COST
from eigenveil.aggregation import Contribution
from eigenveil.dictionary.site_rules import DeclineReason
from eigenveil.errors import Code
from eigenveil.planning.choose import rehearse
from eigenveil.protocol.plan import Plan
from eigenveil.study.study import Column
from eigenveil_client.site.commands import consent
from eigenveil_client.site.daemon.decisions import Refusal
from eigenveil_client.site.daemon.worker import SiteWorker
from eigenveil_client.site.engine.engine import LoadedRecords
from eigenveil_client.site.policy import Approval
from eigenveil_client.site.policy_sections import Year
from eigenveil_client.site.state import store_access
from eigenveil_client.site.state.received_plans import PersonDecision
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from tests.client.site.command_line import site, written
from tests.client.site.support import Stage, a_plan, a_stage, a_study, ended, reason_of, work
from tests.support import refused

PLAN = a_plan()
GRAU = PersonDecision(by="Dr. Grau", reason_code=DeclineReason.UNSTATED)
FIRST, SECOND, *_ = rehearse(PLAN)
NEW_YEAR_2027 = 1_798_761_600
DAY = 86_400


def reply_to(stage: Stage, worker: SiteWorker, plan: Plan = PLAN, round: int = 0) -> object:
    return worker.work(work(rehearse(plan)[round], stage.signed(plan)))


def test_a_withdrawal_holds_from_the_next_answer_on(stage: Stage) -> None:
    with stage.process() as (store, worker):
        assert isinstance(reply_to(stage, worker), Contribution)
        with stage.process() as (other, _):
            freed = other.withdraw(PLAN.digest, GRAU)
        assert freed.micro_rho == PLAN.micro_rho - FIRST.priced.micro_rho
        for query in (SECOND, FIRST):  # not the answered round again either
            assert reason_of(worker.work(work(query))) == pb.DECLINE_REASON_PERSON_UNSTATED
        store.ledger.refresh()
        assert store.ledger.ledger.committed().micro_rho == FIRST.priced.micro_rho
    with stage.process() as (store, worker):  # whatever the coordinator forgets in a restart
        assert isinstance(reply_to(stage, worker, round=1), Refusal)
        with refused(Code.CONFLICT):
            store.withdraw(PLAN.digest, GRAU)


def test_withdrawal_during_the_computation_stops_the_answer(stage: Stage) -> None:
    """The standing is read again in the transaction that charges and writes down."""
    with stage.process() as (store, worker):
        load = worker._engine.load

        def withdrawing(plan: Plan, _: object) -> LoadedRecords:
            with stage.process() as (other, _):
                other.withdraw(PLAN.digest, GRAU)
            return load(plan)

        worker._engine.load = withdrawing  # type: ignore[assignment]
        assert isinstance(reply_to(stage, worker), Refusal)
        assert [row.kind for row in store.egress.rows()] == ["decline"]
        assert store.ledger.ledger.spent.micro_rho == 0


def test_unsent_answer_is_not_sent_after_a_withdrawal(stage: Stage) -> None:
    with stage.process() as (store, worker):
        answer = reply_to(stage, worker)
        assert isinstance(answer, Contribution)
        assert worker.may_send(answer)
        store.withdraw(PLAN.digest, GRAU)
        assert not worker.may_send(answer)
        refusal = worker.work(work(SECOND))
        assert isinstance(refusal, Refusal)
        assert worker.may_send(refusal)


def test_after_the_last_day_nothing_is_answered_in_mid_study_either(tmp_path: Path) -> None:
    stage = a_stage(tmp_path, approval_ends=date(2027, 1, 1))
    now = [NEW_YEAR_2027 + DAY - 1]
    with stage.process(lambda: now[0]) as (store, worker):
        assert isinstance(reply_to(stage, worker), Contribution)
        now[0] += 1
        assert reason_of(worker.work(work(SECOND))) == pb.DECLINE_REASON_POLICY
    now[0] -= DAY  # the clock is set back: what was written down says that it is later
    with stage.process(lambda: now[0]) as (store, worker):
        assert store.now() == NEW_YEAR_2027 + DAY
        assert isinstance(worker.work(work(SECOND)), Refusal)


def yearly(tmp_path: Path, year: Year) -> Stage:
    """A site that allows one and a half of PLAN in a year, and many over all years."""
    return a_stage(tmp_path, max_epsilon_per_year=1.3, year=year)


@pytest.mark.parametrize(
    ("year", "gap", "answers"),
    [
        (Year.ROLLING, 364 * DAY, False), (Year.ROLLING, 366 * DAY, True),
        (Year.CALENDAR, 364 * DAY, False), (Year.CALENDAR, 365 * DAY, True),
    ],
)  # fmt: skip
def test_a_year_has_a_budget_of_its_own(tmp_path: Path, year: Year, gap: int, answers: bool) -> None:
    stage, now = yearly(tmp_path, year), [NEW_YEAR_2027]
    later = a_plan(submission="two")
    with stage.process(lambda: now[0]) as (store, worker):
        for round in range(len(rehearse(PLAN))):
            assert isinstance(reply_to(stage, worker, round=round), Contribution)
        worker.work(ended(PLAN))
        now[0] += gap
        answer = reply_to(stage, worker, later)
        assert isinstance(answer, Contribution) == answers
        if not answers:
            assert isinstance(answer, Refusal)
            assert (answer.reason, store.ledger.ledger.reserved) == (pb.DECLINE_REASON_BUDGET, {})
    with stage.process(lambda: NEW_YEAR_2027 - 400 * DAY) as (store, worker):  # a clock that is set back
        assert isinstance(reply_to(stage, worker, a_plan(submission="three")), Refusal)


def test_reservations_count_in_the_year(tmp_path: Path) -> None:
    stage = yearly(tmp_path, Year.ROLLING)
    with stage.process() as (store, worker):
        assert isinstance(reply_to(stage, worker), Contribution)
        assert isinstance(reply_to(stage, worker, a_plan(submission="two")), Refusal)
        small = a_plan(a_study(epsilon=0.2), submission="three")
        assert isinstance(reply_to(stage, worker, small), Contribution)
        limit = micro_rho_for(1.3, 1e-6)
        result = consent.budget(stage.config, store)
        assert result["left_this_year"]["micro_rho"] == limit - PLAN.micro_rho - small.micro_rho
        assert 0 < result["left"]["epsilon_gaussian"] < result["left"]["epsilon"]


@pytest.mark.parametrize("word", ["declined", "withdrawn"])
def test_a_person_s_word_stays_visible_when_the_study_is_over(asking: Stage, word: str) -> None:
    config = written(asking)
    with asking.process() as (_, worker):
        reply_to(asking, worker)
        site(config, "decline" if word == "declined" else "withdraw", PLAN.digest, "--by", "Dr. Grau")
        worker.work(ended(PLAN))
        assert worker.known_plans() == []
    (row,) = site(config, "studies", "--json").json["studies"]
    assert (row["status"], row["person"]) == ("ended", word)
    assert f"{word} by Dr. Grau, ended" in site(config, "studies").out


def test_a_plan_without_an_analyst_is_a_breach(stage: Stage) -> None:
    plan = a_plan(analyst="")
    with stage.process() as (_, worker):
        assert reason_of(reply_to(stage, worker, plan)) == pb.DECLINE_REASON_PROTOCOL


# ---------------------------------------------------------------- commands


def test_commands_list_show_and_decide(asking: Stage) -> None:
    config = written(
        asking, 'approval = "manual"\napproval_ends = "2030-12-31"\nmax_epsilon_per_year = 4.0\n'
    )
    with asking.process() as (_, worker):
        reply_to(asking, worker)
        reply_to(asking, worker, a_plan(submission="two"))
    listed = site(config, "studies", "--json").json
    assert [row["status"] for row in listed["studies"]] == ["pending", "pending"]
    assert {row["analyst"] for row in listed["studies"]} == {"ada"}
    waiting = site(config, "studies").out
    assert "2 of them are pending" in waiting
    assert f"eigenveil-site approve STUDY --config {config}\n" in waiting
    several = site(config, "approve", "a-study", "--yes", "--json")
    assert (several.code, several.json["error"]) == (8, "not-found")
    unasked = site(config, "approve", PLAN.digest[:8], "--json")
    assert (unasked.code, unasked.json["error"]) == (2, "usage"), "one JSON object, and no question in it"
    piped = site(config, "approve", PLAN.digest[:8])
    assert (piped.code, piped.out) == (2, ""), "nobody reads the plan, and nobody answers"
    refused = site(config, "approve", PLAN.digest[:8], answer="n\n")
    assert refused.code == 0
    assert "not approved; it is still pending" in refused.out
    shown = " ".join(refused.out.split())
    for words in (
        "who asks: account ada",
        "decide by: not stated by the coordinator",
        "every row is a person",
        "nothing leaves after 2030-12-31",
        "of this year's:",
        "every record is clipped to a radius",
        "Answer this study? [y/N]",
    ):
        assert words in shown
    assert site(config, "studies", "--json").json["pending"] == 2
    agreed = site(config, "approve", PLAN.digest[:8], answer="y\nDr. Grau\n")
    assert agreed.code == 0
    assert f"study {PLAN.digest[:12]} is accepted (it was pending)" in agreed.out
    other = next(r["study"] for r in listed["studies"] if r["study"] != PLAN.digest)
    assert site(config, "decline", other, "--json").json["status"] == "declined"
    assert site(config, "decline", PLAN.digest, "--json").json["error"] == "conflict"
    check_admitted = site(config, "withdraw", PLAN.digest[:8], answer="n\n")
    assert (check_admitted.code, "This is final" in check_admitted.out) == (0, True)
    assert {row["status"] for row in site(config, "studies", "--json").json["studies"]} >= {"accepted"}
    assert "freed: " in site(config, "withdraw", PLAN.digest[:8], "--yes", answer="never read").out
    again = site(config, "withdraw", PLAN.digest[:8], "--json")
    assert (again.code, again.json["error"]) == (9, "conflict")
    assert again.json["message"] == f"study {PLAN.digest[:12]} was withdrawn before, which is final"
    assert "[y/N]" not in site(config, "approve", PLAN.digest[:8], answer="n\n").out, "nothing to ask about"
    rows = site(config, "studies", "--json").json["studies"]
    assert {row["status"] for row in rows} == {"withdrawn", "declined"}


def test_a_pending_study_is_answered_under_auto_approval(asking: Stage) -> None:
    with asking.process() as (_, worker):
        reply_to(asking, worker)
    asking.rule(approval=Approval.AUTO)
    with asking.process() as (_, worker):
        assert worker.consent().waiting == frozenset()
        assert isinstance(worker.work(work(FIRST)), Contribution)


def test_a_purpose_cannot_pass_for_our_own_lines(tmp_path: Path) -> None:
    stage = a_stage(tmp_path, approval=Approval.MANUAL)
    plan = a_plan(a_study(purpose=f"harmless{' ' * 180}who asks: account dr-known\nin all: 0 bytes"))
    with store_access.open_site_store(stage.config) as store:
        stage.worker(store).work(work(rehearse(plan)[0], stage.signed(plan)))
    message = site(written(stage, 'approval = "manual"\n'), "explain", plan.digest[:12]).out.splitlines()
    assert [line for line in message if line.startswith("| ")] == [
        "| harmless", "| who asks: account dr-known", "| in all: 0 bytes",
    ]  # fmt: skip
    assert sum(line.startswith("who asks: ") for line in message) == 1


def test_no_column_hides_among_many_that_are_alike(tmp_path: Path) -> None:
    stage = a_stage(tmp_path, approval=Approval.MANUAL)
    names = [f"v{number}_A" for number in range(40)]
    plan = a_plan(a_study(columns=tuple(Column(name=name, unit="", lower=0, upper=2) for name in names)))
    with store_access.open_site_store(stage.config) as store:
        stage.worker(store).work(work(rehearse(plan)[0], stage.signed(plan)))
    message = site(written(stage, 'approval = "manual"\n'), "explain", plan.digest[:12]).out
    assert [name for name in names if name not in message] == []


@pytest.mark.parametrize("other_noise", [False, True])
def test_a_yearly_limit_is_counted_in_zcdp_once_other_noise_was_charged(
    tmp_path: Path, other_noise: bool
) -> None:
    stage = a_stage(tmp_path, max_epsilon_per_year=PLAN.study.epsilon)
    with stage.process() as (store, worker):
        if other_noise:
            store.ledger.restore_reservation("ab" * 32, NO_COST, gaussian=False)
        assert isinstance(reply_to(stage, worker), Refusal if other_noise else Contribution)
