"""A site's daemon listens on nothing and talks to its coordinator alone, say kernel and audit events."""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio.subprocess import DEVNULL
from contextlib import suppress
from pathlib import Path

from eigenveil.planning.choose import rehearse
from tests.client.site.command_line import written
from tests.client.site.support import Coordinator, Stage, a_plan, until, work

LISTENING = "0A"


def sockets(pid: int) -> list[list[str]]:
    """The rows of /proc/PID/net/{tcp,tcp6,udp,udp6} that belong to this process."""
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
            finally:
                process.terminate()
                await process.wait()
            return port

    port = await scenario()
    assert seen
    assert not [row for row in seen if row[3] == LISTENING]
    remote = {row[2] for row in seen}
    assert {address.split(":")[1] for address in remote} <= {f"{port:04X}", "0000"}
    message = set(notes.read_text().splitlines())
    connected = {line for line in message if line.startswith("socket.connect")}
    assert connected == {f"socket.connect (('127.0.0.1', {port}),)"}
    assert {line for line in message if not line.startswith("socket.connect")} <= {
        line for line in message if f"'127.0.0.1', {port}" in line or "localhost" in line
    }
