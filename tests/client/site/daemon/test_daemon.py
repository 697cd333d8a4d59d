"""The daemon against a real gRPC server over mutual TLS, honest, broken and hostile."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import sys
from asyncio.subprocess import DEVNULL
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from eigenveil.errors import Code
from eigenveil.numerics.encoding import from_bytes
from eigenveil.planning.choose import rehearse
from eigenveil.protocol.plan import Plan
from eigenveil.protocol.query import RoundQuery
from eigenveil.queries import Gram, SquaredNormSum
from eigenveil.site.site import Site
from eigenveil.study.study import Federation
from eigenveil_client.site import config as site_config
from eigenveil_client.site.state import store as store_module
from eigenveil_client.site.state.rollback import NAME
from eigenveil_client.site.state.store_access import runs_outdated
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from tests.client.records import support as records
from tests.client.site.command_line import written
from tests.client.site.scripted import Coordinator
from tests.client.site.stated import work
from tests.client.site.support import (
    Log,
    Patch,
    Stage,
    a_plan,
    a_study,
    ended,
    store_identity,
    until,
    write_records,
)
from tests.support import changed_query, refused


def queries(plan: Plan) -> Sequence[RoundQuery]:
    return rehearse(plan)


def script(stage: Stage, plan: Plan, round_query: Sequence[RoundQuery]) -> list[pb.NextWorkResponse]:
    first, *others = round_query
    return [work(first, stage.signed(plan)), *map(work, others)]


async def test_a_study_is_answered_charged_and_settled(stage: Stage) -> None:
    plan = a_plan()
    round_query = queries(plan)
    coordinator = Coordinator(work=script(stage, plan, round_query))

    async def scenario() -> None:
        async with stage.serving(coordinator), stage.daemon() as store:
            await until(lambda: len(coordinator.contributions) == len(round_query))
            assert coordinator.requests[-1].known_plans == [bytes.fromhex(plan.digest)]
            coordinator.work.append(ended(plan))
            await until(lambda: not store.ledger.ledger.reserved)
            assert store.ledger.ledger.spent.micro_rho == sum(query.priced.micro_rho for query in round_query)
            assert [row.round for row in store.egress.rows()] == list(range(len(round_query)))

    await scenario()
    site = Site(records.load(stage.records, plan.study))
    for query, sent in zip(round_query, coordinator.contributions, strict=True):
        values = from_bytes(sent.values, (query.query.length,))
        assert sent.query_digest.hex() == query.digest
        assert np.array_equal(values, site.answer(query.query))


def test_neither_the_log_nor_the_egress_ledger_holds_a_value(stage: Stage, caplog: Log) -> None:
    caplog.set_level(logging.DEBUG, "eigenveil")
    write_records(stage.records, rows=4321)
    plan = a_plan()
    coordinator = Coordinator(work=script(stage, plan, queries(plan)))

    async def scenario() -> str:
        async with stage.serving(coordinator), stage.daemon() as store:
            await until(lambda: len(coordinator.contributions) == len(queries(plan)))
            return " ".join(f"{row.kind} {row.bytes} {row.meaning}" for row in store.egress.rows())

    shown = asyncio.run(scenario()) + " ".join(record.getMessage() for record in caplog.records)
    assert from_bytes(coordinator.contributions[0].values, (1,)).tolist() == [4321]
    assert re.search(r"\b4321\b", shown) is None  # a whole word: digests and ports are shown too
    gram = from_bytes(coordinator.contributions[-1].values, (6,))
    assert not any(str(value) in shown for value in gram.tolist())


async def test_a_wrong_clock_and_an_ending_certificate_are_warned_of_once(stage: Stage, caplog: Log) -> None:
    caplog.set_level(logging.INFO, "eigenveil")
    coordinator = Coordinator(clock_lag_ms=3_600_000, lose=["NextWork"] * 3)
    coordinator.work = [pb.NextWorkResponse() for _ in range(3)]
    async with stage.serving(coordinator) as port:
        store_identity(stage.authority, stage.config.identity, f"127.0.0.1:{port}", life=1.0)
        async with stage.daemon():
            await until(lambda: coordinator.hellos >= 3)
    names = [record.getMessage().split()[0] for record in caplog.records]
    assert names.count("certificate-ends-soon") == names.count("clocks-differ") == 1


async def test_repeating_coordinator_is_served_with_backoff(stage: Stage, pauses: list[int]) -> None:
    plan = a_plan()
    again = [work(queries(plan)[0]) for _ in range(20)]
    coordinator = Coordinator(work=[*script(stage, plan, queries(plan)[:1]), *again])

    async with stage.serving(coordinator), stage.daemon():
        await until(lambda: len(coordinator.contributions) == 1 + len(again))
    assert pauses == list(range(2, 1 + len(again)))
    assert len({sent.SerializeToString() for sent in coordinator.contributions}) == 1


async def test_reconnection_charges_nothing_twice(stage: Stage, caplog: Log) -> None:
    caplog.set_level(logging.INFO, "eigenveil")
    plan = a_plan()
    first = queries(plan)[0]
    before, after = (
        Coordinator(work=script(stage, plan, [first])),
        Coordinator(work=script(stage, plan, queries(plan))),
    )
    async with stage.serving(before) as port:
        retain = stage.daemon()
        store = await retain.__aenter__()
        await until(lambda: len(before.contributions) == 1)
    await until(lambda: any("disconnected" in r.message for r in caplog.records))
    await asyncio.sleep(0.5)  # several attempts fail meanwhile
    async with stage.serving(after, port):
        await until(lambda: len(after.contributions) == len(queries(plan)))
        assert after.requests[0].answered == []
        assert store.ledger.ledger.spent.micro_rho == sum(query.priced.micro_rho for query in queries(plan))
        assert [row.round for row in store.egress.rows()] == [0, *range(len(queries(plan)))]
        await retain.__aexit__(None, None, None)
    assert before.contributions[0] == after.contributions[0]
    assert sum("disconnected" in record.message for record in caplog.records) == 1


def overflowing(plan: Plan) -> bytes:
    text = plan.to_json().replace(b'"max_records":100000', b'"max_records":2147483648')
    text = text.replace(b'"sites":["hospital-a"', b'"sites":["x0","hospital-a"')
    names = ",".join(f'"s{number}"' for number in range(64)).encode()
    return text.replace(b'"sites":["x0"', b'"sites":[' + names)


Attack = Callable[[Stage], list[pb.NextWorkResponse]]
FIRST_PLAN, TWO = a_plan(), a_plan(submission="two")
OTHER_FEDERATION = a_plan(federation="another-federation")
UNINVITED = a_plan(a_study(federation=Federation(sites=("hospital-b",))))
FIRST, SECOND, *_, LAST = queries(FIRST_PLAN)
NORMS = SquaredNormSum(centre=np.zeros(3, dtype=np.int64), radius=5)
NARROW = Gram(centre=np.zeros(2, dtype=np.int64), radius=5)


def first_of(stage: Stage, **changes: Any) -> list[pb.NextWorkResponse]:
    return [work(changed_query(FIRST, **changes), stage.signed(FIRST_PLAN))]


def with_signature(stage: Stage, plan: Plan, signature: bytes) -> list[pb.NextWorkResponse]:
    return [work(queries(plan)[0], pb.SignedPlan(plan_json=plan.to_json(), signature=signature))]


ATTACKS: dict[str, tuple[Attack, int]] = {
    "another query for an answered round": (lambda s: [*first_of(s), work(replace(SECOND, round=0))], 1),
    "a round before the last": (lambda s: [*script(s, FIRST_PLAN, [FIRST, SECOND]), work(FIRST)], 2),
    "a wrong signature": (lambda s: with_signature(s, FIRST_PLAN, bytes(64)), 0),
    "a plan changed after signing": (lambda s: with_signature(s, TWO, s.signed(FIRST_PLAN).signature), 0),
    "a foreign federation": (lambda s: script(s, OTHER_FEDERATION, queries(OTHER_FEDERATION)[:1]), 0),
    "not invited": (lambda s: script(s, UNINVITED, queries(UNINVITED)[:1]), 0),
    "no plan": (lambda s: [work(FIRST)], 0),
    "the query of another plan": (lambda s: [work(queries(TWO)[0], s.signed(FIRST_PLAN))], 0),
    "a skipped round": (lambda s: [work(SECOND, s.signed(FIRST_PLAN))], 0),
    "too cheap": (lambda s: first_of(s, micro_rho=1), 0),
    "too dear": (lambda s: first_of(s, micro_rho=FIRST_PLAN.micro_rho + 1), 0),
    "another kind": (lambda s: first_of(s, query=NORMS), 0),
    "another dimension": (
        lambda s: [work(changed_query(LAST, round=0, query=NARROW), s.signed(FIRST_PLAN))],
        0,
    ),
    "an overflow": (lambda s: [work(FIRST, s.authority.sign(overflowing(FIRST_PLAN)))], 0),
    "an unreadable plan": (lambda s: [work(FIRST, s.authority.sign(b'{"version": 1}'))], 0),
}


@pytest.mark.parametrize("attack", ATTACKS)
async def test_protocol_breach_is_declined_with_an_alarm(stage: Stage, attack: str, caplog: Log) -> None:
    script, answers = ATTACKS[attack]
    coordinator = Coordinator(work=script(stage))
    async with stage.serving(coordinator), stage.daemon() as store:
        await until(lambda: coordinator.declines)
        assert len(coordinator.contributions) == answers
        assert [row.kind for row in store.egress.rows()] == [*["count", "row-norms"][:answers], "decline"]
    assert [decline.reason for decline in coordinator.declines] == [pb.DECLINE_REASON_PROTOCOL]
    alarms = [r for r in caplog.records if r.levelno == logging.ERROR and r.name == "eigenveil"]
    assert len(alarms) == 1
    assert "declined" in alarms[0].message


async def test_work_that_cannot_even_be_named_is_alarmed_and_survived(stage: Stage, caplog: Log) -> None:
    plan = a_plan()
    nonsense = [
        pb.NextWorkResponse(query=pb.Query(plan_digest=b"short")),
        pb.NextWorkResponse(ended=[pb.StudyEnd(plan_digest=b"short", state=pb.STUDY_STATE_FAILED)]),
    ]
    coordinator = Coordinator(work=[*nonsense, *script(stage, plan, queries(plan))])
    async with stage.serving(coordinator), stage.daemon():
        await until(lambda: len(coordinator.contributions) == len(queries(plan)))
    assert sum("work-unreadable" in record.message for record in caplog.records) == 2


async def test_unwritable_note_at_the_end_is_an_error(stage: Stage, monkeypatch: Patch) -> None:
    monkeypatch.setattr(store_module, "NOTE_SECONDS", 60.0)  # so that the end is the first to find out
    plan, note = a_plan(), stage.config.identity / NAME
    coordinator = Coordinator(work=script(stage, plan, queries(plan)))
    with refused(Code.STORAGE, str(note)):
        async with stage.serving(coordinator), stage.daemon():
            await until(lambda: len(coordinator.contributions) == len(queries(plan)))
            note.unlink()
            note.mkdir()


async def test_a_study_that_the_coordinator_does_not_know_is_settled(stage: Stage, caplog: Log) -> None:
    """It forgot it in a restore: what was set aside would be lost for ever."""
    caplog.set_level(logging.INFO, "eigenveil")
    plan = a_plan()
    coordinator = Coordinator(work=script(stage, plan, queries(plan)[:1]))
    async with stage.serving(coordinator), stage.daemon() as store:
        await until(lambda: coordinator.contributions)
        coordinator.work.append(ended(plan, pb.STUDY_STATE_UNSPECIFIED))
        await until(lambda: not store.ledger.ledger.reserved)
        assert store.ledger.ledger.spent.micro_rho == rehearse(plan)[0].priced.micro_rho
        await until(lambda: not coordinator.requests[-1].known_plans)
    assert f"study-ended study={plan.digest[:12]} state=unknown" in caplog.messages


LISTENING = "0A"


def sockets(pid: int) -> list[list[str]]:
    stored = set()
    for path in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            stored.add(os.readlink(path))
    tables = [Path(f"/proc/{pid}/net/{name}").read_text() for name in ("tcp", "tcp6", "udp", "udp6")]
    rows = [line.split() for table in tables for line in table.splitlines()[1:]]
    return [row for row in rows if f"socket:[{row[9]}]" in stored]


async def test_it_connects_to_its_coordinator_alone_and_listens_on_nothing(stage: Stage) -> None:
    plan = a_plan()
    coordinator = Coordinator(work=[work(query, stage.signed(plan)) for query in rehearse(plan)])
    config, notes = written(stage), stage.folder / "sockets"
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).with_name("listener")), *sys.path]),
        "EIGENVEIL_SOCKETS": str(notes),
    }
    seen: list[list[str]] = []

    async def scenario() -> int:
        async with stage.serving(coordinator) as port:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "eigenveil_client.site.commands.main", "serve", "--config", str(config),
                stdout=DEVNULL, stderr=DEVNULL, env=environment,
            )  # fmt: skip

            def all_answered() -> bool:
                seen.extend(sockets(process.pid))
                return len(coordinator.contributions) == len(rehearse(plan))

            try:
                await until(all_answered)
                assert [runs_outdated(one) for one in (loaded, changed)] == [False, True]
            finally:
                process.terminate()
                await process.wait()
            return port

    loaded = site_config.load(config)
    changed = replace(loaded, offers=("a",))
    port = await scenario()
    assert not runs_outdated(changed), "no daemon runs"
    assert seen
    assert not [row for row in seen if row[3] == LISTENING]
    assert {address.split(":")[1] for address in {row[2] for row in seen}} <= {f"{port:04X}", "0000"}
    message = set(notes.read_text().splitlines())
    connected = {line for line in message if line.startswith("socket.connect")}
    assert connected == {f"socket.connect (('127.0.0.1', {port}),)"}
    assert {line for line in message if not line.startswith("socket.connect")} <= {
        line for line in message if f"'127.0.0.1', {port}" in line or "localhost" in line
    }
