"""Deciding, computing and writing down, without a network: what survives a crash at any moment."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import pytest

from eigenveil.aggregation import Contribution
from eigenveil.errors import Code, EigenveilError, RequestError
from eigenveil.planning.choose import rehearse
from eigenveil.protocol.plan import Plan
from eigenveil.protocol.query import RoundQuery
from eigenveil.study.study import Column, Federation
from eigenveil_client.records.isolated import reader
from eigenveil_client.records.recoding.rule import ColumnRule
from eigenveil_client.site.daemon.decisions import Refusal
from eigenveil_client.site.daemon.worker import SiteWorker
from eigenveil_client.site.state.received_plans import ConsentStatus
from eigenveil_client.site.state.store import SiteStore
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from tests.client.site.support import (
    FULL_DISK,
    SITE,
    Log,
    Patch,
    Stage,
    a_plan,
    a_stage,
    a_study,
    ended,
    reason_of,
    work,
    write_records,
)
from tests.support import changed_query, refused

PLAN = a_plan()
FIRST, SECOND, *_ = rehearse(PLAN)


def reply_to(stage: Stage, worker: SiteWorker, round_query: RoundQuery = FIRST, plan: Plan = PLAN) -> object:
    return worker.work(work(round_query, stage.signed(plan)))


def test_a_crash_between_the_charge_and_the_sending_costs_nothing(stage: Stage) -> None:
    with stage.process() as (store, worker):
        before = reply_to(stage, worker)
        assert isinstance(before, Contribution)
        spent = store.ledger.ledger.spent
    with stage.process() as (store, worker):
        again = reply_to(stage, worker)
        assert isinstance(again, Contribution)
        assert (again.digest, store.ledger.ledger.spent) == (before.digest, spent)
        rows = store.egress.rows()
        assert [row.round for row in rows] == [0, 0]
        assert rows[0].contribution == rows[1].contribution != ""
        assert isinstance(worker.work(work(SECOND)), Contribution)


def test_another_query_for_an_answered_round_is_refused_even_after_a_restart(stage: Stage) -> None:
    with stage.process() as (_, worker):
        reply_to(stage, worker)
    other = changed_query(FIRST, micro_rho=FIRST.priced.micro_rho + 1)
    with stage.process() as (store, worker):
        assert reason_of(reply_to(stage, worker, other)) == pb.DECLINE_REASON_PROTOCOL
        assert store.ledger.ledger.spent.micro_rho == FIRST.priced.micro_rho
        assert [row.kind for row in store.egress.rows()] == ["count", "decline"]
        with pytest.raises(EigenveilError, match="already charged for another"):
            store.outgoing.answer(PLAN, other, b"", ())


def test_only_the_last_answered_round_is_answered_again(stage: Stage, caplog: Log) -> None:
    """[P6]: a coordinator put back would draw another noise for a round that it has published."""
    with stage.process() as (_, worker):
        before = [reply_to(stage, worker), worker.work(work(SECOND))]
        assert isinstance(before[0], Contribution)
    with stage.process() as (store, worker):
        again = worker.work(work(SECOND))
        assert isinstance(again, Contribution)
        assert isinstance(before[1], Contribution)
        assert again.digest == before[1].digest
        assert reason_of(worker.work(work(FIRST))) == pb.DECLINE_REASON_PROTOCOL
        assert [row.kind for row in store.egress.rows()] == ["count", "row-norms", "row-norms", "decline"]
    assert caplog.records[-1].levelno == logging.ERROR
    assert "round 1 was stated when round 2 was due" in caplog.records[-1].getMessage()


def test_charge_and_egress_row_are_one_transaction(stage: Stage) -> None:
    with stage.process() as (store, worker):
        reply_to(stage, worker)
        with store.database.transaction() as change:
            change.execute(FULL_DISK)
        with refused(Code.STORAGE):
            worker.work(work(SECOND))
        assert store.ledger.ledger.spent.micro_rho == FIRST.priced.micro_rho
    with stage.process() as (store, _):
        assert store.ledger.ledger.spent.micro_rho == FIRST.priced.micro_rho


def test_a_study_beyond_what_is_left_of_the_budget_is_declined_for_good(tmp_path: Path) -> None:
    stage = a_stage(tmp_path, budget_epsilon=1.2)
    later = a_plan(submission="two")
    with stage.process() as (store, worker):
        assert isinstance(reply_to(stage, worker), Contribution)
        for _ in range(2):
            assert reason_of(reply_to(stage, worker, rehearse(later)[0], later)) == pb.DECLINE_REASON_BUDGET
        assert store.declined.get(later.digest) is not None
        assert {seen.status for seen in store.studies.all()} == {ConsentStatus.ACCEPTED}
        assert store.ledger.ledger.committed() == PLAN.cost


def test_ended_study_frees_what_was_not_charged(stage: Stage, store: SiteStore, worker: SiteWorker) -> None:
    reply_to(stage, worker)
    assert worker.known_plans() == [PLAN.digest]
    assert worker.work(ended(PLAN)) is None
    assert worker.work(ended(PLAN)) is None
    assert (store.ledger.ledger.committed().micro_rho, worker.known_plans()) == (FIRST.priced.micro_rho, [])
    assert isinstance(worker.work(work(FIRST)), Refusal)
    assert isinstance(reply_to(stage, worker, SECOND), Refusal)


def test_refusal_ignores_numbers_chosen_by_the_study(stage: Stage) -> None:
    write_records(stage.records, rows=37)
    with stage.process() as (store, worker):
        for cohort in (18, 20, 21, 36, 37, 38, 44):
            federation = Federation(sites=(SITE,), minimum_cohort=cohort)
            plan = a_plan(a_study(epsilon=0.5, federation=federation), submission=str(cohort))
            answer = reply_to(stage, worker, rehearse(plan)[0], plan)
            assert isinstance(answer, Contribution) == (cohort <= 20)
            worker.work(ended(plan))
        for most in (36, 37, 38, 99_999, 100_000):
            plan = a_plan(a_study(epsilon=0.5, max_records=most), submission=str(most))
            answer = reply_to(stage, worker, rehearse(plan)[0], plan)
            assert isinstance(answer, Contribution) == (most == 100_000)
            worker.work(ended(plan))
        assert {seen.reason for seen in store.studies.all()} == {""}
        assert {one["rule"]: one["plans"] for one in store.declined.counts()} == {
            "minimum_records": 5,
            "maximum_records": 4,
        }


def test_refusal_ignores_the_chosen_columns(stage: Stage, store: SiteStore, worker: SiteWorker) -> None:
    names = tuple("abcdefghij")
    write_records(stage.records, rows=19, columns=names)
    with stage.records.open("a") as file:
        file.write("1,,1,,,1,1,,1,\n")
    for name in names:
        columns = (Column(name=name, unit="mmol/L", lower=0.0, upper=10.0),)
        plan = a_plan(a_study(epsilon=0.2, columns=columns), submission=name)
        assert isinstance(reply_to(stage, worker, rehearse(plan)[0], plan), Contribution)
        worker.work(ended(plan))
    assert {row.kind for row in store.egress.rows()} == {"count"}


SECRET = "8.7654321"


@pytest.mark.parametrize(("text", "words"), [
    (f'a,b,c\n{SECRET},2,"\n' + "1,2,3\n" * 40, "code=bad-data about=quotes"),
    (f"a,b\n{SECRET},2\n", "code=bad-data about=c"),
    (f"a,b,c\n{SECRET},2\n" + "1,2,3\n" * 19, "code=too-few-records"),
    (f"a,b,c [g/{SECRET}]\n1,2,3\n", "code=bad-data about=c"),
])  # fmt: skip
def test_refusal_is_logged_without_record_values(stage: Stage, text: str, words: str, caplog: Log) -> None:
    caplog.set_level(logging.INFO, "eigenveil")
    stage.records.write_text(text)
    with stage.process() as (_, worker):
        assert isinstance(reply_to(stage, worker), Refusal)
    assert caplog.messages[-1] == f"declined study={PLAN.digest[:12]} round=0 {words}"
    assert SECRET not in caplog.text


def test_unexpected_error_is_logged_without_its_text(stage: Stage, caplog: Log, monkeypatch: Patch) -> None:
    def load(*_: object, **__: object) -> None:
        raise ValueError(f"could not convert string to float: {SECRET}")

    with monkeypatch.context() as broken, stage.process() as (store, worker):
        broken.setattr(reader.Reader, "stream", load)
        assert reason_of(reply_to(stage, worker)) == pb.DECLINE_REASON_FAILURE
        assert [row.kind for row in store.egress.rows()] == ["decline"]
        assert store.ledger.ledger.spent.micro_rho == 0
    assert "bug type=ValueError at='worker.py:" in caplog.text
    assert "test_worker.py:" in caplog.text
    assert SECRET not in caplog.text
    with stage.process() as (_, worker):
        assert isinstance(reply_to(stage, worker), Contribution)


@pytest.mark.parametrize("columns", ["abc", "abcd", "a rule"])
def test_a_study_runs_over_one_file_read_by_one_set_of_rules(stage: Stage, columns: str) -> None:
    """All of it: else an analyst's columns would tell in which of them somebody was changed."""
    with stage.records.open() as file:
        lines = file.read().splitlines()
    stage.records.write_text("\n".join(f"{line},d" for line in lines))
    with stage.process() as (_, worker):
        reply_to(stage, worker)
        if columns == "abc":
            write_records(stage.records, rows=41)
        elif columns == "a rule":
            stage.config = replace(stage.config, column=(ColumnRule(name="d", missing=("-9",)),))
        else:
            stage.records.write_text("\n".join(f"{line},d" for line in lines) + "x\n")
        assert isinstance(worker.work(work(SECOND)), Contribution)
    with stage.process() as (_, worker):
        assert reason_of(worker.work(work(SECOND))) == pb.DECLINE_REASON_FAILURE


def test_equal_answers_have_different_digests_in_every_study(stage: Stage) -> None:
    """The ledger is shown to officers: whoever reads it must not learn that two counts are equal."""
    plans = [a_plan(a_study(epsilon=0.2), submission=name) for name in ("one", "two")]
    with stage.process() as (store, worker):
        answers = [reply_to(stage, worker, rehearse(plan)[0], plan) for plan in plans]
        assert [answer.values.tolist() for answer in answers if isinstance(answer, Contribution)] == [
            [40]
        ] * 2
        assert len({row.contribution for row in store.egress.rows()}) == 2
        assert len({seen.records for seen in store.studies.all()}) == 2


def test_the_egress_digest_needs_the_sites_key(stage: Stage) -> None:
    with stage.process() as (store, worker):
        answer = reply_to(stage, worker)
        assert isinstance(answer, Contribution)
        row = store.egress.rows()[0]
        assert row.contribution not in (answer.digest, "")
        assert row.bytes == 8
    (stage.folder / "egress.key").chmod(0o644)
    with pytest.raises(RequestError, match="chmod 600"):
        stage.store()
