"""Answers come from the records of their own study, of one state, and from zeros where no record is left."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import psycopg
import pytest

from eigenveil.aggregation import Contribution
from eigenveil.planning.choose import rehearse
from eigenveil_client.records.tables.source import RecordsConfig
from eigenveil_client.site.daemon.decisions import Refusal
from eigenveil_client.site.daemon.worker import SiteWorker
from eigenveil_client.site.engine.engine import LocalRecords
from eigenveil_client.site.policy_sections import QualityRules
from eigenveil_client.site.state.outgoing import Outgoing
from eigenveil_client.site.state.store import SiteStore
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from tests.client.site.daemon.test_worker import FIRST, PLAN, SECOND, reply_to
from tests.client.site.support import Log, Patch, Stage, a_plan, a_study, reason_of, work, write_records
from tests.common.storage.cluster import Cluster


def test_answers_are_zeros_if_dropping_leaves_no_person(stage: Stage) -> None:
    stage.records.write_text("a,b,c\n" + "1,,3\n" * 40)
    allowed = replace(stage.config.policy, quality=QualityRules(max_missing=1.0))
    stage.config = replace(stage.config, policy=allowed)
    with stage.process() as (store, worker):
        for number, round_query in enumerate(rehearse(PLAN)):
            answer = reply_to(stage, worker, round_query)
            assert isinstance(answer, Contribution)
            assert not answer.values.any()
            assert store.ledger.ledger.size == number + 2


def test_many_studies_at_once_have_equal_answers(stage: Stage, worker: SiteWorker) -> None:
    study = a_study(epsilon=0.2)
    plans = [a_plan(study, submission=str(number)) for number in range(6)]
    values = []
    for round in range(2):
        for plan in plans:
            answer = reply_to(stage, worker, rehearse(plan)[round], plan)
            assert isinstance(answer, Contribution)
            values.append(answer.values)
    assert all(np.array_equal(values[6], other) for other in values[7:])


def test_changed_or_absent_database_is_one_refusal_reason(stage: Stage, server: Cluster, caplog: Log) -> None:
    caplog.set_level(logging.INFO, "eigenveil")
    url = server.database()
    with psycopg.connect(url) as connection:
        connection.execute(
            "CREATE TABLE m AS SELECT g AS a, g AS b, g AS c, g AS d FROM generate_series(1, 40) g"
        )
    view = RecordsConfig(database=url, sql="SELECT * FROM m", timeout_seconds=1.0)
    stage.config = replace(stage.config, records=view)
    with stage.process() as (_, worker):
        assert isinstance(reply_to(stage, worker), Contribution)
    slow = replace(view, sql="SELECT *, pg_sleep(9) FROM m")
    away = replace(view, database=url.replace("host=", "host=/nowhere"))
    for change, message, about in [
        ("UPDATE m SET d = 7 WHERE d = 6", view, "changed"),
        ("ALTER TABLE m RENAME c TO other", view, "c"),
        ("ALTER TABLE m RENAME other TO c; ALTER TABLE m ALTER b TYPE date USING '2020-01-01'", view, "b"),
        ("SELECT 1", slow, "database"),
        ("SELECT 1", away, "database"),
        ("DROP TABLE m", view, "sql"),
    ]:
        with psycopg.connect(url) as connection:
            connection.execute(change)
        stage.config = replace(stage.config, records=message)
        with stage.process() as (store, worker):
            assert reason_of(worker.work(work(SECOND))) == pb.DECLINE_REASON_FAILURE
            assert store.ledger.ledger.spent.micro_rho == FIRST.priced.micro_rho
        assert caplog.messages[-1].endswith(f"code=bad-data about={about}")


def watched(worker: SiteWorker, patch: Patch) -> list[str]:
    steps: list[str] = []

    def wrap(holder: Any, name: str, step: str) -> None:
        inner: Callable[..., Any] = getattr(holder, name)

        def noted(*args: Any, **kwargs: Any) -> Any:
            steps.append(step)
            return inner(*args, **kwargs)

        patch.setattr(holder, name, noted)

    wrap(worker._engine, "load", "load")
    wrap(LocalRecords, "answer", "compute")
    wrap(Outgoing, "answer", "write")
    wrap(Outgoing, "refuse", "write")
    return steps


def quoted(stage: Stage) -> None:
    with stage.records.open("a") as file:
        file.write('1,2,"3\n1,2,3\n')


SPOILS: dict[str, Callable[[Stage], object]] = {
    "nothing": lambda _: None, "too few": lambda stage: write_records(stage.records, rows=19),
    "too many": lambda stage: stage.rule(maximum_records=39),
    "no column": lambda stage: stage.records.write_text("a,b\n" + "1,2\n" * 40), "quoted": quoted,
    "no file": lambda stage: stage.records.unlink(),
}  # fmt: skip


@pytest.mark.parametrize("spoil", SPOILS)
@pytest.mark.parametrize("query", rehearse(PLAN)[::3], ids=lambda query: f"round{query.round}")
def test_load_compute_write(
    stage: Stage, store: SiteStore, spoil: str, query: Any, monkeypatch: Patch
) -> None:
    SPOILS[spoil](stage)
    worker = stage.worker(store)
    steps = watched(worker, monkeypatch)
    worker.work(work(None, stage.signed(PLAN)))
    store.rounds._due[PLAN.digest] = query.round
    assert isinstance(worker.work(work(query)), Contribution if spoil == "nothing" else Refusal)
    assert steps == ["load", "compute", "write"]


def test_a_refusal_that_settings_decide_touches_no_record(
    stage: Stage, store: SiteStore, monkeypatch: Patch
) -> None:
    stage.rule(columns=("a",))
    worker = stage.worker(store)
    steps = watched(worker, monkeypatch)
    assert isinstance(worker.work(work(rehearse(PLAN)[0], stage.signed(PLAN))), Refusal)
    assert steps == ["write"]
