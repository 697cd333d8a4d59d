"""The coordinator as an operating-system process, to be killed at any moment."""

from __future__ import annotations

import asyncio
import io
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from unittest import mock

import grpc

from eigenveil_common.rpc import OPTIONS
from eigenveil_proto.v1.eigenveil_pb2_grpc import CoordinatorStub
from eigenveil_server import cli
from tests.server.rig import Client, Credentials

ENVIRONMENT = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}


def command(*arguments: str) -> tuple[int, str, str]:
    """Run eigenveil-coordinator in this process; its exit code, output and errors."""
    out, err = io.StringIO(), io.StringIO()
    argv = mock.patch.object(sys, "argv", ["eigenveil-coordinator", *arguments])
    with argv, redirect_stdout(out), redirect_stderr(err):
        code = cli.main()
    return code, out.getvalue(), err.getvalue()


class Coordinator:
    """One running process."""

    def __init__(self, process: asyncio.subprocess.Process, serving: Mapping[str, object]) -> None:
        self.process = process
        self.serving = serving
        self.clients: list[Client] = []

    def connect(self, held: Credentials) -> Client:
        """A client that presents `held`."""
        channel = grpc.aio.secure_channel(
            f"127.0.0.1:{self.serving['port']}",
            grpc.ssl_channel_credentials(held.ca, held.key, held.certificate),
            options=(*OPTIONS, ("grpc.use_local_subchannel_pool", 1)),
        )
        client = Client(name=held.name, stub=CoordinatorStub(channel), channel=channel)
        self.clients.append(client)
        return client

    async def end(self, number: signal.Signals) -> int:
        """Send a signal; the exit code."""
        for client in self.clients:
            await client.channel.close()
        if self.process.returncode is None:
            self.process.send_signal(number)
        return await self.process.wait()


async def exit_of_serve(config: Path) -> int:
    """Try to serve in a process of its own; its exit code."""
    started = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "eigenveil_server.cli", "serve", "--config", str(config)),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
        env=ENVIRONMENT,
    )
    return await started.wait()


@asynccontextmanager
async def process(config: Path) -> AsyncIterator[Coordinator]:
    """Serve `config` in a process of its own."""
    started = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "eigenveil_server.cli", "serve", "--config", str(config)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env=ENVIRONMENT,
    )
    assert started.stdout is not None
    coordinator = Coordinator(started, json.loads(await started.stdout.readline()))
    try:
        yield coordinator
    finally:
        await coordinator.end(signal.SIGKILL)
