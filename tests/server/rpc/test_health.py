"""The probes' port takes no more descriptors than its share."""

from __future__ import annotations

import asyncio
import os
import socket
from contextlib import ExitStack

from eigenveil_server.rpc.health import CONNECTIONS, Health
from tests.server.rig import in_loop

SOCKETS = 4 * CONNECTIONS
OURS = 8  # of gRPC and the loop, which come and go


@in_loop
async def test_sockets_beyond_the_share_are_closed_at_once() -> None:
    health = Health("127.0.0.1:0")
    await health.start()
    before = len(os.listdir("/proc/self/fd"))
    with ExitStack() as held:
        for _ in range(SOCKETS):
            held.enter_context(socket.create_connection(("127.0.0.1", health.port)))
            await asyncio.sleep(0)
        async with asyncio.timeout(100):
            while len(os.listdir("/proc/self/fd")) - before - SOCKETS > CONNECTIONS + OURS:
                await asyncio.sleep(0.05)
    await health.stop()
