"""A site's answers do not depend on where its records are held, and nothing of them stays where they were."""

from __future__ import annotations

import logging
import os
from contextlib import closing
from dataclasses import replace

import pytest

from eigenveil.aggregation import Contribution
from eigenveil.planning.choose import rehearse
from eigenveil.protocol.plan import Plan
from eigenveil.study.algorithm import Algorithm
from eigenveil_client.records import scratch_files
from eigenveil_client.records.scratch_files import GridFile, Scratch
from eigenveil_client.records.tables.source import BadRecords
from eigenveil_client.site.config import EngineConfig, EngineKind
from eigenveil_client.site.daemon.decisions import Refusal
from eigenveil_client.site.engine.engine import LocalEngine, LocalRecords, make_engine
from eigenveil_client.site.state.received_plans import PersonDecision
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from tests.client.site.daemon.test_worker import FIRST, SECOND, reply_to
from tests.client.site.support import (
    Log,
    Patch,
    Stage,
    a_plan,
    a_study,
    ended,
    reason_of,
    work,
    write_records,
)

MEMORY, DISK, SEALED = (
    EngineConfig(kind=EngineKind.MEMORY),
    EngineConfig(kind=EngineKind.DISK, encrypt=False),
    EngineConfig(kind=EngineKind.DISK),
)
PLANS = [
    a_plan(a_study(algorithm=algorithm, components=2))
    for algorithm in (Algorithm.GAUSS_COV, Algorithm.REFINED_COV, Algorithm.DP_PCA, Algorithm.REFINED_PCA)
]


def files(worker: object) -> list[GridFile]:
    stored = worker._answers._loaded_records.values()  # type: ignore[attr-defined]
    return [one._rows for one in stored if isinstance(one, LocalRecords) and isinstance(one._rows, GridFile)]


def is_open(file: GridFile) -> bool:
    return not file.file._file.closed


@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: plan.algorithm.value)
def test_memory_disk_and_encrypted_disk_answer_alike(stage: Stage, plan: Plan, monkeypatch: Patch) -> None:
    monkeypatch.setattr(scratch_files, "WINDOW", 1000)
    write_records(stage.records, rows=3000)
    answers = []
    for message in (MEMORY, DISK, SEALED):
        with closing(make_engine(replace(stage.config, engine=message)).load(plan)) as stored:
            answers.append(
                [
                    stored.answer(round_query.query, round_query.priced.frame).tolist()
                    for round_query in rehearse(plan)
                ]
            )
            assert stored.persons == 3000
            answers[-1].append(stored.file)
    assert answers[0] == answers[1] == answers[2]


def test_records_beyond_the_sites_maximum_are_refused(stage: Stage) -> None:
    """A small file can state any number of rows."""
    write_records(stage.records, rows=3000)
    policy = replace(stage.config.policy, maximum_records=2999)
    with pytest.raises(BadRecords, match="over 2999 records") as caught:
        make_engine(replace(stage.config, policy=policy)).load(PLANS[0])
    assert caught.value.about == "too-many"


def test_records_are_let_go_when_their_study_ends_or_is_withdrawn_by_another_process(stage: Stage) -> None:
    stage.config = replace(stage.config, engine=SEALED)
    study = a_study(epsilon=0.2)
    plans = [a_plan(study, submission=str(number)) for number in range(3)]
    with stage.process() as (_, worker):
        for plan in plans:
            assert isinstance(reply_to(stage, worker, rehearse(plan)[0], plan), Contribution)
        first, second, third = files(worker)
        worker.work(ended(plans[0]))
        assert [is_open(one) for one in (first, second, third)] == [False, True, True]
        with stage.process() as (other, _):
            other.withdraw(plans[1].digest, PersonDecision(by="anna"))
        worker.work(pb.NextWorkResponse())
        assert [is_open(one) for one in (first, second, third)] == [False, False, True]
        assert isinstance(worker.work(work(rehearse(plans[2])[1])), Contribution)


def test_full_disk_is_one_reason_and_costs_nothing(stage: Stage, monkeypatch: Patch, caplog: Log) -> None:
    caplog.set_level(logging.INFO, "eigenveil")
    stage.config = replace(stage.config, engine=SEALED)
    with stage.process() as (store, worker):
        with monkeypatch.context() as broken:
            full = os.open("/dev/full", os.O_WRONLY)
            broken.setattr("tempfile.TemporaryFile", lambda **_: os.fdopen(full, "wb", buffering=0))
            refusal = reply_to(stage, worker)
        assert isinstance(refusal, Refusal)
        assert (refusal.reason, refusal.text) == (pb.DECLINE_REASON_FAILURE, "")
        assert store.ledger.ledger.spent.micro_rho == 0
        assert caplog.messages[-1].endswith("code=bad-data about=disk")
        assert isinstance(reply_to(stage, worker), Contribution), "there is room again"


def test_damaged_grid_file_is_loaded_again(stage: Stage) -> None:
    stage.config = replace(stage.config, engine=SEALED)
    with stage.process() as (store, worker):
        assert isinstance(reply_to(stage, worker), Contribution)
        os.ftruncate(files(worker)[0].file._file.fileno(), 7)
        assert reason_of(worker.work(work(SECOND))) == pb.DECLINE_REASON_FAILURE
        assert store.ledger.ledger.spent.micro_rho == FIRST.priced.micro_rho
        assert isinstance(worker.work(work(SECOND)), Contribution)


@pytest.mark.parametrize("rows", [40, 4000])
def test_query_of_all_rows_is_declined_by_stated_limits_only(stage: Stage, rows: int) -> None:
    write_records(stage.records, rows=rows)
    dealt = a_plan(a_study(algorithm=Algorithm.PRIVATE_OJA, centring=False, batches=2, max_records=10**6))
    summed = a_plan(a_study(max_records=10**6))
    stage.rule(algorithms=("private-oja", "gauss-cov"), minimum_records=40)
    for message, most, answered in [
        (EngineConfig(memory_mib=1), 2**20 // 6, True),
        (EngineConfig(memory_mib=1), 2**20 // 6 + 1, False),
        (EngineConfig(kind=EngineKind.DISK, memory_mib=1), 2**20 // 6, True),
        (EngineConfig(kind=EngineKind.MEMORY, memory_mib=1), 10**7, True),
    ]:
        local = LocalEngine(lambda study, retain: None, message, Scratch(), most)  # type: ignore[arg-type, return-value]
        verdict = local.check(dealt, rehearse(dealt))
        assert (verdict.passed, verdict.needed.startswith("memory_mib 1 ")) == (answered, not answered)
        assert local.check(summed, rehearse(summed)).passed
    stage.rule(maximum_records=10**6)
    stage.config = replace(stage.config, engine=EngineConfig(memory_mib=1))
    with stage.process() as (store, worker):
        assert reason_of(reply_to(stage, worker, rehearse(dealt)[0], dealt)) == pb.DECLINE_REASON_POLICY
        assert store.ledger.ledger.spent.micro_rho == 0
        assert isinstance(reply_to(stage, worker, rehearse(summed)[0], summed), Contribution), (
            "what is a sum over records is answered"
        )
