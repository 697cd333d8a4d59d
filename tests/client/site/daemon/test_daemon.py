"""The daemon against a real gRPC server over mutual TLS, honest, broken and hostile."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest

from eigenveil.errors import Code
from eigenveil.numerics.encoding import from_bytes
from eigenveil.planning.choose import rehearse
from eigenveil.protocol.plan import Plan
from eigenveil.protocol.query import RoundQuery
from eigenveil.queries import Count, Gram, SquaredNormSum
from eigenveil.site.site import Site
from eigenveil.study.study import Federation
from eigenveil_client.records import records
from eigenveil_client.site.daemon import connection
from eigenveil_client.site.state import store as store_module
from eigenveil_client.site.state.rollback import NAME
from eigenveil_common.rpc import VERSION_MAX
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from tests.client.site.support import (
    SITE,
    Coordinator,
    Stage,
    a_plan,
    a_study,
    store_identity,
    until,
    work,
    write_records,
)
from tests.support import refused


def queries(plan: Plan) -> Sequence[RoundQuery]:
    return rehearse(plan)


def script(stage: Stage, plan: Plan, asked: Sequence[RoundQuery]) -> list[pb.NextWorkResponse]:
    """The plan beside its first query, then the others."""
    first, *others = asked
    return [work(first, stage.signed(plan)), *map(work, others)]


async def test_a_study_is_answered_charged_and_settled(stage: Stage) -> None:
    plan = a_plan()
    asked = queries(plan)
    coordinator = Coordinator(work=script(stage, plan, asked))

    async def scenario() -> None:
        async with stage.serving(coordinator), stage.daemon() as store:
            await until(lambda: len(coordinator.contributions) == len(asked))
            assert coordinator.asked[-1].known_plans == [bytes.fromhex(plan.digest)]
            ended = pb.StudyEnd(plan_digest=bytes.fromhex(plan.digest), state=pb.STUDY_STATE_RELEASED)
            coordinator.work.append(pb.NextWorkResponse(ended=[ended]))
            await until(lambda: not store.ledger.ledger.reserved)
            assert store.ledger.ledger.spent.micro_rho == sum(query.micro_rho for query in asked)
            assert [row.round for row in store.egress.rows()] == list(range(len(asked)))

    await scenario()
    site = Site(records.load(stage.records, plan.study))
    for query, sent in zip(asked, coordinator.contributions, strict=True):
        values = from_bytes(sent.values, (query.query.length,))
        assert sent.query_digest.hex() == query.digest
        assert np.array_equal(values, site.answer(query.query))


def test_neither_the_log_nor_the_egress_ledger_holds_a_value(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "eigenveil")
    write_records(stage.records, rows=4321)
    plan = a_plan()
    coordinator = Coordinator(work=script(stage, plan, queries(plan)))

    async def scenario() -> str:
        async with stage.serving(coordinator), stage.daemon() as store:
            await until(lambda: len(coordinator.contributions) == len(queries(plan)))
            return " ".join(f"{row.kind} {row.bytes} {row.meaning}" for row in store.egress.rows())

    shown = asyncio.run(scenario()) + " ".join(record.getMessage() for record in caplog.records)
    count = from_bytes(coordinator.contributions[0].values, (1,))
    assert count.tolist() == [4321]
    assert re.search(r"\b4321\b", shown) is None  # a whole word: digests and ports are shown too
    gram = from_bytes(coordinator.contributions[-1].values, (6,))
    assert not any(str(value) in shown for value in gram.tolist())


async def test_another_protocol_version_is_waited_out(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "eigenveil")
    coordinator = Coordinator(version=VERSION_MAX + 1)

    async with stage.serving(coordinator), stage.daemon():
        await until(lambda: coordinator.hellos >= 2)
        coordinator.version = VERSION_MAX
        await until(lambda: bool(coordinator.asked))
    states = [record.getMessage().split(" detail")[0] for record in caplog.records]
    assert states == ["disconnected code=version", "connected"]


async def test_a_wrong_clock_and_an_ending_certificate_are_warned_of_once(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "eigenveil")
    coordinator = Coordinator(clock_lag_ms=3_600_000, lose=["NextWork"] * 3)
    coordinator.work = [pb.NextWorkResponse() for _ in range(3)]

    async with stage.serving(coordinator) as port:
        store_identity(stage.authority, stage.config.identity, f"127.0.0.1:{port}", life=1.0)
        async with stage.daemon():
            await until(lambda: coordinator.hellos >= 3)
    names = [record.getMessage().split()[0] for record in caplog.records]
    assert names.count("certificate-ends-soon") == names.count("clocks-differ") == 1


async def test_a_coordinator_that_repeats_itself_is_served_ever_more_slowly(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, pauses = a_plan(), list[int]()

    def pause(odd: int) -> float:
        pauses.append(odd)
        return 0.0

    monkeypatch.setattr(connection, "backoff_seconds", pause)
    again = [work(queries(plan)[0]) for _ in range(20)]
    coordinator = Coordinator(work=[*script(stage, plan, queries(plan)[:1]), *again])

    async with stage.serving(coordinator), stage.daemon():
        await until(lambda: len(coordinator.contributions) == 1 + len(again))
    assert pauses == list(range(2, 1 + len(again)))
    assert len({sent.SerializeToString() for sent in coordinator.contributions}) == 1


async def test_a_lost_connection_is_made_again_and_nothing_is_charged_twice(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "eigenveil")
    plan = a_plan()
    first = queries(plan)[0]
    before, after = (
        Coordinator(work=script(stage, plan, [first])),
        Coordinator(work=script(stage, plan, queries(plan))),
    )

    async with stage.serving(before) as port:
        keep = stage.daemon()
        store = await keep.__aenter__()
        await until(lambda: len(before.contributions) == 1)
    await until(lambda: any("disconnected" in r.message for r in caplog.records))
    await asyncio.sleep(0.5)  # several attempts fail meanwhile
    async with stage.serving(after, port):
        await until(lambda: len(after.contributions) == len(queries(plan)))
        assert after.asked[0].answered == []
        spent = store.ledger.ledger.spent.micro_rho
        assert spent == sum(query.micro_rho for query in queries(plan))
        assert [row.round for row in store.egress.rows()] == [0, *range(len(queries(plan)))]
        await keep.__aexit__(None, None, None)
    assert before.contributions[0] == after.contributions[0]
    assert sum("disconnected" in record.message for record in caplog.records) == 1


Attack = Callable[[Stage, Plan], list[pb.NextWorkResponse]]


def another_query_for_an_answered_round(stage: Stage, plan: Plan) -> list[pb.NextWorkResponse]:
    first, second, *_ = queries(plan)
    return [*script(stage, plan, [first]), work(replace_round(second, 0))]


def replace_round(asked: RoundQuery, round: int) -> RoundQuery:
    return replace(asked, round=round)


def a_wrong_signature(stage: Stage, plan: Plan) -> list[pb.NextWorkResponse]:
    signed = stage.signed(plan)
    signed.signature = bytes(64)
    return [work(queries(plan)[0], signed)]


def a_plan_changed_after_signing(stage: Stage, plan: Plan) -> list[pb.NextWorkResponse]:
    other = a_plan(submission="two")
    signed = pb.SignedPlan(plan_json=other.to_json(), signature=stage.signed(plan).signature)
    return [work(queries(other)[0], signed)]


def a_foreign_federation(stage: Stage, plan: Plan) -> list[pb.NextWorkResponse]:
    foreign = a_plan(federation="another-federation")
    return [work(queries(foreign)[0], stage.signed(foreign))]


def not_invited(stage: Stage, plan: Plan) -> list[pb.NextWorkResponse]:
    other = a_plan(a_study(federation=Federation(sites=("hospital-b",))))
    return [work(queries(other)[0], stage.signed(other))]


def no_plan(stage: Stage, plan: Plan) -> list[pb.NextWorkResponse]:
    return [work(queries(plan)[0])]


def the_query_of_another_plan(stage: Stage, plan: Plan) -> list[pb.NextWorkResponse]:
    return [work(queries(a_plan(submission="two"))[0], stage.signed(plan))]


def a_skipped_round(stage: Stage, plan: Plan) -> list[pb.NextWorkResponse]:
    return [work(queries(plan)[1], stage.signed(plan))]


def a_round_before_the_last(stage: Stage, plan: Plan) -> list[pb.NextWorkResponse]:
    """What a coordinator restored from an old copy asks: nothing new, and yet never again."""
    first, second, *_ = queries(plan)
    return [*script(stage, plan, [first, second]), work(first)]


def too_cheap(stage: Stage, plan: Plan) -> list[pb.NextWorkResponse]:
    return [work(replace(queries(plan)[0], micro_rho=1), stage.signed(plan))]


def another_kind(stage: Stage, plan: Plan) -> list[pb.NextWorkResponse]:
    query = SquaredNormSum(centre=np.zeros(3, dtype=np.int64), radius=5)
    return [work(replace(queries(plan)[0], query=query), stage.signed(plan))]


def another_dimension(stage: Stage, plan: Plan) -> list[pb.NextWorkResponse]:
    query = Gram(centre=np.zeros(2, dtype=np.int64), radius=5)
    return [work(replace(queries(plan)[-1], round=0, query=query), stage.signed(plan))]


def overflowing(stage: Stage, plan: Plan) -> list[pb.NextWorkResponse]:
    """No valid plan overflows: it is refused when it is read."""
    text = plan.to_json().replace(b'"max_records":100000', b'"max_records":2147483648')
    text = text.replace(b'"sites":["hospital-a"', b'"sites":["x0","hospital-a"')
    names = ",".join(f'"s{number}"' for number in range(64)).encode()
    text = text.replace(b'"sites":["x0"', b'"sites":[' + names)
    signed = stage.authority.sign(text)
    return [work(queries(plan)[0], signed)]


def unreadable_plan(stage: Stage, plan: Plan) -> list[pb.NextWorkResponse]:
    return [work(queries(plan)[0], stage.authority.sign(b'{"version": 1}'))]


PROTOCOL = pb.DECLINE_REASON_PROTOCOL


@pytest.mark.parametrize(
    ("attack", "answers"),
    [
        (another_query_for_an_answered_round, 1),
        (a_round_before_the_last, 2),
        (a_wrong_signature, 0),
        (a_plan_changed_after_signing, 0),
        (a_foreign_federation, 0),
        (not_invited, 0),
        (no_plan, 0),
        (the_query_of_another_plan, 0),
        (a_skipped_round, 0),
        (too_cheap, 0),
        (another_kind, 0),
        (another_dimension, 0),
        (overflowing, 0),
        (unreadable_plan, 0),
    ],
)
async def test_what_an_honest_coordinator_never_asks_is_declined_and_alarmed(
    stage: Stage, attack: Attack, answers: int, caplog: pytest.LogCaptureFixture
) -> None:
    coordinator = Coordinator(work=attack(stage, a_plan()))

    async with stage.serving(coordinator), stage.daemon() as store:
        await until(lambda: coordinator.declines)
        assert len(coordinator.contributions) == answers
        kinds = [row.kind for row in store.egress.rows()]
        assert kinds == [*["count", "row-norms"][:answers], "decline"]
    assert [decline.reason for decline in coordinator.declines] == [PROTOCOL]
    alarms = [r for r in caplog.records if r.levelno == logging.ERROR and r.name == "eigenveil"]
    assert len(alarms) == 1
    assert "declined" in alarms[0].message




async def test_work_that_cannot_even_be_named_is_alarmed_and_survived(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    plan = a_plan()
    nonsense = [
        pb.NextWorkResponse(query=pb.Query(plan_digest=b"short")),
        pb.NextWorkResponse(ended=[pb.StudyEnd(plan_digest=b"short", state=pb.STUDY_STATE_FAILED)]),
    ]
    coordinator = Coordinator(work=[*nonsense, *script(stage, plan, queries(plan))])

    async with stage.serving(coordinator), stage.daemon():
        await until(lambda: len(coordinator.contributions) == len(queries(plan)))
    assert sum("work-unreadable" in record.message for record in caplog.records) == 2


async def test_a_note_that_cannot_be_written_when_asked_to_stop_is_an_error(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "NOTE_SECONDS", 60.0)  # so that the end is the first to find out
    plan, note = a_plan(), stage.config.identity / NAME
    coordinator = Coordinator(work=script(stage, plan, queries(plan)))

    with refused(Code.STORAGE, str(note)):
        async with stage.serving(coordinator), stage.daemon():
            await until(lambda: len(coordinator.contributions) == len(queries(plan)))
            note.unlink()
            note.mkdir()


