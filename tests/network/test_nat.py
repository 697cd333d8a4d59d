"""A long poll through a NAT that forgets a connection after a while without a byte.

The settings are those of the product, divided by 20 so that a test can wait for them. Promised: a mapping
that lives longer than the time between two pings is kept alive by them; one that was forgotten
nevertheless is noticed when the poll's own time is over, and the site dials again. (gRPC's ping timeout
is left at a minute on purpose: on a slow line an answer to a ping waits behind a megabyte of data.)"""

from __future__ import annotations

import asyncio
from unittest import mock

import pytest

from eigenveil_client.connection import tls
from eigenveil_client.site.daemon import connection
from eigenveil_client.site.daemon.connection import MAX_POLL_SECONDS, POLL_SLACK_SECONDS
from eigenveil_common import rpc
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from tests.client.site import support
from tests.client.site.support import Coordinator, Stage, store_identity, until
from tests.network.forwarders import Middle

KEEPALIVE = "grpc.keepalive_time_ms"
INTERVAL = "grpc.http2.min_ping_interval_without_data_ms"
COMMON_NAT_SECONDS = 60.0  # many firewalls forget an idle TCP connection no sooner
FASTER = 20


def options(**changes: int) -> tuple[tuple[str, int | str], ...]:
    stored = dict(tls.CLIENT_OPTIONS)
    return tuple((stored | {KEEPALIVE: int(stored[KEEPALIVE]) // FASTER} | changes).items())


def served() -> tuple[tuple[str, int | str], ...]:
    """The server's options, faster: how often it lets a client ping."""
    stored = dict(rpc.SERVER_OPTIONS)
    return tuple((stored | {INTERVAL: int(stored[INTERVAL]) // FASTER}).items())


def test_the_settings_outlive_a_common_nat() -> None:
    stored, served = dict(tls.CLIENT_OPTIONS), dict(rpc.SERVER_OPTIONS)
    assert 2 * int(stored[KEEPALIVE]) <= 1000 * COMMON_NAT_SECONDS  # two pings, so that one may be lost
    assert (
        int(stored["grpc.http2.max_pings_without_data"]) == 0
    )  # a long poll sends nothing for its whole length
    assert int(served["grpc.http2.min_ping_interval_without_data_ms"]) < int(stored[KEEPALIVE])
    assert MAX_POLL_SECONDS + POLL_SLACK_SECONDS > rpc.LONG_POLL_SECONDS


async def idle_then_work(stage: Stage, middle: Middle, seconds: float) -> int:
    """A site polls through `middle`, idles, and then gets work; how often it had dialled by then."""
    coordinator = Coordinator()
    async with stage.serving(coordinator) as port:
        middle.target = port
        async with middle.listening() as where:
            store_identity(stage.authority, stage.config.identity, f"127.0.0.1:{where}")
            async with stage.daemon():
                await until(lambda: coordinator.requests)
                await asyncio.sleep(seconds)
                dialled, before = middle.seen, len(coordinator.requests)
                end = pb.StudyEnd(plan_digest=b"\7" * 32, state=pb.STUDY_STATE_CANCELLED)
                coordinator.work.append(pb.NextWorkResponse(ended=[end]))
                await until(lambda: len(coordinator.requests) > before)
    return dialled


@pytest.mark.slow
async def test_pings_maintain_a_mapping(stage: Stage) -> None:
    middle = Middle(idle=COMMON_NAT_SECONDS / FASTER)
    with (
        mock.patch.object(tls, "CLIENT_OPTIONS", options()),
        mock.patch.object(support, "SERVER_OPTIONS", served()),
    ):
        dialled = await idle_then_work(stage, middle, 4.5)
    assert (dialled, middle.forgotten) == (2, 0)  # the handshake that checks, and the channel


@pytest.mark.slow
async def test_without_pings_the_same_nat_forgets(stage: Stage) -> None:
    """Else the test above would show nothing. The poll that never ends is noticed and asked anew."""
    middle = Middle(idle=COMMON_NAT_SECONDS / FASTER)
    never = options(**{KEEPALIVE: 2**31 - 1})
    with (
        mock.patch.object(tls, "CLIENT_OPTIONS", never),
        mock.patch.object(connection, "MAX_POLL_SECONDS", MAX_POLL_SECONDS / FASTER),
        mock.patch.object(connection, "POLL_SLACK_SECONDS", POLL_SLACK_SECONDS / FASTER),
    ):
        dialled = await idle_then_work(stage, middle, 6.0)
    assert middle.forgotten > 0
    assert dialled > 2
