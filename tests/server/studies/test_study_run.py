"""The small parts on their own: noise ahead, group commit, inbox, gate, configuration."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from eigenveil.errors import Code, InternalError, PeerError, RequestError
from eigenveil.noise.source import Block, NoiseSpec, OsNoise
from eigenveil.numerics.encoding import IntArray, frozen
from eigenveil.protocol.query import PricedQuery, RoundQuery
from eigenveil.queries import Count
from eigenveil.study.study import Federation
from eigenveil_common.storage.database import Connection
from eigenveil_common.storage.sqlite import SqliteDatabase
from eigenveil_server.config import Config
from eigenveil_server.front.quota import ConnectionInfo, GatewayClient
from eigenveil_server.pki.registry import Registry
from eigenveil_server.process import unix_ms
from eigenveil_server.rounds.round import DifferentAnswer, Round
from eigenveil_server.rounds.sealing import PreparedNoise
from eigenveil_server.rpc.callers import Admissions, Calls
from eigenveil_server.rpc.interceptor import Authenticator, admit_uncertified
from eigenveil_server.rpc.sites import SiteSessions
from eigenveil_server.storage.database import open_store
from eigenveil_server.storage.repository import GroupCommit
from eigenveil_server.storage.states import DECLINES
from eigenveil_server.storage.study_reads import RoundAnswers
from eigenveil_server.studies.contributions import _run_inline
from eigenveil_server.studies.runtime import ChangeEvent

SPEC = NoiseSpec(blocks=(Block(count=3, scale=2.0),))
OTHER = NoiseSpec(blocks=(Block(count=3, scale=2.5),))


class Ones(OsNoise):
    private = False

    def __init__(self) -> None:
        self.draws = 0

    def draw(self, spec: NoiseSpec) -> IntArray:
        self.draws += 1
        return frozen([1] * spec.length)


def test_prepared_noise_is_handed_out_once_and_only_as_specified() -> None:
    source = Ones()
    with ThreadPoolExecutor(1) as threads:
        ahead = PreparedNoise(source, threads)
        assert ahead.private is False
        ahead.prepare(SPEC)
        assert ahead.draw(SPEC).tolist() == [1, 1, 1]
        for prepared, round_query in ((None, SPEC), (SPEC, OTHER), (OTHER, SPEC)):
            if prepared is not None:
                ahead.prepare(prepared)
            with pytest.raises(InternalError, match="not the prepared noise"):
                ahead.draw(round_query)
            with pytest.raises(InternalError):
                ahead.draw(round_query)
        ahead.prepare(SPEC)
        ahead.discard()
        with pytest.raises(InternalError):
            ahead.draw(SPEC)
    assert source.draws <= 4


async def test_a_change_wakes_all_or_those_whom_it_names() -> None:
    event, woken = ChangeEvent(), list[str]()

    async def wait(name: str) -> None:
        await event.wait(60.0, name)
        woken.append(name)

    tasks = [asyncio.create_task(wait(name)) for name in ("anna", "anna", "bert", "")]
    await asyncio.sleep(0)
    for subscribers, expected in ((("anna", "carl"), ["anna", "anna"]), (None, ["anna", "anna", "bert", ""])):
        event.notify(subscribers)
        await asyncio.sleep(0.01)
        assert woken == expected
    await asyncio.gather(*tasks)
    assert not event._waiting, "nothing is kept of who has left"


def test_a_failed_transaction_fails_everybody_in_it(tmp_path: Path) -> None:
    database = SqliteDatabase(tmp_path / "x.db", "CREATE TABLE t (i INTEGER) STRICT;", 1)

    def broken(change: Connection) -> None:
        change.execute("INSERT INTO nothing VALUES (1)")

    def fine(change: Connection) -> None:
        change.execute("INSERT INTO t VALUES (1)")

    async def scenario() -> list[BaseException | None]:
        writer = GroupCommit(database)
        calls = (writer.write(fine), writer.write(broken))
        found = await asyncio.gather(*calls, return_exceptions=True)
        writer.close()
        return list(found)

    for problem in asyncio.run(scenario()):
        assert isinstance(problem, InternalError)
        assert problem.code is Code.STORAGE
    assert database.rows("SELECT * FROM t") == []
    database.close()


def inbox(macs: dict[str, bytes] | None = None, **federation: Any) -> Round:
    """The open first round of a study with the sites a, b and c."""
    query = RoundQuery(PricedQuery(query=Count(), micro_rho=1), "0" * 64, 0)
    return Round(
        query, Federation(sites=("a", "b", "c"), **federation), RoundAnswers(macs=macs or {}, declined={})
    )


def add_answer(box: Round, site: str, mac: bytes) -> bool:
    """Add an answer; whether it was here before."""
    return asyncio.run(box.add_answer(site, mac, frozen([1]), _run_inline))


def declines(box: Round, site: str, reason: str) -> None:
    box.decline(site, reason)
    box.stored([site])


def test_a_round_is_ready_when_no_site_is_awaited() -> None:
    box = inbox(quorum=2)
    add_answer(box, "a", b"m")
    add_answer(box, "b", b"m")
    assert not box.ready.is_set()
    box.decline("c", "policy")
    assert not box.ready.is_set()  # a decline counts once it is stored
    box.stored(["c"])
    assert box.ready.is_set()
    assert list(asyncio.run(box.freeze())) == ["a", "b"]
    assert box.absent() == {"c": "declined: policy"}


def test_a_round_is_ready_when_it_cannot_succeed() -> None:
    box = inbox(quorum=1, required=("b",))
    declines(box, "a", "policy")
    assert not box.ready.is_set()
    declines(box, "b", "budget")
    assert box.ready.is_set()
    few = inbox(quorum=2)
    declines(few, "a", "policy")
    declines(few, "b", "policy")
    assert few.ready.is_set()


async def test_what_is_here_at_the_close_is_in_and_stored_by_it() -> None:
    box = inbox()
    await box.add_answer("a", b"m", frozen([1]), _run_inline)
    await box.add_answer("b", b"n", frozen([1]), _run_inline)
    assert list(await box.freeze()) == ["a", "b"]
    assert box.macs() == {"a": b"m", "b": b"n"}
    assert box.statuses() == {"a": "answered", "b": "answered", "c": "absent"}
    waiting = asyncio.create_task(box.wait_until_settled(60))
    await asyncio.sleep(0)
    assert not waiting.done()
    box.settle(durable=True)
    assert await waiting
    assert await box.add_answer("a", b"m", frozen([1]), _run_inline)
    with pytest.raises(RequestError, match="was closed"):
        await box.add_answer("c", b"m", frozen([1]), _run_inline)


async def test_nothing_is_released_of_a_sum_to_which_one_answer_was_not_added_to_its_end() -> None:
    async def fails(add: Callable[[str, IntArray], None], site: str, values: IntArray) -> None:
        raise MemoryError

    box = inbox()
    with pytest.raises(MemoryError):
        await box.add_answer("a", b"m", frozen([1]), fails)
    await box.add_answer("b", b"n", frozen([1]), _run_inline)
    await box.freeze()
    with pytest.raises(InternalError, match="added only in part"):
        box.total()


async def test_a_wait_for_storage_reports_its_failure_and_ends_at_its_timeout() -> None:
    box = inbox()
    await box.add_answer("a", b"m", frozen([1]), _run_inline)
    await box.freeze()
    assert not await box.wait_until_settled(0.01)
    box.settle(durable=False)
    assert not await box.wait_until_settled(60)


def test_after_a_restart_a_site_sends_the_same_or_declines() -> None:
    box = inbox({"a": b"m", "b": b"m"})
    assert box.awaits("a")
    with pytest.raises(DifferentAnswer):
        add_answer(box, "a", b"x")
    assert add_answer(box, "a", b"m")
    box.decline("b", "failure")
    assert not box.awaits("b")


@pytest.mark.parametrize("reason", sorted(DECLINES.values()))
async def test_what_analysts_see_of_a_decline_does_not_depend_on_records(reason: str) -> None:
    box = inbox(quorum=2)
    declines(box, "a", reason)
    result = {"policy", "budget", "protocol", "version"} & {reason}
    assert box.statuses()["a"] == ":".join(["declined", *result])
    await box.freeze()
    assert box.absent()["a"] == ": ".join(["declined", *result])


def test_the_gate_insists_on_tls_1_3_and_a_certificate(tmp_path: Path) -> None:
    store = open_store(tmp_path / "state.db")
    sessions = SiteSessions(store, Calls(), unix_ms)
    peers = Authenticator(Admissions(store, Registry(store, "fed", unix_ms)), sessions, "fed", unix_ms)

    def info(tls: str, certificate: bytes = b"") -> ConnectionInfo:
        return ConnectionInfo(
            peer="x:1", certificate=certificate, tls=tls, client=GatewayClient(name="x", role=None)
        )

    old = info("TLSv1.2", b"irrelevant")
    with pytest.raises(PeerError, match=r"TLS 1\.3 is required"):
        asyncio.run(peers.admit("Hello", old))
    with pytest.raises(PeerError, match="a client certificate is required"):
        asyncio.run(peers.admit("Hello", info("TLSv1.3")))
    with pytest.raises(PeerError, match="is required"):
        asyncio.run(peers.admit("Hello", info("")))
    with pytest.raises(PeerError):
        asyncio.run(admit_uncertified("Enrol", old))
    with pytest.raises(PeerError):
        asyncio.run(admit_uncertified("Hello", info("TLSv1.3")))
    store.close()


@pytest.mark.parametrize(
    "changes",
    [
        {"federation": "Not A Name"},
        {"host": "a b"},
        {"port": 70_000},
        {"port": 7444},
        {"budget_epsilon": float("nan")},
        {"budget_epsilon": 0.0},
        {"budget_delta": 1.0},
        {"max_epsilon_per_study": 0.0},
        {"certificate_days": -1.0},
        {"long_poll_seconds": 51.0},
        {"max_uploads": 0},
    ],
)
def test_nonsense_in_the_configuration_is_refused(tmp_path: Path, changes: dict[str, Any]) -> None:
    values: dict[str, Any] = {"federation": "fed", "state": tmp_path, **changes}
    with pytest.raises(RequestError) as refused:
        Config(**values)
    assert refused.value.code is Code.BAD_CONFIG
    assert next(iter(changes)) in str(refused.value)
