"""Live pages: who may watch, how many, what a slow reader holds, and when a watch ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from eigenveil.identity import Role
from eigenveil_server.console.study_pages import LivePageBroker, PageFragment
from eigenveil_server.studies.runtime import ChangeEvent
from tests.server.console.visits import Browser, Visits, visited
from tests.server.rig import Client, answering, study_toml

SECONDS = 60.0


@asynccontextmanager
async def watching(browser: Browser, path: str) -> AsyncIterator[asyncio.StreamReader]:
    reader, writer = await asyncio.open_connection("127.0.0.1", browser.port, ssl=browser.context)
    try:
        writer.write(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{browser.port}\r\n\r\n".encode())
        await writer.drain()
        yield reader
    finally:
        writer.transport.abort()


async def status(reader: asyncio.StreamReader) -> int:
    head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), SECONDS)
    return int(head.split()[1])


async def until(reader: asyncio.StreamReader, words: bytes) -> bytes:
    return await asyncio.wait_for(reader.readuntil(words), SECONDS)


async def ended(reader: asyncio.StreamReader) -> bytes:
    """Remaining bytes until the other end closes."""
    try:
        return await asyncio.wait_for(reader.read(), SECONDS)
    except ConnectionError:
        return b""


async def begun(visits: Visits) -> tuple[str, Mapping[str, Client]]:
    """A study that waits for its sites, and these."""
    sites = await visits.rig.sites()
    analyst = await visits.rig.client(Role.ANALYST, "ada")
    return await analyst.submit(study_toml()), sites


async def test_a_watcher_sees_a_study_to_its_end_and_no_secret(visits: Visits) -> None:
    digest, sites = await begun(visits)
    operator = await visits.visitor(Role.OPERATOR, "olga")
    async with watching(operator, f"/studies/{digest}/live") as reader:
        assert await status(reader) == 200
        await until(reader, b">running<")
        async with answering(sites):
            result = await until(reader, b"Its result is released")
            result += await until(reader, b"\r\n0\r\n\r\n")  # the end of the answer
    assert b"csrf" not in result
    # Whoever asks again is told that there is nothing more: browsers then stop asking.
    assert (await operator.get(f"/studies/{digest}/live")).status == 204


async def test_a_denial_ends_a_live_page(visits: Visits) -> None:
    digest, _ = await begun(visits)
    analyst = await visits.visitor(Role.ANALYST, "abel")
    operator = await visits.visitor(Role.OPERATOR, "olga")
    async with (
        watching(analyst, f"/studies/{digest}/live") as denied_sites,
        watching(operator, f"/studies/{digest}/live") as check_admitted,
    ):
        for reader in (denied_sites, check_admitted):
            assert await status(reader) == 200
            await until(reader, b">running<")
        visits.rig.daemon.registry.deny(Role.ANALYST, "abel")
        await ended(denied_sites)
        assert not check_admitted.at_eof()
    async with watching(analyst, f"/studies/{digest}/live") as again:
        assert await status(again) == 403


async def test_one_watcher_too_many_is_refused_and_one_who_leaves_makes_room(tmp_path: Path) -> None:
    most = 8
    async with visited(tmp_path / "c", settings={"max_watches": most}) as visits:
        digest, _ = await begun(visits)
        browsers = [await visits.visitor(Role.OPERATOR, f"o{one}") for one in range(5)]
        path = f"/studies/{digest}/live"
        share = most // 4
        async with asyncio.timeout(3 * SECONDS):
            entered = [watching(one, path) for one in browsers[:4] for _ in range(share)]
            for one in entered:
                assert await status(await one.__aenter__()) == 200
            async with watching(browsers[4], path) as beyond:
                assert await status(beyond) == 429
            found = visits.rig.daemon.runtime.metrics.registry.get_sample_value
            assert found("eigenveil_console_watchers") == most
            await entered[0].__aexit__(None, None, None)
            while True:
                async with watching(browsers[4], path) as reader:
                    if await status(reader) == 200:
                        break
            for one in entered[1:]:
                await one.__aexit__(None, None, None)


async def test_a_study_is_looked_at_once_for_all_and_a_slow_reader_gets_the_latest() -> None:
    """A reader of one piece while a hundred are made gets the hundredth next; nothing waits for it."""
    news, made = ChangeEvent(), [0]

    async def make(seen: int) -> PageFragment | None:
        made[0] += 1
        return PageFragment(sequence=made[0], html=f"s {made[0]}", last=False)

    hub = LivePageBroker(news, pause=0.001)
    slow, quick = hub.pieces("s", make), hub.pieces("s", make)
    assert await anext(slow) == await anext(quick)
    while made[0] < 100:
        news.notify()
        await asyncio.sleep(0.001)
    latest = await anext(slow)
    assert int(latest.split()[1]) >= 100
    assert await anext(quick) == latest, "one piece was made for both"
    for one in (slow, quick):
        await one.aclose()
    await asyncio.sleep(0.01)
    done = made[0]
    news.notify()
    await asyncio.sleep(0.01)
    assert made[0] == done, "nobody watches, nobody looks"


async def test_what_cannot_be_made_ends_the_watch_and_not_the_coordinator() -> None:
    async def make(seen: int) -> PageFragment | None:
        raise RuntimeError("a defect")

    found = [piece async for piece in LivePageBroker(ChangeEvent()).pieces("s", make)]
    assert found == []
