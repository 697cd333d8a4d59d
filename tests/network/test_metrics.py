"""Metrics and health: what they show, and that a probe without a certificate reaches nothing else."""

from __future__ import annotations

import asyncio
import logging
import re
import threading
import urllib.request
from collections import Counter
from dataclasses import replace
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from eigenveil.accounting.budget import PrivacyBudget
from eigenveil.accounting.ledger import Ledger
from eigenveil.accounting.zcdp import Cost
from eigenveil.errors import Code
from eigenveil.identity import Role
from eigenveil_client.demo.federation import free_ports
from eigenveil_client.site.daemon import metrics
from eigenveil_client.site.daemon.metrics import Contact
from eigenveil_common.storage.ledger_store import LedgerTotals
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from eigenveil_proto.v1.eigenveil_pb2_grpc import CoordinatorStub, EnrolmentStub
from eigenveil_server import metrics as coordinator_metrics
from eigenveil_server.config import Config, split_listen
from eigenveil_server.daemon import Daemon
from eigenveil_server.metrics import Metrics
from eigenveil_server.rpc.listeners import Health
from tests.server.rig import Rig, answering, made, refusal, serving, study_toml
from tests.support import a_hello, refused

SERVING = health_pb2.HealthCheckResponse.SERVING
# A call to a method that a listener does not have is never taken (see eigenveil_server.rpc.listeners).
UNTAKEN = {grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED, grpc.StatusCode.UNAVAILABLE}


def scraped(text: str) -> dict[str, float]:
    return {
        line.rpartition(" ")[0]: float(line.rpartition(" ")[2])
        for line in text.splitlines()
        if line and not line.startswith("#")
    }


async def scrape(address: str) -> str:
    def fetch() -> str:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(f"http://{address}/metrics", timeout=10) as answer:
            return str(answer.read().decode())

    return await asyncio.to_thread(fetch)


async def one_study(rig: Rig) -> None:
    """A study to its end, and one refused call."""
    sites = await rig.sites()
    async with answering(sites):
        analyst = await rig.client(Role.ANALYST, "ada")
        digest = await analyst.submit(study_toml())
        await analyst.events(digest)
    failure = await refusal(analyst.stub.GetRelease(pb.GetReleaseRequest(plan_digest=b"\1" * 32)))
    assert failure.code is Code.NOT_FOUND


async def test_a_scrape_shows_budget_studies_rounds_and_certificates(tmp_path: Path) -> None:
    config = made(tmp_path / "c", metrics=f"127.0.0.1:{free_ports()[0]}")
    async with serving(config) as rig:
        before = scraped(await scrape(config.metrics))
        await one_study(rig)
        after = scraped(await scrape(config.metrics))
    assert before['eigenveil_studies{state="released"}'] == 0
    assert after['eigenveil_studies{state="released"}'] == 1
    assert before['eigenveil_budget_micro_rho{part="spent"}'] == 0
    assert after['eigenveil_budget_micro_rho{part="total"}'] == config.budget.mixed.micro_rho
    assert 0 < after['eigenveil_budget_micro_rho{part="spent"}'] < config.budget.mixed.micro_rho
    assert after['eigenveil_budget_micro_rho{part="reserved"}'] == 0
    assert after['eigenveil_rounds_total{outcome="released"}'] == after["eigenveil_round_seconds_count"] >= 1
    assert after['eigenveil_refused_calls_total{code="not-found"}'] == 1
    assert 6 < after['eigenveil_certificate_days_left{certificate="coordinator"}'] <= 7
    assert after['eigenveil_certificate_days_left{certificate="authority"}'] > 3000
    assert "eigenveil_sites_connected" in after


async def test_a_probe_without_a_certificate_reaches_health_and_nothing_else(tmp_path: Path) -> None:
    config = made(tmp_path / "c", health=f"127.0.0.1:{free_ports()[0]}")
    async with serving(config), grpc.aio.insecure_channel(config.health) as channel:
        probe = health_pb2_grpc.HealthStub(channel)
        for service in ("", "eigenveil.v1.Coordinator"):
            assert (await probe.Check(health_pb2.HealthCheckRequest(service=service))).status == SERVING
        for call in (
            CoordinatorStub(channel).Hello(a_hello(), timeout=1),
            EnrolmentStub(channel).Enrol(pb.EnrolRequest(token="x", csr_der=b"x"), timeout=1),
        ):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await call
            assert caught.value.code() in UNTAKEN


async def test_watchers_of_health_see_the_end(tmp_path: Path) -> None:
    config = made(tmp_path / "c", health=f"127.0.0.1:{free_ports()[0]}")
    daemon = Daemon(config)
    await daemon.start()
    async with grpc.aio.insecure_channel(config.health) as channel:
        watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
        received = [(await watch.read()).status]
        stopping = asyncio.create_task(daemon.stop())
        received.append((await watch.read()).status)
        await stopping
    assert received == [SERVING, health_pb2.HealthCheckResponse.NOT_SERVING]


@pytest.mark.parametrize("key", ["metrics", "health"])
@pytest.mark.parametrize("value", ["9464", "127.0.0.1:http", "a b:1"])
def test_an_address_that_cannot_be_listened_on_is_refused(tmp_path: Path, key: str, value: str) -> None:
    with refused(Code.BAD_CONFIG, "write host:port"):
        Config(federation="f", state=tmp_path, **{key: value})  # type: ignore[arg-type]


async def test_a_taken_port_is_named(tmp_path: Path) -> None:
    taken = await asyncio.start_server(lambda r, w: w.close(), "127.0.0.1", 0)
    address = f"127.0.0.1:{taken.sockets[0].getsockname()[1]}"
    async with taken, serving(made(tmp_path / "c")) as rig:
        config = replace(rig.config, metrics=address)
        with refused(Code.BAD_CONFIG, address, "for metrics"):
            listener = Metrics().make_listener(
                config, rig.daemon.runtime.repository.store, rig.daemon.runtime.repository.ledger
            )
            await listener.open(*split_listen(address))
        with refused(Code.BAD_CONFIG, address, "for health"):
            Health(address)


async def test_endless_requests_cost_no_threads_and_delay_no_scrape(tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_ports()[0]}"
    async with serving(replace(made(tmp_path / "c"), metrics=address)):
        host, port = split_listen(address)
        await scrape(address)
        before = threading.active_count()
        half = [
            await asyncio.open_connection(host, port) for _ in range(5 * coordinator_metrics.MOST_AT_ONCE)
        ]
        for _, writer in half:
            writer.write(b"GET /metrics HTTP/1.1\r\n")
        assert "eigenveil_budget_micro_rho" in await scrape(address)
        assert await half[0][0].read() == b"", "the oldest gave way"
        assert threading.active_count() <= before + 1
        for _, writer in half:
            writer.transport.abort()


async def test_a_site_s_metrics_are_a_file_that_is_replaced_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    contact = Contact(
        connected=True, connections=2, last=1000.0, ends=86400.0 * 3, disconnects=Counter(identity=1)
    )
    ledger = Ledger(PrivacyBudget(mixed=Cost(micro_rho=500)))
    ledger.apply(ledger.reserve("ab" * 32, Cost(micro_rho=200), at=1))
    totals = LedgerTotals.of(ledger)
    result = scraped(metrics.metrics_text(contact, totals, 86400.0).decode())
    assert result['eigenveil_site_budget_micro_rho{part="total"}'] == 500
    assert result['eigenveil_site_budget_micro_rho{part="reserved"}'] == 200
    assert result["eigenveil_site_certificate_days_left"] == 2
    assert result['eigenveil_site_lost_total{code="identity"}'] == 1

    monkeypatch.setattr(metrics, "WRITE_SECONDS", 0.001)
    caplog.set_level(logging.INFO, "eigenveil")
    path = tmp_path / "site.prom"

    task = asyncio.create_task(metrics.write_periodically(path, contact, lambda: totals))
    while not path.exists():
        await asyncio.sleep(0.001)
    for _ in range(50):
        assert path.read_text().endswith("\n")
        await asyncio.sleep(0.001)
    task.cancel()
    gone = asyncio.create_task(metrics.write_periodically(tmp_path / "gone" / "x", contact, lambda: totals))
    await asyncio.sleep(0.05)
    assert not gone.done()
    gone.cancel()
    assert path.stat().st_mode & 0o777 == 0o644
    assert [name for name in caplog.messages if name.startswith("metrics-unwritten")] != []
    assert len([name for name in caplog.messages if name.startswith("metrics-unwritten")]) == 1


def test_no_metric_speaks_of_records() -> None:
    names = re.compile(r"(record|row|cohort|norm|value|mean|variance)")
    ledger = Ledger(PrivacyBudget(mixed=Cost(micro_rho=500)))
    totals = LedgerTotals.of(ledger)
    text = metrics.metrics_text(Contact(), totals, 0.0).decode()
    assert not names.search(text)
    source = (Path(__file__).parents[2] / "server/eigenveil_server/metrics.py").read_text()
    assert not [name for name in re.findall(r'"(eigenveil_[a-z_]+)"', source) if names.search(name)]
