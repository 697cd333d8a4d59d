"""[P8] [P9] A site answers a part for nothing only if its own ledger paid for the pass, across restarts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from eigenveil.aggregation import Contribution
from eigenveil.errors import RequestError
from eigenveil.planning.choose import rehearse
from eigenveil.protocol.plan import Plan
from eigenveil.protocol.query import RoundQuery
from eigenveil.queries import Batch, Gradient, batch_of
from eigenveil.queries.gradients import pass_key
from eigenveil.study.algorithm import Algorithm
from eigenveil_client.site.daemon.decisions import Refusal
from eigenveil_client.site.daemon.worker import SiteWorker
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from tests.client.site.support import Stage, a_plan, a_stage, a_study, work, write_records

PLAN = a_plan(a_study(algorithm=Algorithm.PRIVATE_OJA, centring=False, batches=4))
QUERIES = rehearse(PLAN)
BEGAN = next(query.round for query in QUERIES if batch_of(query.query) is not None)


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    """A site that allows the algorithm: it is not among those that sites allow by themselves."""
    stage = a_stage(tmp_path, algorithms=("private-oja",), minimum_records=80)
    write_records(stage.records, rows=80)
    return stage


def answered(stage: Stage, worker: SiteWorker, asked: RoundQuery, plan: Plan = PLAN) -> bool:
    reply = worker.work(work(asked, stage.signed(plan)))
    if isinstance(reply, Refusal):
        assert reply.reason in (pb.DECLINE_REASON_PROTOCOL, pb.DECLINE_REASON_BUDGET)
    return isinstance(reply, Contribution)


def test_a_pass_is_charged_once_and_goes_on_after_a_restart(stage: Stage) -> None:
    for life in (QUERIES[: BEGAN + 2], QUERIES[BEGAN + 2 : BEGAN + 4]):
        store = stage.store()
        worker = stage.worker(store)
        assert all(answered(stage, worker, query) for query in life)
        spent = store.ledger.ledger.spent.micro_rho
        store.close()
    assert spent == sum(query.micro_rho for query in QUERIES[: BEGAN + 1])


def test_a_dear_question_is_no_payment_for_a_pass(stage: Stage) -> None:
    """Found here: any answer of the round in which a pass claims to have begun passed for its payment."""
    whole = next(q.query for q in QUERIES if isinstance(q.query, Gradient) and q.query.batch is not None)
    dear = replace(QUERIES[BEGAN], query=replace(whole, batch=None))
    part = Batch(first=BEGAN, index=1, batches=4, key=pass_key(PLAN.digest, BEGAN, 4))
    free = replace(dear, round=BEGAN + 1, query=replace(whole, batch=part))
    store = stage.store()
    worker = stage.worker(store)
    assert all(answered(stage, worker, query) for query in QUERIES[:BEGAN])
    store.outgoing.answer(PLAN, dear, b"", ())
    with pytest.raises(RequestError, match=r"reservation|costs more than"):
        store.outgoing.answer(PLAN, free, b"", ())
    store.close()


@pytest.mark.parametrize("more", [1, 1000])
def test_a_part_dearer_than_its_pass_is_refused(stage: Stage, more: int) -> None:
    first, second = QUERIES[BEGAN : BEGAN + 2]
    store = stage.store()
    worker = stage.worker(store)
    assert all(answered(stage, worker, query) for query in (*QUERIES[:BEGAN], first))
    assert not answered(stage, worker, replace(second, micro_rho=first.micro_rho + more))
    assert answered(stage, worker, second)
    store.close()
