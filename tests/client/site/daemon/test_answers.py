"""Answers come from the records of their own study, of one state, and from zeros where no record is left."""

from __future__ import annotations

import logging
from dataclasses import replace

import numpy as np
import psycopg
import pytest

from eigenveil.aggregation import Contribution
from eigenveil.planning.choose import rehearse
from eigenveil_client.records.tables.source import RecordsConfig
from eigenveil_client.site.daemon.decisions import Refusal
from eigenveil_client.site.policy_sections import QualityRules
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from tests.client.site.daemon.test_worker import FIRST, PLAN, SECOND, ask, process
from tests.client.site.support import Stage, a_plan, a_study, work
from tests.common.storage.cluster import Cluster


def test_if_dropping_leaves_nobody_the_answers_are_zeros(stage: Stage) -> None:
    stage.records.write_text("a,b,c\n" + "1,,3\n" * 40)
    allowed = replace(stage.config.policy, quality=QualityRules(max_missing=1.0))
    stage.config = replace(stage.config, policy=allowed)
    with process(stage) as (store, worker):
        for number, asked in enumerate(rehearse(PLAN)):
            answer = ask(stage, worker, asked)
            assert isinstance(answer, Contribution)
            assert not answer.values.any()
            assert store.ledger.ledger.size == number + 2


def test_many_studies_at_once_keep_their_answers(stage: Stage) -> None:
    study = a_study(epsilon=0.2)
    plans = [a_plan(study, submission=str(number)) for number in range(6)]
    with process(stage) as (_, worker):
        values = []
        for round in range(2):
            for plan in plans:
                answer = ask(stage, worker, rehearse(plan)[round], plan)
                assert isinstance(answer, Contribution)
                values.append(answer.values)
        assert all(np.array_equal(values[6], other) for other in values[7:])


@pytest.mark.parametrize("expression", ["a", "a + random()"])
def test_a_study_goes_on_at_a_site_only_while_its_select_gives_the_same_rows(
    stage: Stage, expression: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "eigenveil")
    sql = f"SELECT {expression} AS a, b, c FROM (SELECT a::DOUBLE AS a, b, c FROM records)"
    stage.config = replace(stage.config, records=RecordsConfig(source=stage.records, sql=sql))
    with process(stage) as (_, worker):
        assert isinstance(ask(stage, worker), Contribution)
    with process(stage) as (store, worker):
        again = worker.work(work(SECOND))
        assert isinstance(again, Contribution) == (expression == "a")
        if isinstance(again, Refusal):
            assert again.reason == pb.DECLINE_REASON_FAILURE
            assert store.ledger.ledger.spent.micro_rho == FIRST.micro_rho
            assert caplog.messages[-1].endswith("code=bad-data about=changed")


def test_a_database_that_changes_or_goes_away_is_one_word_to_the_coordinator(
    stage: Stage, server: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "eigenveil")
    url = server.database()
    with psycopg.connect(url) as connection:
        connection.execute(
            "CREATE TABLE m AS SELECT g AS a, g AS b, g AS c, g AS d FROM generate_series(1, 40) g"
        )
    view = RecordsConfig(database=url, sql="SELECT * FROM m", timeout_seconds=1.0)
    stage.config = replace(stage.config, records=view)
    with process(stage) as (_, worker):
        assert isinstance(ask(stage, worker), Contribution)
    slow = replace(view, sql="SELECT *, pg_sleep(9) FROM m")
    away = replace(view, database=url.replace("host=", "host=/nowhere"))
    for change, said, about in [
        ("UPDATE m SET d = 7 WHERE d = 6", view, "changed"),
        ("ALTER TABLE m RENAME c TO other", view, "c"),
        ("ALTER TABLE m RENAME other TO c; ALTER TABLE m ALTER b TYPE date USING '2020-01-01'", view, "b"),
        ("SELECT 1", slow, "database"),
        ("SELECT 1", away, "database"),
        ("DROP TABLE m", view, "sql"),
    ]:
        with psycopg.connect(url) as connection:
            connection.execute(change)
        stage.config = replace(stage.config, records=said)
        with process(stage) as (store, worker):
            refusal = worker.work(work(SECOND))
            assert isinstance(refusal, Refusal)
            assert refusal.reason == pb.DECLINE_REASON_FAILURE
            assert store.ledger.ledger.spent.micro_rho == FIRST.micro_rho
        assert caplog.messages[-1].endswith(f"code=bad-data about={about}")
