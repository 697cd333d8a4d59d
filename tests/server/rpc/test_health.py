"""The probes' port takes no more descriptors than its share."""

from __future__ import annotations

import asyncio
import select
import socket
from contextlib import ExitStack

import pytest

from eigenveil_server.rpc import listeners as probes
from eigenveil_server.rpc.listeners import CONNECTIONS, Health

SOCKETS = 4 * CONNECTIONS
HOUR_MS = 3_600_000
PATIENT = {"grpc.server_handshake_timeout_ms": HOUR_MS, "grpc.http2.settings_timeout": HOUR_MS}


async def test_sockets_beyond_the_share_are_closed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """At once, and not because they were silent for too long."""
    assert PATIENT.keys() <= dict(probes.OPTIONS).keys()
    monkeypatch.setattr(probes, "OPTIONS", tuple((dict(probes.OPTIONS) | PATIENT).items()))
    health = Health("127.0.0.1:0")
    await health.start()
    closed = select.poll()
    with ExitStack() as stored:
        for _ in range(SOCKETS):
            one = stored.enter_context(socket.create_connection(("127.0.0.1", health.port)))
            closed.register(one, select.POLLRDHUP)
            await asyncio.sleep(0)
        async with asyncio.timeout(60):
            while len(closed.poll(0)) < SOCKETS - CONNECTIONS:
                await asyncio.sleep(0.05)
    await health.stop()
