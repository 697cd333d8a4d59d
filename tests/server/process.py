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

from eigenveil_server import cli
from tests.server.rig import Client, Credentials, connected

ENVIRONMENT = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}


def command(*arguments: str) -> tuple[int, str, str]:
    """Run eigenveil-coordinator in this process; its exit code, output and errors."""
    out, err = io.StringIO(), io.StringIO()
    argv = mock.patch.object(sys, "argv", ["eigenveil-coordinator", *arguments])
    with argv, redirect_stdout(out), redirect_stderr(err):
        code = cli.main()
    return code, out.getvalue(), err.getvalue()


class Coordinator:
    def __init__(self, process: asyncio.subprocess.Process, serving: Mapping[str, object]) -> None:
        self.process = process
        self.serving = serving
        self.clients: list[Client] = []

    def connect(self, stored: Credentials) -> Client:
        self.clients.append(connected(stored, self.serving["port"]))
        return self.clients[-1]

    async def end(self, number: signal.Signals) -> int:
        for client in self.clients:
            await client.channel.close()
        if self.process.returncode is None:
            self.process.send_signal(number)
        return await self.process.wait()


async def _serve(config: Path, stdout: int) -> asyncio.subprocess.Process:
    program = (sys.executable, "-m", "eigenveil_server.cli", "serve", "--config", str(config))
    nowhere = asyncio.subprocess.DEVNULL
    return await asyncio.create_subprocess_exec(*program, stdout=stdout, stderr=nowhere, env=ENVIRONMENT)


async def exit_of_serve(config: Path) -> int:
    """Try to serve in a process of its own; its exit code."""
    return await (await _serve(config, asyncio.subprocess.DEVNULL)).wait()


@asynccontextmanager
async def process(config: Path) -> AsyncIterator[Coordinator]:
    """Serve `config` in a process of its own."""
    started = await _serve(config, asyncio.subprocess.PIPE)
    assert started.stdout is not None
    coordinator = Coordinator(started, json.loads(await started.stdout.readline()))
    try:
        yield coordinator
    finally:
        await coordinator.end(signal.SIGKILL)
