"""Check 2, third part: a coordinator put back to an older state, while its sites hold later checkpoints.

Real processes. It must stop before it opens a round, refuse to start again, and once its operator accepts
the loss, it must have charged at least what was spent. One that was put back to its latest state must go on.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from unittest import mock

from eigenveil.errors import Code
from eigenveil_client.analyst.client import Analyst
from eigenveil_client.connection import channel
from eigenveil_common.config import load
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from eigenveil_server.config import Config, Files
from eigenveil_server.storage.database import open_store
from tests.server.rig import study_toml
from tests.torture.crashes.armed import SHORT_PAUSE
from tests.torture.crashes.forked import COORDINATOR, GLANCE, SITES, Federation

END_SECONDS = 60.0
STUDY = study_toml(sites=SITES, deadline_seconds=20.0)


async def study(here: Federation, name: str) -> int:
    async with Analyst(here.analyst) as analyst:
        plan, _ = await analyst.submit(STUDY, name)
        events = [event async for event in analyst.watch(bytes.fromhex(plan.digest))]
        return events[-1].state


def spent(here: Federation) -> int:
    return _number(here, "SELECT COALESCE(SUM(micro_rho), 0) FROM ledger WHERE kind = 'charge'")


def rounds(here: Federation) -> int:
    return _number(here, "SELECT COUNT(*) FROM rounds")


def _number(here: Federation, statement: str) -> int:
    config = load(Path(here.config(COORDINATOR)), Config)
    with closing(open_store(config.store)) as store:
        return int(store.reader.rows(statement)[0][0])


async def waits(here: Federation) -> int:
    return await asyncio.to_thread(_number, here, "SELECT COUNT(*) FROM awaited_checkpoints")


async def _greeted(here: Federation) -> None:
    """Until every site has shown its checkpoint: before that, the coordinator takes no study."""
    async with asyncio.timeout(END_SECONDS):
        while await waits(here):
            await asyncio.sleep(GLANCE)


async def back_up(here: Federation, name: str) -> str:
    out = str(here.folder / name)
    code = await here.done(COORDINATOR, "backup", "--config", here.config(COORDINATOR), "--out", out)
    assert code == 0
    return out


async def put_back(here: Federation, source: str) -> None:
    here.stop([COORDINATOR])
    folder = here.folder / COORDINATOR
    shutil.rmtree(folder)
    assert await here.done(COORDINATOR, "restore", "--from", source, "--dir", str(folder)) == 0


async def put_back_by_hand(here: Federation, source: str) -> None:
    """The same as a snapshot of a disk does it, with nothing that says so."""
    here.stop([COORDINATOR])
    folder = here.folder / COORDINATOR
    for path in folder.glob("state.db*"):
        path.unlink()
    shutil.copy(Path(source) / "state.db", folder / "state.db")


async def refuses(here: Federation) -> list[str]:
    """Serve with sites that hold later checkpoints: what is wrong with how that ends, twice."""
    found, before = [], rounds(here)
    for attempt in ("first", "second"):
        here.start(COORDINATOR)
        async with asyncio.timeout(END_SECONDS):
            code = await here.ended(COORDINATOR)
        if code != Code.STORAGE.exit_code or not Files(here.folder / COORDINATOR).marker.exists():
            found.append(f"the {attempt} start ended with {code}")
    if rounds(here) != before:
        found.append("a round was opened")
    return found


async def accepts(here: Federation, owed: int) -> list[str]:
    found, before = [], rounds(here)
    for _ in SITES:  # each may hold a later checkpoint than the one that stopped the coordinator last
        if code := await here.done(COORDINATOR, "accept-loss", "--config", here.config(COORDINATOR)):
            found.append(f"accept-loss ended with {code}")
        here.start(COORDINATOR)
        await _shown_all(here)
        if here.processes[COORDINATOR].is_alive():
            break
    if spent(here) < owed:
        found.append(
            f"{spent(here)} of {owed} micro-rho were charged once every site had shown its checkpoint"
        )
    if rounds(here) != before:
        found.append("a round was opened before that")
    for name in SITES:
        code = await here.ended(name)
        if code != Code.CONFLICT.exit_code:
            found.append(f"{name}, shown an older ledger, ended with {code}")
        if await here.done(name, "accept-checkpoint", "--config", here.config(name)):
            found.append(f"{name} could not accept the checkpoint")
        here.start(name)
    await _greeted(here)
    if await study(here, "after") != pb.STUDY_STATE_RELEASED:
        found.append("no study runs after the loss was accepted")
    return found


async def _shown_all(here: Federation) -> None:
    """Until the coordinator has ended, or all sites have: each ends once it was shown the older ledger."""
    sites = [asyncio.create_task(here.ended(name)) for name in SITES]
    stopped = asyncio.create_task(here.ended(COORDINATOR))
    async with asyncio.timeout(END_SECONDS):
        while not stopped.done() and not all(site.done() for site in sites):
            await asyncio.sleep(GLANCE)
    for task in (stopped, *sites):
        task.cancel()
    await asyncio.gather(stopped, *sites, return_exceptions=True)


async def older(here: Federation, *, by_hand: bool) -> list[str]:
    """A study after the backup, then the backup: everything that must follow."""
    source = await back_up(here, f"backup-{by_hand}")
    if await study(here, f"later-{by_hand}") != pb.STUDY_STATE_RELEASED:
        return ["the study did not run"]
    owed = spent(here)
    await (put_back_by_hand if by_hand else put_back)(here, source)
    return [*await refuses(here), *await accepts(here, owed)]


async def latest(here: Federation) -> list[str]:
    """The control: a backup of the last state loses nothing, and goes on once its sites have greeted it."""
    if await study(here, "before") != pb.STUDY_STATE_RELEASED:
        return ["the study did not run"]
    await put_back(here, await back_up(here, "backup-latest"))
    await here.serves(here.start(COORDINATOR), COORDINATOR)
    await _greeted(here)
    return [] if await study(here, "restored") == pb.STUDY_STATE_RELEASED else ["it does not go on"]


async def _all(folder: Path, ways: Sequence[bool]) -> list[str]:
    here = Federation(folder, renews=False)  # a backup knows no certificate that is younger than it
    try:
        await here.set_up()
        for name in SITES:
            here.start(name)
        found = [f"latest: {fault}" for fault in await latest(here)]
        for by_hand in ways:
            word = "by hand" if by_hand else "restored"
            found += [f"{word}: {fault}" for fault in await older(here, by_hand=by_hand)]
        return found
    finally:
        here.stop()


async def run(folder: Path, scale: float) -> tuple[list[str], str]:
    """All of it; at a small scale only what the restore command makes."""
    with mock.patch.object(channel, "MAX_BACKOFF_SECONDS", SHORT_PAUSE):
        found = await _all(folder, (False, True) if scale >= 1 else (False,))
    return found, "older ones stop before a round, refuse to start, and charge the loss; a whole one goes on"
